//! What the oracle says of a packet that comes by, leaves by or passes the interfaces of the node,
//! with the rules of the node's own endpoints on the way.

use std::collections::BTreeSet;

use model::resource::{Action, Direction};
use policy::guards::Guards;
use policy::intent::{Host, Intent, TierInForce};
use policy::{Decision, End, Judge, Named, Outcome, Packet, RuleName};

use crate::objects::Party;
use crate::oracle::{self, Lists};
use crate::probes::Place;

/// What the rules of the node depend on beside its policies.
pub(crate) struct Gates<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) guards: Guards<'a>,
    /// Whether IPVS leads to services, before all rules for what leaves the node.
    pub(crate) has_ipvs: bool,
}

/// What should become of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) is_denied: bool,
    /// The rules that match on its way, in order.
    pub(crate) trail: Vec<RuleName>,
    /// A rule let it through that asks that it be not tracked, so nobody knows its answer.
    pub(crate) is_untracked: bool,
    /// What stopped it that is no policy.
    pub(crate) guard: Option<&'static str>,
    /// Rules before destination NAT let it through.
    is_marked: bool,
}

impl Passage {
    fn stop(&mut self, guard: Option<&'static str>) {
        if !self.is_denied {
            self.guard = guard;
        }
        self.is_denied |= guard.is_some();
    }

    pub(crate) fn by(&self) -> String {
        self.trail.last().map(ToString::to_string).unwrap_or_default()
    }
}

/// A list of tiers, and what is not decided there.
struct Rules<'a> {
    lists: Lists<'a>,
    direction: Direction,
    /// Whether the ends of tiers decide nothing.
    is_endless: bool,
    /// Whether what no tier decides is left to others.
    is_open: bool,
}

impl Gates<'_> {
    /// The fate of a packet between two parties.
    pub(crate) fn judge(&self, from: &Party, to: &Party, packet: &Packet) -> Passage {
        let mut passage = Passage::default();
        let (came_by, leaves_by) = (self.interface(from), self.interface(to));
        match (came_by, leaves_by) {
            (Some(came_by), leaves_by) => {
                self.arrive(&came_by, packet, &mut passage);
                match leaves_by {
                    Some(leaves_by) => {
                        self.pass_on((from, &came_by), (to, &leaves_by), packet, &mut passage);
                    }
                    None => self.come_in(from, &came_by, packet, &mut passage),
                }
            }
            (None, Some(leaves_by)) => self.leave(&leaves_by, packet, &mut passage),
            (None, None) => panic!("{} > {}", from.name, to.name),
        }
        passage
    }

    /// Whether the answer to a packet that passed comes back; none if nobody can say. Only rules
    /// before connection tracking have a say in it.
    pub(crate) fn is_answered(&self, from: &Party, to: &Party, packet: &Packet) -> Option<bool> {
        let back = Packet {
            source: packet.destination,
            destination: packet.source,
            ports: packet.ports.map(|(source, destination)| (destination, source)),
            icmp: packet.icmp.map(|(kind, code)| (if kind == 8 { 0 } else { 129 }, code)),
            before_nat: None,
            ..packet.clone()
        };
        let mut passage = Passage::default();
        match (self.interface(to), self.interface(from)) {
            (Some(came_by), _) => self.arrive_untracked(&came_by, &back, &mut passage),
            (None, Some(leaves_by)) => self.leave_untracked(&leaves_by, &back, &mut passage),
            (None, None) => {}
        }
        (!passage.is_untracked).then_some(!passage.is_denied)
    }

    fn interface(&self, party: &Party) -> Option<String> {
        let has = |it: &&policy::intent::Workload| {
            it.addresses.iter().any(|net| net.contains(party.addresses[0]))
        };
        Some(match party.place {
            Place::Node => return None,
            Place::Remote => "eth0".to_owned(),
            Place::Aside => "eth1".to_owned(),
            Place::Pod(_) => self.intent.workloads.values().find(has).unwrap().interface.clone(),
        })
    }

    /// The endpoint of an interface, and whether it is for that one.
    fn endpoint(&self, interface: &str) -> Option<(&Host, bool)> {
        let none = BTreeSet::new();
        let addresses = self.guards.around.interfaces.get(interface).unwrap_or(&none);
        let is_for = |host: &&Host| match host.interface.as_str() {
            "" => host.addresses.iter().any(|it| addresses.contains(it)),
            name => name == interface,
        };
        let all = self.intent.hosts.values();
        let own = all.clone().find(is_for).map(|host| (host, true));
        let rest = || all.clone().find(|host| host.interface == "*").map(|host| (host, false));
        own.or_else(rest)
    }

    /// Before routing.
    fn arrive(&self, interface: &str, packet: &Packet, passage: &mut Passage) {
        let sent = before_nat(packet);
        self.arrive_untracked(interface, &sent, passage);
        let is_over = passage.is_marked || passage.is_denied;
        let is_spared = self.guards.is_spared(Direction::Ingress, &sent);
        if let Some((host, _)) = self.endpoint(interface).filter(|_| !is_over && !is_spared) {
            self.ask_endless(&host.pre_dnat, Direction::Ingress, &sent, passage);
        }
    }

    /// Before connection tracking.
    fn arrive_untracked(&self, interface: &str, sent: &Packet, passage: &mut Passage) {
        let is_spared = self.guards.is_spared_untracked(Direction::Ingress, sent);
        if let Some((host, true)) = self.endpoint(interface).filter(|_| !is_spared) {
            self.ask_endless(&host.untracked, Direction::Ingress, sent, passage);
            passage.is_untracked = passage.is_marked;
        }
    }

    /// To the node itself.
    fn come_in(&self, from: &Party, interface: &str, packet: &Packet, passage: &mut Passage) {
        if matches!(from.place, Place::Pod(_)) {
            self.ask_workload(from, Direction::Egress, packet, passage);
            passage.stop(self.guards.to_own_host(packet));
            return;
        }
        let is_spared = self.guards.is_spared(Direction::Ingress, packet);
        if passage.is_marked || passage.is_denied || is_spared {
            return;
        }
        if let Some((host, _)) = self.endpoint(interface) {
            let lists = (&host.tiers[..], &host.profiles[..]);
            self.ask(&rules(lists, Direction::Ingress), packet, passage);
        }
    }

    /// From one interface to another.
    fn pass_on(
        &self,
        (from, came_by): (&Party, &str),
        (to, leaves_by): (&Party, &str),
        packet: &Packet,
        passage: &mut Passage,
    ) {
        let of_host = |interface: &str, direction, passage: &mut Passage| {
            if let Some((host, _)) = self.endpoint(interface) {
                let rules = Rules { is_open: true, ..rules((&host.forward, &[]), direction) };
                self.ask(&rules, packet, passage);
            }
        };
        if !passage.is_marked {
            of_host(came_by, Direction::Ingress, passage);
        }
        self.ask_workload(from, Direction::Egress, packet, passage);
        self.ask_workload(to, Direction::Ingress, packet, passage);
        of_host(leaves_by, Direction::Egress, passage);
        passage.stop(self.guards.passed_on(packet));
    }

    /// From the node itself.
    fn leave(&self, interface: &str, packet: &Packet, passage: &mut Passage) {
        // Before destination NAT it seems to leave by where the default route leads.
        let is_before_nat = packet.before_nat.is_some() && !self.has_ipvs;
        let seems = if is_before_nat { "eth0" } else { interface };
        let sent = if is_before_nat { before_nat(packet) } else { packet.clone() };
        self.leave_untracked(seems, &sent, passage);
        let is_spared = self.guards.is_spared(Direction::Egress, packet)
            || self.guards.settings.interface_prefixes.iter().any(|it| interface.starts_with(it));
        if passage.is_marked || passage.is_denied || is_spared {
            return;
        }
        if let Some((host, _)) = self.endpoint(interface) {
            let lists = (&host.tiers[..], &host.profiles[..]);
            self.ask(&rules(lists, Direction::Egress), packet, passage);
        }
    }

    /// From the node itself, before connection tracking.
    fn leave_untracked(&self, interface: &str, sent: &Packet, passage: &mut Passage) {
        let is_spared = self.guards.is_spared_untracked(Direction::Egress, sent);
        if let Some((host, true)) = self.endpoint(interface).filter(|_| !is_spared) {
            self.ask_endless(&host.untracked, Direction::Egress, sent, passage);
            passage.is_untracked = passage.is_marked;
        }
    }

    fn ask_workload(
        &self,
        party: &Party,
        direction: Direction,
        packet: &Packet,
        passage: &mut Passage,
    ) {
        let has = |it: &&policy::intent::Workload| {
            it.addresses.iter().any(|net| net.contains(party.addresses[0]))
        };
        if !matches!(party.place, Place::Pod(_)) {
            return;
        }
        let workload = self.intent.workloads.values().find(has).unwrap();
        if direction == Direction::Egress {
            passage.stop(self.guards.sender(workload, packet));
        }
        let lists = (&workload.tiers[..], &workload.profiles[..]);
        self.ask(&rules(lists, direction), packet, passage);
    }

    /// Asks tiers whose ends decide nothing; what they allow no other rule of the node denies.
    fn ask_endless(
        &self,
        tiers: &[TierInForce],
        direction: Direction,
        packet: &Packet,
        passage: &mut Passage,
    ) {
        let rules = Rules { is_endless: true, is_open: true, ..rules((tiers, &[]), direction) };
        let decided = self.ask(&rules, packet, passage);
        passage.is_marked |= decided == Some(Outcome::Allow);
    }

    /// What rules say, if they say anything.
    fn ask(&self, rules: &Rules<'_>, packet: &Packet, passage: &mut Passage) -> Option<Outcome> {
        if passage.is_denied {
            return None;
        }
        let mut judged = oracle::rules(self.intent, rules.lists, rules.direction);
        if rules.is_endless {
            judged.tiers.iter_mut().for_each(|tier| tier.end = End::Pass);
        }
        if rules.is_open {
            // Only to hear of the rules that a packet meets that nobody decides about.
            let all = vec![policy::Rule::all(Action::Allow)];
            judged.profiles = vec![Named { name: String::new(), rules: all }];
        }
        let verdict = Judge { sets: &self.intent.sets }.endpoint(&judged, packet);
        let is_open_end = |it: &Decision| rules.is_open && matches!(it, Decision::Profile { .. });
        let met = verdict.trail.iter().filter(|it| !is_open_end(it));
        passage.trail.extend(met.map(|it| oracle::name(rules.lists, rules.direction, *it)));
        passage.is_denied |= verdict.outcome == Outcome::Deny;
        (!verdict.trail.last().is_some_and(is_open_end)).then_some(verdict.outcome)
    }
}

fn rules(lists: Lists<'_>, direction: Direction) -> Rules<'_> {
    Rules { lists, direction, is_endless: false, is_open: false }
}

/// A packet as it is before destination NAT.
fn before_nat(packet: &Packet) -> Packet {
    let Some((destination, port)) = packet.before_nat else { return packet.clone() };
    let ports = packet.ports.map(|(source, _)| (source, port));
    Packet { destination, ports, before_nat: None, ..packet.clone() }
}
