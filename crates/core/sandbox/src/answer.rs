//! What the runtime is told after an ADD, in the form of each version of the protocol.

use std::net::IpAddr;

use net::Cidr;
use serde_json::{Map, Value, json};

use crate::version::Version;

/// The result of an ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The interfaces; an address manager has none.
    pub interfaces: Option<Interfaces>,
    /// The addresses: single ones from the plugin, with the block's mask from an address manager.
    pub addresses: Vec<Cidr>,
    /// The routes that are reported. They are not all in the kernel: Calico reports one for each
    /// new address, to tell the plugin above that the host's routes are to be made.
    pub routes: Vec<Route>,
}

/// The two ends of the pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// The host's end.
    pub host: String,
    /// The end inside.
    pub container: String,
    /// The hardware address inside.
    pub mac: String,
    /// The MTU, where it is known.
    pub mtu: Option<u32>,
    /// The path of the network namespace.
    pub netns: String,
}

/// A route, as reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to; the host part is kept as it came.
    pub destination: Cidr,
    /// The next hop, if another plugin named one.
    pub gateway: Option<IpAddr>,
}

impl Answer {
    /// As it is printed.
    pub fn to_json(&self, version: Version) -> Value {
        match version {
            Version::V0_1_0 | Version::V0_2_0 => self.old(version),
            _ => self.new_form(version),
        }
    }

    /// One address a family, each with its routes.
    fn old(&self, version: Version) -> Value {
        let mut object = Map::new();
        object.insert("cniVersion".into(), version.text().into());
        for (field, is_ipv4) in [("ip4", true), ("ip6", false)] {
            let Some(address) = self.addresses.iter().find(|a| a.is_ipv4() == is_ipv4) else {
                continue;
            };
            let mut family = Map::new();
            family.insert("ip".into(), address.to_string().into());
            let routes = routes(self.routes.iter().filter(|r| r.destination.is_ipv4() == is_ipv4));
            if !routes.is_empty() {
                family.insert("routes".into(), routes.into());
            }
            object.insert(field.into(), Value::Object(family));
        }
        object.insert("dns".into(), json!({}));
        Value::Object(object)
    }

    fn new_form(&self, version: Version) -> Value {
        let mut object = Map::new();
        object.insert("cniVersion".into(), version.text().into());
        if let Some(interfaces) = &self.interfaces {
            object.insert("interfaces".into(), interfaces.to_json(version));
        }
        let addresses: Vec<Value> =
            self.addresses.iter().map(|address| self.address(*address, version)).collect();
        if !addresses.is_empty() {
            object.insert("ips".into(), addresses.into());
        }
        let routes = routes(self.routes.iter());
        if !routes.is_empty() {
            object.insert("routes".into(), routes.into());
        }
        if version < Version::V1_0_0 {
            object.insert("dns".into(), json!({}));
        }
        Value::Object(object)
    }

    fn address(&self, address: Cidr, version: Version) -> Value {
        let mut object = Map::new();
        if version < Version::V1_0_0 {
            let family = if address.is_ipv4() { "4" } else { "6" };
            object.insert("version".into(), family.into());
        }
        if self.interfaces.is_some() {
            object.insert("interface".into(), 1.into());
        }
        object.insert("address".into(), address.to_string().into());
        Value::Object(object)
    }
}

impl Interfaces {
    fn to_json(&self, version: Version) -> Value {
        let mut inside = Map::new();
        inside.insert("name".into(), self.container.clone().into());
        inside.insert("mac".into(), self.mac.clone().into());
        if let Some(mtu) = self.mtu.filter(|_| version >= Version::V1_1_0) {
            inside.insert("mtu".into(), mtu.into());
        }
        inside.insert("sandbox".into(), self.netns.clone().into());
        json!([{ "name": self.host }, inside])
    }
}

fn routes<'a>(routes: impl Iterator<Item = &'a Route>) -> Vec<Value> {
    routes
        .map(|route| {
            let mut object = Map::new();
            object.insert("dst".into(), route.destination.to_string().into());
            if let Some(gateway) = route.gateway {
                object.insert("gw".into(), gateway.to_string().into());
            }
            Value::Object(object)
        })
        .collect()
}

/// What another address manager answered.
pub fn read(value: &Value) -> Option<Answer> {
    let mut answer = Answer { interfaces: None, addresses: Vec::new(), routes: Vec::new() };
    let mut take_routes = |list: Option<&Value>| -> Option<()> {
        for route in list.and_then(Value::as_array).into_iter().flatten() {
            let destination = route.get("dst")?.as_str()?.parse().ok()?;
            let gateway = match route.get("gw").and_then(Value::as_str) {
                Some(gateway) => Some(net::parse_ip(gateway)?),
                None => None,
            };
            answer.routes.push(Route { destination, gateway });
        }
        Some(())
    };
    take_routes(value.get("routes"))?;
    for family in ["ip4", "ip6"].into_iter().filter_map(|field| value.get(field)) {
        take_routes(family.get("routes"))?;
    }
    for family in ["ip4", "ip6"].into_iter().filter_map(|field| value.get(field)) {
        answer.addresses.push(family.get("ip")?.as_str()?.parse().ok()?);
    }
    for address in value.get("ips").and_then(Value::as_array).into_iter().flatten() {
        answer.addresses.push(address.get("address")?.as_str()?.parse().ok()?);
    }
    Some(answer)
}
