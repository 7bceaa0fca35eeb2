//! Intents and packets at random, out of a world so small that rules and packets meet.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use model::resource::Action;
use net::{Cidr, Protocol};
use policy::input::{PolicyId, PolicyKind};
use policy::intent::{Directions, Dirty, Host, Intent, SetChange, TierInForce, Workload};
use policy::render::Surroundings;
use policy::{End, Icmp, IpSet, Member, Packet, Peer, Ports, Rule};

/// Numbers that look random, the same for the same seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()].clone()
    }
}

pub(super) fn address(number: u64, is_ipv4: bool) -> IpAddr {
    let last = u8::try_from(number).unwrap();
    if is_ipv4 {
        IpAddr::from([10, 0, 0, last])
    } else {
        IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()))
    }
}

fn net(dice: &mut Dice) -> Cidr {
    let is_ipv4 = dice.one_in(2);
    let full = if is_ipv4 { 32 } else { 128 };
    let len = dice.pick(&[full, full, full, full - 1, full - 2, full - 8, 8, 0]);
    Cidr::new(address(dice.below(8), is_ipv4), len).unwrap().masked()
}

fn nets(dice: &mut Dice) -> Vec<Cidr> {
    let n = if dice.one_in(4) { 1 + dice.below(3) } else { 0 };
    (0..n).map(|_| net(dice)).collect()
}

fn range(dice: &mut Dice) -> (u16, u16) {
    let first = 78 + u16::try_from(dice.below(4)).unwrap();
    (first, first + u16::try_from(dice.below(3)).unwrap())
}

fn ids(dice: &mut Dice, prefix: &str, one_in: u64) -> Vec<String> {
    let n = if dice.one_in(one_in) { 1 + u64::from(dice.one_in(4)) } else { 0 };
    (0..n).map(|_| format!("{prefix}:{}", dice.below(4))).collect()
}

fn ports(dice: &mut Dice, one_in: u64) -> Ports {
    if !dice.one_in(one_in) {
        return Ports::default();
    }
    let ranges = (0..dice.below(3)).map(|_| range(dice)).collect();
    Ports { ranges, named: ids(dice, "n", 3) }
}

fn peer(dice: &mut Dice) -> Peer {
    Peer {
        nets: nets(dice),
        not_nets: if dice.one_in(4) { nets(dice) } else { Vec::new() },
        sets: ids(dice, "s", 3),
        not_sets: ids(dice, "s", 8),
        ports: ports(dice, 4),
        not_ports: ports(dice, 10),
        port_sets: ids(dice, "n", 12),
    }
}

pub(super) fn rule(dice: &mut Dice) -> Rule {
    use Action::{Allow, Deny, Log, Pass};
    let protocols = [6, 6, 17, 1, 58, 132, 47];
    let mut rule = Rule::all(dice.pick(&[Allow, Allow, Allow, Deny, Deny, Log, Pass]));
    if dice.one_in(8) {
        rule.is_ipv4 = Some(dice.one_in(2));
    }
    if dice.one_in(2) {
        rule.protocol = Some(Protocol::Number(dice.pick(&protocols)));
    }
    if dice.one_in(8) {
        rule.not_protocol = Some(Protocol::Number(dice.pick(&protocols)));
    }
    if dice.one_in(10) {
        rule.icmp = Some(Icmp { kind: 8, code: dice.pick(&[None, Some(0), Some(1)]) });
    }
    if dice.one_in(16) {
        rule.not_icmp = Some(Icmp { kind: 8, code: dice.pick(&[None, Some(0), Some(1)]) });
    }
    if !dice.one_in(12) {
        rule.source = peer(dice);
        rule.destination = peer(dice);
    }
    rule
}

/// A rule that looks at little, as most do.
pub(super) fn plain_rule(dice: &mut Dice) -> Rule {
    let mut rule = Rule::all(dice.pick(&[Action::Allow, Action::Allow, Action::Deny]));
    rule.protocol = Some(Protocol::Number(dice.pick(&[6, 17])));
    if !dice.one_in(5) {
        rule.destination.ports.ranges.push(range(dice));
    }
    if !dice.one_in(3) {
        rule.source.sets.push(format!("s:{}", dice.below(4)));
    }
    rule
}

/// A rule that looks at the other end only, on one port or on any.
fn peer_rule(dice: &mut Dice, port: Option<u16>) -> Rule {
    let actions = [Action::Allow, Action::Allow, Action::Deny, Action::Pass];
    let mut rule = Rule::all(dice.pick(&actions));
    if let Some(port) = port {
        rule.protocol = Some(Protocol::Number(6));
        rule.destination.ports.ranges.push((port, port));
    }
    rule.source.sets.push(format!("s:{}", dice.below(N_SETS)));
    rule
}

fn rules(dice: &mut Dice, n_max: u64) -> Vec<Rule> {
    let sort = dice.below(4);
    let one = |dice: &mut Dice| match sort {
        0 => plain_rule(dice),
        1 => peer_rule(dice, Some(80)),
        2 => peer_rule(dice, None),
        _ => rule(dice),
    };
    (0..dice.below(n_max)).map(|_| one(dice)).collect()
}

pub(super) fn directions(dice: &mut Dice) -> Arc<Directions> {
    let n_max = if dice.one_in(3) { 24 } else { 4 };
    Arc::new(Directions { ingress: rules(dice, n_max), egress: rules(dice, n_max) })
}

fn policy_id(number: u64) -> PolicyId {
    let kind = match number {
        0 => PolicyKind::GlobalNetworkPolicy,
        1 => PolicyKind::StagedNetworkPolicy,
        _ => PolicyKind::NetworkPolicy,
    };
    let namespace = if number == 0 { String::new() } else { "shop".to_owned() };
    PolicyId { kind, namespace, name: format!("p{number}") }
}

fn some_ids(dice: &mut Dice) -> Vec<PolicyId> {
    (0..6).filter(|_| dice.one_in(3)).map(policy_id).collect()
}

pub(super) fn tiers(dice: &mut Dice) -> Vec<TierInForce> {
    let mut tiers = Vec::new();
    for number in 0..dice.below(4) {
        tiers.push(TierInForce {
            name: format!("t{number}"),
            end: dice.pick(&[End::Deny, End::Pass]),
            ingress: some_ids(dice),
            egress: some_ids(dice),
        });
    }
    tiers
}

/// The interface of the workload with a number.
pub(super) fn interface(number: u64) -> String {
    format!("cali{number}")
}

pub(super) fn workload(dice: &mut Dice, number: u64) -> Workload {
    let families: &[bool] = dice.pick(&[&[true, false][..], &[true], &[false]]);
    Workload {
        // Now and then two want the same.
        interface: interface(if dice.one_in(12) { 0 } else { number }),
        addresses: families.iter().map(|it| Cidr::host(address(number, *it))).collect(),
        allowed_sources: Vec::new(),
        tiers: tiers(dice),
        profiles: (0..3).filter(|_| dice.one_in(2)).map(|it| format!("pro{it}")).collect(),
    }
}

/// The endpoint of an interface of the host: two by name, one by its address, one for all others.
pub(super) fn host(dice: &mut Dice, number: u64) -> Host {
    let some = |dice: &mut Dice| if dice.one_in(2) { tiers(dice) } else { Vec::new() };
    Host {
        interface: ["eth0", "", "*", "eth1"][usize::try_from(number).unwrap()].to_owned(),
        addresses: vec![IpAddr::from([192, 0, 2, 1])],
        tiers: some(dice),
        forward: some(dice),
        pre_dnat: some(dice),
        untracked: some(dice),
        profiles: (0..3).filter(|_| dice.one_in(2)).map(|it| format!("pro{it}")).collect(),
        is_rest: false,
    }
}

/// The interfaces of the host.
pub(super) fn surroundings() -> Surroundings {
    let interfaces = (0..3).map(|it| (format!("eth{it}"), [IpAddr::from([192, 0, 2, it])].into()));
    Surroundings { interfaces: interfaces.collect(), ..Surroundings::default() }
}

/// The interfaces after some came or went, or got other addresses.
pub(super) fn moved(dice: &mut Dice) -> Surroundings {
    let mut around = surroundings();
    around.interfaces.retain(|_, _| !dice.one_in(3));
    for addresses in around.interfaces.values_mut() {
        let last = u8::try_from(dice.below(3)).unwrap();
        *addresses = [IpAddr::from([192, 0, 2, last])].into();
    }
    around
}

pub(super) fn set(dice: &mut Dice, id: &str) -> IpSet {
    let mut members = BTreeSet::new();
    let are_single = dice.one_in(2);
    for _ in 0..dice.below(6) {
        let address = address(dice.below(8), dice.one_in(2));
        members.insert(match id.starts_with('n') {
            true => Member::Port {
                address,
                protocol: dice.pick(&[6, 17]),
                port: 79 + u16::try_from(dice.below(3)).unwrap(),
            },
            false if are_single => Member::Net(Cidr::host(address)),
            false => Member::Net(net(dice)),
        });
    }
    IpSet { members }
}

/// How many sets of addresses there are: enough for several rules that differ only in theirs.
const N_SETS: u64 = 12;

pub(super) fn set_ids() -> impl Iterator<Item = String> {
    let addresses = (0..N_SETS).map(|number| format!("s:{number}"));
    addresses.chain((0..4).map(|number| format!("n:{number}")))
}

pub(super) fn intent(dice: &mut Dice) -> Intent {
    let mut intent = Intent::default();
    for number in 0..4 {
        intent.workloads.insert(format!("w{number}"), workload(dice, number));
    }
    for number in (0..4).filter(|_| dice.one_in(2)).collect::<Vec<_>>() {
        intent.hosts.insert(format!("h{number}"), host(dice, number));
    }
    for number in 0..6 {
        intent.policies.insert(policy_id(number), directions(dice));
    }
    for number in 0..3 {
        intent.profiles.insert(format!("pro{number}"), directions(dice));
    }
    for id in set_ids() {
        intent.sets.insert(id.clone(), set(dice, &id));
    }
    intent
}

pub(super) fn packet(dice: &mut Dice, from: u64, to: u64, is_ipv4: bool) -> Packet {
    let protocol = dice.pick(&[6, 6, 6, 17, 17, if is_ipv4 { 1 } else { 58 }, 132, 47]);
    let port = |dice: &mut Dice| 77 + u16::try_from(dice.below(8)).unwrap();
    let has_ports = matches!(protocol, 6 | 17 | 132);
    let is_icmp = matches!(protocol, 1 | 58);
    Packet {
        source: address(from, is_ipv4),
        destination: address(to, is_ipv4),
        protocol,
        ports: has_ports.then(|| (port(dice), port(dice))),
        icmp: is_icmp.then(|| (dice.pick(&[8, 0]), dice.pick(&[0, 1]))),
        before_nat: None,
        is_of_host: false,
    }
}

/// Another intent that differs in a few things, and what these are.
pub(super) fn changed(before: &Intent, dice: &mut Dice) -> (Intent, Dirty) {
    let (mut after, mut dirty) = (before.clone(), Dirty::default());
    for _ in 0..1 + dice.below(4) {
        match dice.below(6) {
            5 => {
                let number = dice.below(4);
                let key = format!("h{number}");
                dirty.hosts.insert(key.clone());
                if dice.one_in(3) {
                    after.hosts.remove(&key);
                } else {
                    after.hosts.insert(key, host(dice, number));
                }
            }
            0 => {
                let number = dice.below(4);
                let key = format!("w{number}");
                dirty.workloads.insert(key.clone());
                if dice.one_in(3) {
                    after.workloads.remove(&key);
                } else {
                    after.workloads.insert(key, workload(dice, number));
                }
            }
            1 => {
                let at = usize::try_from(dice.below(6)).unwrap();
                let id = after.policies.keys().nth(at).unwrap().clone();
                dirty.policies.insert(id.clone());
                after.policies.insert(id, directions(dice));
            }
            2 => {
                let name = format!("pro{}", dice.below(3));
                dirty.profiles.insert(name.clone());
                after.profiles.insert(name, directions(dice));
            }
            _ => {
                let at = usize::try_from(dice.below(N_SETS + 4)).unwrap();
                let id = set_ids().nth(at).unwrap();
                let set = set(dice, &id);
                after.sets.insert(id.clone(), set);
                dirty.sets.insert(id, SetChange::default());
            }
        }
    }
    for (id, change) in &mut dirty.sets {
        let (old, new) = (&before.sets[id].members, &after.sets[id].members);
        change.added = new.difference(old).cloned().collect();
        change.removed = old.difference(new).cloned().collect();
    }
    (after, dirty)
}
