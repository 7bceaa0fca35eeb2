//! Everything that must hold before a change lands, with the seconds each stage took.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::tidy;

type Stage = (&'static str, fn(&Path) -> anyhow::Result<bool>);

/// In the order in which a mistake is cheapest to find.
const STAGES: &[Stage] = &[
    ("packages", packages),
    ("fmt", |root| cargo(root, &["fmt", "--all", "--check"])),
    ("tidy", |_| tidy::command()),
    ("clippy", clippy),
    ("test", |root| cargo(root, &["test", "--workspace", "--quiet"])),
    ("corpora", |_| apart(&["corpora"])),
    ("sim", |_| apart(&["sim"])),
    ("fuzz", |_| apart(&["fuzz", "--seconds", "8"])),
];

/// `cargo xtask verify`; stops at the first stage that fails.
pub(crate) fn command() -> anyhow::Result<bool> {
    let root = tidy::project_root();
    let mut report = Vec::new();
    for (name, run) in STAGES {
        println!("== {name}");
        let started = Instant::now();
        let passed = run(&root).with_context(|| format!("while running the stage {name}"))?;
        report.push(format!("{name} {:.0} s", started.elapsed().as_secs_f32()));
        if !passed {
            println!("verify: FAILED in {name}; {}", report.join(", "));
            return Ok(false);
        }
    }
    println!("verify: passed; {}", report.join(", "));
    Ok(true)
}

/// In a process of its own: what one stage has used of memory counts against the fuzzers of the
/// next, which inherit the mark.
fn apart(arguments: &[&str]) -> anyhow::Result<bool> {
    let own = std::env::current_exe().context("while looking for this program")?;
    let status = Command::new(own).args(arguments).status();
    Ok(status.with_context(|| format!("while running {}", arguments.join(" ")))?.success())
}

fn clippy(root: &Path) -> anyhow::Result<bool> {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
}

fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<bool> {
    let mut command = Command::new("cargo");
    let status = command.args(arguments).current_dir(root).status();
    Ok(status.with_context(|| format!("while running cargo {}", arguments.join(" ")))?.success())
}

/// The programs that tests run beside ours, by the name of their Debian package.
const PACKAGES: &[(&str, &str)] = &[
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("ping", "iputils-ping"),
    ("openssl", "openssl"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("conntrack", "conntrack"),
    ("tc", "iproute2"),
    ("iptables", "iptables"),
    ("/usr/lib/cni/host-local", "containernetworking-plugins"),
    ("podman", "podman"),
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("busybox", "busybox-static"),
];

/// The reference caller of the CNI protocol, which no package has.
const CNITOOL: &str = "github.com/containernetworking/cni/cnitool@v1.1.2";

/// Installs what is missing where that is possible; tests say aloud what they skip without it.
fn packages(root: &Path) -> anyhow::Result<bool> {
    install(PACKAGES)?;
    cnitool(root);
    Ok(true)
}

/// Builds the reference caller where Go is installed; its test says aloud when it is skipped.
fn cnitool(root: &Path) {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let tools = target.unwrap_or_else(|| root.join("target")).join("tools");
    if tools.join("cnitool").is_file() || !is_installed("go") {
        return;
    }
    println!("building {CNITOOL}");
    let built = Command::new("go").args(["install", CNITOOL]).env("GOBIN", &tools).status();
    if !built.is_ok_and(|status| status.success()) {
        println!("cnitool cannot be built; its test is skipped");
    }
}

/// Installs those packages whose programs are missing, where that is possible.
pub(crate) fn install(packages: &[(&str, &str)]) -> anyhow::Result<()> {
    let missing: Vec<_> = packages.iter().filter(|(program, _)| !is_installed(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    if !is_installed("apt-get") {
        println!("not installed: {}; tests that need them are skipped", names.join(" "));
        return Ok(());
    }
    println!("installing {}", names.join(" "));
    apt(&["update", "-qq"])?;
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
    install.extend(&names);
    apt(&install)
}

pub(crate) fn apt(arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(std::process::Stdio::null())
        .status()
        .context("while running apt-get")?;
    if !status.success() {
        bail!("apt-get {} ended with {status}", arguments.join(" "));
    }
    Ok(())
}

/// Whether a program is on the path, or at a path of its own.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
