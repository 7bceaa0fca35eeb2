//! What the datastore needs before a container can be connected: that it was ever written to, a
//! pool of addresses, without an agent the node itself, and where wished an open profile.

use api::Kind;
use kernel::{Netlink, RouteFilter};
use net::Cidr;
use serde_json::{Value, json};
use store::resources::{Name, Verb as Write};

use super::super::failure::Failure;
use super::super::history::History;
use super::super::session::Session;
use super::SetupArguments;
use super::change::{Change, Verb};
use super::datastore::Chosen;
use super::layout::{Layout, Root};
use super::texts::Families;

/// Private networks, in the order in which they are tried: those that homes and offices use last.
const NETWORKS: [&str; 4] = ["10.65.0.0/16", "10.165.0.0/16", "172.28.0.0/16", "192.168.128.0/17"];

/// A record that is to be written.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// What every datastore holds first.
    Datastore(String),
    /// An object, as it is to be.
    Object(Value),
}

impl Record {
    /// What people call it.
    pub(crate) fn spoken(&self) -> String {
        match self {
            Self::Datastore(place) => place.clone(),
            Self::Object(object) => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
            }
        }
    }
}

/// The records that are wanted, and the datastore they go to.
pub(crate) struct Records {
    /// None where the datastore is no part of the image that is made.
    session: Option<Session>,
    pools: Vec<Cidr>,
    wanted: Vec<(Record, Verb, String)>,
}

impl Records {
    /// Looks at what is there, and decides what is missing.
    pub(crate) fn open(
        chosen: &Chosen,
        root: &Root,
        arguments: &SetupArguments,
        layout: &Layout,
    ) -> Result<Self, Failure> {
        let state = root.join(&layout.state_dir);
        let store = chosen.open(root)?;
        let session = store.map(|store| Session::over(store, History::below(Some(state))));
        let mut records = Self { session, pools: Vec::new(), wanted: Vec::new() };
        let Some(session) = &records.session else {
            records.pools = arguments.pool.clone();
            return Ok(records);
        };
        let mut wanted = Vec::new();
        if find(session, Kind::ClusterInformation, "default")?.is_none() {
            let place = session.store.describe();
            wanted.push((Record::Datastore(place), Verb::Make, "datastore".to_owned()));
        }
        let (pools, missing) = pools(session, &arguments.pool, root)?;
        wanted.extend(missing);
        if layout.unit.is_none() && find(session, Kind::Node, &layout.node)?.is_none() {
            let record = Record::Object(node(&layout.node, &arguments.address));
            wanted.push((record, Verb::Make, "this host".to_owned()));
        }
        if arguments.open {
            wanted.extend(open_profile(session, &layout.network)?);
        }
        (records.pools, records.wanted) = (pools, wanted);
        Ok(records)
    }

    /// Which families of addresses there are pools for.
    pub(crate) fn families(&self) -> Families {
        let has = |is_ipv4: bool| self.pools.iter().any(|pool| pool.is_ipv4() == is_ipv4);
        Families { ipv4: has(true) || self.pools.is_empty(), ipv6: has(false) }
    }

    /// What is missing.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let wanted = self.wanted.iter().cloned();
        wanted.map(|(record, verb, detail)| Change::of_record(record, verb, detail)).collect()
    }

    /// Writes one.
    pub(crate) fn write(&mut self, record: &Record) -> Result<(), Failure> {
        let Some(session) = &self.session else { return Ok(()) };
        session.resources.initialise()?;
        if let Record::Object(object) = record {
            session.resources.write(Write::Apply, object)?;
        }
        Ok(())
    }

    /// Keeps what was written, so that it can be taken back.
    pub(crate) fn finish(&self) {
        if let Some(session) = &self.session {
            session.record_changes();
        }
    }
}

fn find(session: &Session, kind: Kind, name: &str) -> Result<Option<Value>, Failure> {
    match session.resources.get(&Name::cluster(kind, name)) {
        Ok(stored) => Ok(Some(stored.object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

type Wanted = (Record, Verb, String);

/// The pools that there will be, and those of them that are to be made.
fn pools(
    session: &Session,
    asked: &[Cidr],
    root: &Root,
) -> Result<(Vec<Cidr>, Vec<Wanted>), Failure> {
    let listed = session.resources.list(Kind::IpPool, None)?;
    let mut names: Vec<String> = Vec::new();
    let mut present = Vec::new();
    for pool in &listed.objects {
        names.push(pool.name.name.clone());
        let is_usable = pool.object["spec"]["disabled"] != true;
        let cidr = pool.object["spec"]["cidr"].as_str().and_then(Cidr::parse_strict);
        present.extend(cidr.filter(|_| is_usable));
    }
    let missing: Vec<Cidr> = match (present.is_empty(), asked.is_empty()) {
        (true, true) => vec![free_network(root)?],
        _ => asked.iter().map(|cidr| cidr.masked()).filter(|it| !present.contains(it)).collect(),
    };
    let mut wanted = Vec::new();
    for cidr in missing {
        let usual = if cidr.is_ipv4() { "default-ipv4-ippool" } else { "default-ipv6-ippool" };
        let own = format!("pool-{}", cidr.to_string().replace(['.', ':', '/'], "-"));
        let name = if names.iter().any(|name| name == usual) { own } else { usual.to_owned() };
        wanted.push((
            Record::Object(pool(&name, cidr)),
            Verb::Make,
            format!("{cidr}, addresses for containers"),
        ));
        names.push(name);
        present.push(cidr);
    }
    Ok((present, wanted))
}

/// A private network that this host does not reach already.
fn free_network(root: &Root) -> Result<Cidr, Failure> {
    let mut routed: Vec<Cidr> = Vec::new();
    if root.is_host() {
        let mut netlink = Netlink::open().map_err(|error| Failure::new(error.to_string()))?;
        let routes = netlink.routes(&RouteFilter::default());
        let routes = routes.map_err(|error| Failure::new(error.to_string()))?;
        let destinations = routes.into_iter().map(|route| Cidr::from(route.destination));
        routed = destinations.filter(|it| it.prefix_len() > 0).collect();
    }
    let networks = NETWORKS.iter().filter_map(|network| Cidr::parse_strict(network));
    let mut free = networks.filter(|it| !routed.iter().any(|route| it.overlaps(*route)));
    free.next().ok_or_else(|| {
        Failure::new("this host has routes to every network that would be tried")
            .help("name one for containers: margay setup --pool CIDR")
    })
}

fn pool(name: &str, cidr: Cidr) -> Value {
    // A global IPv6 address needs no other in its place.
    let is_private = match cidr.network() {
        std::net::IpAddr::V4(_) => true,
        std::net::IpAddr::V6(address) => address.is_unique_local(),
    };
    json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": "IPPool",
        "metadata": { "name": name },
        "spec": {
            "cidr": cidr.to_string(),
            "natOutgoing": is_private,
            "ipipMode": "Never",
            "vxlanMode": "Never",
        },
    })
}

fn node(name: &str, addresses: &[Cidr]) -> Value {
    let mut node = json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": "Node",
        "metadata": { "name": name },
        "spec": {},
    });
    for address in addresses {
        let field = if address.is_ipv4() { "ipv4Address" } else { "ipv6Address" };
        node["spec"]["bgp"][field] = address.to_string().into();
    }
    node
}

/// The profile of the network, with everybody let in.
fn open_profile(session: &Session, network: &str) -> Result<Option<Wanted>, Failure> {
    let ingress = json!([{ "action": "Allow" }]);
    let found = find(session, Kind::Profile, network)?;
    let is_open = |profile: &Value| {
        let rules = profile["spec"]["ingress"].as_array();
        rules.is_some_and(|rules| {
            rules.iter().any(|rule| {
                let fields = rule.as_object().into_iter().flatten();
                let mut narrowing = fields.filter(|(name, value)| {
                    name.as_str() != "action" && value.as_object().is_none_or(|it| !it.is_empty())
                });
                rule["action"] == "Allow" && narrowing.next().is_none()
            })
        })
    };
    if found.as_ref().is_some_and(is_open) {
        return Ok(None);
    }
    let verb = if found.is_some() { Verb::Change } else { Verb::Make };
    let mut profile = found.unwrap_or_else(|| {
        json!({
            "apiVersion": "projectcalico.org/v3",
            "kind": "Profile",
            "metadata": { "name": network },
            "spec": {
                "egress": [{ "action": "Allow" }],
                "labelsToApply": { network: "" },
            },
        })
    });
    profile["spec"]["ingress"] = ingress;
    Ok(Some((Record::Object(profile), verb, "lets everybody in".to_owned())))
}
