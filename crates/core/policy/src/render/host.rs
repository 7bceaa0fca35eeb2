//! The endpoints of the host's own interfaces: the chains that dispatch to their rules. Which is
//! for which interface [`crate::interfaces`] says.
//!
//! The one for `*` is for interfaces of workloads as well, but only before destination NAT and for
//! what is passed on.

use std::collections::{BTreeMap, BTreeSet};

use model::resource::Direction;
use net::Cidr;
use nft::expression::{Ct, LookupResult};
use nft::{Chain, DataType, Expression, Key, Register, Rule, Set, Source, Verdict};

use crate::intent::{ALL_INTERFACES as ALL, Host, TierInForce};
use crate::interfaces::claims;

use super::base::{self, IN, OUT, Still};
use super::draft::Draft;
use super::emit::{FAMILY, IPV4, IPV6, PROTOCOL, in_net};
use super::program::{MARK, program, when_bits, when_no_bit};
use super::settings::{DenyAction, Failsafe, Surroundings};
use super::state::{Lane, Stage};
use super::tunnel;

/// The bit of a connection's status that says that its destination is another one.
const DESTINATION_NAT: u32 = 1 << 5;
const LOOPBACK: &str = "lo";
/// The chain for what comes in by an interface and is sent on by IPVS.
pub(super) const PASSED_IN: &str = "host-passed-in";

/// When and in which direction hosts' rules decide.
pub(super) type Occasion = (Stage, Direction);

/// All occasions.
const OCCASIONS: [Occasion; 8] = [
    (Stage::Untracked, Direction::Ingress),
    (Stage::Untracked, Direction::Egress),
    (Stage::PreDnat, Direction::Ingress),
    (Stage::Normal, Direction::Ingress),
    (Stage::Normal, Direction::Egress),
    (Stage::Translated, Direction::Egress),
    (Stage::Forward, Direction::Ingress),
    (Stage::Forward, Direction::Egress),
];

/// The endpoint of each interface; that of all others under `*`.
type Resolved<'a> = BTreeMap<&'a str, &'a Host>;

fn resolve<'a>(draft: &Draft<'a>, surroundings: &'a Surroundings) -> Resolved<'a> {
    let (hosts, prefixes) = (&draft.intent.hosts, &draft.settings.interface_prefixes);
    let claims = claims(hosts, &surroundings.interfaces, prefixes).into_iter();
    claims.filter_map(|(name, keys)| Some((name, hosts.get(*keys.first()?)?))).collect()
}

impl Host {
    fn tiers_at(&self, stage: Stage) -> &[TierInForce] {
        match stage {
            Stage::Normal | Stage::Translated => &self.tiers,
            Stage::Forward => &self.forward,
            Stage::PreDnat => &self.pre_dnat,
            Stage::Untracked => &self.untracked,
        }
    }
}

/// Writes the chains of all hosts' endpoints again, if something about them may have changed.
pub(super) fn place(draft: &mut Draft<'_>, surroundings: &Surroundings) {
    let base = &draft.base.surroundings;
    let has_moved =
        surroundings.interfaces != base.interfaces || surroundings.tunnels != base.tunnels;
    if !draft.plan.is_anew && draft.dirty.hosts.is_empty() && !has_moved {
        return;
    }
    let resolved = resolve(draft, surroundings);
    let mut occasions = BTreeSet::new();
    // Only where messages are sent it matters that none can be sent after routing.
    let is_silent = draft.settings.deny_action == DenyAction::Drop;
    for occasion in OCCASIONS {
        if is_silent && occasion.0 == Stage::Translated {
            continue;
        }
        if occasion_chain(draft, occasion, &resolved) {
            occasions.insert(occasion);
        }
    }
    let is_asked = occasions.contains(&(Stage::Forward, Direction::Ingress));
    let arrivals = is_asked.then(|| passed_in(draft, &resolved));
    let tunnels = tunnel::in_use(draft.settings, surroundings);
    base::install(draft, &base::Hosts::new(&occasions, arrivals.as_ref(), tunnels));
}

/// The name of the chain that dispatches on an occasion.
pub(super) fn chain_name((stage, direction): Occasion) -> &'static str {
    match (stage, direction) {
        (Stage::Untracked, Direction::Ingress) => "host-untracked-in",
        (Stage::Untracked, Direction::Egress) => "host-untracked-out",
        (Stage::PreDnat, _) => "host-pre-dnat",
        (Stage::Normal, Direction::Ingress) => "host-in",
        (Stage::Normal, Direction::Egress) => "host-out",
        (Stage::Translated, _) => "host-out-translated",
        (Stage::Forward, Direction::Ingress) => "host-forward-in",
        (Stage::Forward, Direction::Egress) => "host-forward-out",
    }
}

/// Whether a chain dispatches to the rules of hosts' endpoints.
pub fn is_of_hosts(chain: &str) -> bool {
    OCCASIONS.iter().any(|occasion| chain_name(*occasion) == chain)
}

/// What the endpoints have to say on an occasion, by family: the verdict of each interface that has
/// one, and the chain of all others.
type Verdicts = [(bool, BTreeMap<Key, Verdict>, Option<String>); 2];

fn verdicts(draft: &mut Draft<'_>, occasion: Occasion, resolved: &Resolved<'_>) -> Verdicts {
    let (stage, direction) = occasion;
    [true, false].map(|is_ipv4| {
        let lane = Lane { direction, is_ipv4, stage };
        let (mut entries, mut rest) = (BTreeMap::new(), None);
        for (interface, host) in resolved {
            let chain = program(draft, lane, host.tiers_at(stage), &host.profiles);
            match *interface {
                // Nobody knows by which interface an untracked packet of all others goes.
                ALL if stage == Stage::Untracked => {}
                ALL => rest = chain,
                name => {
                    let verdict = chain.map_or(Verdict::Return, Verdict::Goto);
                    entries.insert(Key::link_name(name), verdict);
                }
            }
        }
        (is_ipv4, entries, rest)
    })
}

/// By which interfaces packets came that IPVS has sent on: each has a number in the mark.
pub(super) struct Arrivals {
    /// The bits of the mark.
    pub(super) mask: u32,
    /// The interfaces, with what the mark says of them.
    pub(super) marks: BTreeMap<String, u32>,
}

/// The chain that asks about packets that IPVS has sent on: for these no interface is told by which
/// they came. All others have no number.
fn passed_in(draft: &mut Draft<'_>, resolved: &Resolved<'_>) -> Arrivals {
    let occasion = (Stage::Forward, Direction::Ingress);
    let found = verdicts(draft, occasion, resolved);
    let mask = draft.settings.arrival_mask();
    let names: Vec<&str> = resolved.keys().copied().filter(|name| *name != ALL).collect();
    let mut chain = Still::new(draft, Chain::plain(PASSED_IN));
    base::invalid(&mut chain, Direction::Ingress);
    let mut arrivals = Arrivals { mask, marks: BTreeMap::new() };
    // Rows of tiers would take away that a packet came from a workload.
    let is_apart = chain.settings().workload_mark() != chain.settings().translated_mark();
    let has_room = is_apart && u32::try_from(names.len()).is_ok_and(|n| n < numbers(mask));
    if !has_room {
        let all = chain.rule();
        chain.deny(all, Direction::Ingress, "nftablesMarkMask has no room for an interface");
    }
    for (number, name) in (1..).zip(names).filter(|_| has_room) {
        arrivals.marks.insert(name.to_owned(), spread(number, mask));
    }
    for (is_ipv4, entries, rest) in found {
        for (name, mark) in &arrivals.marks {
            if let Some(verdict) = entries.get(&Key::link_name(name)) {
                let rule = of_family(chain.rule(), is_ipv4);
                chain.push(when_bits(rule, MARK, mask, *mark).verdict(verdict.clone()));
            }
        }
        if let Some(rest) = rest.filter(|_| has_room) {
            chain.push(of_family(chain.rule(), is_ipv4).verdict(Verdict::Goto(rest)));
        }
    }
    chain.finish_unpinned();
    arrivals
}

/// How many numbers there are for the bits of a mask.
fn numbers(mask: u32) -> u32 {
    1_u32.checked_shl(mask.count_ones()).unwrap_or(u32::MAX)
}

/// The bits of a number at the places of a mask.
fn spread(number: u32, mask: u32) -> u32 {
    let places = (0..u32::BITS).filter(|place| mask & (1 << place) != 0);
    let set = places.enumerate().filter(|(bit, _)| number & (1 << bit) != 0);
    set.fold(0, |mark, (_, place)| mark | 1 << place)
}

/// Makes the chain that dispatches on an occasion; false if no endpoint has rules for it.
fn occasion_chain(draft: &mut Draft<'_>, occasion: Occasion, resolved: &Resolved<'_>) -> bool {
    let (stage, direction) = occasion;
    let found = verdicts(draft, occasion, resolved);
    let leads = |entries: &BTreeMap<Key, Verdict>| {
        entries.values().any(|verdict| matches!(verdict, Verdict::Goto(_)))
    };
    if !found.iter().any(|(_, entries, rest)| rest.is_some() || leads(entries)) {
        return false;
    }
    let name = chain_name(occasion);
    let mut chain = Still::new(draft, Chain::plain(name));
    if stage != Stage::Untracked {
        base::invalid(&mut chain, direction);
    }
    failsafes(&mut chain, occasion);
    let interface = if direction == Direction::Ingress { IN } else { OUT };
    for (is_ipv4, entries, _) in &found {
        let lane = Lane { direction, is_ipv4: *is_ipv4, stage };
        let map = Set::new(&format!("host-{}", lane.prefix()), &[DataType::LinkName]);
        chain.dispatch(of_family(chain.rule(), *is_ipv4), interface, map, entries.clone());
    }
    let mut loopback = LOOPBACK.as_bytes().to_vec();
    loopback.resize(16, 0);
    if found.iter().any(|(_, _, rest)| rest.is_some()) {
        chain.push(chain.rule().when(interface, &loopback).verdict(Verdict::Return));
    }
    for (is_ipv4, _, rest) in found {
        if let Some(rest) = rest {
            chain.push(of_family(chain.rule(), is_ipv4).verdict(Verdict::Goto(rest)));
        }
    }
    chain.finish_unpinned();
    true
}

fn of_family(rule: Rule, is_ipv4: bool) -> Rule {
    rule.when(FAMILY, if is_ipv4 { IPV4 } else { IPV6 })
}

/// Lets through what no policy of a host closes.
fn failsafes(chain: &mut Still<'_, '_>, (stage, direction): Occasion) {
    let settings = chain.settings();
    let (asked, answered) = match direction {
        Direction::Ingress => (&settings.failsafe_inbound, &settings.failsafe_outbound),
        Direction::Egress => (&settings.failsafe_outbound, &settings.failsafe_inbound),
    };
    if stage == Stage::Forward {
        return;
    }
    discovery(chain);
    failsafe_ports(chain, asked, direction, Source::DESTINATION_PORT);
    if stage == Stage::Untracked {
        // Before connection tracking nobody knows answers as such.
        failsafe_ports(chain, answered, direction, Source::SOURCE_PORT);
    }
}

/// A host that does not hear who asks for its address, or who is in its groups, is cut off in IPv6
/// as it would be in IPv4 without ARP: no failsafe port would be open.
fn discovery(chain: &mut Still<'_, '_>) {
    // Group membership, routers and neighbours; redirects are not among them.
    for (first, last) in [(130, 136), (143, 143)] {
        let register = Register::FIRST;
        let rule = chain
            .rule()
            .when(PROTOCOL, &[58])
            .with(Expression::Load { source: Source::ICMP_TYPE, register })
            .with(Expression::Range {
                register,
                is_inverted: false,
                first: vec![first],
                last: vec![last],
            });
        chain.push(rule.verdict(Verdict::Accept).comment("neighbour discovery"));
    }
}

fn failsafe_ports(
    chain: &mut Still<'_, '_>,
    ports: &[Failsafe],
    direction: Direction,
    port: Source,
) {
    let key = |it: &Failsafe| {
        let port = Key::One(it.port.to_be_bytes().to_vec());
        Key::concatenation(&[Key::One(vec![it.protocol]), port])
    };
    let keys: BTreeSet<Key> = ports.iter().filter(|it| it.net.is_none()).map(key).collect();
    if !keys.is_empty() {
        let set = Set::new("", &[DataType::Protocol, DataType::Port]);
        let set = chain.fixed("failsafe", set, keys.into_iter().collect());
        let second = Register::slot(1).expect("there are 16 slots");
        let rule = chain
            .rule()
            .with(Expression::Load { source: PROTOCOL, register: Register::FIRST })
            .with(Expression::Load { source: port, register: second })
            .with(Expression::Lookup {
                register: Register::FIRST,
                set,
                result: LookupResult::Member { is_inverted: false },
            });
        chain.push(rule.verdict(Verdict::Accept).comment("failsafe"));
    }
    for Failsafe { protocol, port: number, net } in ports {
        let Some(net) = net else { continue };
        let rule = chain.rule().when(PROTOCOL, &[*protocol]).when(port, &number.to_be_bytes());
        let rule = of_family(rule, net.is_ipv4());
        let rule = in_net(rule, far_end(*net, direction), *net, false);
        chain.push(rule.verdict(Verdict::Accept).comment("failsafe"));
    }
}

/// The address of who talks to this host.
fn far_end(net: Cidr, direction: Direction) -> Source {
    match (net.is_ipv4(), direction) {
        (true, Direction::Ingress) => Source::IPV4_SOURCE,
        (true, Direction::Egress) => Source::IPV4_DESTINATION,
        (false, Direction::Ingress) => Source::IPV6_SOURCE,
        (false, Direction::Egress) => Source::IPV6_DESTINATION,
    }
}

/// Which packets of this host are judged once more, after destination NAT has sent them elsewhere.
pub(super) fn is_translated(rule: Rule) -> Rule {
    rule.when_any_bit(Source::Ct(Ct::Status), DESTINATION_NAT)
}

/// Which packets go where their sender meant them to.
pub(super) fn is_not_translated(rule: Rule) -> Rule {
    when_no_bit(rule, Source::Ct(Ct::Status), DESTINATION_NAT)
}
