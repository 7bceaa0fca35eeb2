//! What is remembered of a lab between two commands. Removing a lab never needs it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use kernel::Mac;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::arguments::{DatastoreKind, Scenario};
use crate::failure::Failure;
use crate::lab::flag;
use crate::place::Place;

/// As many names as help somebody who mistyped one.
const SHOWN_MAX: usize = 12;

/// A lab as it was built and changed since.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) name: String,
    /// False from the first step of building to the last.
    pub(crate) is_built: bool,
    /// Seconds since 1970.
    pub(crate) since: u64,
    pub(crate) datastore: DatastoreKind,
    pub(crate) ipv6: bool,
    pub(crate) nodes: Vec<Node>,
    pub(crate) pods: Vec<Pod>,
    /// What was broken on purpose and not healed yet, oldest first.
    pub(crate) broken: Vec<Fault>,
    /// A pod whose making was begun and not ended: a command that was interrupted left it.
    #[serde(default)]
    pub(crate) begun: Option<Pod>,
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// 1 for the first.
    pub(crate) number: u16,
}

/// A pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) node: String,
    /// What the runtime would call it: new with every sandbox.
    pub(crate) container: String,
    /// The node's side of its cable.
    pub(crate) interface: String,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Something broken on purpose, with what is needed to put it right.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) scenario: Scenario,
    pub(crate) target: String,
    pub(crate) saved: Value,
}

impl Fault {
    /// What is broken, for programs; what healing needs is no business of theirs.
    pub(crate) fn json(&self) -> Value {
        json!({"scenario": self.scenario, "target": self.target})
    }
}

/// Seconds since 1970, in RFC 3339.
pub(crate) fn utc(seconds: u64) -> String {
    api::schema::utc(i64::try_from(seconds).unwrap_or(i64::MAX))
}

impl Node {
    pub(crate) fn new(number: u16) -> Self {
        Self { name: format!("n{number}"), number }
    }

    pub(crate) fn v4(&self) -> Ipv4Addr {
        Ipv4Addr::new(172, 30, 0, u8::try_from(10 + self.number).unwrap_or(u8::MAX))
    }

    /// The digits are those of the IPv4 address, so that people see which node it is.
    pub(crate) fn v6(&self) -> Ipv6Addr {
        let digits = u16::from_str_radix(&(10 + self.number).to_string(), 16);
        Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, digits.unwrap_or(u16::MAX))
    }

    /// The Ethernet address of its cable.
    pub(crate) fn mac(&self) -> Mac {
        let [high, low] = self.number.to_be_bytes();
        Mac([0x02, 0x1a, 0xb0, 0, high, low])
    }

    /// Its addresses with the lengths of their prefixes.
    pub(crate) fn addresses(&self, ipv6: bool) -> Vec<IpNet> {
        let of = |address: IpAddr, len| IpNet::new(address, len).expect("the lengths are right");
        let v6 = ipv6.then(|| of(self.v6().into(), 64));
        std::iter::once(of(self.v4().into(), 24)).chain(v6).collect()
    }
}

impl Pod {
    /// Its name without the node's.
    pub(crate) fn role(&self) -> &str {
        self.name.strip_prefix(&self.node).and_then(|rest| rest.strip_prefix('-')).unwrap_or("")
    }
}

impl State {
    /// What is remembered of the lab; nothing if there is no lab.
    pub(crate) fn read(place: &Place) -> Result<Option<Self>, Failure> {
        let path = place.state();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(place.unusable(&path, &error)),
        };
        let state = text::json::parse(&bytes)
            .map_err(|error| error.to_string())
            .and_then(|value| serde_json::from_value(value).map_err(|error| error.to_string()));
        state.map(Some).map_err(|why| {
            Failure::new(format!("{} cannot be read", path.display()))
                .why(why)
                .help(format!("margay lab down{}     (needs no state)", flag(&place.name)))
        })
    }

    /// The lab for programs.
    pub(crate) fn json(&self) -> Value {
        let nodes = self.nodes.iter().map(|node| {
            let addresses = node.addresses(self.ipv6).into_iter().map(|net| net.addr());
            json!({"name": node.name, "addresses": addresses.collect::<Vec<_>>()})
        });
        let broken = self.broken.iter().map(Fault::json);
        json!({
            "lab": self.name,
            "since": utc(self.since),
            "datastore": self.datastore,
            "ipv6": self.ipv6,
            "nodes": nodes.collect::<Vec<_>>(),
            "pods": self.pods,
            "brokenOnPurpose": broken.collect::<Vec<_>>(),
        })
    }

    /// Remembers it; a crash leaves the old or the new, nothing in between.
    pub(crate) fn write(&self, place: &Place) -> Result<(), Failure> {
        let path = place.state();
        let value = serde_json::to_value(self).expect("names, numbers and lists are JSON");
        let text = text::json::to_string_indented(&value) + "\n";
        let next = place.folder.join("state.json.new");
        let written = fs::write(&next, text).and_then(|()| fs::rename(&next, &path));
        written.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        self.write_hosts(place)
    }

    /// Written in place: commands that run in the lab have this very file as their `/etc/hosts`.
    fn write_hosts(&self, place: &Place) -> Result<(), Failure> {
        let mut lines = vec!["127.0.0.1 localhost".to_owned(), "::1 localhost".to_owned()];
        lines.push("172.30.0.1 fabric".to_owned());
        if self.ipv6 {
            lines.push("fd30::1 fabric".to_owned());
        }
        for node in &self.nodes {
            let addresses = node.addresses(self.ipv6);
            lines.extend(addresses.iter().map(|net| format!("{} {}", net.addr(), node.name)));
        }
        for pod in &self.pods {
            lines.extend(pod.addresses.iter().map(|address| format!("{address} {}", pod.name)));
        }
        let path = place.hosts();
        fs::write(&path, lines.join("\n") + "\n")
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    pub(crate) fn pod(&self, name: &str) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.name == name)
    }

    pub(crate) fn pods_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.iter().filter(move |pod| pod.node == node)
    }

    /// The node of that name; `asking` is the command that wants one.
    pub(crate) fn wanted_node(&self, asking: &str, name: &str) -> Result<&Node, Failure> {
        self.node(name).ok_or_else(|| match self.pod(name) {
            Some(_) => {
                let known = self.nodes.iter().map(|node| node.name.as_str());
                Failure::new(format!("{name} is a pod; {asking} wants a node"))
                    .help(format!("the nodes are {}", shown(known)))
            }
            None => self.unknown(name),
        })
    }

    /// The pod of that name; `asking` is the command that wants one.
    pub(crate) fn wanted_pod(&self, asking: &str, name: &str) -> Result<&Pod, Failure> {
        self.pod(name).ok_or_else(|| match self.node(name) {
            Some(_) => {
                let failure = Failure::new(format!("{name} is a node; {asking} wants a pod"));
                let known = self.pods_of(name).map(|pod| pod.name.as_str());
                match shown(known).as_str() {
                    "" => failure.help(format!("margay lab pod add{} {name}", flag(&self.name))),
                    known => failure.help(format!("the pods of {name} are {known}")),
                }
            }
            None => self.unknown(name),
        })
    }

    /// There is nothing of that name in the lab.
    pub(crate) fn unknown(&self, name: &str) -> Failure {
        let nodes = self.nodes.iter().map(|node| node.name.as_str());
        let known = nodes.chain(self.pods.iter().map(|pod| pod.name.as_str()));
        Failure::new(format!("there is no {name} in the lab {:?}", self.name))
            .help(format!("there are {}", shown(known)))
    }
}

/// Some names, and whether there are more.
fn shown<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let more = if names.len() > SHOWN_MAX { " …" } else { "" };
    names.iter().take(SHOWN_MAX).copied().collect::<Vec<_>>().join(" ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_of_both_addresses_agree() {
        let shown = |number: u16| {
            Node::new(number).addresses(true).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shown(1), ["172.30.0.11/24", "fd30::11/64"]);
        assert_eq!(shown(200), ["172.30.0.210/24", "fd30::210/64"]);
    }

    #[test]
    fn a_pod_knows_its_part_of_the_name() {
        let pod = Pod {
            name: "n1-web".into(),
            node: "n1".into(),
            container: String::new(),
            interface: String::new(),
            addresses: Vec::new(),
        };
        assert_eq!(pod.role(), "web");
    }
}
