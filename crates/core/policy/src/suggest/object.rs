//! A policy as a resource.

use model::resource::Direction;
use model::selector::Selector;
use net::Cidr;
use serde_json::{Map, Value, json};

use super::Wish;
use super::select::Peer;
use crate::cluster::Cluster;
use crate::explain::{Layer, protocol};

/// A policy with one rule, or with that and one that passes.
pub(super) struct Shape<'a> {
    pub(super) name: String,
    /// Empty for a policy of the cluster.
    pub(super) namespace: &'a str,
    pub(super) tier: &'a str,
    pub(super) order: Option<f64>,
    pub(super) selector: String,
    pub(super) direction: Direction,
    pub(super) layer: Layer,
}

pub(super) fn policy(shape: &Shape<'_>, rules: Vec<Value>) -> Value {
    let (kind, metadata) = match shape.namespace {
        "" => ("GlobalNetworkPolicy", json!({ "name": shape.name })),
        namespace => ("NetworkPolicy", json!({ "name": shape.name, "namespace": namespace })),
    };
    let (kind_of_traffic, field) = match shape.direction {
        Direction::Ingress => ("Ingress", "ingress"),
        Direction::Egress => ("Egress", "egress"),
    };
    let mut spec = Map::new();
    if shape.tier != api::names::DEFAULT_TIER {
        spec.insert("tier".to_owned(), json!(shape.tier));
    }
    if let Some(order) = shape.order {
        spec.insert("order".to_owned(), json!(order));
    }
    spec.insert("selector".to_owned(), json!(shape.selector));
    spec.insert("types".to_owned(), json!([kind_of_traffic]));
    spec.insert(field.to_owned(), json!(rules));
    let flags: &[&str] = match shape.layer {
        Layer::Normal => &[],
        Layer::Forward => &["applyOnForward"],
        Layer::PreDnat => &["preDNAT", "applyOnForward"],
        Layer::Untracked => &["doNotTrack", "applyOnForward"],
    };
    spec.extend(flags.iter().map(|flag| ((*flag).to_owned(), json!(true))));
    json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    })
}

/// Leaves everything to others.
pub(super) fn pass() -> Value {
    json!({ "action": "Pass" })
}

/// A rule for the packet's protocol and port, to or from a peer.
pub(super) fn rule(wish: Wish<'_>, peer: &Peer) -> Value {
    let packet = wish.packet;
    let mut rule = Map::new();
    rule.insert("action".to_owned(), json!("Allow"));
    let named = net::Protocol::from(protocol(&net::Protocol::Number(packet.protocol)).as_str());
    let named = match named.canonical() {
        name if name.is_known_name() => json!(name.to_string()),
        _ => json!(packet.protocol),
    };
    rule.insert("protocol".to_owned(), named);
    if let Some((kind, code)) = packet.icmp {
        rule.insert("icmp".to_owned(), json!({ "type": kind, "code": code }));
    }
    let mut entity = Map::new();
    match peer {
        Peer::Net(address) => {
            entity.insert("nets".to_owned(), json!([Cidr::host(*address).to_string()]));
        }
        Peer::Labels { selector, namespaces } => {
            entity.insert("selector".to_owned(), json!(selector.canonical()));
            if let Some(namespaces) = namespaces {
                entity.insert("namespaceSelector".to_owned(), json!(namespaces.canonical()));
            }
        }
    }
    let ports = packet.ports.map(|(_, port)| json!([port]));
    match wish.direction {
        Direction::Ingress => {
            rule.insert("source".to_owned(), Value::Object(entity));
            if let Some(ports) = ports {
                rule.insert("destination".to_owned(), json!({ "ports": ports }));
            }
        }
        Direction::Egress => {
            entity.extend(ports.map(|ports| ("ports".to_owned(), ports)));
            rule.insert("destination".to_owned(), Value::Object(entity));
        }
    }
    Value::Object(rule)
}

/// A name that no policy has yet: `allow-web-to-db-tcp-5432`, `allow-egress-web-to-db-tcp-5432`.
pub(super) fn name(cluster: &Cluster, wish: Wish<'_>, selector: &Selector, peer: &Peer) -> String {
    let own = said(selector);
    let peer = match peer {
        Peer::Net(address) => address.to_string(),
        Peer::Labels { selector, .. } => said(selector),
    };
    // Both ends may need one, in one namespace.
    let (verb, from, to) = match wish.direction {
        Direction::Ingress => ("allow", peer, own),
        Direction::Egress => ("allow-egress", own, peer),
    };
    let protocol = protocol(&net::Protocol::Number(wish.packet.protocol));
    let port = wish.packet.ports.map_or(String::new(), |(_, port)| format!("-{port}"));
    let name = slug(&format!("{verb}-{from}-to-{to}-{protocol}{port}"));
    let is_taken = |name: &String| cluster.policies.keys().any(|id| id.name == *name);
    let others = (2_u32..).map(|n| format!("{name}-{n}"));
    std::iter::once(name.clone()).chain(others).find(|it| !is_taken(it)).unwrap_or(name)
}

/// The value that a selector asks for, or `pods`.
fn said(selector: &Selector) -> String {
    let restrictions = selector.restrictions();
    let values = restrictions.iter().filter(|(name, _)| !name.starts_with("projectcalico.org/"));
    let mut values = values.filter_map(|(_, it)| it.one_of.as_ref()?.first().copied());
    values.next().unwrap_or("pods").to_owned()
}

/// Letters, digits and single dashes, as names of objects may have them.
fn slug(text: &str) -> String {
    const LEN_MAX: usize = 60;
    let mut slug = String::new();
    for letter in text.to_lowercase().chars() {
        match letter {
            'a'..='z' | '0'..='9' => slug.push(letter),
            _ if !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
        if slug.len() == LEN_MAX {
            break;
        }
    }
    slug.trim_matches('-').to_owned()
}
