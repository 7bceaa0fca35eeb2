//! Fuzzing of every decoder for a bounded time, on the stable toolchain.

use std::process::Command;

use anyhow::{Context, bail};

use crate::tidy::project_root;
use crate::verify::is_installed;

/// Coverage for libFuzzer without a nightly compiler.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1";

/// `cargo xtask fuzz [--seconds N] [TARGET...]`; true when no target found a fault.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<bool> {
    let mut seconds = 60;
    let mut wanted = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seconds" => {
                let given = rest.next().context("--seconds needs a number")?;
                seconds = given.parse().context("--seconds needs a number")?;
            }
            target => wanted.push(target.to_owned()),
        }
    }
    if !is_installed("c++") {
        println!("fuzz: skipped, no C++ compiler (libFuzzer is built from source)");
        return Ok(true);
    }
    let targets = targets()?;
    if let Some(unknown) = wanted.iter().find(|name| !targets.contains(name)) {
        bail!("no target {unknown}; there are: {}", targets.join(" "));
    }
    build()?;
    let mut all_passed = true;
    for target in targets.iter().filter(|name| wanted.is_empty() || wanted.contains(name)) {
        all_passed &= run(target, seconds)?;
    }
    Ok(all_passed)
}

/// A target is a file in `fuzz/targets`.
fn targets() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(project_root().join("fuzz/targets"))? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn build() -> anyhow::Result<()> {
    // A target triple of its own keeps the flags away from build scripts and macros.
    let status = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--target", &host()?])
        .current_dir(project_root().join("fuzz"))
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .context("while building the fuzz targets")?;
    anyhow::ensure!(status.success(), "the fuzz targets do not build");
    Ok(())
}

fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").args(["-vV"]).output().context("while running rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc names no host")?.to_owned())
}

fn run(target: &str, seconds: u32) -> anyhow::Result<bool> {
    let folder = project_root().join("fuzz");
    let program = folder.join("target").join(host()?).join("release").join(target);
    let corpus = folder.join("corpus").join(target);
    let seeds = folder.join("seeds").join(target);
    let artifacts = folder.join("artifacts").join(target);
    for made in [&corpus, &artifacts] {
        std::fs::create_dir_all(made)?;
    }
    let mut command = Command::new(program);
    command
        .arg(format!("-max_total_time={seconds}"))
        .args(["-timeout=10", "-rss_limit_mb=1024", "-max_len=65536", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus);
    if seeds.is_dir() {
        command.arg(&seeds);
    }
    let output = command.output().with_context(|| format!("while running {target}"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    let runs = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units: "));
    println!("fuzz {target}: {} runs in {seconds} s", runs.unwrap_or("no").trim());
    if !output.status.success() {
        let from = log.find("panicked").or_else(|| log.find("ERROR")).unwrap_or(0);
        println!("{}", &log[from..]);
    }
    Ok(output.status.success())
}
