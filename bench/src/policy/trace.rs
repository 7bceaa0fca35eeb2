//! How many rules a packet walks through, from the kernel's own account of its way: what
//! `nft monitor trace` prints, read from the same place.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kernel::Netns;
use kernel::nft::{Nft, TableFamily, TableId};
use nft::wire;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
    socket, sockopt,
};

const TABLE: &str = "margay";
/// The chain of packets that are not for the node itself.
const FORWARD: &str = "forward";
/// Asks for the traces of all packets.
pub(super) const WISHES: &str = "table inet wishes {
    chain c { type filter hook prerouting priority -450; meta nftrace set 1; }
}";
/// The group that hears of traces.
const GROUP: u32 = 1 << 8;
const BUFFER: usize = 64 << 20;
const QUIET: Duration = Duration::from_millis(300);

const TABLE_NAME: u16 = 1;
const CHAIN: u16 = 2;
const RULE: u16 = 3;
const KIND: u16 = 4;
const VERDICT: u16 = 5;
const ID: u16 = 6;
const VERDICT_CODE: u16 = 1;
/// What becomes of a packet at the end of a base chain; that it came there is told before.
const OF_A_POLICY: u32 = 1;
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;
const CONTINUE: i32 = -1;

/// A rule that matched, or the end of a chain.
#[derive(Debug)]
struct Step {
    chain: String,
    rule: Option<u64>,
    verdict: i32,
    is_policy: bool,
}

/// Hears of traces.
pub(super) struct Tracer {
    socket: OwnedFd,
    nft: Nft,
}

impl Tracer {
    pub(super) fn new(netns: &Netns) -> anyhow::Result<Self> {
        let socket = netns.enter(|| {
            let protocol = SockProtocol::NetlinkNetFilter;
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
            bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUP))?;
            setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
            nix::Result::Ok(socket)
        })??;
        Ok(Self { socket, nft: Nft::in_netns(netns)? })
    }

    /// How many rules of ours each packet walked through since the last time that was passed on, in
    /// the order in which the packets came.
    pub(super) fn walked(&mut self) -> anyhow::Result<Vec<usize>> {
        let packets = self.drain()?;
        let table = TableId::new(TableFamily::Inet, TABLE);
        let mut places: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for listed in self.nft.rules(Some(&table))? {
            places.entry(listed.rule.chain).or_default().push(listed.handle);
        }
        // Pods talk to their own network by themselves.
        let is_passed_on = |steps: &&Vec<Step>| steps.iter().any(|step| step.chain == FORWARD);
        packets.iter().filter(is_passed_on).map(|steps| count(steps, &places)).collect()
    }

    fn drain(&mut self) -> anyhow::Result<Vec<Vec<Step>>> {
        let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
        let mut packets: Vec<Vec<Step>> = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            let n = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(n) => n,
                Err(nix::errno::Errno::EAGAIN) => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(error) => return Err(error).context("traces are lost"),
            };
            last = Instant::now();
            for message in wire::messages(&buffer[..n]) {
                let Some((id, step)) = step(message?.body)? else { continue };
                let next = packets.len();
                let number = *numbers.entry(id).or_insert(next);
                if number == next {
                    packets.push(Vec::new());
                }
                packets[number].push(step);
            }
        }
        Ok(packets)
    }
}

fn step(body: &[u8]) -> anyhow::Result<Option<(u32, Step)>> {
    let mut step = Step { chain: String::new(), rule: None, verdict: CONTINUE, is_policy: false };
    let (mut id, mut is_ours) = (0, false);
    for attribute in wire::attributes_after(body, 4)? {
        let (name, value) = attribute?;
        match name {
            TABLE_NAME => is_ours = wire::read_text(value) == TABLE,
            CHAIN => step.chain = wire::read_text(value),
            RULE => step.rule = Some(wire::read_u64_be(value)?),
            KIND => step.is_policy = wire::read_u32_be(value)? == OF_A_POLICY,
            ID => id = wire::read_u32_be(value)?,
            VERDICT => {
                for attribute in wire::attributes(value) {
                    if let (VERDICT_CODE, value) = attribute? {
                        step.verdict = wire::read_u32_be(value)?.cast_signed();
                    }
                }
            }
            _ => {}
        }
    }
    Ok(is_ours.then_some((id, step)))
}

/// The kernel tells of rules that match; those before them in their chain were walked through too.
fn count(steps: &[Step], places: &BTreeMap<String, Vec<u64>>) -> anyhow::Result<usize> {
    let mut n_walked = 0;
    // The chains that the packet is in, and how far it has come in each.
    let mut stack: Vec<(String, usize)> = Vec::new();
    for step in steps {
        if step.is_policy {
            stack.clear();
            continue;
        }
        let rules = places.get(&step.chain).map_or(&[][..], Vec::as_slice);
        if stack.last().is_none_or(|(chain, _)| *chain != step.chain) {
            stack.push((step.chain.clone(), 0));
        }
        let (_, at) = stack.last_mut().context("it is in a chain")?;
        let next = match step.rule {
            Some(handle) => {
                let found = rules.iter().position(|it| *it == handle);
                found.with_context(|| format!("{step:?} is not listed"))? + 1
            }
            None => rules.len(),
        };
        ensure!(next >= *at, "{step:?} goes back");
        n_walked += next - *at;
        *at = next;
        match step.verdict {
            JUMP => {}
            // The end of a chain, and what leaves it for good, leads back to who jumped.
            GOTO | RETURN => drop(stack.pop()),
            CONTINUE if step.rule.is_none() => drop(stack.pop()),
            CONTINUE => {}
            _ => stack.clear(),
        }
    }
    Ok(n_walked)
}
