//! A node made of namespaces: pods behind interfaces as the agent makes them, and a remote host
//! that has the addresses of everybody else.
//!
//! Addresses of neighbours are told to the kernel beforehand: nothing is asked for on the way, so
//! that a packet travels while the call that sends it lasts, or right after it.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use kernel::{LinkName, Mac, Netlink, Netns, NewLink, NewLinkKind, VethPeer};

use crate::probes::End;

/// The node's own addresses.
pub(crate) const NODE_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(172, 30, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, 1)),
];
/// Its addresses on the second uplink, where it has one.
pub(crate) const SIDE_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(172, 31, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd31, 0, 0, 0, 0, 0, 0, 1)),
];
/// Those of the host behind that one.
pub(crate) const ASIDE_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(172, 31, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd31, 0, 0, 0, 0, 0, 0, 2)),
];
/// Those of the host behind its uplink.
const REMOTE_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(172, 30, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, 2)),
];
const HOST_MAC: [u8; 6] = [0xee; 6];
const NODE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const REMOTE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SIDE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
const ASIDE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 4];

/// A pod of the node.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    /// The interface on the node.
    pub(crate) interface: String,
    /// Its addresses.
    pub(crate) addresses: Vec<IpAddr>,
}

/// The namespaces.
pub(crate) struct World {
    pub(crate) node: Netns,
    /// The pods of the node.
    pub(crate) pods: Vec<End>,
    /// Everybody else.
    pub(crate) remote: End,
    /// A host behind a second uplink, if there is one.
    pub(crate) aside: Option<End>,
    /// The node itself, as a sender.
    pub(crate) host: End,
}

/// The world, or `None` with the reason on standard error where this user may not have one.
pub(crate) fn world(pods: &[Pod], elsewhere: &[IpAddr]) -> Option<World> {
    let node = match Netns::create() {
        Ok(node) => node,
        Err(error) => {
            assert!(!rustix::process::geteuid().is_root(), "{error}");
            eprintln!("skipped: needs root on Linux: {error}");
            return None;
        }
    };
    let remote = Netns::create().unwrap();
    settle(&node, true);
    settle(&remote, false);
    connect(&node, ("eth0", NODE_MAC), &remote, ("eth0", REMOTE_MAC));
    let mut script = String::from("link set lo up\nlink set eth0 up\n");
    for (own, other) in NODE_ADDRESSES.iter().zip(REMOTE_ADDRESSES) {
        script += &uplink("eth0", *own, other, REMOTE_MAC);
        script += &format!("route add default via {other}\n");
    }
    let mut ends = Vec::new();
    for (number, pod) in pods.iter().enumerate() {
        let mac = [2, 0, 0, 0, 1, u8::try_from(number).unwrap()];
        ends.push(add_pod(&node, pod, mac));
        script += &format!("link set {} up\n", pod.interface);
        for address in &pod.addresses {
            let device = format!("dev {}", pod.interface);
            script += &format!("route add {} {device}\n", IpNet(*address));
            script += &neighbour(*address, mac, &device);
        }
    }
    ip(&node, &script);
    let mut script = String::from("link set lo up\nlink set eth0 up\n");
    for (own, other) in REMOTE_ADDRESSES.iter().zip(NODE_ADDRESSES) {
        script += &uplink("eth0", *own, other, NODE_MAC);
        script += &format!("route add default via {other}\n");
    }
    for address in elsewhere {
        script += &added(*address, "dev lo");
    }
    ip(&remote, &script);
    let mut there = REMOTE_ADDRESSES.to_vec();
    there.extend(elsewhere);
    let remote = End::open("remote", &remote, there);
    let host = End::open("node", &node, NODE_ADDRESSES.to_vec());
    Some(World { node, pods: ends, remote, aside: None, host })
}

impl World {
    /// Everybody but the node.
    pub(crate) fn ends(&self) -> impl Iterator<Item = &End> {
        self.pods.iter().chain([&self.remote]).chain(&self.aside)
    }

    /// The same with a second uplink, and a host behind it.
    pub(crate) fn with_side(mut self) -> Self {
        let aside = Netns::create().unwrap();
        settle(&aside, false);
        connect(&self.node, ("eth1", SIDE_MAC), &aside, ("eth0", ASIDE_MAC));
        let mut script = String::from("link set eth1 up\n");
        let mut there = String::from("link set lo up\nlink set eth0 up\n");
        for (own, other) in SIDE_ADDRESSES.into_iter().zip(ASIDE_ADDRESSES) {
            script += &uplink("eth1", own, other, ASIDE_MAC);
            there += &uplink("eth0", other, own, SIDE_MAC);
            there += &format!("route add default via {own}\n");
        }
        ip(&self.node, &script);
        ip(&aside, &there);
        self.host.addresses.extend(SIDE_ADDRESSES);
        self.aside = Some(End::open("aside", &aside, ASIDE_ADDRESSES.to_vec()));
        self
    }
}

/// Only so that an address is written with its length.
struct IpNet(IpAddr);

impl std::fmt::Display for IpNet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.0, if self.0.is_ipv4() { 32 } else { 128 })
    }
}

fn uplink(device: &str, own: IpAddr, other: IpAddr, mac: [u8; 6]) -> String {
    let nodad = if own.is_ipv4() { "" } else { " nodad" };
    let length = if own.is_ipv4() { 24 } else { 64 };
    let address = format!("address add {own}/{length} dev {device}{nodad}\n");
    address + &neighbour(other, mac, &format!("dev {device}"))
}

fn added(address: IpAddr, device: &str) -> String {
    let nodad = if address.is_ipv4() { "" } else { " nodad" };
    format!("address add {} {device}{nodad}\n", IpNet(address))
}

fn neighbour(address: IpAddr, mac: [u8; 6], device: &str) -> String {
    format!("neighbour add {address} lladdr {} {device} nud permanent\n", Mac(mac))
}

/// A pod as the agent connects it: its next hop is an address that nobody has.
fn add_pod(node: &Netns, pod: &Pod, mac: [u8; 6]) -> End {
    let netns = Netns::create().unwrap();
    settle(&netns, false);
    connect(node, (&pod.interface, HOST_MAC), &netns, ("eth0", mac));
    let mut script = String::from("link set lo up\nlink set eth0 up\n");
    for address in &pod.addresses {
        script += &added(*address, "dev eth0");
    }
    let gateways = [("169.254.1.1", true), ("fe80::ecee:eeff:feee:eeee", false)];
    for (gateway, is_ipv4) in gateways {
        if !pod.addresses.iter().any(|address| address.is_ipv4() == is_ipv4) {
            continue;
        }
        if is_ipv4 {
            script += &format!("route add {gateway} dev eth0\n");
        }
        script += &format!("route add default via {gateway} dev eth0\n");
        script += &neighbour(gateway.parse().unwrap(), HOST_MAC, "dev eth0");
    }
    ip(&netns, &script);
    End::open(&pod.interface, &netns, pod.addresses.clone())
}

fn connect(here: &Netns, near: (&str, [u8; 6]), there: &Netns, far: (&str, [u8; 6])) {
    let mut peer = VethPeer::new(LinkName::new(far.0).unwrap(), Some(there.clone()));
    peer.mac = Some(Mac(far.1));
    let mut pair = NewLink::new(LinkName::new(near.0).unwrap(), NewLinkKind::Veth(peer));
    pair.mac = Some(Mac(near.1));
    Netlink::in_netns(here).unwrap().create(&pair).unwrap();
}

fn settle(netns: &Netns, forwards: bool) {
    let forwards = if forwards { "1" } else { "0" };
    let settings = [
        ("ipv4/ip_forward", forwards),
        ("ipv6/conf/all/forwarding", forwards),
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        // What is refused is answered each time, not a thousand times a second.
        ("ipv4/icmp_ratelimit", "0"),
        ("ipv6/icmp/ratelimit", "0"),
    ];
    netns
        .enter(|| {
            for (name, value) in settings {
                std::fs::write(format!("/proc/sys/net/{name}"), value)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        })
        .unwrap();
}

/// Runs lines of `ip`, IPv6 where an address says so.
fn ip(netns: &Netns, script: &str) {
    run(netns, "ip", &["-batch", "-"], script);
}

/// What a program prints that is given this to read, inside a namespace.
pub(crate) fn run(netns: &Netns, program: &str, words: &[&str], input: &str) -> String {
    let output = netns.enter(|| {
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    let output = output.unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {problem}\n{input}");
    String::from_utf8(output.stdout).unwrap()
}
