//! Private namespaces and the programs that tell what the kernel really holds.

use std::process::Command;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use kernel::{
    Link, LinkChange, LinkName, Netlink, Netns, NewLink, NewLinkKind, Operation, VethPeer,
};
use serde_json::Value;

/// A fresh namespace and a socket in it.
pub(crate) struct World {
    pub(crate) netns: Netns,
    pub(crate) netlink: Netlink,
}

/// A fresh world, or `None` with the reason on standard error where this user may not have one.
pub(crate) fn world() -> Option<World> {
    match Netns::create() {
        Ok(netns) => {
            let netlink = Netlink::in_netns(&netns).expect("a socket in a fresh namespace");
            Some(World { netns, netlink })
        }
        Err(error) => {
            let is_root = rustix::process::geteuid().is_root();
            assert!(!is_root, "{error}");
            eprintln!("skipped: needs root on Linux: {error}");
            None
        }
    }
}

pub(crate) fn name(text: &str) -> LinkName {
    LinkName::new(text).unwrap()
}

pub(crate) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

impl World {
    /// What a program prints when it runs in the namespace.
    pub(crate) fn run(&self, program: &str, arguments: &str) -> String {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let output =
            self.netns.enter(|| Command::new(program).args(&arguments).output()).unwrap().unwrap();
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {}: {problem}", arguments.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, as JSON.
    pub(crate) fn json(&self, program: &str, arguments: &str) -> Value {
        let text = self.run(program, arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// A veth pair, both ends on; the peer lives in `other` or here.
    pub(crate) fn veth(&mut self, near: &str, far: &str, other: Option<&Netns>) -> Link {
        let peer = VethPeer::new(name(far), other.cloned());
        let mut wanted = NewLink::new(name(near), NewLinkKind::Veth(peer));
        wanted.is_up = true;
        let link = self.netlink.create(&wanted).unwrap();
        let mut there =
            other.map_or_else(|| Netlink::in_netns(&self.netns), Netlink::in_netns).unwrap();
        let far = there.link_by_name(&name(far)).unwrap().unwrap();
        there.apply(&Operation::ChangeLink(far.index, LinkChange::up())).unwrap();
        link
    }
}

/// Waits for what the kernel does on its own time.
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}
