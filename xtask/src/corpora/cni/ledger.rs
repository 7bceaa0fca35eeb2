//! What a host must hold after a chain of calls, worked out from the calls and from our own
//! answers, never from the recording.
//!
//! A call that we answer otherwise than Calico did leaves another state than the recorded one; the
//! ledger says whether that state is right. Whoever was told of success has what the answer says,
//! in the datastore, on the host and inside; whoever left or was refused has nothing; and nobody
//! has anything twice.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{items, text};

const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";
const BLOCKS: &str = "/calico/ipam/v2/assignment/";

/// Container and interface.
type Who = (String, String);
/// An address and the handle under which it is held.
type Allocation = (String, String);

/// Everything that the calls so far have given out.
pub(super) struct Ledger {
    attached: BTreeMap<Who, Attachment>,
    /// Given by the address manager alone.
    alone: BTreeSet<Allocation>,
    /// What the chain began with.
    found: BTreeSet<Allocation>,
}

/// An interface that a container has.
#[derive(PartialEq)]
struct Attachment {
    network: String,
    netns: String,
    /// The host's end.
    host_interface: String,
    addresses: Vec<String>,
    /// Whether our address manager gave them.
    is_allocated: bool,
}

/// One call, as far as the ledger minds.
struct Entry {
    command: String,
    plugin: String,
    who: Who,
    netns: String,
    network: String,
    ipam: String,
}

impl Entry {
    fn of(row: &Value) -> Self {
        let env = |name: &str| text(&row["env"], name).to_owned();
        let conf: Value = serde_json::from_str(text(row, "stdin")).unwrap_or_default();
        Self {
            command: env("CNI_COMMAND"),
            plugin: text(row, "plugin").to_owned(),
            who: (env("CNI_CONTAINERID"), env("CNI_IFNAME")),
            netns: env("CNI_NETNS"),
            network: text(&conf, "name").to_owned(),
            ipam: text(&conf["ipam"], "type").to_owned(),
        }
    }

    fn handle(&self) -> String {
        format!("{}.{}", self.network, self.who.0)
    }
}

impl Ledger {
    /// Before the first call of a chain.
    pub(super) fn new(first: &Value) -> Self {
        let found = allocations(items(&first["setup"], "store")).into_iter().collect();
        Self { attached: BTreeMap::new(), alone: BTreeSet::new(), found }
    }

    /// Enters a call with our answer, and says what is wrong with the state after it.
    pub(super) fn enter(&mut self, row: &Value, seen: &Value) -> Vec<String> {
        let entry = Entry::of(row);
        let mut wrong = Vec::new();
        if seen["exit"] == 0 && items(row, "argv").is_empty() {
            match (entry.plugin.as_str(), entry.command.as_str()) {
                ("calico", "ADD") => self.add(&entry, seen, &mut wrong),
                ("calico", "DEL") => self.del(&entry),
                ("calico-ipam", "ADD") => {
                    let given = addresses(&answer(seen)).into_iter();
                    self.alone.extend(given.map(|address| (address, entry.handle())));
                }
                ("calico-ipam", "DEL") => {
                    self.alone.retain(|(_, handle)| *handle != entry.handle());
                }
                _ => {}
            }
        }
        if entry.plugin == "calico" && entry.command == "CHECK" {
            self.check(&entry, seen, &mut wrong);
        }
        self.compare_records(seen, &mut wrong);
        self.compare_host(seen, &mut wrong);
        self.compare_containers(seen, &mut wrong);
        wrong
    }

    fn add(&mut self, entry: &Entry, seen: &Value, wrong: &mut Vec<String>) {
        let answer = answer(seen);
        let names = items(&answer, "interfaces").iter();
        let host = names.map(|it| text(it, "name")).find(|name| name.starts_with("cali"));
        let fresh = Attachment {
            network: entry.network.clone(),
            netns: entry.netns.clone(),
            host_interface: host.unwrap_or_default().to_owned(),
            addresses: addresses(&answer),
            is_allocated: entry.ipam == "calico-ipam",
        };
        if fresh.addresses.is_empty() {
            wrong.push("the answer names no address".to_owned());
        }
        match self.attached.get_mut(&entry.who) {
            Some(before) if before.netns == fresh.netns => {
                // Answers of older versions of the protocol name no interface.
                if (&before.addresses, &before.network) != (&fresh.addresses, &fresh.network) {
                    wrong.push("a repeated ADD was answered otherwise than the first".to_owned());
                }
            }
            _ => {
                self.attached.insert(entry.who.clone(), fresh);
            }
        }
    }

    /// A container that is attached is as it should be; of another nothing is known.
    fn check(&self, entry: &Entry, seen: &Value, wrong: &mut Vec<String>) {
        let told = text(seen, "stdout");
        let is_right = match self.attached.contains_key(&entry.who) {
            true => seen["exit"] == 0 && told.is_empty(),
            false => seen["exit"] == 1 && answer(seen)["code"] == 3,
        };
        if !is_right {
            wrong.push(format!("CHECK said {told:?}"));
        }
    }

    fn del(&mut self, entry: &Entry) {
        let handle = entry.handle();
        match self.attached.get(&entry.who) {
            Some(attachment) if attachment.network != entry.network => return,
            Some(_) => drop(self.attached.remove(&entry.who)),
            None => {}
        }
        self.found.retain(|(_, held)| *held != handle);
    }

    fn compare_records(&self, seen: &Value, wrong: &mut Vec<String>) {
        let store = items(seen, "store");
        let is = allocations(store);
        let mut should: Vec<Allocation> = self.found.iter().chain(&self.alone).cloned().collect();
        let mut endpoints = BTreeMap::new();
        for ((container, interface), it) in &self.attached {
            let handle = format!("{}.{container}", it.network);
            let held = it.addresses.iter().filter(|_| it.is_allocated);
            should.extend(held.map(|address| (address.clone(), handle.clone())));
            let part = (container.clone(), interface.clone(), it.addresses.clone());
            endpoints.insert(part, it.host_interface.clone());
        }
        should.sort();
        if is != should {
            wrong.push(format!("allocated are {is:?}, not {should:?}"));
        }
        let handles: BTreeSet<&str> =
            store.iter().filter_map(|it| it[0].as_str()?.strip_prefix(HANDLES)).collect();
        let held: BTreeSet<&str> = should.iter().map(|(_, handle)| handle.as_str()).collect();
        if handles != held {
            wrong.push(format!("handles are {handles:?}, not {held:?}"));
        }
        let mut named: BTreeMap<(String, String, Vec<String>), String> = BTreeMap::new();
        for pair in store.iter().filter(|it| text_at(it, 0).starts_with(ENDPOINTS)) {
            let value: Value = serde_json::from_str(text_at(pair, 1)).unwrap_or_default();
            let spec = &value["spec"];
            let networks = items(spec, "ipNetworks").iter().filter_map(Value::as_str).map(bare);
            let part = |name: &str| text(spec, name).to_owned();
            let who = (part("containerID"), part("endpoint"), networks.collect());
            named.insert(who, part("interfaceName"));
        }
        // Older versions of the protocol name no interface in the answer.
        let is_named = endpoints.values().all(|name| !name.is_empty());
        let keys = |all: &BTreeMap<_, String>| all.keys().cloned().collect::<Vec<_>>();
        if (is_named && named != endpoints) || keys(&named) != keys(&endpoints) {
            wrong.push(format!("endpoints are {named:?}, not {endpoints:?}"));
        }
    }

    fn compare_host(&self, seen: &Value, wrong: &mut Vec<String>) {
        let host = &seen["host_state"];
        let names = items(host, "links").iter().map(|link| text(link, "name"));
        let n_ends = names.filter(|name| name.starts_with("cali")).count();
        if n_ends != self.attached.len() {
            wrong.push(format!("{n_ends} interfaces on the host for {}", self.attached.len()));
        }
        let to_sandboxes = items(host, "routes").iter().filter(|route| {
            text(route, "dev").starts_with("cali") && text(route, "protocol") == "77"
        });
        let is: BTreeSet<&str> = to_sandboxes.map(|route| text(route, "dst")).collect();
        let all = self.attached.values().flat_map(|it| &it.addresses);
        let should: BTreeSet<&str> = all.map(String::as_str).collect();
        if is != should {
            wrong.push(format!("routes lead to {is:?}, not to {should:?}"));
        }
    }

    fn compare_containers(&self, seen: &Value, wrong: &mut Vec<String>) {
        for ((container, interface), it) in &self.attached {
            let netns = it.netns.rsplit('/').next().unwrap_or_default();
            let inside = &seen["containers"][netns];
            if inside.is_null() {
                continue;
            }
            let link = items(inside, "links").iter().find(|link| text(link, "name") == interface);
            let assigned = link.map_or(&[][..], |link| items(link, "addresses")).iter();
            let is: BTreeSet<String> = assigned.filter_map(Value::as_str).map(bare).collect();
            if !it.addresses.iter().all(|address| is.contains(address)) {
                wrong.push(format!("{container} {interface} has {is:?}, not {:?}", it.addresses));
            }
        }
    }
}

const HANDLES: &str = "/calico/ipam/v2/handle/";

fn answer(seen: &Value) -> Value {
    serde_json::from_str(text(seen, "stdout")).unwrap_or_default()
}

/// The addresses in an answer of any version of the protocol.
fn addresses(answer: &Value) -> Vec<String> {
    let list = items(answer, "ips").iter().map(|ip| bare(text(ip, "address")));
    let single = ["ip4", "ip6"].into_iter().filter_map(|name| answer[name]["ip"].as_str());
    list.chain(single.map(bare)).collect()
}

/// An address without its mask.
fn bare(text: &str) -> String {
    let address = text.split(['/', ' ']).next().unwrap_or_default();
    address.to_owned()
}

fn text_at(pair: &Value, at: usize) -> &str {
    pair[at].as_str().unwrap_or_default()
}

/// Every address that blocks say is held, sorted: an address that is held twice is there twice.
fn allocations(store: &[Value]) -> Vec<Allocation> {
    let mut all = Vec::new();
    for pair in store.iter().filter(|pair| text_at(pair, 0).starts_with(BLOCKS)) {
        let value: Value = serde_json::from_str(text_at(pair, 1)).unwrap_or_default();
        let Ok(block) = api::keys::ipam::Block::decode(&value) else { continue };
        let holders = ipam::holders(&block);
        all.extend(holders.map(|(address, holder)| {
            (address.to_string(), holder.handle.clone().unwrap_or_default())
        }));
    }
    all.sort();
    all
}
