//! Rules with selectors → rules as dataplanes carry them out, and the sets that these name.
//!
//! Sets have the ids that Calico gives them, because other programs see them. What two rules
//! define alike is one set.

use std::collections::BTreeMap;

use model::selector::{Selector, unique_id};
use net::{Port, Protocol};

use crate::input::{Entity, Policy, Profile, Rule, Service};
use crate::intent::Directions;
use crate::packet::protocol_number;
use crate::rule::{self, Peer, Ports};
use crate::set::SetId;

/// The rules of a policy or a profile, and the sets that they name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scanned {
    /// The rules.
    pub directions: Directions,
    /// What is in the sets.
    pub sets: BTreeMap<SetId, SetDefinition>,
}

/// What is in a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetDefinition {
    /// The addresses of endpoints and network sets with such labels.
    Selector(Selector),
    /// The ports of that name of endpoints with such labels.
    NamedPort {
        /// The labels.
        selector: Selector,
        /// The protocol.
        protocol: PortProtocol,
        /// The name of the port.
        name: String,
    },
    /// The endpoints of a service.
    Service {
        /// The service.
        service: Service,
        /// Whether with their ports, or their addresses alone.
        has_ports: bool,
    },
}

/// The protocol of ports that a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum PortProtocol {
    Any,
    Tcp,
    Udp,
    Sctp,
}

impl SetDefinition {
    /// The name of the set.
    pub fn id(&self) -> SetId {
        match self {
            Self::Selector(selector) => selector.unique_id(),
            Self::NamedPort { selector, protocol, name } => {
                unique_id("n", &format!("{},{},{name}", selector.unique_id(), protocol.name()))
            }
            Self::Service { service, has_ports } => {
                let prefix = if *has_ports { "svc" } else { "svcnoport" };
                unique_id(prefix, &format!("{}/{}", service.namespace, service.name))
            }
        }
    }

    /// Whether its members are ports of addresses, not networks.
    pub fn is_of_ports(&self) -> bool {
        match self {
            Self::Selector(_) => false,
            Self::NamedPort { .. } => true,
            Self::Service { has_ports, .. } => *has_ports,
        }
    }
}

impl PortProtocol {
    /// The protocol of a rule; any if it has none. A rule that names ports has one with ports.
    fn of(protocol: Option<&Protocol>) -> Self {
        match protocol.map(protocol_number) {
            None => Self::Any,
            Some(Some(17)) => Self::Udp,
            Some(Some(132)) => Self::Sctp,
            Some(_) => Self::Tcp,
        }
    }

    /// The name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Whether a protocol is meant, by its number.
    pub fn includes(self, number: u8) -> bool {
        match self {
            Self::Any => true,
            Self::Tcp => number == 6,
            Self::Udp => number == 17,
            Self::Sctp => number == 132,
        }
    }
}

/// The rules of a policy, and the sets that they name.
pub fn scan_policy(policy: &Policy) -> Scanned {
    scan(&policy.ingress, &policy.egress)
}

/// The rules of a profile, and the sets that they name.
pub fn scan_profile(profile: &Profile) -> Scanned {
    scan(&profile.ingress, &profile.egress)
}

fn scan(ingress: &[Rule], egress: &[Rule]) -> Scanned {
    let mut sets = Sets::default();
    let ingress = ingress.iter().map(|rule| sets.rule(rule)).collect();
    let egress = egress.iter().map(|rule| sets.rule(rule)).collect();
    Scanned { directions: Directions { ingress, egress }, sets: sets.0 }
}

/// The sets that were named so far.
#[derive(Default)]
struct Sets(BTreeMap<SetId, SetDefinition>);

impl Sets {
    fn define(&mut self, definition: SetDefinition) -> SetId {
        let id = definition.id();
        self.0.entry(id.clone()).or_insert(definition);
        id
    }

    fn rule(&mut self, rule: &Rule) -> rule::Rule {
        let ports = PortProtocol::of(rule.protocol.as_ref());
        let mut source = self.peer(&rule.source, ports);
        if let Some(service) = &rule.source.service {
            source.sets.push(self.service(service, false));
        }
        let mut destination = self.peer(&rule.destination, ports);
        if let Some(service) = &rule.destination.service {
            destination.port_sets.push(self.service(service, true));
        }
        rule::Rule {
            action: rule.action,
            is_ipv4: rule.is_ipv4.or_else(|| family_of(rule.protocol.as_ref()?)),
            protocol: rule.protocol.clone(),
            not_protocol: rule.not_protocol.clone(),
            icmp: rule.icmp,
            not_icmp: rule.not_icmp,
            source,
            destination,
        }
    }

    fn service(&mut self, service: &Service, has_ports: bool) -> SetId {
        self.define(SetDefinition::Service { service: service.clone(), has_ports })
    }

    fn peer(&mut self, entity: &Entity, protocol: PortProtocol) -> Peer {
        // With a positive selector the peer is a known one, and what it is not narrows the one set.
        // On its own, what it is not concerns strangers as well and stays a set to be outside of.
        let (selector, not_selector) = match (&entity.selector, &entity.not_selector) {
            (Some(selector), Some(not)) => (Some(selector.and(&not.negated())), None),
            (selector, not) => (selector.clone(), not.as_ref()),
        };
        let all = Selector::all();
        let owners = selector.as_ref().unwrap_or(&all);
        let ports = self.ports(&entity.ports, owners, protocol);
        let not_ports = self.ports(&entity.not_ports, owners, protocol);
        // Sets of named ports hold those of selected peers only: if nothing but names can match,
        // the peers need no set of their own.
        let is_in_ports = ports.ranges.is_empty() && !ports.named.is_empty();
        let selected = selector.as_ref().filter(|_| !is_in_ports);
        let mut of_selector =
            |selector: &Selector| self.define(SetDefinition::Selector(selector.clone()));
        Peer {
            nets: entity.nets.clone(),
            not_nets: entity.not_nets.clone(),
            sets: selected.map(&mut of_selector).into_iter().collect(),
            not_sets: not_selector.map(&mut of_selector).into_iter().collect(),
            ports,
            not_ports,
            port_sets: Vec::new(),
        }
    }

    fn ports(&mut self, ports: &[Port], owners: &Selector, protocol: PortProtocol) -> Ports {
        let mut split = Ports::default();
        for port in ports {
            match port {
                Port::Numbers { first, last } => split.ranges.push((*first, *last)),
                Port::Name(name) => split.named.push(self.define(SetDefinition::NamedPort {
                    selector: owners.clone(),
                    protocol,
                    name: name.clone(),
                })),
            }
        }
        split
    }
}

/// Whether the protocol is one of IPv4 only (true) or of IPv6 only. Numbers say nothing: as one,
/// ICMP of either version may be meant.
fn family_of(protocol: &Protocol) -> Option<bool> {
    match protocol {
        Protocol::Name(name) if name == "icmp" => Some(true),
        Protocol::Name(name) if name == "icmpv6" => Some(false),
        _ => None,
    }
}
