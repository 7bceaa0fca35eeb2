//! The command `ipam check`, in calicoctl's words, with its report.
//!
//! The words are calicoctl's, and so is what it looks at; where it reports what is in use as
//! leaked, ours does not: see `docs/differences.md`. `margay ipam check` looks at more.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use api::Kind;
use api::keys::ipam::{Attribute, Block, Handle};
use api::keys::{Key, ListOptions};
use net::Cidr;
use serde_json::{Value, json};
use store::resources::{Name, Resources};
use store::{KeyValue, Store};

use super::super::session::Session;
use super::super::stop::Stop;
use super::{left_out, words};
use api::EMULATED_CALICO_VERSION;

const WINDOWS_HANDLE: &str = "windows-reserved-ipam-handle";
const HANDLES: &str = "/calico/ipam/v2/handle/";
/// So many nodes are listed.
const NODES_MAX: usize = 20;

/// An address that a block says is allocated.
struct Allocation {
    handle: Option<String>,
    sequence: u64,
    node: String,
    owner: BTreeMap<String, String>,
    is_borrowed: bool,
    is_cooling: bool,
    owners: Vec<String>,
    attributes: String,
}

/// What was found so far.
struct Checker<'s> {
    out: &'s mut dyn Write,
    shows_all: bool,
    shows_problems: bool,
    allocations: BTreeMap<String, Vec<Allocation>>,
    in_use: BTreeMap<String, Vec<String>>,
    handles_in_use: BTreeSet<String>,
    /// Blocks that cannot be read, whose handles nobody can judge.
    unread: BTreeSet<String>,
    leaked: Vec<(String, i64)>,
}

/// `ipam check`.
pub(crate) fn run(session: &mut Session<'_>) -> Result<(), Stop> {
    session.check_version()?;
    let parsed = session.parsed;
    let client = session.datastore.open()?;
    need_kubernetes(parsed.text("kubeconfig"))?;
    let shows_all = parsed.is_set("show-all-ips");
    let mut checker = Checker {
        out: session.out,
        shows_all,
        shows_problems: shows_all || parsed.is_set("show-problem-ips"),
        allocations: BTreeMap::new(),
        in_use: BTreeMap::new(),
        handles_in_use: BTreeSet::new(),
        unread: BTreeSet::new(),
        leaked: Vec::new(),
    };
    writeln!(checker.out, "Checking IPAM for inconsistencies...\n")?;
    let cluster = Name::cluster(Kind::ClusterInformation, "default");
    let cluster = client.get(&cluster).map_err(words)?;
    let blocks = checker.blocks(client.store())?;
    let pools = checker.pools(client)?;
    checker.nodes(client)?;
    checker.services(client)?;
    checker.endpoints(client)?;
    let handles = checker.handles(client.store())?;
    checker.top_nodes()?;
    let n_problems = checker.scan(&pools)? + checker.scan_handles(&handles)?;
    let n_invalid = checker.validate(&blocks)?;
    writeln!(checker.out, "Check complete; found {} problems.", n_problems + n_invalid)?;
    if let Some(file) = parsed.text("output") {
        let report = checker.report(&cluster.object, cluster.revision);
        let text = text::json::to_string_indented(&report);
        std::fs::write(Path::new(file), text)
            .map_err(|error| Stop::Error(format!("cannot write the report {file}: {error}")))?;
    }
    Ok(())
}

/// calicoctl wants to know where Kubernetes is, because it asks it for services.
fn need_kubernetes(flag: Option<&str>) -> Result<(), Stop> {
    let variable = std::env::var("KUBECONFIG").ok().filter(|path| !path.is_empty());
    let Some(path) = flag.map(str::to_owned).or(variable) else {
        let words = "KUBECONFIG environment variable or --kubeconfig parameter not set";
        return Err(Stop::Error(words.to_owned()));
    };
    match Path::new(&path).exists() {
        true => Ok(()),
        false => Err(Stop::Error(format!("stat {path}: no such file or directory"))),
    }
}

impl Checker<'_> {
    fn blocks(&mut self, store: &Store) -> Result<Vec<Block>, Stop> {
        writeln!(self.out, "Loading all IPAM blocks...")?;
        let listed = store.list(&ListOptions::Block { family: None }.root());
        let mut blocks = Vec::new();
        for entry in listed.map_err(|error| words(error.into()))?.entries {
            match read_block(&entry) {
                Ok(block) => blocks.push(block),
                Err(why) => {
                    left_out(&entry.key, &why)?;
                    let network = entry.key.rsplit('/').next().unwrap_or_default();
                    self.unread.insert(network.replacen('-', "/", 1));
                }
            }
        }
        writeln!(self.out, "Found {} IPAM blocks.", blocks.len())?;
        let mut n_allocations = 0;
        for block in &blocks {
            let affinity = block.affinity.as_deref().unwrap_or("<none>");
            writeln!(self.out, " IPAM block {} affinity={affinity}:", block.cidr)?;
            for ordinal in 0..block.allocations.len() {
                if block.allocations[ordinal].is_some() {
                    n_allocations += 1;
                    self.allocation(block, ordinal)?;
                }
            }
        }
        writeln!(self.out, "IPAM blocks record {n_allocations} allocations.\n")?;
        Ok(blocks)
    }

    fn allocation(&mut self, block: &Block, ordinal: usize) -> Result<(), Stop> {
        let Some(address) = address_of(block, ordinal) else { return Ok(()) };
        let home = block.affinity.as_deref().and_then(|it| it.strip_prefix("host:"));
        let attribute = block.attribute(ordinal);
        let owner = attribute.map(|it| it.active_owner.clone()).unwrap_or_default();
        let text = |name: &str| owner.get(name).map(String::as_str).filter(|it| !it.is_empty());
        let node = text("node").or(home).unwrap_or_default().to_owned();
        let handle = attribute.and_then(|it| it.handle.clone());
        let is_windows = handle.as_deref() == Some(WINDOWS_HANDLE);
        let allocation = Allocation {
            sequence: block.sequence_of(ordinal).unwrap_or(0),
            is_borrowed: node != home.unwrap_or_default(),
            is_cooling: attribute.is_some_and(|it| it.released_at.is_some()),
            attributes: attribute.map_or_else(|| "<missing>".to_owned(), shown),
            handle: handle.clone().filter(|_| !is_windows),
            owners: Vec::new(),
            node,
            owner,
        };
        let attributes = allocation.attributes.clone();
        self.allocations.entry(address.clone()).or_default().push(allocation);
        match handle {
            Some(_) if is_windows => self.used(&address, "Reserved for Windows")?,
            Some(handle) => drop(self.handles_in_use.insert(handle)),
            None => {}
        }
        if self.shows_all {
            writeln!(self.out, "  {address} allocated; attrs {attributes}")?;
        }
        Ok(())
    }

    fn used(&mut self, address: &str, by: &str) -> Result<(), Stop> {
        if self.shows_all {
            writeln!(self.out, "  {address} belongs to {by}")?;
        }
        self.in_use.entry(address.to_owned()).or_default().push(by.to_owned());
        for allocation in self.allocations.get_mut(address).into_iter().flatten() {
            allocation.owners.push(by.to_owned());
        }
        Ok(())
    }

    fn pools(&mut self, client: &Resources) -> Result<Vec<Cidr>, Stop> {
        writeln!(self.out, "Loading all IPAM pools...")?;
        let mut active = Vec::new();
        let pools = client.list(Kind::IpPool, None).map_err(words)?;
        pools.quarantined.iter().try_for_each(super::super::session::warn)?;
        for pool in pools.objects {
            let spec = &pool.object["spec"];
            let text = spec["cidr"].as_str().unwrap_or_default();
            if spec["disabled"] == true {
                continue;
            }
            writeln!(self.out, "  {text}")?;
            active.extend(text.parse::<Cidr>());
        }
        writeln!(self.out, "Found {} active IP pools.\n", active.len())?;
        Ok(active)
    }

    fn nodes(&mut self, client: &Resources) -> Result<(), Stop> {
        writeln!(self.out, "Loading all nodes.")?;
        let nodes = client.list(Kind::Node, None).map_err(words)?;
        nodes.quarantined.iter().try_for_each(super::super::session::warn)?;
        let mut count = 0;
        for node in nodes.objects {
            let spec = &node.object["spec"];
            for tunnel in [
                &spec["ipv4VXLANTunnelAddr"],
                &spec["wireguard"]["interfaceIPv4Address"],
                &spec["bgp"]["ipv4IPIPTunnelAddr"],
            ] {
                if let Some(address) = tunnel.as_str().and_then(plain) {
                    self.used(&address, &format!("Node({})", node.name.name))?;
                    count += 1;
                }
            }
        }
        writeln!(self.out, "Found {count} node tunnel IPs.\n")?;
        Ok(())
    }

    fn services(&mut self, client: &Resources) -> Result<(), Stop> {
        writeln!(self.out, "Loading all service load balancer IPs.")?;
        let settings = Name::cluster(Kind::KubeControllersConfiguration, "default");
        let settings = client.get(&settings).map_err(words)?;
        if !settings.object["spec"]["controllers"]["loadBalancer"].is_null() {
            let words = "the services of Kubernetes cannot be read by this version, and addresses \
                         of load balancers would be taken for leaked";
            return Err(Stop::Error(words.to_owned()));
        }
        let words =
            "No configuration for LoadBalancer kubecontroller found, skipping service check";
        writeln!(self.out, "{words}\n")?;
        Ok(())
    }

    fn endpoints(&mut self, client: &Resources) -> Result<(), Stop> {
        writeln!(self.out, "Loading all workload endpoints.")?;
        let endpoints = client.list(Kind::WorkloadEndpoint, None).map_err(words)?;
        endpoints.quarantined.iter().try_for_each(super::super::session::warn)?;
        let mut count = 0;
        for endpoint in endpoints.objects {
            let name = format!("Workload({}/{})", endpoint.name.namespace, endpoint.name.name);
            let networks = endpoint.object["spec"]["ipNetworks"].as_array().cloned();
            for network in networks.into_iter().flatten() {
                let text = network.as_str().unwrap_or_default();
                match plain(text) {
                    Some(address) => {
                        self.used(&address, &name)?;
                        count += 1;
                    }
                    None => {
                        let why = format!("{text:?} is not an address");
                        left_out(&endpoint.name.key(), &why)?;
                    }
                }
            }
        }
        writeln!(self.out, "Found {count} workload IPs.")?;
        writeln!(self.out, "Workloads and nodes are using {} IPs.\n", self.in_use.len())?;
        Ok(())
    }

    /// The handles, with the revision of each.
    fn handles(&mut self, store: &Store) -> Result<BTreeMap<String, (i64, Handle)>, Stop> {
        writeln!(self.out, "Loading all handles")?;
        let listed = store.list(HANDLES).map_err(|error| words(error.into()))?;
        let mut handles = BTreeMap::new();
        for entry in listed.entries {
            let id = entry.key.strip_prefix(HANDLES).unwrap_or_default().to_owned();
            match Handle::read(&entry.value) {
                Ok(handle) => drop(handles.insert(id, (entry.mod_revision, handle))),
                Err(why) => left_out(&entry.key, &why.to_string())?,
            }
        }
        Ok(handles)
    }

    fn top_nodes(&mut self) -> Result<(), Stop> {
        let title = format!("Looking for top (up to {NODES_MAX}) nodes by allocations...");
        writeln!(self.out, "{title}")?;
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for allocation in self.allocations.values().flatten() {
            *counts.entry(&allocation.node).or_default() += 1;
        }
        let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (node, count) in counts.iter().take(NODES_MAX) {
            writeln!(self.out, "  {node} has {count} allocations")?;
        }
        if let (Some((_, most)), Some((_, median))) = (counts.first(), counts.get(counts.len() / 2))
        {
            writeln!(self.out, "Node with most allocations has {most}; median is {median}")?;
        }
        writeln!(self.out)?;
        Ok(())
    }

    fn scan(&mut self, pools: &[Cidr]) -> Result<usize, Stop> {
        writeln!(self.out, "Scanning for IPs that are allocated but not actually in use...")?;
        let mut n_leaked = 0;
        for (address, allocations) in &self.allocations {
            let is_cooling = allocations.iter().any(|it| it.is_cooling);
            if self.in_use.contains_key(address) || is_cooling {
                continue;
            }
            n_leaked += 1;
            for allocation in allocations.iter().filter(|_| self.shows_problems) {
                writeln!(self.out, "  {address} leaked; attrs {}", allocation.attributes)?;
            }
        }
        let found = "IPs that are allocated in IPAM but not actually in use.";
        writeln!(self.out, "Found {n_leaked} {found}")?;
        let title = "Scanning for IPs that are in use by a workload or node but not allocated in \
                     IPAM...";
        writeln!(self.out, "{title}")?;
        let (mut n_outside, mut n_missing) = (0, 0);
        for (address, owners) in &self.in_use {
            if self.shows_problems && owners.len() > 1 {
                writeln!(self.out, "  {address} has multiple owners.")?;
            }
            if self.allocations.contains_key(address) {
                continue;
            }
            let parsed = net::parse_ip(address);
            let is_inside = parsed.is_some_and(|it| pools.iter().any(|pool| pool.contains(it)));
            let what = match is_inside {
                true => "and in active IPAM pool but has no IPAM allocation.",
                false => "is not in any active IP pool.",
            };
            *(if is_inside { &mut n_missing } else { &mut n_outside }) += 1;
            for owner in owners.iter().filter(|_| self.shows_problems) {
                writeln!(self.out, "  {address} in use by {owner} {what}")?;
            }
        }
        writeln!(self.out, "Found {n_outside} in-use IPs that are not in active IP pools.")?;
        let found = "in-use IPs that are in active IP pools but have no corresponding IPAM \
                     allocation.";
        writeln!(self.out, "Found {n_missing} {found}\n")?;
        Ok(n_leaked + n_outside + n_missing)
    }

    fn scan_handles(&mut self, handles: &BTreeMap<String, (i64, Handle)>) -> Result<usize, Stop> {
        writeln!(self.out, "Scanning for IPAM handles with no matching IPs...")?;
        let spelled: BTreeSet<String> =
            self.handles_in_use.iter().map(|handle| settled(handle)).collect();
        let mut n_good = 0;
        for (id, (revision, handle)) in handles {
            // A handle that a block spells another way, or whose block nobody can read, may live.
            let is_hidden = handle.blocks.keys().any(|cidr| self.unread.contains(cidr));
            if self.handles_in_use.contains(id) || spelled.contains(&settled(id)) || is_hidden {
                n_good += 1;
                continue;
            }
            if self.shows_all {
                writeln!(self.out, "  {id} doesn't have any active IPs.")?;
            }
            self.leaked.push((id.clone(), *revision));
        }
        let n_leaked = self.leaked.len();
        let matches = format!("(and {n_good} handles with matches)");
        writeln!(self.out, "Found {n_leaked} handles with no matching IPs {matches}.")?;
        writeln!(self.out, "Scanning for IPs with missing handle...")?;
        let mut n_missing = 0;
        for id in self.handles_in_use.iter().filter(|id| !handles.contains_key(*id)) {
            n_missing += 1;
            if self.shows_problems {
                writeln!(self.out, "  {id} is in use in a block but doesn't exist.")?;
            }
        }
        let found = "handles mentioned in blocks with no matching handle resource.";
        writeln!(self.out, "Found {n_missing} {found}")?;
        Ok(n_leaked)
    }

    fn validate(&mut self, blocks: &[Block]) -> Result<usize, Stop> {
        writeln!(self.out, "Validating IPAMBlock structures...")?;
        let mut n_invalid = 0;
        for block in blocks {
            if let Some(fault) = fault(block) {
                let key = format!("BlockKey(cidr={})", block.cidr.masked());
                writeln!(self.out, "  IPAMBlock {key} is invalid: {fault}")?;
                n_invalid += 1;
            }
        }
        writeln!(self.out, "Found {n_invalid} invalid IPAMBlocks.")?;
        Ok(n_invalid)
    }

    fn report(&self, cluster: &Value, revision: i64) -> Value {
        let spec = &cluster["spec"];
        let text = |name: &str| spec[name].as_str().unwrap_or_default();
        let mut allocations = serde_json::Map::new();
        for (address, all) in &self.allocations {
            let all = all.iter().map(|it| it.report(address)).collect();
            allocations.insert(address.clone(), Value::Array(all));
        }
        let mut report = json!({
            "version": EMULATED_CALICO_VERSION,
            "clusterGUID": text("clusterGUID"),
            "datastoreLocked": spec["datastoreReady"] == false,
            "clusterInformationRevision": revision.to_string(),
            "clusterType": text("clusterType"),
            "allocations": allocations,
        });
        if !self.leaked.is_empty() {
            let leaked = self.leaked.iter().map(
                |(id, revision)| json!({"ID": id, "UID": null, "Revision": revision.to_string()}),
            );
            report["leakedHandles"] = leaked.collect();
        }
        report
    }
}

impl Allocation {
    fn report(&self, address: &str) -> Value {
        let mut fields = serde_json::Map::new();
        let mut set = |name: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                fields.insert(name.to_owned(), value.into());
            }
        };
        let owner = |name: &str| self.owner.get(name).map(String::as_str);
        set("ip", Some(address));
        set("handle", self.handle.as_deref());
        fields.insert("sequenceNumber".to_owned(), self.sequence.into());
        let mut set = |name: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                fields.insert(name.to_owned(), value.into());
            }
        };
        set("pod", owner("pod"));
        set("namespace", owner("namespace"));
        set("node", Some(&self.node));
        set("type", owner("type"));
        set("creationTimestamp", owner("timestamp"));
        fields.insert("inUse".to_owned(), (!self.owners.is_empty()).into());
        for (name, holds) in [("borrowed", self.is_borrowed), ("coolingDown", self.is_cooling)] {
            if holds {
                fields.insert(name.to_owned(), true.into());
            }
        }
        let owners = match self.owners.is_empty() {
            true => Value::Null,
            false => self.owners.clone().into(),
        };
        fields.insert("owners".to_owned(), owners);
        Value::Object(fields)
    }
}

fn read_block(entry: &KeyValue) -> Result<Block, String> {
    let Some(Key::Block { .. }) = Key::parse(&entry.key) else {
        return Err("its key names no block".to_owned());
    };
    Block::read(&entry.value).map_err(|why| why.to_string())
}

/// The address at a place, also beyond the end of the block.
fn address_of(block: &Block, ordinal: usize) -> Option<String> {
    let offset = u128::try_from(ordinal).ok()?;
    let address = match block.cidr.address() {
        std::net::IpAddr::V4(first) => {
            let sum = u32::from(first).checked_add(u32::try_from(offset).ok()?)?;
            std::net::Ipv4Addr::from(sum).to_string()
        }
        std::net::IpAddr::V6(first) => {
            std::net::Ipv6Addr::from(u128::from(first).checked_add(offset)?).to_string()
        }
    };
    Some(address)
}

/// An address without its mask.
fn plain(text: &str) -> Option<String> {
    Some(text.parse::<Cidr>().ok()?.address().to_string())
}

fn settled(handle: &str) -> String {
    handle.split('\r').next().unwrap_or(handle).to_ascii_lowercase()
}

fn shown(attribute: &Attribute) -> String {
    let list = |fields: &BTreeMap<String, String>| {
        let pairs = fields.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(",")
    };
    let main = attribute.handle.as_deref().unwrap_or("<none>");
    let mut text = format!("Main:{main} Extra:{}", list(&attribute.active_owner));
    if !attribute.alternate_owner.is_empty() {
        text += &format!(" Alternate:{}", list(&attribute.alternate_owner));
    }
    text
}

/// The first thing that is wrong within a block.
fn fault(block: &Block) -> Option<String> {
    let size = usize::try_from(block.size()).unwrap_or(usize::MAX);
    let held: BTreeMap<usize, i64> = (0..size.min(block.allocations.len()))
        .filter_map(|ordinal| Some((ordinal, block.allocations[ordinal]?)))
        .collect();
    for (ordinal, index) in &held {
        if block.attribute(*ordinal).is_none() {
            return Some(format!("allocation {ordinal} indexes a nonexistent attribute {index}"));
        }
    }
    let used: BTreeSet<i64> = held.values().copied().collect();
    let now = store::ipam::now().text();
    for (index, attribute) in block.attributes.iter().enumerate() {
        if i64::try_from(index).is_ok_and(|index| !used.contains(&index)) {
            return Some(format!(
                "attribute index {index} exists but is not indexed by an allocation"
            ));
        }
        if attribute.released_at.as_ref().is_some_and(|at| *at > now) {
            let skew = "has releasedAt in the future, suggesting clock skew";
            return Some(format!("attribute index {index} {skew}"));
        }
    }
    let mut listed = BTreeSet::new();
    for free in &block.unallocated {
        let place = usize::try_from(*free).ok().filter(|it| *it < block.allocations.len());
        let what = match place {
            None => "appears in the Unallocated array but is out of the block",
            Some(place) if !listed.insert(place) => "appears more than once in Unallocated array",
            Some(place) if held.contains_key(&place) => "is allocated but appears in Unallocated",
            Some(_) => continue,
        };
        return Some(format!("ordinal {free} {what}"));
    }
    let (free, held) = (block.unallocated.len(), held.len());
    let sum = free + held;
    (sum != size).then(|| {
        format!(
            "expected {size} addresses in this block, but Unallocated ({free}) + Allocated \
             ({held}) = {sum}"
        )
    })
}
