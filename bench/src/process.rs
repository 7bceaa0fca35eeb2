//! Running programs and asking the kernel what they cost.
//!
//! A program is started by a small process of our own, because the kernel counts the memory of
//! whoever starts a program as the program's until it has replaced it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// The word that makes this program the small process.
pub(crate) const LAUNCH: &str = "launch";

/// What a run of a program cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) wall_ms: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) peak_mib: f64,
}

/// A program with its environment.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The command and the words that always come first.
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

impl Program {
    /// Runs it with more words; what it prints is thrown away.
    pub(crate) fn run(&self, words: &[&str]) -> anyhow::Result<Cost> {
        let all = || self.words.iter().map(String::as_str).chain(words.iter().copied());
        let output = Command::new(std::env::current_exe()?)
            .arg(LAUNCH)
            .args(all())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", "/nonexistent")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .output()?;
        let typed = all().collect::<Vec<_>>().join(" ");
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{typed}: {}", error.trim());
        let measured: Value = serde_json::from_slice(&output.stdout).context(typed)?;
        let number = |name: &str| measured[name].as_f64().unwrap_or(f64::NAN);
        Ok(Cost {
            wall_ms: number("wall_ms"),
            cpu_ms: number("cpu_ms"),
            peak_mib: number("peak_mib"),
        })
    }

    /// How many instructions it executes, by valgrind's count.
    pub(crate) fn instructions(&self, words: &[&str]) -> anyhow::Result<f64> {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .args(self.words.iter().map(String::as_str).chain(words.iter().copied()))
            .env_clear()
            .env("HOME", "/nonexistent")
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .context("valgrind")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let count = said.lines().find_map(|line| line.split_once("Collected : ")?.1.parse().ok());
        count.with_context(|| format!("valgrind says: {said}"))
    }
}

/// The small process: runs the words and prints what they cost.
pub(crate) fn launch(words: &[String]) -> anyhow::Result<()> {
    let (program, arguments) = words.split_first().context("nothing to run")?;
    let began = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .with_context(|| program.clone())?;
    let wall = began.elapsed();
    ensure!(status.success(), "{status}");
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu_us = used.user_time().num_microseconds() + used.system_time().num_microseconds();
    let answer = json!({
        "wall_ms": ms(wall),
        "cpu_ms": cpu_us as f64 / 1000.0,
        "peak_mib": used.max_rss() as f64 / 1024.0,
    });
    serde_json::to_writer(std::io::stdout().lock(), &answer)?;
    Ok(())
}

pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Nanoseconds since the host started: the same clock for all processes.
pub(crate) fn monotonic_ns() -> i64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now: TimeSpec| now.num_nanoseconds())
}

/// Runs the work several times and returns how much processor time one run takes, in seconds:
/// the median.
pub(crate) fn cpu_seconds(repeat: usize, mut work: impl FnMut()) -> f64 {
    let now = || {
        let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        used.map_or(f64::NAN, |used| used.num_nanoseconds() as f64 / 1e9)
    };
    crate::report::median((0..repeat).map(|_| {
        let began = now();
        work();
        now() - began
    }))
}

/// Resident memory of this process in MiB.
pub(crate) fn resident_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

/// The size of a file in MB.
pub(crate) fn megabytes(path: &Path) -> anyhow::Result<f64> {
    let size = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
    Ok(size as f64 / 1e6)
}
