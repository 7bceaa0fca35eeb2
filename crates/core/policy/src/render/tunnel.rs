//! Packets between nodes that carry those of workloads: they come from nodes only, and no policy of
//! a host closes their way, because what is inside of them is judged anyway.

use model::resource::Direction;
use nft::expression::{Comparison, FibResult, fib_flags};
use nft::{Chain, Expression, Register, Rule, Source, Verdict};

use super::base::Still;
use super::draft::Draft;
use super::emit::{FAMILY, IPV4, IPV6, PROTOCOL, lookup};
use super::settings::{Settings, Surroundings, Tunnels};

const FROM_NODES: &str = "from-nodes";
const IPIP: &[u8] = &[4];
const UDP: &[u8] = &[17];
/// How the routing table says that an address is this host's.
const LOCAL: u32 = 2;

/// What the network and the settings together say of tunnels.
pub(super) fn in_use(settings: &Settings, surroundings: &Surroundings) -> Tunnels {
    let told = surroundings.tunnels;
    Tunnels {
        ipip: settings.ipip.unwrap_or(told.ipip),
        vxlan_v4: settings.vxlan.unwrap_or(told.vxlan_v4),
        vxlan_v6: told.vxlan_v6,
    }
}

impl Tunnels {
    /// The packets of tunnels, each sort with its address family.
    fn packets<'s>(self, settings: &'s Settings) -> impl Iterator<Item = Packets> + use<'s> {
        let vxlan = |family| Packets { family, port: Some(settings.vxlan_port) };
        let ipip = self.ipip.then_some(Packets { family: IPV4, port: None });
        let v4 = self.vxlan_v4.then(|| vxlan(IPV4));
        let v6 = self.vxlan_v6.then(|| vxlan(IPV6));
        [ipip, v4, v6].into_iter().flatten()
    }
}

/// Packets of a sort.
#[derive(Clone, Copy)]
struct Packets {
    family: &'static [u8],
    /// The port if they are UDP; they are IPIP otherwise.
    port: Option<u16>,
}

impl Packets {
    fn when(self, rule: Rule) -> Rule {
        let rule = rule.when(FAMILY, self.family);
        match self.port {
            None => rule.when(PROTOCOL, IPIP),
            Some(port) => {
                rule.when(PROTOCOL, UDP).when(Source::DESTINATION_PORT, &port.to_be_bytes())
            }
        }
    }
}

/// The chain for packets of tunnels that come to this host.
pub(super) fn install(draft: &mut Draft<'_>) {
    let mut chain = Still::new(draft, Chain::plain(FROM_NODES));
    for (family, source, set) in
        [(IPV4, Source::IPV4_SOURCE, "hosts4"), (IPV6, Source::IPV6_SOURCE, "hosts6")]
    {
        let rule = is_local(chain.rule().when(FAMILY, family), fib_flags::DESTINATION);
        chain.push(lookup(rule, source, set, false).verdict(Verdict::Accept));
    }
    let rest = chain.rule();
    chain.deny(rest, Direction::Ingress, "tunnel packet of a host that is no node");
    chain.finish();
}

/// Looks at packets of tunnels that come to this host, also at those of known connections: who is
/// no node any more sends nothing into the network.
pub(super) fn arriving(chain: &mut Still<'_, '_>, tunnels: Tunnels) {
    for packets in tunnels.packets(chain.settings()) {
        let rule = packets.when(chain.rule());
        chain.push(rule.verdict(Verdict::Jump(FROM_NODES.to_owned())));
    }
}

/// WireGuard knows its peers by their keys, so its packets may come from anywhere.
pub(super) fn arriving_wireguard(chain: &mut Still<'_, '_>) {
    wireguard(chain, fib_flags::DESTINATION);
}

/// Lets packets of tunnels leave this host.
pub(super) fn leaving(chain: &mut Still<'_, '_>, tunnels: Tunnels) {
    for packets in tunnels.packets(chain.settings()) {
        let (destination, set) = match packets.family {
            IPV4 => (Source::IPV4_DESTINATION, "hosts4"),
            _ => (Source::IPV6_DESTINATION, "hosts6"),
        };
        let rule = lookup(packets.when(chain.rule()), destination, set, false);
        chain.push(is_local(rule, fib_flags::SOURCE).verdict(Verdict::Accept));
    }
    wireguard(chain, fib_flags::SOURCE);
}

fn wireguard(chain: &mut Still<'_, '_>, end: u32) {
    let settings = chain.settings();
    for (family, port) in [(IPV4, settings.wireguard_v4), (IPV6, settings.wireguard_v6)] {
        if port.is_some() {
            let rule = Packets { family, port }.when(chain.rule());
            chain.push(is_local(rule, end).verdict(Verdict::Accept));
        }
    }
}

fn is_local(rule: Rule, end: u32) -> Rule {
    when_local(rule, end, Comparison::Equal)
}

/// Goes on if an address is one of this host's, or is not.
pub(super) fn when_local(rule: Rule, end: u32, operator: Comparison) -> Rule {
    let source = Source::Fib { flags: end, result: FibResult::AddressKind };
    let register = Register::FIRST;
    rule.with(Expression::Load { source, register }).with(Expression::Compare {
        register,
        operator,
        value: LOCAL.to_ne_bytes().to_vec(),
    })
}
