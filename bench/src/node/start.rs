//! How long the plugin takes to speak: from before the process is made until its first byte is at
//! the agent's socket. The agent is a stand-in, which answers at once.

use std::io::Write as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use host::protocol::{self, Reply};
use serde_json::json;

use crate::Options;
use crate::process::ms;
use crate::report::{Figure, median, percentile};

use super::place::Pod;

const RUNS: usize = 200;
const RUNS_QUICK: usize = 20;
const AIM_MS: f64 = 2.0;

pub(super) fn measure(
    options: &Options,
    margay: &Path,
    folder: &Path,
) -> anyhow::Result<Vec<Figure>> {
    let plugin = folder.join("calico");
    std::os::unix::fs::symlink(margay, &plugin)?;
    let socket = folder.join("stand-in.sock");
    let listener = UnixListener::bind(&socket)?;
    let pod = Pod::new()?;
    let input = json!({
        "cniVersion": "1.0.0", "name": "bench", "type": "calico", "agent_socket": socket,
        "nodename": "n1", "nodename_file_optional": true, "ipam": { "type": "calico-ipam" },
    })
    .to_string();
    let runs = if options.quick { RUNS_QUICK } else { RUNS };
    let (mut first_bytes, mut whole, mut empty) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let began = Instant::now();
        let mut child = Command::new(&plugin)
            .env_clear()
            .envs([("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "eth0")])
            .envs([("CNI_NETNS", pod.path.as_str()), ("CNI_PATH", "/none")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("the plugin has an input")?.write_all(input.as_bytes())?;
        let (stream, _) = listener.accept()?;
        // Waits without taking anything: the stand-in has still to read the message.
        peek(&stream)?;
        first_bytes.push(ms(began.elapsed()));
        protocol::hear(&stream)?;
        protocol::answer(&stream, &Reply::default())?;
        ensure!(child.wait()?.success(), "the plugin failed");
        whole.push(ms(began.elapsed()));
        let began = Instant::now();
        let mut child = Command::new("/bin/true").env_clear().stdin(Stdio::null()).spawn()?;
        ensure!(child.wait()?.success(), "true failed");
        empty.push(ms(began.elapsed()));
    }
    let what = "plugin, from the start of the process";
    let p99 = percentile(first_bytes.iter().copied(), 99.0);
    Ok(vec![
        Figure::less(what, "to the first byte: median ms", median(first_bytes)).aim(AIM_MS),
        Figure::less(what, "to the first byte: p99 ms", p99),
        Figure::less(what, "to its end: median ms", median(whole)),
        Figure::less("/bin/true, to its end", "median ms", median(empty)),
    ])
}

fn peek(stream: &UnixStream) -> anyhow::Result<()> {
    use std::os::fd::AsFd as _;
    let mut ready = [nix::poll::PollFd::new(stream.as_fd(), nix::poll::PollFlags::POLLIN)];
    nix::poll::poll(&mut ready, 10_000_u16)?;
    Ok(())
}
