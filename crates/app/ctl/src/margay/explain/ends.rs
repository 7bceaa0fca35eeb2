//! The two ends of a question: pods, nodes, host endpoints and addresses by what people type.

use std::net::IpAddr;

use api::Kind;
use api::names::WorkloadEndpointParts;
use net::Protocol;
use policy::explain::{Party, protocol};
use policy::{Endpoint, Packet, protocol_number};
use store::resources::Name;

use super::super::failure::Failure;
use super::super::session::DEFAULT_NAMESPACE;
use super::world::World;

/// A port that programs speak from when nobody says which.
const SOURCE_PORT: u16 = 32_768;
const ECHO: u8 = 8;
const ECHO_V6: u8 = 128;

/// One end.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// Its full name: `shop/web-1`, `n1` or an address.
    pub(crate) name: String,
    /// What it is called beside its node: `web-1`.
    pub(crate) short: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// Its endpoint; none for what has no policies, and for a host, of whose interfaces each may
    /// have one.
    pub(crate) endpoint: Option<Endpoint>,
    /// The node it is on, or is.
    pub(crate) node: Option<String>,
    /// The interface that leads to it.
    pub(crate) interface: Option<String>,
    /// Whether it is a host itself.
    pub(crate) is_host: bool,
}

/// The traffic in question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic<'a> {
    pub(crate) port: Option<u16>,
    pub(crate) source_port: Option<u16>,
    pub(crate) protocol: &'a str,
}

impl End {
    /// What policies can know of it.
    pub(crate) fn party(&self, world: &World) -> Party {
        // Policies know a host by its addresses.
        let at = |address: &IpAddr| world.cluster.endpoints_at(*address).into_iter().next();
        let endpoint = self.endpoint.clone().or_else(|| self.addresses.iter().find_map(at));
        let labels = endpoint.and_then(|it| world.cluster.labels_of(&it));
        Party { name: self.short.clone(), labels }
    }
}

/// Finds what a word means: `namespace/pod`, a pod, an address, a node or a host endpoint.
pub(crate) fn find(world: &World, word: &str, namespace: Option<&str>) -> Result<End, Failure> {
    if let Some(address) = net::parse_ip(word) {
        return Ok(at(world, address));
    }
    let mut found = match word.split_once('/') {
        Some((namespace, pod)) => pods(world, Some(namespace), pod),
        None => {
            let near = pods(world, Some(namespace.unwrap_or(DEFAULT_NAMESPACE)), word);
            let is_free = near.is_empty() && namespace.is_none();
            let mut found = if is_free { pods(world, None, word) } else { near };
            found.extend(world.nodes.contains_key(word).then(|| node(world, word)));
            if found.is_empty() && world.cluster.hosts.contains_key(word) {
                found.push(host(world, word));
            }
            found
        }
    };
    match found.len() {
        0 => Err(unknown(world, word)),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
            let what = format!("{word} is the name of several: {}", names.join(", "));
            let addresses = found.iter().flat_map(|it| it.addresses.first());
            let addresses: Vec<String> = addresses.map(IpAddr::to_string).collect();
            Err(Failure::new(what)
                .help(format!("name one by its address: {}", addresses.join(", "))))
        }
    }
}

fn unknown(world: &World, word: &str) -> Failure {
    if let Some(failure) = world.unusable(|name| is_called(name, word)) {
        return failure;
    }
    let known = world.pods.values().map(|(namespace, pod)| format!("{namespace}/{pod}"));
    let known: Vec<String> = known.chain(world.nodes.keys().cloned()).collect();
    let nearest = text::distance::nearest(word, known.iter().map(String::as_str));
    let failure = Failure::new(format!("no pod, node, host endpoint or address is {word}"));
    match nearest {
        Some(nearest) => failure.help(format!("did you mean {nearest}?")),
        None => failure.help("margay get wep -A lists the pods; namespace/pod names one"),
    }
}

/// Whether an endpoint or node is what a word means.
fn is_called(name: &Name, word: &str) -> bool {
    let (namespace, pod) = word.split_once('/').map_or((None, word), |(it, pod)| (Some(it), pod));
    match name.kind {
        Kind::HostEndpoint | Kind::Node => name.name == word,
        Kind::WorkloadEndpoint => {
            let parts = WorkloadEndpointParts::parse(&name.name);
            let is_pod = parts.is_ok_and(|parts| {
                [parts.workload, parts.pod, parts.container_id].iter().any(|it| it == pod)
            });
            is_pod && namespace.is_none_or(|it| it == name.namespace)
        }
        _ => false,
    }
}

fn pods(world: &World, namespace: Option<&str>, pod: &str) -> Vec<End> {
    let there = |(at, name): &(&String, &(String, String))| {
        let is_meant = namespace.is_none_or(|it| it == name.0);
        is_meant && world.cluster.workloads.contains_key(*at)
    };
    let called = |is_it: &dyn Fn(&str) -> bool| -> Vec<End> {
        let there = world.pods.iter().filter(there).filter(|(_, name)| is_it(&name.1));
        there.map(|(key, _)| workload(world, key)).collect()
    };
    // Containers have names that begin with something of their own, as in a lab.
    let found = called(&|name| name == pod);
    let ending = format!("-{pod}");
    if found.is_empty() { called(&|name| name.ends_with(&ending)) } else { found }
}

fn workload(world: &World, key: &str) -> End {
    let (namespace, pod) = world.pods.get(key).cloned().unwrap_or_default();
    let it = world.cluster.workloads.get(key);
    End {
        name: format!("{namespace}/{pod}"),
        short: pod,
        addresses: it.iter().flat_map(|it| &it.addresses).map(|net| net.address()).collect(),
        endpoint: Some(Endpoint::Workload(key.to_owned())),
        node: it.map(|it| it.node.clone()),
        interface: it.map(|it| it.interface.clone()),
        is_host: false,
    }
}

fn node(world: &World, name: &str) -> End {
    let addresses = world.nodes.get(name).cloned().unwrap_or_default();
    End {
        name: name.to_owned(),
        short: name.to_owned(),
        addresses,
        endpoint: None,
        node: Some(name.to_owned()),
        interface: None,
        is_host: true,
    }
}

fn host(world: &World, key: &str) -> End {
    let it = world.cluster.hosts.get(key);
    let of_node = it.and_then(|it| world.nodes.get(&it.node)).cloned().unwrap_or_default();
    let own = it.map(|it| it.addresses.clone()).unwrap_or_default();
    End {
        name: key.to_owned(),
        short: key.to_owned(),
        addresses: if own.is_empty() { of_node } else { own },
        endpoint: Some(Endpoint::Host(key.to_owned())),
        node: it.map(|it| it.node.clone()),
        interface: it.map(|it| it.interface.clone()),
        is_host: true,
    }
}

/// Who has an address.
fn at(world: &World, address: IpAddr) -> End {
    let owner = world.cluster.endpoints_at(address).into_iter().next();
    let expecting = match &owner {
        Some(Endpoint::Host(key)) => world.cluster.hosts.get(key).map(|it| &it.node),
        _ => None,
    };
    let holder = world.nodes.iter().find(|(_, addresses)| addresses.contains(&address));
    let host = holder.map(|(name, _)| name).or(expecting);
    let mut end = match (owner, host) {
        (Some(Endpoint::Workload(key)), _) => workload(world, &key),
        (_, Some(name)) => node(world, name),
        (_, None) => End {
            name: address.to_string(),
            short: address.to_string(),
            addresses: Vec::new(),
            endpoint: None,
            node: None,
            interface: None,
            is_host: false,
        },
    };
    end.addresses = vec![address];
    end
}

/// The first packet of the traffic between two ends.
pub(crate) fn packet(source: &End, destination: &End, traffic: Traffic) -> Result<Packet, Failure> {
    let pairs = source
        .addresses
        .iter()
        .flat_map(|from| destination.addresses.iter().map(move |to| (*from, *to)));
    let pair = pairs.into_iter().find(|(from, to)| from.is_ipv4() == to.is_ipv4());
    let Some((from, to)) = pair else {
        let none = [source, destination].into_iter().find(|it| it.addresses.is_empty());
        return Err(match none {
            Some(end) => Failure::new(format!("{} has no address", end.name)),
            None => Failure::new(format!(
                "{} and {} have no version of IP in common",
                source.name, destination.name
            )),
        });
    };
    let known = protocol_number(&Protocol::from(traffic.protocol));
    let number = known.ok_or_else(|| {
        Failure::new(format!("{} is not a protocol, --protocol", traffic.protocol))
            .help("tcp, udp, sctp, icmp, icmpv6, udplite, or a number")
    })?;
    // What people call ICMP is another protocol in IPv6.
    let number = if number == 1 && from.is_ipv6() { 58 } else { number };
    let has_ports = matches!(number, 6 | 17 | 132 | 136);
    if traffic.port.is_some() && !has_ports {
        let name = protocol(&Protocol::Number(number));
        return Err(Failure::new(format!("{name} has no ports, --port")));
    }
    let ports = traffic.port.map(|port| (traffic.source_port.unwrap_or(SOURCE_PORT), port));
    let icmp = match number {
        1 => Some((ECHO, 0)),
        58 => Some((ECHO_V6, 0)),
        _ => None,
    };
    Ok(Packet {
        source: from,
        destination: to,
        protocol: number,
        ports,
        icmp,
        before_nat: None,
        is_of_host: source.is_host || destination.is_host,
    })
}
