//! The chains that packets enter by themselves, and those that stand still.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use model::resource::Direction;
use nft::expression::{
    Comparison, Ct, LookupResult, Meta, NatKind, ct_state, fib_flags, nat_flags,
};
use nft::{Base, Chain, ChainKind, Expression, Hook, Key, Register, Rule, Set, Source, Verdict};

use crate::guards;
use crate::rule_name::RuleName;

use super::denial::denial;
use super::draft::{Draft, Scope};
use super::emit::{FAMILY, IPV4, IPV6, PROTOCOL, lookup};
use super::host::{self, Arrivals, Occasion};
use super::plan::{ChainPlan, In};
use super::program::{self, MARK, unmarked, when_unmarked};
use super::settings::{Counters, EndpointToHost, ServiceLoops, Settings, Tunnels};
use super::state::Stage;
use super::tunnel;

pub(super) const IN: Source = Source::Meta(Meta::InputName);
pub(super) const OUT: Source = Source::Meta(Meta::OutputName);
/// The start of an IPv6 source address.
const SOURCE_START: Source = Source::network(8, 2);
const ICMP: &[u8] = &[1];
const ICMPV6: &[u8] = &[58];
const UDP: &[u8] = &[17];
/// After IPVS, which takes packets to its services at 98 and 99, and after what translates sources
/// at 100: what comes here is for this host.
const AFTER_SERVICES: i32 = 101;
/// The address that a neighbour advertisement speaks for, and its start.
const ADVERTISED: Source = Source::transport(8, 16);
const ADVERTISED_START: Source = Source::transport(8, 2);
/// The chain for neighbour advertisements.
const SPOKEN_FOR: &str = "spoken-for";
/// Where the packet inside of an error message has its destination.
pub(super) const INNER_DESTINATION: [u32; 2] = [8 + 16, 8 + 24];
/// The chain for what belongs to a connection.
const RELATED: &str = "related";
/// Every host is the gateway of its workloads under this address.
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xecee, 0xeeff, 0xfeee, 0xeeee);
/// Of a connection that is established, or belongs to one that is.
pub(super) const KNOWN: u32 = ct_state::ESTABLISHED | ct_state::RELATED;

/// A chain that stands still, in the making.
pub(super) struct Still<'d, 'a> {
    draft: &'d mut Draft<'a>,
    chain: Chain,
    rules: Vec<Rule>,
    scope: Scope,
}

impl<'d, 'a> Still<'d, 'a> {
    pub(super) fn new(draft: &'d mut Draft<'a>, chain: Chain) -> Self {
        Self { draft, chain, rules: Vec::new(), scope: Scope::default() }
    }

    pub(super) fn rule(&self) -> Rule {
        Rule::new(&self.chain.name)
    }

    pub(super) fn settings(&self) -> &'a Settings {
        self.draft.settings
    }

    pub(super) fn push(&mut self, rule: Rule) {
        for expression in &rule.expressions {
            if let Expression::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) = expression {
                self.scope.uses.insert(chain.clone());
            }
        }
        self.rules.push(rule);
    }

    /// Drops in the name of something that comes before policy.
    pub(super) fn deny(&mut self, rule: Rule, direction: Direction, reason: &str) {
        let chain = denial(self.draft, &RuleName::guard(direction, reason), Stage::Normal);
        let rule = match self.draft.settings.counters {
            Counters::None => rule,
            Counters::Denials | Counters::All => rule.counted(),
        };
        self.push(rule.verdict(Verdict::Goto(chain)).comment(reason));
    }

    /// Takes the verdict that a map has for the source; goes on if it has none.
    pub(super) fn dispatch(
        &mut self,
        rule: Rule,
        source: Source,
        map: Set,
        entries: BTreeMap<Key, Verdict>,
    ) {
        let name = map.name.clone();
        self.draft.put_map(map.to_verdicts(), entries);
        self.push(rule.dispatch(source, &name));
        self.scope.uses.insert(name);
    }

    /// A set that holds these keys for good.
    pub(super) fn fixed(&mut self, prefix: &str, set: Set, keys: Vec<Key>) -> String {
        let name = self.draft.fixed_set(prefix, set, keys);
        self.scope.uses.insert(name.clone());
        name
    }

    /// Puts the chain into the draft and keeps it there.
    pub(super) fn finish(self) {
        let name = self.chain.name.clone();
        if self.draft.n_users(&name) == 0 {
            self.draft.retain(&name);
        }
        self.finish_unpinned();
    }

    /// Puts the chain into the draft; it goes when nobody uses it.
    pub(super) fn finish_unpinned(self) {
        self.draft.put_chain(self.chain, self.rules, self.scope, None);
    }
}

/// Everything that does not depend on single endpoints: only on the occasions on which rules of
/// hosts decide, and on tunnels.
pub(super) fn install(draft: &mut Draft<'_>, hosts: &Hosts<'_>) {
    if draft.plan.is_anew {
        from_workload(draft);
        from_address(draft);
        to_workload(draft);
        from_pod(draft);
        related(draft);
        tunnel::install(draft);
        outgoing(draft);
        neighbours(draft);
    }
    hosts.sources(draft);
    hosts.forward(draft);
    hosts.input(draft);
    hosts.local(draft);
    hosts.pre_dnat(draft);
    hosts.passed_on(draft);
    hosts.output(draft);
}

pub(super) fn based(name: &str, hook: Hook, priority: i32) -> Chain {
    Chain::based(name, Base::new(ChainKind::Filter, hook, priority))
}

/// Finds the chain of a workload by its interface; who has none is closed. What goes to this host
/// goes another way there, because the kernel counts the links on the way.
fn from_workload(draft: &mut Draft<'_>) {
    for name in ["from-workload", "workload-to-host"] {
        let mut chain = Still::new(draft, Chain::plain(name));
        if name == "workload-to-host" {
            // The kernel lets them in, because services may be translated to such addresses.
            let loopback = chain.rule().when(FAMILY, IPV4).when(Source::network(16, 1), &[127]);
            let loopback = host::is_not_translated(loopback);
            chain.deny(loopback, Direction::Egress, guards::LOOPBACK);
            for kind in [130, 131, 132, 133, 135, 136, 143] {
                let icmpv6 = chain.rule().when(PROTOCOL, ICMPV6).when(Source::ICMP_TYPE, &[kind]);
                chain.push(icmpv6.verdict(Verdict::Accept));
            }
        }
        guard_sender(&mut chain, |rule| rule);
        chain.push(chain.rule().when(FAMILY, IPV4).dispatch(IN, "from4"));
        chain.push(chain.rule().when(FAMILY, IPV6).dispatch(IN, "from6"));
        let rest = chain.rule();
        chain.deny(rest, Direction::Egress, "sender not yet committed");
        chain.finish();
    }
}

/// The same by its address, where nobody knows any more by which interface a packet came. The mark
/// tells that it came from a workload; who has the address of one is held to its policies anyway.
fn from_address(draft: &mut Draft<'_>) {
    let mut chain = Still::new(draft, Chain::plain("from-address"));
    let mark = chain.settings().workload_mark();
    guard_sender(&mut chain, |rule| rule.when_any_bit(MARK, mark));
    for (family, source, map) in
        [(IPV4, Source::IPV4_SOURCE, "sender4"), (IPV6, Source::IPV6_SOURCE, "sender6")]
    {
        chain.push(chain.rule().when(FAMILY, family).dispatch(source, map));
    }
    let rest = chain.rule().when_any_bit(MARK, mark);
    chain.deny(rest, Direction::Egress, "service asked from an address of no single endpoint");
    chain.finish();
}

/// What no workload may send, whatever its policies say.
fn guard_sender(chain: &mut Still<'_, '_>, of_workload: impl Fn(Rule) -> Rule) {
    let egress = Direction::Egress;
    invalid(chain, egress);
    if !chain.settings().may_send_ipip {
        let ipip = of_workload(chain.rule()).when(PROTOCOL, &[4]);
        chain.deny(ipip, egress, guards::IPIP);
    }
    if !chain.settings().may_send_vxlan {
        let port = chain.settings().vxlan_port.to_be_bytes();
        let vxlan = of_workload(chain.rule()).when(PROTOCOL, UDP);
        chain.deny(vxlan.when(Source::DESTINATION_PORT, &port), egress, guards::VXLAN);
    }
}

fn to_workload(draft: &mut Draft<'_>) {
    let mut chain = Still::new(draft, Chain::plain("to-workload"));
    invalid(&mut chain, Direction::Ingress);
    chain.push(chain.rule().when(FAMILY, IPV4).dispatch(OUT, "to4"));
    chain.push(chain.rule().when(FAMILY, IPV6).dispatch(OUT, "to6"));
    let rest = chain.rule();
    chain.deny(rest, Direction::Ingress, "not yet committed");
    chain.finish();
}

/// A workload advertises its own addresses. Where that is known to be an advertisement, newer
/// versions of `nft` have a type for the address in it, and others have none: here neither has.
fn spoken_for(draft: &mut Draft<'_>) {
    let mut chain = Still::new(draft, Chain::plain(SPOKEN_FOR));
    let foreign = pair(chain.rule(), ADVERTISED, "raw6", true);
    let reason = "neighbour advertisement for an address that is not the endpoint's";
    chain.deny(foreign, Direction::Egress, reason);
    chain.finish_unpinned();
}

/// What a workload may send at all: from its own addresses, and no message of a router.
fn from_pod(draft: &mut Draft<'_>) {
    spoken_for(draft);
    let mut chain = Still::new(draft, Chain::plain("from-pod"));
    let egress = Direction::Egress;
    let rule = || Rule::new("from-pod");
    let icmpv6 = |kind: u8| rule().when(PROTOCOL, ICMPV6).when(Source::ICMP_TYPE, &[kind]);
    let own4 = pair(rule().when(FAMILY, IPV4), Source::IPV4_SOURCE, "source4", false);
    chain.push(own4.verdict(Verdict::Return));
    chain.deny(icmpv6(134), egress, guards::ADVERTISEMENT);
    chain.deny(icmpv6(137), egress, guards::REDIRECT);
    let gateway = icmpv6(136).when(ADVERTISED, &GATEWAY_V6.octets());
    chain.deny(gateway, egress, "neighbour advertisement for the gateway");
    let spoken_for = when_link_local(icmpv6(136), ADVERTISED_START, Comparison::NotEqual);
    chain.push(spoken_for.verdict(Verdict::Jump(SPOKEN_FOR.to_owned())));
    let own6 = |set| pair(rule().when(FAMILY, IPV6), Source::IPV6_SOURCE, set, false);
    chain.push(own6("source6").verdict(Verdict::Return));
    // Neighbour discovery and group membership come from link-local addresses, or from none.
    for kind in [133, 135, 136, 131, 132, 143] {
        let link_local = when_link_local(icmpv6(kind), SOURCE_START, Comparison::Equal);
        chain.push(link_local.verdict(Verdict::Return));
    }
    for kind in [135, 143] {
        let unspecified = icmpv6(kind).when(FAMILY, IPV6).when(Source::IPV6_SOURCE, &[0; 16]);
        chain.push(unspecified.verdict(Verdict::Return));
    }
    let allowed4 = pair(rule().when(FAMILY, IPV4), Source::IPV4_SOURCE, "allowed4", false);
    chain.push(allowed4.verdict(Verdict::Return));
    chain.push(own6("allowed6").verdict(Verdict::Return));
    chain.deny(rule(), egress, guards::SOURCE);
    chain.finish();
}

/// Goes on if an address that starts there is one of a single link, or is not.
fn when_link_local(rule: Rule, start: Source, operator: Comparison) -> Rule {
    let register = Register::FIRST;
    rule.with(Expression::Load { source: start, register })
        .with(Expression::Bitwise { register, mask: vec![0xff, 0xc0], xor: vec![0, 0] })
        .with(Expression::Compare { register, operator, value: vec![0xfe, 0x80] })
}

/// A pair of interface and address, in a set of pairs or not.
fn pair(rule: Rule, address: Source, set: &str, is_inverted: bool) -> Rule {
    let second = Register::slot(4).expect("there are 16 slots");
    rule.with(Expression::Load { source: IN, register: Register::FIRST })
        .with(Expression::Load { source: address, register: second })
        .with(Expression::Lookup {
            register: Register::FIRST,
            set: set.to_owned(),
            result: LookupResult::Member { is_inverted },
        })
}

/// Packets of connections that stand are let through.
fn known(chain: &mut Still<'_, '_>) {
    let state = Source::Ct(Ct::State);
    chain.push(chain.rule().when_any_bit(state, KNOWN).verdict(Verdict::Accept));
}

/// The same where workloads send: what only belongs to a connection is looked at first.
fn known_of_anybody(chain: &mut Still<'_, '_>) {
    let state = Source::Ct(Ct::State);
    let established = chain.rule().when_any_bit(state, ct_state::ESTABLISHED);
    chain.push(established.verdict(Verdict::Accept));
    let related = chain.rule().when_any_bit(state, ct_state::RELATED);
    chain.push(related.verdict(Verdict::Jump(RELATED.to_owned())));
}

/// Lets through what belongs to a connection. An error message does if the packet inside of it
/// does, whoever sends it; so a workload that guesses the ports of a connection could break it. It
/// may complain only of packets that it got.
fn related(draft: &mut Draft<'_>) {
    let [at4, at6] = INNER_DESTINATION;
    for (number, family, inner) in
        [(4, IPV4, Source::transport(at4, 4)), (6, IPV6, Source::transport(at6, 16))]
    {
        let mut chain = Still::new(draft, Chain::plain(&format!("error-of-workload{number}")));
        for set in ["raw", "raw-allowed"] {
            let rule = chain.rule().when(FAMILY, family);
            let own = pair(rule, inner, &format!("{set}{number}"), false);
            chain.push(own.verdict(Verdict::Accept));
        }
        let rest = chain.rule();
        chain.deny(rest, Direction::Egress, "error about a packet of somebody else");
        chain.finish_unpinned();
    }
    let mut chain = Still::new(draft, Chain::plain(RELATED));
    for prefix in &chain.settings().interface_prefixes {
        for (protocol, number) in [(ICMP, 4), (ICMPV6, 6)] {
            let error = chain.rule().when(IN, prefix.as_bytes()).when(PROTOCOL, protocol);
            chain.push(error.verdict(Verdict::Goto(format!("error-of-workload{number}"))));
        }
    }
    chain.push(chain.rule().verdict(Verdict::Accept));
    chain.finish();
}

/// Packets of no connection are not. Only endpoints ask: what others do with them is theirs.
pub(super) fn invalid(chain: &mut Still<'_, '_>, direction: Direction) {
    if chain.settings().drops_invalid {
        let invalid = chain.rule().when_any_bit(Source::Ct(Ct::State), ct_state::INVALID);
        chain.deny(invalid, direction, "packet of no connection");
    }
}

/// The base chains, which ask the chains of hosts' endpoints on some occasions.
pub(super) struct Hosts<'o> {
    occasions: &'o BTreeSet<Occasion>,
    /// Whether some rules mark what they allow.
    has_marks: bool,
    /// By which interfaces packets came, if rules ask for that which IPVS has sent on.
    arrivals: Option<&'o Arrivals>,
    tunnels: Tunnels,
}

impl<'o> Hosts<'o> {
    pub(super) fn new(
        occasions: &'o BTreeSet<Occasion>,
        arrivals: Option<&'o Arrivals>,
        tunnels: Tunnels,
    ) -> Self {
        let has = |stage, direction| occasions.contains(&(stage, direction));
        let has_marks = has(Stage::PreDnat, Direction::Ingress)
            || has(Stage::Untracked, Direction::Ingress)
            || has(Stage::Untracked, Direction::Egress);
        Self { occasions, has_marks, arrivals, tunnels }
    }

    /// Asks the endpoint of the interface, if any has rules.
    fn ask(&self, chain: &mut Still<'_, '_>, rule: Rule, occasion: Occasion) {
        if self.occasions.contains(&occasion) {
            chain.push(rule.verdict(Verdict::Jump(host::chain_name(occasion).to_owned())));
        }
    }

    /// Nobody else's marks count.
    fn unmark(&self, chain: &mut Still<'_, '_>) {
        if self.has_marks {
            let mark = chain.settings().accept_mark();
            chain.push(unmarked(chain.rule(), mark));
        }
    }

    /// Lets through what rules of the host have allowed already.
    fn accept_marked(&self, chain: &mut Still<'_, '_>) {
        if self.has_marks {
            let mark = chain.settings().accept_mark();
            let marked = chain.rule().when_any_bit(MARK, mark);
            chain.push(marked.verdict(Verdict::Accept));
        }
    }

    /// A rule for what no rules of the host have allowed already.
    fn unless_marked(&self, chain: &Still<'_, '_>) -> Rule {
        match self.has_marks {
            true => when_unmarked(chain.rule(), chain.settings().accept_mark()),
            false => chain.rule(),
        }
    }

    /// The bits of the mark that say by which interface a packet came.
    fn arrival_mask(&self) -> u32 {
        self.arrivals.map_or(0, |arrivals| arrivals.mask)
    }

    fn sources(&self, draft: &mut Draft<'_>) {
        let mut chain = Still::new(draft, based("sources", Hook::Prerouting, -300));
        self.unmark(&mut chain);
        for prefix in &chain.settings().interface_prefixes {
            let rule = chain.rule().when(IN, prefix.as_bytes());
            chain.push(rule.verdict(Verdict::Jump("from-pod".to_owned())));
        }
        let rule = chain.rule();
        self.ask(&mut chain, rule, (Stage::Untracked, Direction::Ingress));
        chain.finish();
    }

    fn forward(&self, draft: &mut Draft<'_>) {
        let mut chain = Still::new(draft, based("forward", Hook::Forward, 0));
        known_of_anybody(&mut chain);
        let rule = self.unless_marked(&chain);
        self.ask(&mut chain, rule, (Stage::Forward, Direction::Ingress));
        for prefix in &chain.settings().interface_prefixes {
            let from = chain.rule().when(IN, prefix.as_bytes());
            chain.push(from.verdict(Verdict::Jump("from-workload".to_owned())));
        }
        for prefix in &chain.settings().interface_prefixes {
            let to = chain.rule().when(OUT, prefix.as_bytes());
            chain.push(to.verdict(Verdict::Jump("to-workload".to_owned())));
        }
        let rule = chain.rule();
        self.ask(&mut chain, rule, (Stage::Forward, Direction::Egress));
        service_loops(&mut chain);
        chain.finish();
    }

    /// Before IPVS, which takes packets to its services and sends them on as if they were this
    /// host's: what is known of where they came from is kept for that.
    fn input(&self, draft: &mut Draft<'_>) {
        let mut chain = Still::new(draft, based("input", Hook::Input, 0));
        known_of_anybody(&mut chain);
        let mark = chain.settings().workload_mark();
        chain.push(unmarked(chain.rule(), mark | self.arrival_mask()));
        for prefix in &chain.settings().interface_prefixes {
            chain.push(program::marked(chain.rule().when(IN, prefix.as_bytes()), mark));
        }
        let marks = self.arrivals.into_iter().flat_map(|it| &it.marks);
        for (interface, bits) in marks {
            let came = chain.rule().when(IN, &interface_pattern(interface));
            chain.push(program::marked_as(came, self.arrival_mask(), *bits));
        }
        chain.finish();
    }

    /// What is for this host itself.
    fn local(&self, draft: &mut Draft<'_>) {
        let mut chain = Still::new(draft, based("local", Hook::Input, AFTER_SERVICES));
        tunnel::arriving(&mut chain, self.tunnels);
        known(&mut chain);
        tunnel::arriving_wireguard(&mut chain);
        for prefix in &chain.settings().interface_prefixes {
            let from = chain.rule().when(IN, prefix.as_bytes());
            chain.push(from.clone().verdict(Verdict::Jump("workload-to-host".to_owned())));
            match chain.settings().endpoint_to_host {
                EndpointToHost::Drop => chain.deny(from, Direction::Egress, guards::TO_HOST),
                // One table cannot accept for the others.
                EndpointToHost::Return | EndpointToHost::Accept => {
                    chain.push(from.verdict(Verdict::Accept));
                }
            }
        }
        self.accept_marked(&mut chain);
        let rule = chain.rule();
        self.ask(&mut chain, rule, (Stage::Normal, Direction::Ingress));
        chain.finish();
    }

    /// What leaves this host and comes from somebody else: IPVS has sent it on. It is judged like
    /// what is forwarded. A base chain of its own, because the kernel counts the links on the way.
    fn passed_on(&self, draft: &mut Draft<'_>) {
        let mut chain = Still::new(draft, based("passed-on", Hook::Output, 0));
        known(&mut chain);
        of_this_host(&mut chain);
        if self.arrivals.is_some() {
            let rule = self.unless_marked(&chain);
            chain.push(rule.verdict(Verdict::Jump(host::PASSED_IN.to_owned())));
        }
        chain.push(chain.rule().verdict(Verdict::Jump("from-address".to_owned())));
        let mark = chain.settings().workload_mark();
        chain.push(unmarked(chain.rule(), mark | self.arrival_mask()));
        for prefix in &chain.settings().interface_prefixes {
            let to = chain.rule().when(OUT, prefix.as_bytes());
            chain.push(to.verdict(Verdict::Jump("to-workload".to_owned())));
        }
        let rule = chain.rule();
        self.ask(&mut chain, rule, (Stage::Forward, Direction::Egress));
        chain.finish();
    }

    fn pre_dnat(&self, draft: &mut Draft<'_>) {
        let occasion = (Stage::PreDnat, Direction::Ingress);
        let base = based("pre-dnat", Hook::Prerouting, -150);
        if !self.occasions.contains(&occasion) {
            return draft.unpin(&base.name);
        }
        let mut chain = Still::new(draft, base);
        known(&mut chain);
        self.accept_marked(&mut chain);
        let rule = chain.rule();
        self.ask(&mut chain, rule, occasion);
        chain.finish();
    }

    fn output(&self, draft: &mut Draft<'_>) {
        let untracked = (Stage::Untracked, Direction::Egress);
        let base = based("output-untracked", Hook::Output, -300);
        if self.occasions.contains(&untracked) {
            let mut chain = Still::new(draft, base);
            of_others(&mut chain);
            self.unmark(&mut chain);
            let rule = chain.rule();
            self.ask(&mut chain, rule, untracked);
            chain.finish();
        } else {
            draft.unpin(&base.name);
        }
        let normal = (Stage::Normal, Direction::Egress);
        let bases =
            [based("output", Hook::Output, 0), based("output-translated", Hook::Postrouting, 0)];
        if !self.occasions.contains(&normal) {
            bases.iter().for_each(|base| draft.unpin(&base.name));
            return;
        }
        let [before, after] = bases;
        let mut chain = Still::new(draft, before);
        let mark = chain.settings().translated_mark();
        known(&mut chain);
        of_others(&mut chain);
        self.accept_marked(&mut chain);
        self.spare_workloads(&mut chain);
        tunnel::leaving(&mut chain, self.tunnels);
        // By which interface these leave is known after routing.
        let translated = program::marked(host::is_translated(chain.rule()), mark);
        chain.push(translated.verdict(Verdict::Accept));
        let rule = chain.rule();
        self.ask(&mut chain, rule, normal);
        chain.finish();
        let mut chain = Still::new(draft, after);
        chain.push(when_unmarked(chain.rule(), mark).verdict(Verdict::Accept));
        chain.push(unmarked(chain.rule(), mark));
        self.spare_workloads(&mut chain);
        let rule = chain.rule();
        let translated = (Stage::Translated, Direction::Egress);
        let is_apart = self.occasions.contains(&translated);
        self.ask(&mut chain, rule, if is_apart { translated } else { normal });
        chain.finish();
    }

    /// A host always reaches its own workloads.
    fn spare_workloads(&self, chain: &mut Still<'_, '_>) {
        for prefix in &chain.settings().interface_prefixes {
            let to = chain.rule().when(OUT, prefix.as_bytes());
            chain.push(to.verdict(Verdict::Accept));
        }
    }
}

/// Lets through what is this host's own. Which link an address of one link is on the routing table
/// is not told, and who has no address yet asks from none: IPVS sends on neither.
fn of_this_host(chain: &mut Still<'_, '_>) {
    let local = tunnel::when_local(chain.rule(), fib_flags::SOURCE, Comparison::Equal);
    chain.push(local.verdict(Verdict::Accept));
    let ipv6 = chain.rule().when(FAMILY, IPV6);
    let link_local = when_link_local(ipv6.clone(), SOURCE_START, Comparison::Equal);
    chain.push(link_local.verdict(Verdict::Accept));
    chain.push(ipv6.when(Source::IPV6_SOURCE, &[0; 16]).verdict(Verdict::Accept));
}

/// Lets through what is not, where only that is judged.
fn of_others(chain: &mut Still<'_, '_>) {
    let ipv6 = chain.rule().when(FAMILY, IPV6);
    let routed = when_link_local(ipv6, SOURCE_START, Comparison::NotEqual);
    for rule in [chain.rule().when(FAMILY, IPV4), routed] {
        let foreign = tunnel::when_local(rule, fib_flags::SOURCE, Comparison::NotEqual);
        chain.push(foreign.verdict(Verdict::Accept));
    }
}

/// An address of a service that is still there after destination NAT has nobody behind it.
fn service_loops(chain: &mut Still<'_, '_>) {
    let places = [
        (IPV4, Source::IPV4_DESTINATION, "services4"),
        (IPV6, Source::IPV6_DESTINATION, "services6"),
    ];
    for (family, destination, set) in places {
        let rule = lookup(chain.rule().when(FAMILY, family), destination, set, false);
        let reason = guards::SERVICE;
        match chain.settings().service_loops {
            ServiceLoops::Allow => {}
            ServiceLoops::Drop => chain.deny(rule, Direction::Egress, reason),
            ServiceLoops::Reject => {
                let refusal = Expression::Reject(nft::expression::Rejection::Icmp(1));
                chain.push(rule.counted().with(refusal).comment(reason));
            }
        }
    }
}

/// Packets that leave the pools get the node's address.
fn outgoing(draft: &mut Draft<'_>) {
    let base = Base::new(ChainKind::Nat, Hook::Postrouting, 100);
    let mut chain = Still::new(draft, Chain::based("outgoing", base));
    let settings = chain.settings();
    for is_ipv4 in [true, false] {
        let (family, number, from, to) = match is_ipv4 {
            true => (IPV4, 4, Source::IPV4_SOURCE, Source::IPV4_DESTINATION),
            false => (IPV6, 6, Source::IPV6_SOURCE, Source::IPV6_DESTINATION),
        };
        let mut rule =
            lookup(chain.rule().when(FAMILY, family), from, &format!("nat{number}"), false);
        rule = lookup(rule, to, &format!("pools{number}"), true);
        if settings.nat_spares_hosts {
            rule = lookup(rule, to, &format!("hosts{number}"), true);
        }
        if let Some(interface) = &settings.nat_interface {
            rule = rule.when(OUT, &interface_pattern(interface));
        }
        if let Some(ports) = settings.nat_ports {
            for protocol in [6, 17] {
                let with_ports = rule.clone().when(PROTOCOL, &[protocol]);
                chain.push(translated(with_ports, settings, is_ipv4, Some(ports)));
            }
        }
        chain.push(translated(rule, settings, is_ipv4, None));
    }
    chain.finish();
}

/// The bytes that the name of an interface begins with: all of it, or up to a `+`.
fn interface_pattern(pattern: &str) -> Vec<u8> {
    match pattern.strip_suffix('+') {
        Some(start) => start.as_bytes().to_vec(),
        None => {
            let mut name = pattern.as_bytes().to_vec();
            name.resize(16, 0);
            name
        }
    }
}

fn translated(rule: Rule, settings: &Settings, is_ipv4: bool, ports: Option<(u16, u16)>) -> Rule {
    let slot = |slot| Register::slot(slot).expect("there are 16 slots");
    let (first, last) = (slot(4), slot(5));
    let mut rule = rule;
    if let Some((low, high)) = ports {
        let value = |port: u16| port.to_be_bytes().to_vec();
        rule = rule
            .with(Expression::Constant { register: first, value: value(low) })
            .with(Expression::Constant { register: last, value: value(high) });
    }
    let registers = ports.map(|_| (first, last));
    match settings.nat_address.filter(|_| is_ipv4) {
        Some(address) => {
            let register = Register::FIRST;
            rule.with(Expression::Constant { register, value: address.octets().to_vec() }).with(
                Expression::Nat {
                    kind: NatKind::Source,
                    is_ipv6: false,
                    address: Some(register),
                    port: registers.map(|it| it.0),
                    last_port: registers.map(|it| it.1),
                    flags: nat_flags::RANDOM_FULLY,
                },
            )
        }
        None => {
            rule.with(Expression::Masquerade { flags: nat_flags::RANDOM_FULLY, ports: registers })
        }
    }
}

/// A workload speaks for its own address only.
fn neighbours(draft: &mut Draft<'_>) {
    let (chain, rules) = neighbours_chain(draft.settings);
    let key = (In::Arp, chain.name.clone());
    draft.plan.chains.insert(key, ChainPlan { chain, is_new: true, rules });
}

/// The chain for ARP.
pub(super) fn neighbours_chain(settings: &Settings) -> (Chain, Vec<Rule>) {
    let rule = |prefix: &String| Rule::new("neighbours").when(IN, prefix.as_bytes());
    let foreign = |prefix| {
        pair(rule(prefix), Source::ARP_SENDER, "source4", true)
            .counted()
            .verdict(Verdict::Drop)
            .comment("ARP for an address that is not the endpoint's")
    };
    let rules = settings.interface_prefixes.iter().map(foreign).collect();
    (based("neighbours", Hook::Input, 0), rules)
}
