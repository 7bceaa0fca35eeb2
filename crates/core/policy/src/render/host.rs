//! The endpoints of the host's own interfaces: which interface each is for, and the chains that
//! dispatch to their rules.
//!
//! An interface has one endpoint: the first by name that names it or expects one of its addresses.
//! The one for `*` is for all others, those of workloads only before destination NAT and for what
//! is passed on. What goes through `lo` is never judged.

use std::collections::{BTreeMap, BTreeSet};

use model::resource::Direction;
use net::Cidr;
use nft::expression::{Ct, LookupResult};
use nft::{Chain, DataType, Expression, Key, Register, Rule, Set, Source, Verdict};

use crate::input::Key as EndpointKey;
use crate::intent::{ALL_INTERFACES as ALL, Host, TierInForce};

use super::base::{self, IN, OUT, Still};
use super::draft::Draft;
use super::emit::{FAMILY, IPV4, IPV6, PROTOCOL, in_net};
use super::program::{program, when_no_bit};
use super::settings::{DenyAction, Failsafe, Surroundings};
use super::state::{Lane, Stage};
use super::tunnel;

/// The bit of a connection's status that says that its destination is another one.
const DESTINATION_NAT: u32 = 1 << 5;
const LOOPBACK: &str = "lo";

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
type Resolved<'a> = BTreeMap<&'a str, (&'a EndpointKey, &'a Host)>;

fn resolve<'a>(
    hosts: &'a BTreeMap<EndpointKey, Host>,
    surroundings: &'a Surroundings,
) -> Resolved<'a> {
    let mut resolved = Resolved::new();
    for (interface, addresses) in &surroundings.interfaces {
        let is_for = |host: &Host| match host.interface.as_str() {
            "" => host.addresses.iter().any(|address| addresses.contains(address)),
            name => name == interface,
        };
        let first = hosts.iter().find(|(_, host)| interface != LOOPBACK && is_for(host));
        resolved.extend(first.map(|found| (interface.as_str(), found)));
    }
    resolved.extend(hosts.iter().find(|(_, host)| host.interface == ALL).map(|it| (ALL, it)));
    resolved
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
    let resolved = resolve(&draft.intent.hosts, surroundings);
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
    base::install(draft, &occasions, tunnel::in_use(draft.settings, surroundings));
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

/// Makes the chain that dispatches on an occasion; false if no endpoint has rules for it.
fn occasion_chain(draft: &mut Draft<'_>, occasion: Occasion, resolved: &Resolved<'_>) -> bool {
    let (stage, direction) = occasion;
    let mut found: Vec<(bool, BTreeMap<Key, Verdict>, Option<String>)> = Vec::new();
    for is_ipv4 in [true, false] {
        let lane = Lane { direction, is_ipv4, stage };
        let (mut entries, mut rest) = (BTreeMap::new(), None);
        for (interface, host) in resolved {
            let (_, host) = host;
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
        found.push((is_ipv4, entries, rest));
    }
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
