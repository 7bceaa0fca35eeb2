//! Where a workload's interface stands in the sets and maps of the table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use model::resource::Direction;
use net::Cidr;
use nft::{DataType, Element, Key, Set, Verdict};

use crate::input::Key as EndpointKey;
use crate::intent::Workload;

use super::base::INNER_DESTINATION;
use super::draft::{Draft, leading};
use super::plan::In;
use super::program::program;
use super::state::{Lane, Stage, State};
use super::{Change, Limit, Refusal, Refused};

/// The longest name that the kernel gives an interface.
const INTERFACE_LEN_MAX: usize = 15;

/// A workload as it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) interface: String,
    /// The addresses that it speaks for.
    sources: BTreeSet<Cidr>,
    /// Its chains, by lane.
    programs: Vec<(Lane, String)>,
}

/// The sets and maps that stand still.
pub(super) fn sets() -> Vec<(In, Set)> {
    let mut sets = vec![(In::Arp, own_sources(true)[0].clone())];
    for is_ipv4 in [true, false] {
        let own = own_sources(is_ipv4).into_iter().chain(allowed_sources(is_ipv4));
        sets.extend(own.map(|set| (In::Inet, set)));
        sets.push((In::Inet, senders(is_ipv4)));
    }
    for lane in lanes() {
        sets.push((In::Inet, Set::new(&lane.prefix(), &[DataType::LinkName]).to_verdicts()));
    }
    sets
}

/// The sets of pairs of an interface and an address of its own: as source of a packet, and as bytes
/// elsewhere in it. For `nft` these are of two types, and a ruleset that it lists can be loaded
/// again only if each set is asked for its own.
fn own_sources(is_ipv4: bool) -> [Set; 2] {
    let (number, [typed, raw]) = source_fields(is_ipv4);
    [Set::new(&format!("source{number}"), &typed), Set::new(&format!("raw{number}"), &raw)]
}

/// The same for networks that it may use beside its own addresses.
fn allowed_sources(is_ipv4: bool) -> [Set; 2] {
    let (number, [typed, raw]) = source_fields(is_ipv4);
    let sets = [(format!("allowed{number}"), typed), (format!("raw-allowed{number}"), raw)];
    sets.map(|(name, fields)| Set::new(&name, &fields).with_ranges())
}

fn source_fields(is_ipv4: bool) -> (u8, [[DataType; 2]; 2]) {
    let [at4, at6] = INNER_DESTINATION;
    let (number, typed, offset) =
        if is_ipv4 { (4, DataType::Ipv4, at4) } else { (6, DataType::Ipv6, at6) };
    let raw = DataType::Transport { offset, n_bytes: typed.n_bytes() };
    (number, [typed, raw].map(|field| [DataType::LinkName, field]))
}

/// The map from the addresses of workloads to what they may send.
fn senders(is_ipv4: bool) -> Set {
    let (number, family) = if is_ipv4 { (4, DataType::Ipv4) } else { (6, DataType::Ipv6) };
    Set::new(&format!("sender{number}"), &[family]).to_verdicts()
}

fn lanes() -> impl Iterator<Item = Lane> {
    let directions = [Direction::Ingress, Direction::Egress].into_iter();
    directions.flat_map(|direction| {
        [true, false].map(|is_ipv4| Lane { direction, is_ipv4, stage: Stage::Normal })
    })
}

/// Moves the workloads that are dirty, and those that wait for an interface of theirs. Of several
/// that want one interface the first has it.
pub(super) fn place(draft: &mut Draft<'_>, change: &mut Change) {
    let (base, dirty, intent) = (draft.base, draft.dirty, draft.intent);
    let mut wanted: BTreeMap<&String, BTreeSet<&EndpointKey>> = BTreeMap::new();
    for key in &dirty.workloads {
        let before = base.workloads.get(key).map(|it| &it.interface);
        let waited =
            base.waiting.iter().filter(|(_, it)| it == key).map(|(interface, _)| interface);
        for interface in before.into_iter().chain(waited) {
            wanted.entry(interface).or_default();
        }
        match intent.workloads.get(key) {
            Some(workload) => {
                wanted.entry(&workload.interface).or_default().insert(key);
            }
            None => drop(change.workloads.insert(key.clone(), None)),
        }
    }
    let mut waiting = base.waiting.clone();
    waiting.retain(|(_, key)| !dirty.workloads.contains(key));
    for (interface, keys) in &mut wanted {
        let waits = base.waiting.iter().filter(|(it, _)| it == *interface).map(|(_, key)| key);
        let there = base.owners.get(*interface).into_iter().chain(waits);
        keys.extend(there.filter(|key| !dirty.workloads.contains(*key)));
        let mut keys = keys.iter();
        let Some(first) = keys.next() else { continue };
        waiting.remove(&((*interface).clone(), (*first).clone()));
        if dirty.workloads.contains(*first) || base.owners.get(*interface) != Some(first) {
            put_first(draft, change, first);
        }
        for key in keys {
            waiting.insert(((*interface).clone(), (*key).clone()));
            change.workloads.insert((*key).clone(), None);
            let limit = Limit::TakenInterface((*first).clone());
            change.refused.push(Refusal { object: Refused::Workload((*key).clone()), limit });
        }
    }
    for (key, placed) in &change.workloads {
        Placed::replace(base.workloads.get(key), placed.as_ref(), draft);
    }
    speak(draft, change);
    if waiting != base.waiting {
        change.waiting = Some(waiting);
    }
}

/// Has the addresses of workloads that move lead to the chains of those who speak for them now.
fn speak(draft: &mut Draft<'_>, change: &Change) {
    let base = draft.base;
    let before = change.workloads.keys().filter_map(|key| base.workloads.get(key));
    let after = change.workloads.values().flatten();
    let addresses: BTreeSet<IpAddr> = before.chain(after).flat_map(Placed::addresses).collect();
    for address in addresses {
        let mut speakers = base.speakers.get(&address).cloned().unwrap_or_default();
        let old = speaking(address, &speakers, |key| base.workloads.get(key));
        speakers.retain(|key| !change.workloads.contains_key(key));
        let is_of = |placed: &Placed| placed.addresses().any(|it| it == address);
        let moved = change.workloads.iter().filter(|(_, it)| it.as_ref().is_some_and(is_of));
        speakers.extend(moved.map(|(key, _)| key.clone()));
        let new = speaking(address, &speakers, |key| match change.workloads.get(key) {
            Some(placed) => placed.as_ref(),
            None => base.workloads.get(key),
        });
        if old == new {
            continue;
        }
        let set = senders(address.is_ipv4());
        for (element, is_there) in [(old, false), (new, true)] {
            if let Some(element) = element {
                draft.plan.change(In::Inet, &set, element, is_there);
            }
        }
    }
}

/// The entry that leads from an address to what its workload may send. If several speak for it,
/// nobody can tell whose a packet is: it leads nowhere.
fn speaking<'a>(
    address: IpAddr,
    speakers: &BTreeSet<EndpointKey>,
    placed: impl Fn(&EndpointKey) -> Option<&'a Placed>,
) -> Option<Element> {
    let mut speakers = speakers.iter();
    let (Some(only), None) = (speakers.next(), speakers.next()) else { return None };
    let is_it =
        |lane: &Lane| lane.direction == Direction::Egress && lane.is_ipv4 == address.is_ipv4();
    let (_, chain) = placed(only)?.programs.iter().find(|(lane, _)| is_it(lane))?;
    Some(leading((address, chain.clone())))
}

/// All entries that lead from addresses of workloads, with their maps.
pub(super) fn all_speaking(state: &State) -> impl Iterator<Item = (In, Set, Element)> {
    state.speakers.iter().filter_map(|(address, speakers)| {
        let element = speaking(*address, speakers, |key| state.workloads.get(key))?;
        Some((In::Inet, senders(address.is_ipv4()), element))
    })
}

fn put_first(draft: &mut Draft<'_>, change: &mut Change, key: &EndpointKey) {
    let Some(workload) = draft.intent.workloads.get(key) else { return };
    match Placed::new(draft, key, workload) {
        Ok(placed) => drop(change.workloads.insert(key.clone(), Some(placed))),
        Err(refusal) => change.refused.push(refusal),
    }
}

impl Placed {
    /// Places a workload, with its chains.
    pub(super) fn new(
        draft: &mut Draft<'_>,
        key: &EndpointKey,
        workload: &Workload,
    ) -> Result<Self, Refusal> {
        let refusal = |limit| Refusal { object: Refused::Workload(key.clone()), limit };
        let interface = workload.interface.clone();
        if interface.is_empty() || interface.len() > INTERFACE_LEN_MAX {
            return Err(refusal(Limit::InterfaceName(interface)));
        }
        let mut sources: BTreeSet<Cidr> = workload.addresses.iter().map(|it| it.masked()).collect();
        if draft.settings.may_spoof {
            sources.extend(workload.allowed_sources.iter().map(|it| it.masked()));
        }
        // The kernel refuses overlaps; a network comes before those that lie in it.
        let mut widest: Option<Cidr> = None;
        sources.retain(|net| {
            let is_covered = widest.is_some_and(|it| it.contains(net.network()));
            if !is_covered {
                widest = Some(*net);
            }
            !is_covered
        });
        let mut programs = Vec::new();
        for lane in lanes() {
            if !workload.addresses.iter().any(|it| it.is_ipv4() == lane.is_ipv4) {
                continue;
            }
            let chain = program(draft, lane, &workload.tiers, &workload.profiles);
            programs.extend(chain.map(|chain| (lane, chain)));
        }
        Ok(Self { interface, sources, programs })
    }

    /// Puts its elements into the plan, and holds its chains; or the other way.
    pub(super) fn put(&self, draft: &mut Draft<'_>, is_there: bool) {
        for (table, set, element) in self.elements() {
            draft.plan.change(table, &set, element, is_there);
        }
        for (_, chain) in &self.programs {
            if is_there { draft.retain(chain) } else { draft.release(chain) }
        }
    }

    /// Goes from one place to another.
    pub(super) fn replace(before: Option<&Self>, after: Option<&Self>, draft: &mut Draft<'_>) {
        if let (Some(before), Some(after)) = (before, after)
            && before.interface == after.interface
        {
            let (old, new) = (before.elements(), after.elements());
            for (table, set, element) in old.iter().filter(|it| !new.contains(it)) {
                draft.plan.change(*table, set, element.clone(), false);
            }
            for (table, set, element) in new.iter().filter(|it| !old.contains(it)) {
                draft.plan.change(*table, set, element.clone(), true);
            }
            after.programs.iter().for_each(|(_, chain)| draft.retain(chain));
            before.programs.iter().for_each(|(_, chain)| draft.release(chain));
            return;
        }
        if let Some(before) = before {
            before.put(draft, false);
        }
        if let Some(after) = after {
            after.put(draft, true);
        }
    }

    /// The single addresses that it speaks for.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let full = |net: &Cidr| if net.is_ipv4() { 32 } else { 128 };
        let single = self.sources.iter().filter(move |net| net.prefix_len() == full(net));
        single.map(|net| net.network())
    }

    pub(super) fn elements(&self) -> Vec<(In, Set, Element)> {
        let name = Key::link_name(&self.interface);
        let mut found = Vec::new();
        for net in &self.sources {
            let is_ipv4 = net.is_ipv4();
            let is_own = net.prefix_len() == if is_ipv4 { 32 } else { 128 };
            let key = Key::concatenation(&[name.clone(), Key::prefix(IpNet::from(*net))]);
            let sets = if is_own { own_sources(is_ipv4) } else { allowed_sources(is_ipv4) };
            if is_own && is_ipv4 {
                found.push((In::Arp, sets[0].clone(), Element::member(key.clone())));
            }
            let member = |set| (In::Inet, set, Element::member(key.clone()));
            found.extend(sets.map(member));
        }
        for (lane, chain) in &self.programs {
            let set = Set::new(&lane.prefix(), &[DataType::LinkName]).to_verdicts();
            let verdict = Verdict::Goto(chain.clone());
            found.push((In::Inet, set, Element::verdict(name.clone(), verdict)));
        }
        found
    }
}
