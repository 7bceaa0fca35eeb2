//! Denied packets, as the kernel's rules tell of them.
//!
//! The rules that drop hand over a bounded number of packets a second, and count the others;
//! without this listener the kernel would do nothing with them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use host::drops::{Denied, Drop, DropLog, Told};
use host::marks::{DENIALS_GROUP, TABLE};
use kernel::nflog::{LogEvent, Logged, PacketLog};
use kernel::nft::{Nft, TableFamily, TableId};
use model::resource::Direction;
use policy::intent::Workload;
use policy::render::{denial_chains, n_untold};
use policy::{Place, RuleName};

use crate::node::Node;

/// How long somebody else's hold on the group is waited for before it is tried again.
const PAUSE: Duration = Duration::from_secs(10);

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
    while let Ok(event) = log.next(Duration::from_secs(3600)) {
        match event {
            Some(LogEvent::Packet(logged)) => {
                if let Some(denied) = denied(logged) {
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

/// What this node's policies say of a packet that they have just denied.
fn told(node: &Node, denied: &Denied) -> Told {
    let dataplane = node.dataplane();
    let intent = dataplane.inputs.policy();
    let Some(name) = RuleName::read(&denied.rule, intent) else { return Told::default() };
    let own = match name.direction {
        Direction::Ingress => denied.destination,
        Direction::Egress => denied.source,
    };
    let has_it = |workload: &Workload| workload.addresses.iter().any(|it| it.address() == own);
    let owner = intent.workloads.iter().find(|(_, workload)| has_it(workload));
    let tier = owner.and_then(|(_, workload)| match &name.place {
        Place::EndOfTier { tier } => workload.tiers.iter().find(|it| it.name == *tier),
        _ => None,
    });
    let policies = tier.into_iter().flat_map(|tier| tier.enforced(name.direction));
    let policies: Vec<String> = policies.map(ToString::to_string).collect();
    let decided = match policies.is_empty() {
        true => name.to_string(),
        false => format!("{name} (policies {})", policies.join(", ")),
    };
    Told { decided: Some(decided), endpoint: owner.map(|(key, _)| key.clone()) }
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
fn denied(logged: Logged) -> Option<Denied> {
    let header = logged.header?;
    Some(Denied {
        rule: logged.prefix,
        source: header.source,
        destination: header.destination,
        protocol: header.protocol,
        port: header.ports.map(|it| it.1),
        icmp: header.icmp,
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
