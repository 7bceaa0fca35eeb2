//! `cargo xtask vm`: tests on a kernel that has what this machine's may lack, such as ip_vs.
//!
//! A virtual machine without hardware support boots Debian's kernel, which is unpacked and never
//! installed. Its root is that of this machine, read-only, with memory laid over it: every program
//! that is installed or was just built is there, and nothing of what it does stays.

mod archive;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::tidy::project_root;
use crate::verify::{apt, install};
use archive::Archive;

/// What the machine is made of, and what tests run in it, by the name of their Debian package.
const PACKAGES: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("conntrack", "conntrack"),
    ("/usr/sbin/ipvsadm", "ipvsadm"),
];
/// The package that depends on the newest kernel of this Debian.
const NEWEST: &str = "linux-image-amd64";
/// What is run if nothing else is asked for: tests that this machine's kernel may have to skip.
const TESTS: &[&str] = &["services"];
/// Where the modules of the kernel lie that the machine can load, below the folder of all.
const MODULES: &[&str] = &[
    "kernel/net/netfilter/",
    "kernel/net/ipv4/",
    "kernel/net/ipv6/",
    "kernel/net/9p/",
    "kernel/fs/9p/",
    "kernel/fs/overlayfs/",
    // Checksums of connection tracking, which nothing says that it needs.
    "kernel/crypto/crc32c_generic.ko",
    "kernel/drivers/virtio/",
    "kernel/drivers/net/veth.ko",
    "kernel/drivers/net/dummy.ko",
    "kernel/drivers/net/vxlan/",
];
/// What is loaded before the root is there; the rest when the kernel asks for it.
const AT_ONCE: &[&str] = &["virtio_pci", "9pnet_virtio", "9p", "overlay", "ip_vs"];
/// What the last line begins with that the machine prints.
const ENDED: &str = "vm: the tests ended with ";
/// Emulation is slow, but not so slow.
const PATIENCE: Duration = Duration::from_secs(45 * 60);

/// `cargo xtask vm [FILTER...]`; true when the tests of `--test policy` with these names passed in
/// the machine.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<bool> {
    install(PACKAGES)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let folder = target.unwrap_or_else(|| project_root().join("target")).join("vm");
    fs::create_dir_all(&folder).with_context(|| format!("while making {}", folder.display()))?;
    let kernel = Kernel::unpacked(&folder)?;
    let program = test_program()?;
    let filters: Vec<&str> = match arguments {
        [] => TESTS.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let image = folder.join("initramfs");
    fs::write(&image, kernel.initramfs(&script(&program, &filters))?)?;
    println!("vm: {} runs {} {}", kernel.version, program.display(), filters.join(" "));
    boot(&kernel.image, &image)
}

/// A kernel, as its package has it.
struct Kernel {
    version: String,
    image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// The newest kernel of this Debian; fetched unless the folder has it.
    fn unpacked(folder: &Path) -> anyhow::Result<Self> {
        let package = newest()?;
        let version = package.trim_start_matches("linux-image-").to_owned();
        let root = folder.join(&package);
        let modules = root.join("lib/modules").join(&version);
        if !modules.join("modules.dep").is_file() {
            println!("fetching {package}");
            let fetched = folder.join("fetched");
            let _ = fs::remove_dir_all(&fetched);
            fs::create_dir_all(&fetched)?;
            run(Command::new("apt-get").args(["download", "-qq", &package]).current_dir(&fetched))?;
            let file = fs::read_dir(&fetched)?.next().context("apt-get fetched nothing")??;
            run(Command::new("dpkg-deb").arg("-x").arg(file.path()).arg(&root))?;
            fs::remove_dir_all(&fetched)?;
            run(Command::new("busybox").args(["depmod", "-b"]).arg(&root).arg(&version))?;
        }
        let image = root.join("boot").join(format!("vmlinuz-{version}"));
        Ok(Self { version, image, modules })
    }

    /// The first file system of the machine: enough to reach its root, and what the kernel loads.
    fn initramfs(&self, script: &str) -> anyhow::Result<Vec<u8>> {
        let mut archive = Archive::default();
        for folder in ["bin", "dev", "lib", "lib/modules", "proc", "root", "sbin", "sys", "tmp"] {
            archive.folder(folder);
        }
        let busybox = which("busybox").context("busybox is not installed")?;
        archive.file("bin/busybox", 0o755, &fs::read(busybox)?);
        for name in ["bin/sh", "sbin/modprobe"] {
            archive.link(name, "/bin/busybox");
        }
        archive.file("init", 0o755, self.init().as_bytes());
        archive.file("run", 0o755, script.as_bytes());
        let own = format!("lib/modules/{}", self.version);
        archive.folder(&own);
        let dependencies = fs::read_to_string(self.modules.join("modules.dep"))?;
        let wanted = wanted(&dependencies);
        let mut kept = String::new();
        for line in dependencies.lines() {
            let Some((path, _)) = line.split_once(':') else { continue };
            if wanted.contains(&path) {
                archive.folders_to(&own, path);
                let bytes = fs::read(self.modules.join(path))?;
                archive.file(&format!("{own}/{path}"), 0o644, &bytes);
                kept += &format!("{line}\n");
            }
        }
        archive.file(&format!("{own}/modules.dep"), 0o644, kept.as_bytes());
        let names: Vec<String> = wanted.iter().map(|path| module_name(path)).collect();
        let aliases = fs::read_to_string(self.modules.join("modules.alias"))?;
        let is_kept = |line: &&str| {
            line.rsplit(' ').next().is_some_and(|it| names.contains(&it.replace('-', "_")))
        };
        let kept: Vec<&str> = aliases.lines().filter(is_kept).collect();
        archive.file(&format!("{own}/modules.alias"), 0o644, (kept.join("\n") + "\n").as_bytes());
        Ok(archive.finished())
    }

    /// What the machine does when it has started.
    fn init(&self) -> String {
        let at_once: String =
            AT_ONCE.iter().map(|it| format!("modprobe {it} || fail {it}\n")).collect();
        format!(
            "#!/bin/sh
busybox mount -t devtmpfs none /dev
export PATH=/bin:/sbin
fail() {{ busybox echo \"vm: $1 failed\"; busybox echo '{ENDED}2'; busybox poweroff -f; }}
mount() {{ busybox mount \"$@\" || fail \"mount $*\"; }}
mount -t proc none /proc
mount -t sysfs none /sys
{at_once}busybox mkdir -p /host /over /new
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host
mount -t tmpfs -o size=75% none /over
busybox mkdir /over/up /over/work
mount -t overlay -o lowerdir=/host,upperdir=/over/up,workdir=/over/work none /new
for it in proc sys dev; do mount -o move /$it /new/$it; done
mount -t tmpfs none /new/tmp
mount -t tmpfs none /new/run
mount -t cgroup2 none /new/sys/fs/cgroup
busybox cp /run /new/tmp/run
busybox chroot /new /bin/sh /tmp/run
busybox echo \"{ENDED}$?\"
busybox poweroff -f
"
        )
    }
}

/// The paths of the modules that the machine can load, with those that they need.
fn wanted(dependencies: &str) -> std::collections::BTreeSet<&str> {
    let mut wanted = std::collections::BTreeSet::new();
    for line in dependencies.lines() {
        let Some((path, needed)) = line.split_once(':') else { continue };
        if MODULES.iter().any(|it| path.starts_with(it)) {
            wanted.insert(path);
            wanted.extend(needed.split_whitespace());
        }
    }
    wanted
}

fn module_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.trim_end_matches(".ko").replace('-', "_")
}

/// The package of the newest kernel.
fn newest() -> anyhow::Result<String> {
    let ask = || -> anyhow::Result<Option<String>> {
        let told = output(Command::new("apt-cache").args(["depends", NEWEST]))?;
        let names = told.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).find(|name| name.starts_with("linux-image-")))
    };
    if let Some(package) = ask()? {
        return Ok(package);
    }
    apt(&["update", "-qq"])?;
    ask()?.with_context(|| format!("this machine's apt knows no {NEWEST}"))
}

/// Builds the tests of policy, and says where they are.
fn test_program() -> anyhow::Result<PathBuf> {
    let words = ["test", "-p", "main", "--test", "policy", "--no-run", "--message-format=json"];
    let told = output(Command::new("cargo").args(words).current_dir(project_root()))?;
    let messages = told.lines().filter_map(|it| serde_json::from_str(it).ok());
    let is_test =
        |it: &serde_json::Value| it["target"]["name"] == "policy" && it["target"]["test"] == true;
    let programs = messages.filter(is_test);
    let mut paths = programs.filter_map(|it| it["executable"].as_str().map(PathBuf::from));
    paths.next().context("cargo built no test")
}

/// What runs in the machine's root.
fn script(program: &Path, filters: &[&str]) -> String {
    let (program, root) = (program.display(), project_root());
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    format!(
        "export PATH={path} HOME=/tmp RUST_BACKTRACE=1 MARGAY_NEEDS_IPVS=1
ip link set lo up
cd '{}/crates/main' && exec '{program}' --nocapture --test-threads=1 {}
",
        root.display(),
        filters.join(" ")
    )
}

/// Runs the machine, prints what it prints, and takes over how the tests ended.
fn boot(kernel: &Path, image: &Path) -> anyhow::Result<bool> {
    // Hardware support is there on some machines and broken on others: emulation works on all.
    let machine = "-accel tcg,thread=multi -cpu max -m 3072 -smp 2 -nographic -net none -no-reboot";
    let root = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap";
    let mut child = Command::new("qemu-system-x86_64")
        .args(machine.split(' '))
        .args(["-virtfs", root, "-append", "console=ttyS0 panic=-1 quiet loglevel=3"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(image)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("while starting qemu")?;
    let printed = child.stdout.take().context("qemu has no output")?;
    let ended = std::thread::scope(|scope| {
        let (done, watch) = std::sync::mpsc::channel::<()>();
        let reader = scope.spawn(move || {
            let found = print(printed);
            drop(done);
            found
        });
        let is_late =
            watch.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        end(&mut child, is_late);
        (reader.join(), is_late)
    });
    match ended {
        (_, true) => bail!("the machine did not end in {} s", PATIENCE.as_secs()),
        (Ok(Some(code)), false) => Ok(code == 0),
        _ => bail!("the machine ended before its tests did"),
    }
}

fn end(child: &mut Child, is_late: bool) {
    if is_late {
        let _ = child.kill();
    }
    let _ = child.wait();
}

/// Prints all lines; the code with which the tests ended.
fn print(printed: impl std::io::Read) -> Option<i32> {
    let mut found = None;
    for line in BufReader::new(printed).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        println!("{line}");
        found = line.strip_prefix(ENDED).and_then(|code| code.parse().ok()).or(found);
    }
    found
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let done = command.stderr(Stdio::inherit()).output();
    let done = done.with_context(|| format!("while running {command:?}"))?;
    if !done.status.success() {
        bail!("{command:?} ended with {}", done.status);
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|it| it.is_file())
}
