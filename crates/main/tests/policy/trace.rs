//! What the kernel tells of the way of a packet through the rules: what `nft monitor trace` prints,
//! read from the same place.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use kernel::Netns;
use nft::wire;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::packet;
use crate::world::run;

/// Asks for traces of packets that wish for it, before anybody else looks at them.
const WISHES: &str = "
table inet wishes {
    chain arriving {
        type filter hook prerouting priority -450
        ip dscp 1 meta nftrace set 1
        ip6 dscp 1 meta nftrace set 1
    }
    chain leaving {
        type filter hook output priority -450
        ip dscp 1 meta nftrace set 1
        ip6 dscp 1 meta nftrace set 1
    }
}";
/// The group that hears of traces.
const GROUP: u32 = 1 << 8;
const BUFFER: usize = 256 << 20;

const TABLE: u16 = 1;
const CHAIN: u16 = 2;
const RULE: u16 = 3;
const KIND: u16 = 4;
const VERDICT: u16 = 5;
const ID: u16 = 6;
const NETWORK: u16 = 8;
const TRANSPORT: u16 = 9;
/// The end of a chain is told of like a rule, and that of a base chain once more.
const OF_A_RULE: u32 = 3;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;

/// A rule that matched, or the end of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) table: String,
    pub(crate) chain: String,
    /// The rule; none at the end of a chain.
    pub(crate) rule: Option<u64>,
    pub(crate) verdict: Said,
}

/// What a rule said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Accept,
    Drop,
    /// Go on with the next rule.
    Continue,
    Return,
    /// Jump or go to a chain.
    To(String),
    Other(i32),
}

/// Hears of traces.
pub(crate) struct Tracer {
    socket: OwnedFd,
    /// The probes that the kernel calls by numbers of its own.
    known: BTreeMap<u32, u32>,
}

impl Tracer {
    pub(crate) fn new(node: &Netns) -> Self {
        run(node, "nft", &["-f", "-"], WISHES);
        let socket = node
            .enter(|| {
                let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
                let protocol = Some(netlink::NETFILTER);
                let socket =
                    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol).unwrap();
                rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUP)).unwrap();
                socket
            })
            .unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).unwrap();
        Self { socket, known: BTreeMap::new() }
    }

    /// The steps since the last time, by the number of the probe, in order.
    pub(crate) fn drain(&mut self) -> BTreeMap<u32, Vec<Step>> {
        let mut found: BTreeMap<u32, Vec<Step>> = BTreeMap::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let received = rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT);
            let n = match received {
                Ok((n, _)) => n,
                Err(rustix::io::Errno::AGAIN) => return found,
                Err(error) => panic!("traces are lost: {error}"),
            };
            for message in wire::messages(&buffer[..n]) {
                if let Some((id, step)) = self.step(message.unwrap().body) {
                    found.entry(id).or_default().push(step);
                }
            }
        }
    }

    fn step(&mut self, body: &[u8]) -> Option<(u32, Step)> {
        let mut step = Step {
            table: String::new(),
            chain: String::new(),
            rule: None,
            verdict: Said::Continue,
        };
        let (mut id, mut network, mut kind) = (0, None, 0);
        for attribute in wire::attributes_after(body, 4).unwrap() {
            let (name, value) = attribute.unwrap();
            match name {
                TABLE => step.table = wire::read_text(value),
                CHAIN => step.chain = wire::read_text(value),
                RULE => step.rule = Some(wire::read_u64_be(value).unwrap()),
                KIND => kind = wire::read_u32_be(value).unwrap(),
                VERDICT => step.verdict = said(value),
                ID => id = wire::read_u32_be(value).unwrap(),
                NETWORK => network = Some(value.to_vec()),
                TRANSPORT => {
                    // The packet is told of once for each hook that it comes to.
                    let numbered = network.as_deref().and_then(|it| packet::number(it, value));
                    match numbered {
                        Some((packet::Sort::Probe, number)) => self.known.insert(id, number),
                        _ => self.known.remove(&id),
                    };
                }
                _ => {}
            }
        }
        let is_ours = step.table == "wishes";
        let is_end = kind == OF_A_RULE && step.rule.is_none();
        (!is_ours && !is_end).then_some(())?;
        Some((*self.known.get(&id)?, step))
    }
}

fn said(verdict: &[u8]) -> Said {
    let (mut code, mut chain) = (0, String::new());
    for attribute in wire::attributes(verdict) {
        match attribute.unwrap() {
            (VERDICT_CODE, value) => code = wire::read_u32_be(value).unwrap().cast_signed(),
            (VERDICT_CHAIN, value) => chain = wire::read_text(value),
            _ => {}
        }
    }
    match code {
        0 => Said::Drop,
        1 => Said::Accept,
        -1 => Said::Continue,
        -3 | -4 => Said::To(chain),
        -5 => Said::Return,
        other => Said::Other(other),
    }
}
