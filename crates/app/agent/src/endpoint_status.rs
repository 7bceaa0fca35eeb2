//! Endpoint status as Calico reports it: a key in the datastore for each endpoint of this node, and
//! a file for each workload, for whoever waits on this host for its policy.
//!
//! What the kernel has is noted when it has been brought up to date; a thread looks at the
//! interfaces and tells. Only what changed is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Kind;
use api::keys::{HostEndpointKey, Key};
use kernel::{Event, LinkName, Netlink};
use model::felix::{Config, Source};
use policy::intent::{ALL_INTERFACES, Intent};
use serde_json::Value;
use store::resources::Name;
use store::{Op, Txn};

use crate::memory::Memory;
use crate::node::Node;
use crate::realised::key_at;

/// How long nothing is tried again after something could not be told.
const PAUSE: Duration = Duration::from_secs(5);
/// So many are written in one transaction: a stock etcd takes 128.
const TOGETHER: usize = 100;
/// Longer files in the folder are not ours.
const FILE_BYTES_MAX: u64 = 1 << 16;
/// Felix's name of the folder below the configured one.
const FOLDER: &str = "endpoint-status";

/// Where status is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Targets {
    /// The region's part of keys; none if the datastore is not told.
    region: Option<String>,
    /// The folder of the files; none if there are to be none.
    folder: Option<PathBuf>,
}

impl Targets {
    /// The folder that Felix uses unless told otherwise is Felix's: it may run beside us.
    fn of(config: &Config) -> Self {
        let region = match config.text("OpenstackRegion") {
            "" => "no-region".to_owned(),
            name => format!("region-{name}"),
        };
        let is_chosen = config
            .source_of("EndpointStatusPathPrefix")
            .is_some_and(|source| source != Source::Default);
        let prefix = config.text("EndpointStatusPathPrefix");
        Self {
            region: config.is_on("EndpointReportingEnabled").then_some(region),
            folder: (is_chosen && !prefix.is_empty()).then(|| Path::new(prefix).join(FOLDER)),
        }
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// One endpoint whose policy the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    interface: String,
    /// Whether the kernel would not take it.
    is_refused: bool,
    /// What its file says; empty for those of hosts.
    file: String,
}

/// What is to be told.
#[derive(Debug, Default)]
pub(crate) struct EndpointStatus {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    targets: Targets,
    endpoints: BTreeMap<String, Endpoint>,
    /// Those to look at.
    doubted: BTreeSet<String>,
}

/// What the kernel has after it was brought up to date.
pub(crate) struct InForce<'a> {
    pub(crate) config: &'a Config,
    pub(crate) intent: &'a Intent,
    pub(crate) memory: &'a Memory,
    pub(crate) refused: &'a BTreeMap<String, String>,
}

impl EndpointStatus {
    /// The kernel has what it should have; these endpoints are other than before.
    pub(crate) fn applied(&self, changed: BTreeSet<String>, now: &InForce<'_>) {
        let targets = Targets::of(now.config);
        let mut state = self.lock();
        if targets.is_none() && state.targets.is_none() {
            return;
        }
        let is_new = state.targets != targets;
        let changed = match is_new {
            true => now.keys(),
            false => changed,
        };
        for key in changed {
            match now.endpoint(&key) {
                Some(endpoint) => drop(state.endpoints.insert(key.clone(), endpoint)),
                None => drop(state.endpoints.remove(&key)),
            }
            state.doubted.insert(key);
        }
        state.targets = targets;
        if is_new || !state.doubted.is_empty() {
            self.bell.notify_all();
        }
    }

    /// Interfaces have changed.
    pub(crate) fn moved(&self, events: &[Event]) {
        let mut state = self.lock();
        if state.targets.is_none() {
            return;
        }
        let mut names = BTreeSet::new();
        let mut is_lost = false;
        for event in events {
            match event {
                Event::Link(link) | Event::LinkGone(link) => drop(names.insert(link.name.as_str())),
                Event::Lost => is_lost = true,
                _ => {}
            }
        }
        let is_meant = |it: &Endpoint| is_lost || names.contains(it.interface.as_str());
        let meant = state.endpoints.iter().filter(|(_, it)| is_meant(it));
        let meant: Vec<String> = meant.map(|(key, _)| key.clone()).collect();
        if !meant.is_empty() {
            state.doubted.extend(meant);
            self.bell.notify_all();
        }
    }

    /// Waits until there is something to look at, or somewhere else to tell.
    fn news(&self, told_to: &Targets) -> News {
        let mut state = self.lock();
        while state.doubted.is_empty() && state.targets == *told_to {
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let doubted = std::mem::take(&mut state.doubted);
        let endpoints = doubted.into_iter().map(|key| {
            let endpoint = state.endpoints.get(&key).cloned();
            (key, endpoint)
        });
        News { endpoints: endpoints.collect(), targets: state.targets.clone() }
    }

    /// These could not be told.
    fn doubt(&self, keys: BTreeSet<String>) {
        self.lock().doubted.extend(keys);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be looked at and told; none for an endpoint that is gone.
struct News {
    endpoints: BTreeMap<String, Option<Endpoint>>,
    targets: Targets,
}

impl InForce<'_> {
    /// The keys of all endpoints of this node.
    fn keys(&self) -> BTreeSet<String> {
        let workloads = self.intent.workloads.keys().map(|it| key_at(Kind::WorkloadEndpoint, it));
        let hosts = self.intent.hosts.keys().map(|it| key_at(Kind::HostEndpoint, it));
        workloads.chain(hosts).collect()
    }

    fn endpoint(&self, key: &str) -> Option<Endpoint> {
        let name = Name::at_key(key)?;
        let is_refused = self.refused.contains_key(key);
        if name.kind == Kind::WorkloadEndpoint {
            let workload =
                self.intent.workloads.get(&format!("{}/{}", name.namespace, name.name))?;
            let object = self.memory.get(key).and_then(|bytes| text::json::parse(bytes).ok());
            let file = file(&workload.interface, &object.unwrap_or_default());
            return Some(Endpoint { interface: workload.interface.clone(), is_refused, file });
        }
        let interface = self.intent.hosts.get(&name.name)?.interface.clone();
        Some(Endpoint { interface, is_refused, file: String::new() })
    }
}

/// What Felix writes into the file of a workload.
fn file(interface: &str, object: &Value) -> String {
    let networks = object["spec"]["ipNetworks"].as_array().into_iter().flatten();
    let networks = networks.filter_map(|it| it.as_str()?.parse::<net::Cidr>().ok());
    let (four, six): (Vec<_>, Vec<_>) = networks.partition(|it| it.is_ipv4());
    let texts = |all: Vec<net::Cidr>| all.iter().map(|it| it.masked().to_string().into()).collect();
    let fields: [(&str, Value); 4] = [
        ("ifaceName", interface.into()),
        ("mac", object["spec"]["mac"].as_str().unwrap_or_default().into()),
        ("ipv4Nets", Value::Array(texts(four))),
        ("ipv6Nets", Value::Array(texts(six))),
    ];
    let is_empty = |value: &Value| value == "" || value.as_array().is_some_and(Vec::is_empty);
    let fields = fields.into_iter().filter(|(_, value)| !is_empty(value));
    text::json::to_string(&fields.map(|(name, value)| (name.to_owned(), value)).collect::<Value>())
}

/// Starts to tell.
pub(crate) fn start(node: &Arc<Node>) -> io::Result<()> {
    let node = Arc::clone(node);
    std::thread::Builder::new().name("status".into()).spawn(move || {
        let mut teller = Teller { node: &node, targets: Targets::default(), told: BTreeMap::new() };
        loop {
            let news = node.endpoint_status.news(&teller.targets);
            let keys: BTreeSet<String> = news.endpoints.keys().cloned().collect();
            if teller.tell(news).is_none() {
                node.endpoint_status.doubt(keys);
                std::thread::sleep(PAUSE);
            }
        }
    })?;
    Ok(())
}

/// Where the status of one endpoint stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Key(String),
    File(PathBuf),
}

struct Teller<'n> {
    node: &'n Node,
    targets: Targets,
    /// What stands there.
    told: BTreeMap<Place, String>,
}

impl Teller<'_> {
    /// Tells; none if something of it could not be.
    fn tell(&mut self, news: News) -> Option<()> {
        let is_new = self.targets != news.targets;
        if is_new {
            self.told = self.read_back(&news.targets)?;
        }
        let mut netlink = Netlink::in_netns(&self.node.here).ok()?;
        let mut wanted: BTreeMap<Place, Option<String>> = BTreeMap::new();
        if is_new {
            // What an earlier run told of endpoints that are gone goes.
            wanted.extend(self.told.keys().map(|place| (place.clone(), None)));
        }
        for (key, endpoint) in news.endpoints {
            let status = endpoint.as_ref().map(|it| status(&mut netlink, it));
            let file = endpoint.map(|it| it.file).filter(|_| status == Some("up"));
            for place in places(&self.node.name, &key, &news.targets) {
                let content = match &place {
                    Place::Key(_) => status.map(|it| format!("{{\"status\":\"{it}\"}}")),
                    Place::File(_) => file.clone(),
                };
                wanted.insert(place, content);
            }
        }
        wanted.retain(|place, content| self.told.get(place) != content.as_ref());
        self.write(&wanted)?;
        self.targets = news.targets;
        Some(())
    }

    fn write(&mut self, wanted: &BTreeMap<Place, Option<String>>) -> Option<()> {
        let all: Vec<(&Place, &Option<String>)> = wanted.iter().collect();
        for some in all.chunks(TOGETHER) {
            let mut ops = Vec::new();
            for (place, content) in some {
                match (place, content) {
                    (Place::Key(key), Some(content)) => {
                        ops.push(Op::Put { key: key.clone(), value: content.clone().into_bytes() });
                    }
                    (Place::Key(key), None) => ops.push(Op::Delete { key: key.clone() }),
                    (Place::File(path), Some(content)) => fs::write(path, content).ok()?,
                    (Place::File(path), None) => match fs::remove_file(path) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return None,
                        _ => {}
                    },
                }
            }
            if !ops.is_empty() {
                let is_there = self.node.outage().is_none();
                let txn = Txn { compares: Vec::new(), ops };
                is_there.then(|| self.node.store().commit(txn).ok()).flatten()?;
            }
            for (place, content) in some {
                match content {
                    Some(content) => drop(self.told.insert((*place).clone(), content.clone())),
                    None => drop(self.told.remove(place)),
                }
            }
        }
        Some(())
    }

    /// What stands where it is told; makes the folder of the files.
    fn read_back(&self, targets: &Targets) -> Option<BTreeMap<Place, String>> {
        let mut told = BTreeMap::new();
        if let Some(region) = &targets.region {
            let node = &self.node.name;
            let (workloads, hosts) = (
                format!("/calico/felix/v2/{region}/host/{node}/workload/"),
                format!("/calico/felix/v1/host/{node}/endpoint/"),
            );
            for prefix in [workloads, hosts] {
                for entry in self.node.store().list(&prefix).ok()?.entries {
                    let value = String::from_utf8_lossy(&entry.value).into_owned();
                    told.insert(Place::Key(entry.key), value);
                }
            }
        }
        if let Some(folder) = &targets.folder {
            fs::create_dir_all(folder).ok()?;
            for entry in fs::read_dir(folder).ok()?.flatten() {
                if entry.file_type().is_ok_and(|it| it.is_file()) {
                    let bytes = host::bounded::read_file(&entry.path(), FILE_BYTES_MAX);
                    let value = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
                    told.insert(Place::File(entry.path()), value);
                }
            }
        }
        Some(told)
    }
}

/// Where the status of the endpoint with this key in the datastore is told.
fn places(node: &str, key: &str, targets: &Targets) -> Vec<Place> {
    let Some(name) = Name::at_key(key) else { return Vec::new() };
    if name.kind == Kind::HostEndpoint {
        let host = HostEndpointKey { host: node.to_owned(), endpoint: name.name };
        let path = Key::HostEndpointStatus(host).path().ok();
        let path = path.filter(|_| targets.region.is_some());
        return path.map(Place::Key).into_iter().collect();
    }
    let Ok(endpoint) = api::names::old_workload_endpoint(&name.namespace, &name.name) else {
        return Vec::new();
    };
    let folder = targets.folder.as_ref();
    let file = folder.map(|it| Place::File(it.join(api::names::status_file_name(&endpoint))));
    let path = targets.region.clone().and_then(|region| {
        Key::WorkloadEndpointStatus { region, endpoint }.path().ok().map(Place::Key)
    });
    path.into_iter().chain(file).collect()
}

/// Felix's words.
fn status(netlink: &mut Netlink, endpoint: &Endpoint) -> &'static str {
    if endpoint.is_refused {
        return "error";
    }
    // A host endpoint of all interfaces, or one that goes by addresses, is none of one link.
    let Ok(name) = LinkName::new(&endpoint.interface) else { return "up" };
    if endpoint.interface == ALL_INTERFACES {
        return "up";
    }
    match netlink.link_by_name(&name) {
        Ok(Some(link)) if link.is_up && link.is_running => "up",
        _ => "down",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_and_files_are_where_felix_has_them() {
        let targets = Targets { region: Some("no-region".into()), folder: Some("/run/x".into()) };
        let resources = "/calico/resources/v3/projectcalico.org";
        let key = format!("{resources}/workloadendpoints/shop/n1-k8s-web--1-eth0");
        let told = [
            Place::Key(
                "/calico/felix/v2/no-region/host/n1/workload/k8s/shop%2fweb-1/endpoint/eth0".into(),
            ),
            Place::File("/run/x/k8s shop%2Fweb-1 eth0".into()),
        ];
        assert_eq!(places("n1", &key, &targets), told);
        let host = format!("{resources}/hostendpoints/n1-eth0");
        let told = Place::Key("/calico/felix/v1/host/n1/endpoint/n1-eth0".into());
        assert_eq!(places("n1", &host, &targets), [told]);
        assert_eq!(places("n1", &key, &Targets::default()), []);
    }

    #[test]
    fn a_file_says_what_felix_says() {
        let object = json!({"spec": {
            "mac": "aa:bb:cc:dd:ee:ff", "ipNetworks": ["10.65.0.2/32", "fd00::2/128"],
        }});
        let said = "{\"ifaceName\":\"cali1\",\"mac\":\"aa:bb:cc:dd:ee:ff\",\
                    \"ipv4Nets\":[\"10.65.0.2/32\"],\"ipv6Nets\":[\"fd00::2/128\"]}";
        assert_eq!(file("cali1", &object), said);
        assert_eq!(file("cali1", &Value::Null), r#"{"ifaceName":"cali1"}"#);
    }
}
