//! Denied packets, as the kernel's rules tell of them.
//!
//! The rules that drop hand over a bounded number of packets a second, and count the others;
//! without this listener the kernel would do nothing with them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use host::drops::{Denied, Drop, DropLog, Told};
use host::marks::{DENIALS_GROUP, TABLE};
use kernel::nflog::{LogEvent, Logged, PacketLog};
use kernel::nft::{Nft, TableFamily, TableId};
use kernel::{LinkIndex, Netlink};
use model::resource::Direction;
use policy::intent::{Intent, TierInForce, Workload};
use policy::render::{denial_chains, n_untold};
use policy::{Place, RuleName};

use crate::node::Node;

/// How long somebody else's hold on the group is waited for before it is tried again.
const PAUSE: Duration = Duration::from_secs(10);

/// So many names of interfaces are remembered.
const INTERFACES_MAX: usize = 4096;

/// The packets that were denied lately.
#[derive(Debug, Default)]
pub(crate) struct Drops(Mutex<DropLog>);

impl Drops {
    /// What is known of them.
    pub(crate) fn log(&self) -> MutexGuard<'_, DropLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens for denied packets from now on.
pub(crate) fn start(node: &Arc<Node>) -> io::Result<()> {
    let node = Arc::clone(node);
    std::thread::Builder::new().name("drops".into()).spawn(move || {
        loop {
            // The agent before this one, or another program, may still have the group.
            if let Ok(mut log) = PacketLog::open(None, DENIALS_GROUP) {
                listen(&node, &mut log);
            }
            std::thread::sleep(PAUSE);
        }
    })?;
    Ok(())
}

fn listen(node: &Node, log: &mut PacketLog) {
    let mut interfaces = Interfaces::default();
    while let Ok(event) = log.next(Duration::from_secs(3600)) {
        match event {
            Some(LogEvent::Packet(logged)) => {
                if let Some(denied) = denied(logged, &mut interfaces) {
                    // Whoever reads the log does not wait for a change of the kernel.
                    let now = now();
                    let is_first = node.drops.log().is_first(&denied, now);
                    let told = if is_first { told(node, &denied) } else { Told::default() };
                    node.drops.log().note(denied, now, told);
                }
            }
            Some(LogEvent::Lost) => node.drops.log().note_loss(),
            None => {}
        }
    }
}

/// The names of interfaces, which packets have by number.
#[derive(Default)]
struct Interfaces {
    netlink: Option<Netlink>,
    known: BTreeMap<LinkIndex, Option<String>>,
}

impl Interfaces {
    /// None for one that is gone. The kernel gives a number to one interface after the other, and
    /// pods' get their name before they speak.
    fn name(&mut self, index: LinkIndex) -> Option<String> {
        if let Some(known) = self.known.get(&index) {
            return known.clone();
        }
        if self.netlink.is_none() {
            self.netlink = Netlink::open().ok();
        }
        let found = self.netlink.as_mut()?.link_by_index(index).ok()?;
        let name = found.map(|link| link.name.to_string());
        if self.known.len() == INTERFACES_MAX {
            self.known.clear();
        }
        self.known.insert(index, name.clone());
        name
    }
}

/// What this node's policies say of a packet that they have just denied.
fn told(node: &Node, denied: &Denied) -> Told {
    let dataplane = node.dataplane();
    told_by(dataplane.inputs.policy(), |address| dataplane.host_tiers(address), denied)
}

fn told_by<'a>(
    intent: &'a Intent,
    host_tiers: impl FnOnce(IpAddr) -> &'a [TierInForce],
    denied: &Denied,
) -> Told {
    let Some(name) = RuleName::read(&denied.rule, intent) else { return Told::default() };
    let (own, interface) = match name.direction {
        Direction::Ingress => (denied.destination, &denied.output),
        Direction::Egress => (denied.source, &denied.input),
    };
    let has_it = |workload: &Workload| workload.addresses.iter().any(|it| it.address() == own);
    let is_its = |workload: &Workload| interface.as_ref() == Some(&workload.interface);
    // Whose interface it is, is certain; whose address, is what the packet says.
    let by_interface = intent.workloads.iter().find(|(_, workload)| is_its(workload));
    let owner =
        by_interface.or_else(|| intent.workloads.iter().find(|(_, workload)| has_it(workload)));
    let is_masked = name.direction == Direction::Egress
        && by_interface.is_some_and(|(_, workload)| !has_it(workload));
    let tiers = match owner {
        Some((_, workload)) => workload.tiers.as_slice(),
        None => host_tiers(own),
    };
    let tier = match &name.place {
        Place::EndOfTier { tier } => tiers.iter().find(|it| it.name == *tier),
        _ => None,
    };
    let policies = tier.into_iter().flat_map(|tier| tier.enforced(name.direction));
    let policies: Vec<String> = policies.map(ToString::to_string).collect();
    let decided = match policies.is_empty() {
        true => name.to_string(),
        false => format!("{name} (policies {})", policies.join(", ")),
    };
    Told { decided: Some(decided), endpoint: owner.map(|(key, _)| key.clone()), is_masked }
}

/// How many packets the rules of these denied since they stand and did not tell of. What cannot be
/// read is left out.
pub(crate) fn unrecorded(drops: &[Drop]) -> BTreeMap<String, u64> {
    let Ok(mut nft) = Nft::open() else { return BTreeMap::new() };
    let table = TableId::new(TableFamily::Inet, TABLE);
    let rules: BTreeSet<&String> = drops.iter().map(|it| &it.packet.rule).collect();
    let mut count = |rule: &String| -> u64 {
        let chains = denial_chains(rule).into_iter();
        chains.filter_map(|chain| nft.rules_of(&table, &chain).ok()).map(|it| n_untold(&it)).sum()
    };
    let counted = rules.into_iter().map(|rule| (rule.clone(), count(rule)));
    counted.filter(|(_, n)| *n > 0).collect()
}

/// None for what is no packet of IP.
fn denied(logged: Logged, interfaces: &mut Interfaces) -> Option<Denied> {
    let header = logged.header?;
    let mut name = |index: Option<LinkIndex>| index.and_then(|index| interfaces.name(index));
    Some(Denied {
        rule: logged.prefix,
        source: header.source,
        destination: header.destination,
        protocol: header.protocol,
        port: header.ports.map(|it| it.1),
        icmp: header.icmp,
        input: name(logged.input),
        output: name(logged.output),
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_lies_about_its_address_is_known_by_its_interface() {
        let workload = |interface: &str, address: &str| Workload {
            interface: interface.to_owned(),
            addresses: vec![address.parse().unwrap()],
            ..Workload::default()
        };
        let mut intent = Intent::default();
        intent.workloads.insert("shop/web".to_owned(), workload("cali1", "10.244.0.1/32"));
        intent.workloads.insert("shop/db".to_owned(), workload("cali2", "10.244.0.2/32"));
        let denied = |source: [u8; 4], input: Option<&str>| Denied {
            rule: "e:end:default".to_owned(),
            source: source.into(),
            destination: [10, 244, 0, 9].into(),
            protocol: 6,
            port: Some(80),
            icmp: None,
            input: input.map(str::to_owned),
            output: None,
        };
        let of = |source, input| {
            let told = told_by(&intent, |_| &[], &denied(source, input));
            (told.endpoint, told.is_masked)
        };
        let web = || Some("shop/web".to_owned());
        assert_eq!(of([10, 9, 9, 9], Some("cali1")), (web(), true));
        assert_eq!(of([10, 244, 0, 2], Some("cali1")), (web(), true));
        assert_eq!(of([10, 244, 0, 1], Some("cali1")), (web(), false));
        assert_eq!(of([10, 244, 0, 1], None), (web(), false));
        assert_eq!(of([10, 9, 9, 9], Some("eth0")), (None, false));
    }
}
