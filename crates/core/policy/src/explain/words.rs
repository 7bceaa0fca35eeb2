//! Rules, and what packets lack of them, in the words of the people who wrote them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::resource::Action;
use model::selector::Selector;
use net::{Cidr, Protocol};

use super::condition::{About, Condition, Side};
use crate::input::Labels;
use crate::packet::{Packet, protocol_number};
use crate::rule::{Peer, Ports, Rule};
use crate::scan::SetDefinition;
use crate::set::SetId;

/// What sets stand for, and where the rules that name them are written.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    /// What is in the sets.
    pub sets: &'a BTreeMap<SetId, SetDefinition>,
    /// The namespace of the policy, which goes without saying; empty if it has none.
    pub namespace: &'a str,
}

/// What is known of the two ends of a packet.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Where it comes from.
    pub source: Party,
    /// Where it goes.
    pub destination: Party,
}

/// One end of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// What people call it.
    pub name: String,
    /// Its labels, those of its profiles among them; none if it has no labels because it is no
    /// endpoint.
    pub labels: Option<Labels>,
}

impl Words<'_> {
    /// `allow tcp 5432 from app == "api"`.
    pub fn rule(&self, rule: &Rule) -> String {
        let mut words = vec![action(rule.action).to_owned()];
        if let Some(is_ipv4) = rule.is_ipv4 {
            // The name of the protocol says it.
            let is_said = matches!(&rule.protocol, Some(Protocol::Name(name))
                if ["icmp", "icmpv6"].contains(&name.as_str()));
            if !is_said {
                words.push(if is_ipv4 { "IPv4" } else { "IPv6" }.to_owned());
            }
        }
        words.extend(rule.protocol.as_ref().map(protocol));
        words.extend(rule.not_protocol.as_ref().map(|it| format!("not {}", protocol(it))));
        for (icmp, not) in [(rule.icmp, ""), (rule.not_icmp, "not ")] {
            words.extend(icmp.map(|icmp| match icmp.code {
                Some(code) => format!("{not}type {} code {code}", icmp.kind),
                None => format!("{not}type {}", icmp.kind),
            }));
        }
        words.extend(self.ports(&rule.destination, rule.protocol.is_none()));
        if words.len() == 1
            && rule.source == Peer::default()
            && self.who(&rule.destination).is_empty()
        {
            words.push("everything".to_owned());
        }
        let mut source = self.who(&rule.source);
        source.extend(self.ports(&rule.source, true));
        let destination = self.who(&rule.destination);
        for (said, parts) in [("from", source), ("to", destination)] {
            if !parts.is_empty() {
                words.push(format!("{said} {}", parts.join(" and ")));
            }
        }
        words.join(" ")
    }

    /// What a packet has where the rule wants something else: `web-1 has app=web`.
    pub fn lack(&self, condition: &Condition, packet: &Packet, ends: &Ends) -> String {
        match condition {
            Condition::Version if packet.source.is_ipv4() => "it is IPv4".to_owned(),
            Condition::Version => "it is IPv6".to_owned(),
            Condition::Protocol => {
                format!("it is {}", protocol(&Protocol::Number(packet.protocol)))
            }
            Condition::Icmp => match packet.icmp {
                Some((kind, code)) => format!("it is type {kind} code {code}"),
                None => "it is no ICMP message".to_owned(),
            },
            Condition::Of(side, about) => {
                let (party, address, port) = match side {
                    Side::Source => (&ends.source, packet.source, packet.ports.map(|it| it.0)),
                    Side::Destination => {
                        (&ends.destination, packet.destination, packet.ports.map(|it| it.1))
                    }
                };
                self.lack_of(about, *side, party, (address, port))
            }
        }
    }

    fn lack_of(
        &self,
        about: &About,
        side: Side,
        party: &Party,
        (address, port): (IpAddr, Option<u16>),
    ) -> String {
        let name = match party.name.is_empty() {
            true => address.to_string(),
            false => party.name.clone(),
        };
        let at = match side {
            Side::Source => "source port",
            Side::Destination => "port",
        };
        match about {
            About::Nets if name == address.to_string() => format!("{name} is in none of these"),
            About::Nets => format!("{name} is {address}"),
            About::NotNets => format!("{name} is {address}"),
            About::Ports | About::NotPorts | About::PortSet(_) => match port {
                Some(port) => format!("{at} is {port}"),
                None => "it has no port".to_owned(),
            },
            About::Set(id) => match self.sets.get(id) {
                Some(SetDefinition::Selector(selector)) => has(&name, party, selector),
                _ => format!("{name} is none of these"),
            },
            About::NotSet(_) => format!("{name} is one of these"),
        }
    }

    /// The conditions on an end other than its ports.
    fn who(&self, peer: &Peer) -> Vec<String> {
        let mut parts = Vec::new();
        parts.extend(peer.sets.iter().map(|id| self.set(id)));
        parts.extend(peer.not_sets.iter().map(|id| format!("not {}", self.set(id))));
        if !peer.nets.is_empty() {
            parts.push(nets(&peer.nets));
        }
        if !peer.not_nets.is_empty() {
            parts.push(format!("not {}", nets(&peer.not_nets)));
        }
        parts.extend(peer.port_sets.iter().map(|id| self.set(id)));
        // A selector has no set of its own where names of ports stand for it.
        if peer.sets.is_empty() && peer.ports.ranges.is_empty() {
            let owners = peer.ports.named.iter().filter_map(|id| match self.sets.get(id) {
                Some(SetDefinition::NamedPort { selector, .. }) if !selector.is_all() => {
                    Some(self.selector(selector))
                }
                _ => None,
            });
            parts.extend(owners.take(1));
        }
        parts
    }

    fn ports(&self, peer: &Peer, is_to_be_said: bool) -> Vec<String> {
        let list = |ports: &Ports| {
            let range = |(first, last): &(u16, u16)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            let named = ports.named.iter().map(|id| match self.sets.get(id) {
                Some(SetDefinition::NamedPort { name, .. }) => name.clone(),
                _ => id.clone(),
            });
            ports.ranges.iter().map(range).chain(named).collect::<Vec<_>>().join(",")
        };
        let port = if is_to_be_said { "port " } else { "" };
        let mut parts = Vec::new();
        if !peer.ports.is_empty() {
            parts.push(format!("{port}{}", list(&peer.ports)));
        }
        if !peer.not_ports.is_empty() {
            parts.push(format!("not port {}", list(&peer.not_ports)));
        }
        parts
    }

    /// What a set stands for.
    pub fn set(&self, id: &SetId) -> String {
        match self.sets.get(id) {
            Some(SetDefinition::Selector(selector)) => self.selector(selector),
            Some(SetDefinition::NamedPort { selector, name, .. }) => {
                format!("port {name} of {}", self.selector(selector))
            }
            Some(SetDefinition::Service { service, .. }) => {
                format!("service {}/{}", service.namespace, service.name)
            }
            None => format!("set {id}"),
        }
    }

    /// A selector without the scope that a policy of a namespace adds to it.
    pub fn selector(&self, selector: &Selector) -> String {
        const NAMESPACE: &str = "projectcalico.org/namespace";
        let text = selector.canonical();
        let here = format!("{NAMESPACE} == \"{}\"", self.namespace);
        if text == here {
            return format!("namespace {}", self.namespace);
        }
        let behind = |scope: &str| {
            let inner = text.strip_prefix(&format!("({scope} && "))?.strip_suffix(')')?;
            is_balanced(inner).then(|| unbracketed(inner))
        };
        let before = |scope: &str| {
            let inner = text.strip_prefix('(')?.strip_suffix(&format!(" && {scope})"))?;
            is_balanced(inner).then(|| unbracketed(inner))
        };
        if let Some(inner) = behind(&here).or_else(|| before(&here)) {
            return inner.to_owned();
        }
        if let Some(inner) = behind(&format!("has({NAMESPACE})")) {
            return format!("{inner} in any namespace");
        }
        if let Some(inner) = behind(&format!("!has({NAMESPACE})")) {
            return format!("{inner} in no namespace");
        }
        unbracketed(text).to_owned()
    }
}

/// Outer brackets say nothing on their own.
fn unbracketed(text: &str) -> &str {
    let bare = text.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
    bare.filter(|it| is_balanced(it)).unwrap_or(text)
}

/// Whether no bracket closes before it opens, quotes aside.
fn is_balanced(text: &str) -> bool {
    let (mut depth, mut quote) = (0_i64, None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    depth == 0
}

/// `web-1 has app=web`: the labels that the selector asks for, as they are.
fn has(name: &str, party: &Party, selector: &Selector) -> String {
    let Some(labels) = &party.labels else { return format!("{name} is no endpoint with labels") };
    let mut parts = Vec::new();
    for (label, wanted) in selector.restrictions() {
        let actual = labels.get(label);
        let is_fine = match actual {
            Some(value) => {
                let one_of = wanted.one_of.as_ref();
                !wanted.must_be_absent && one_of.is_none_or(|it| it.contains(value.as_str()))
            }
            None => !wanted.must_be_present,
        };
        if is_fine {
            continue;
        }
        let label = match label {
            "projectcalico.org/namespace" => "namespace",
            "projectcalico.org/serviceaccount" => "service account",
            other => other,
        };
        parts.push(match actual {
            Some(value) if label == "namespace" => format!("is in namespace {value}"),
            Some(value) => format!("has {label}={value}"),
            None => format!("has no {label}"),
        });
    }
    match parts.is_empty() {
        true => format!("{name} has other labels"),
        false => format!("{name} {}", parts.join(" and ")),
    }
}

/// The name of an action, as in a sentence.
pub fn action(action: Action) -> &'static str {
    match action {
        Action::Allow => "allow",
        Action::Deny => "deny",
        Action::Log => "log",
        Action::Pass => "pass",
    }
}

/// The name of a protocol, in lower case, or its number.
pub fn protocol(protocol: &Protocol) -> String {
    const NAMES: [&str; 6] = ["icmp", "tcp", "udp", "icmpv6", "sctp", "udplite"];
    let number = protocol_number(protocol);
    let named = |name: &&&str| protocol_number(&Protocol::from(**name)) == number;
    match NAMES.iter().find(named) {
        Some(name) if number.is_some() => (*name).to_owned(),
        _ => match protocol {
            Protocol::Number(number) => format!("protocol {number}"),
            Protocol::Name(name) => name.to_lowercase(),
        },
    }
}

fn nets(nets: &[Cidr]) -> String {
    let net = |net: &Cidr| {
        let is_one = net.prefix_len() == if net.is_ipv4() { 32 } else { 128 };
        if is_one { net.address().to_string() } else { net.to_string() }
    };
    nets.iter().map(net).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Icmp;
    use crate::scan::PortProtocol;

    fn sets() -> BTreeMap<SetId, SetDefinition> {
        let selector = |text: &str| text.parse::<Selector>().unwrap();
        let scope = selector("projectcalico.org/namespace == 'shop'");
        let definitions = [
            ("api", SetDefinition::Selector(scope.and(&selector("app == 'api'")))),
            ("either", SetDefinition::Selector(scope.and(&selector("a == 'b' || c == 'd'")))),
            ("here", SetDefinition::Selector(scope.clone())),
            ("other", SetDefinition::Selector(selector("(role == 'x') && has(y)"))),
            (
                "http",
                SetDefinition::NamedPort {
                    selector: scope.and(&selector("app == 'api'")),
                    protocol: PortProtocol::Tcp,
                    name: "http".to_owned(),
                },
            ),
        ];
        definitions.into_iter().map(|(id, it)| (id.to_owned(), it)).collect()
    }

    fn peer(sets: &[&str]) -> Peer {
        Peer { sets: sets.iter().map(|id| (*id).to_owned()).collect(), ..Peer::default() }
    }

    #[test]
    fn rules_read_like_sentences() {
        let sets = sets();
        let words = Words { sets: &sets, namespace: "shop" };
        let rule = |change: fn(&mut Rule)| {
            let mut rule = Rule::all(Action::Allow);
            change(&mut rule);
            words.rule(&rule)
        };
        assert_eq!(rule(|_| {}), "allow everything");
        let said = rule(|it| {
            it.protocol = Some(Protocol::from("TCP"));
            it.source = peer(&["api"]);
            it.destination.ports.ranges = vec![(5432, 5432), (8000, 8100)];
        });
        assert_eq!(said, r#"allow tcp 5432,8000-8100 from app == "api""#);
        let said = rule(|it| {
            it.action = Action::Deny;
            it.source = peer(&["either", "here"]);
            it.destination.nets = vec!["10.0.0.0/8".parse().unwrap(), "10.1.1.1".parse().unwrap()];
            it.destination.not_nets = vec!["fd00::/8".parse().unwrap()];
        });
        assert_eq!(
            said,
            r#"deny from a == "b" || c == "d" and namespace shop to 10.0.0.0/8,10.1.1.1 and not fd00::/8"#
        );
        let said = rule(|it| {
            it.is_ipv4 = Some(true);
            it.protocol = Some(Protocol::from("icmp"));
            it.icmp = Some(Icmp { kind: 8, code: None });
            it.source = peer(&["other"]);
        });
        assert_eq!(said, r#"allow icmp type 8 from role == "x" && has(y)"#);
        let said = rule(|it| {
            it.not_protocol = Some(Protocol::Number(47));
            it.is_ipv4 = Some(false);
            it.destination.ports.named = vec!["http".to_owned()];
            it.source.ports.ranges = vec![(53, 53)];
        });
        assert_eq!(said, r#"allow IPv6 not protocol 47 port http from port 53 to app == "api""#);
    }

    #[test]
    fn the_scope_of_a_policy_goes_without_saying() {
        let sets = BTreeMap::new();
        let said = |namespace, text: &str| {
            Words { sets: &sets, namespace }.selector(&text.parse::<Selector>().unwrap())
        };
        let scope = "projectcalico.org/namespace == 'shop'";
        assert_eq!(said("shop", &format!("a == 'b' && {scope}")), "a == \"b\"");
        assert_eq!(said("shop", &format!("{scope} && a == 'b'")), "a == \"b\"");
        assert_eq!(said("shop", scope), "namespace shop");
        let any = "has(projectcalico.org/namespace) && a == 'b'";
        assert_eq!(said("shop", any), "a == \"b\" in any namespace");
        assert_eq!(said("", scope), scope.replace('\'', "\""));
        let both = "(a == \"b\" || c == \")\") && has(d)";
        assert_eq!(said("shop", both), both);
    }

    #[test]
    fn what_is_lacking_is_said_as_it_is() {
        let sets = sets();
        let words = Words { sets: &sets, namespace: "shop" };
        let labels = |list: &[(&str, &str)]| -> Labels {
            list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let party = |name: &str, list| Party { name: name.to_owned(), labels: Some(labels(list)) };
        let ends = Ends {
            source: party("web-1", &[("app", "web"), ("projectcalico.org/namespace", "shop")]),
            destination: Party::default(),
        };
        let packet = Packet {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: 17,
            ports: Some((40_000, 53)),
            icmp: None,
            before_nat: None,
            is_of_host: false,
        };
        let source = |about| Condition::Of(Side::Source, about);
        let of = |id: &str| About::Set(id.to_owned());
        for (condition, said) in [
            (source(of("api")), "web-1 has app=web"),
            (source(of("other")), "web-1 has no role and has no y"),
            (source(of("either")), "web-1 has other labels"),
            (source(About::Nets), "web-1 is 10.0.0.1"),
            (source(About::Ports), "source port is 40000"),
            (Condition::Of(Side::Destination, About::Ports), "port is 53"),
            (Condition::Of(Side::Destination, of("api")), "10.0.0.2 is no endpoint with labels"),
            (Condition::Of(Side::Destination, About::Nets), "10.0.0.2 is in none of these"),
            (Condition::Protocol, "it is udp"),
            (Condition::Version, "it is IPv4"),
            (Condition::Icmp, "it is no ICMP message"),
        ] {
            assert_eq!(words.lack(&condition, &packet, &ends), said);
        }
    }
}
