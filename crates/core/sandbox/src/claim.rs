//! What a sandbox owns in the datastore, claimed and taken back in one transaction each: its
//! addresses, its endpoint, and the profile of its network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::Kind;
use api::keys::{Key, ResourceKey};
use ipam::{AssignIp, AutoAssign, Planned, Planner, Release};
use net::Cidr;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::identity::{Held, Identity, Workload};
use crate::life::Record;
use crate::records::{Endpoint, profile};

/// Our own address manager, as configurations name it.
pub const CALICO_IPAM: &str = "calico-ipam";

/// Which addresses a sandbox gets.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Whether it gets an IPv4 address.
    pub ipv4: bool,
    /// Whether it gets an IPv6 address.
    pub ipv6: bool,
    /// Names or CIDRs of pools.
    pub pools4: Vec<String>,
    /// Names or CIDRs of pools.
    pub pools6: Vec<String>,
    /// This address and no other.
    pub address: Option<IpAddr>,
    /// Addresses that are seen in use, whatever the records say.
    pub avoid: BTreeSet<IpAddr>,
}

/// What is random about a new object.
#[derive(Clone, Debug, Default)]
pub struct Fresh {
    /// The uid of the endpoint.
    pub endpoint_uid: String,
    /// The uid of the profile, if one has to be made.
    pub profile_uid: String,
}

/// Whether the cluster's records may be changed now.
pub fn ready(planner: &mut Planner<'_>) -> Planned<Result<(), Failure>> {
    let Some(bytes) = planner.get(&lock_key())? else {
        return Ok(Err(Failure::plugin(
            "error getting ClusterInformation: resource does not exist: \
             ClusterInformation(default) with error: <nil>",
        )
        .with_details("the datastore was never set up; any write of calicoctl sets it up")));
    };
    Ok(match says_ready(&bytes) {
        Some(true) => Ok(()),
        _ => Err(Failure::plugin("Calico is currently not ready to process requests")
            .with_details("ClusterInformation default says datastoreReady: false")),
    })
}

/// Whether the records are locked: an operator moves them, and nothing may be changed meanwhile.
pub fn locked(planner: &mut Planner<'_>) -> Planned<Result<(), Failure>> {
    match planner.get(&lock_key())?.is_some() {
        true => ready(planner),
        false => Ok(Ok(())),
    }
}

/// The key of the record that says whether the others may be changed.
pub fn lock_key() -> String {
    resource_key(Kind::ClusterInformation, "", "default")
}

/// What that record says, if it can be read.
pub fn says_ready(bytes: &[u8]) -> Option<bool> {
    text::json::parse(bytes).ok()?["spec"]["datastoreReady"].as_bool()
}

/// Gives a workload of a node addresses, under a handle.
pub fn assign(
    planner: &mut Planner<'_>,
    node: &str,
    handle: &str,
    workload: &Workload,
    wish: &Wish,
) -> Planned<Result<Vec<Held>, Failure>> {
    let attributes = attributes(planner.now(), node, workload);
    let holder = Holder { node, handle, attributes };
    let networks = match wish.address {
        Some(address) => {
            let before = planner.savepoint();
            let assigned = assign_one(planner, holder, address)?;
            // Whatever the records say, a live sandbox has it.
            match assigned.is_ok() && wish.avoid.contains(&address) {
                true => {
                    planner.roll_back(before);
                    let message = format!("{address} leads to another sandbox of this node");
                    Err(Failure::plugin(message)
                        .with_details("margay sandboxes      # whose is it? ask for another one"))
                }
                false => assigned,
            }
        }
        None => assign_any(planner, holder, wish)?,
    };
    match networks {
        Ok(networks) => held(planner, networks),
        Err(failure) => Ok(Err(failure)),
    }
}

/// What Calico notes beside an address.
pub(crate) fn attributes(
    now: ipam::Moment,
    node: &str,
    workload: &Workload,
) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::new();
    attributes.insert("node".to_owned(), node.to_owned());
    attributes.insert("timestamp".to_owned(), go_time(now.nanoseconds()));
    if let Workload::Pod { namespace, name } = workload {
        attributes.insert("namespace".to_owned(), namespace.clone());
        attributes.insert("pod".to_owned(), name.clone());
    }
    attributes
}

/// Who will hold the addresses.
struct Holder<'a> {
    node: &'a str,
    handle: &'a str,
    attributes: BTreeMap<String, String>,
}

fn assign_one(
    planner: &mut Planner<'_>,
    holder: Holder<'_>,
    address: IpAddr,
) -> Planned<Result<Vec<Cidr>, Failure>> {
    let assigned = planner.assign_ip(&AssignIp {
        node: holder.node.to_owned(),
        address,
        handle: Some(holder.handle.to_owned()),
        attributes: holder.attributes,
        purpose: String::new(),
        max_per_handle: 0,
        reserved: None,
    })?;
    Ok(match assigned {
        Ok(()) => Ok(vec![Cidr::host(address)]),
        Err(error) => Err(explained(&error)),
    })
}

fn assign_any(
    planner: &mut Planner<'_>,
    holder: Holder<'_>,
    wish: &Wish,
) -> Planned<Result<Vec<Cidr>, Failure>> {
    let mut pools = Vec::new();
    for (names, is_ipv4) in [(&wish.pools4, true), (&wish.pools6, false)] {
        match resolve(planner, names, is_ipv4)? {
            Ok(found) => pools.push(found),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    let pools6 = pools.pop().unwrap_or_default();
    let assigned = planner.auto_assign(&AutoAssign {
        node: holder.node.to_owned(),
        num4: wish.ipv4.into(),
        num6: wish.ipv6.into(),
        handle: Some(holder.handle.to_owned()),
        attributes: holder.attributes,
        purpose: "Workload".to_owned(),
        pools4: pools.pop().unwrap_or_default(),
        pools6,
        avoid: wish.avoid.clone(),
        ..AutoAssign::default()
    })?;
    if let Some(error) = &assigned.error {
        return Ok(Err(explained(error)));
    }
    for family in assigned.v4.iter().chain(&assigned.v6) {
        if let Some(shortfall) = family.shortfall() {
            let message = format!("failed to request IPv{} addresses: {shortfall}", family.family);
            return Ok(Err(Failure::plugin(message)));
        }
    }
    Ok(Ok(assigned.addresses().collect()))
}

fn explained(error: &ipam::Error) -> Failure {
    Failure::plugin(error.to_string()).with_details(error.explain())
}

/// Pools are named or given by CIDR.
pub(crate) fn resolve(
    planner: &mut Planner<'_>,
    names: &[String],
    is_ipv4: bool,
) -> Planned<Result<Vec<Cidr>, Failure>> {
    let mut pools = Vec::new();
    for name in names {
        let stored = match name.contains('/') {
            true => None,
            false => planner.get(&resource_key(Kind::IpPool, "", name))?,
        };
        let text = stored
            .and_then(|bytes| text::json::parse(&bytes).ok())
            .and_then(|pool| pool["spec"]["cidr"].as_str().map(str::to_owned))
            .unwrap_or_else(|| name.clone());
        let Some(cidr) = Cidr::parse_strict(&text) else {
            let message = format!("error parsing pool {name:?}: invalid CIDR address: {text}");
            return Ok(Err(Failure::plugin(message)));
        };
        if cidr.is_ipv4() != is_ipv4 {
            let family = if is_ipv4 { 4 } else { 6 };
            let message = format!("{:?} isn't a IPv{family} address", cidr.address().to_string());
            return Ok(Err(Failure::plugin(message)));
        }
        pools.push(cidr);
    }
    Ok(Ok(pools))
}

/// The sequence number of each new address, which its release will name.
fn held(planner: &Planner<'_>, networks: Vec<Cidr>) -> Planned<Result<Vec<Held>, Failure>> {
    let mut all = Vec::new();
    for network in networks {
        all.push(Held { network, sequence: planner.sequence_of(network.address())? });
    }
    Ok(Ok(all))
}

/// The endpoint of a sandbox, without what the datastore adds.
pub(crate) fn endpoint(record: &Record) -> Result<Value, Failure> {
    let object = Endpoint {
        name: &record.endpoint,
        node: &record.node,
        identity: &record.identity,
        workload: &record.workload,
        profiles: record.profiles(),
        labels: record.labels.clone(),
        wiring: &record.wiring,
    }
    .object();
    valid(Kind::WorkloadEndpoint, &object)?;
    Ok(object)
}

/// Writes the endpoint of a sandbox.
///
/// An endpoint of that name that is there already is one of an earlier sandbox of the same pod: it
/// is changed, and what we do not know in it is kept.
pub(crate) fn record_endpoint(
    planner: &mut Planner<'_>,
    record: &Record,
    fresh: &Fresh,
) -> Planned<Result<(), Failure>> {
    let key = endpoint_key(record);
    let wanted = match endpoint(record) {
        Ok(wanted) => wanted,
        Err(failure) => return Ok(Err(failure)),
    };
    let stored = planner.get(&key)?.and_then(|bytes| text::json::parse(&bytes).ok());
    let object = match stored {
        Some(mut stored) if stored.is_object() => {
            stored["spec"] = merged(&stored["spec"], &wanted["spec"]);
            stored["metadata"]["labels"] =
                merged(&stored["metadata"]["labels"], &wanted["metadata"]["labels"]);
            stored
        }
        _ => created(&wanted, &fresh.endpoint_uid, planner.now()),
    };
    planner.put(&key, text::json::to_string(&object).into_bytes())?;
    Ok(Ok(()))
}

/// Makes the profile of a network, unless it is there.
pub(crate) fn ensure_profile(
    planner: &mut Planner<'_>,
    network: &str,
    workload: &Workload,
    fresh: &Fresh,
) -> Planned<Result<(), Failure>> {
    let key = resource_key(Kind::Profile, "", network);
    if planner.get(&key)?.is_some() {
        return Ok(Ok(()));
    }
    let wanted = profile(network, workload);
    if let Err(failure) = valid(Kind::Profile, &wanted) {
        return Ok(Err(failure));
    }
    let object = created(&wanted, &fresh.profile_uid, planner.now());
    planner.put(&key, text::json::to_string(&object).into_bytes())?;
    Ok(Ok(()))
}

/// Nothing is written that nobody could read back.
fn valid(kind: Kind, object: &Value) -> Result<(), Failure> {
    let problems = model::validate::validate(kind, object);
    if problems.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(Failure::plugin(format!("{kind} {name}: {}", told.join("; "))))
}

/// Everything that a sandbox needs in the datastore.
#[derive(Clone, Debug)]
pub struct Order {
    /// The sandbox, as far as it is known: its addresses too, if another manager gave them.
    pub record: Record,
    /// Which addresses it gets from us.
    pub wish: Wish,
    /// What is random about new objects.
    pub fresh: Fresh,
}

/// Claims addresses, endpoint and profile: all of it, or nothing.
pub fn claim(planner: &mut Planner<'_>, order: &Order) -> Planned<Result<Record, Failure>> {
    let before = planner.savepoint();
    let claimed = claim_all(planner, order)?;
    if claimed.is_err() {
        planner.roll_back(before);
    }
    Ok(claimed)
}

fn claim_all(planner: &mut Planner<'_>, order: &Order) -> Planned<Result<Record, Failure>> {
    if let Err(failure) = ready(planner)? {
        return Ok(Err(failure));
    }
    let mut record = order.record.clone();
    if record.ipam == CALICO_IPAM {
        let handle = record.handle();
        match assign(planner, &record.node, &handle, &record.workload, &order.wish)? {
            Ok(held) => {
                record.wiring.addresses = held.iter().map(|held| held.network.address()).collect();
                record.addresses = held;
            }
            Err(failure) => return Ok(Err(failure)),
        }
    }
    if record.addresses.is_empty() {
        return Ok(Err(Failure::plugin("IPAM plugin returned no IP addresses in result")));
    }
    if let Err(failure) = record_endpoint(planner, &record, &order.fresh)? {
        return Ok(Err(failure));
    }
    if record.profiles().contains(&record.network)
        && let Err(failure) =
            ensure_profile(planner, &record.network, &record.workload, &order.fresh)?
    {
        return Ok(Err(failure));
    }
    Ok(Ok(record))
}

/// Takes back what a sandbox owns. `others` are addresses under the same handle that other
/// interfaces of the container hold.
pub fn release(
    planner: &mut Planner<'_>,
    record: &Record,
    others: &BTreeSet<IpAddr>,
) -> Planned<Result<(), ipam::Error>> {
    release_endpoint(planner, &endpoint_key(record), &record.identity)?;
    if record.ipam != CALICO_IPAM {
        return Ok(Ok(()));
    }
    let handle = record.handle();
    let mut releases: Vec<Release> = record
        .addresses
        .iter()
        .map(|held| Release {
            address: held.network.address().to_string(),
            handle: handle.clone(),
            sequence: held.sequence,
        })
        .collect();
    if releases.is_empty() {
        // Claimed or not, nobody knows: the handle does.
        releases = match planner.ips_by_handle(&handle)? {
            Ok(addresses) => addresses
                .into_iter()
                .filter(|address| !others.contains(address))
                .map(|address| Release {
                    address: address.to_string(),
                    handle: handle.clone(),
                    sequence: None,
                })
                .collect(),
            Err(_) => Vec::new(),
        };
    }
    if releases.is_empty() {
        return Ok(Ok(()));
    }
    let released = planner.release_ips(&releases)?;
    Ok(released.error.map_or(Ok(()), Err))
}

/// What a sandbox that is up lacks in the datastore, in words.
pub fn lacking(planner: &mut Planner<'_>, record: &Record) -> Planned<Vec<String>> {
    let mut faults = Vec::new();
    let name = &record.endpoint;
    match planner.get(&endpoint_key(record))? {
        None => faults.push(format!("its endpoint {name} is missing from the datastore")),
        Some(bytes) => {
            let stored = text::json::parse(&bytes).unwrap_or_default();
            let networks = stored["spec"]["ipNetworks"].as_array().into_iter().flatten();
            let named: BTreeSet<Option<IpAddr>> =
                networks.map(|it| it.as_str()?.split('/').next()?.parse().ok()).collect();
            let wanted = record.wiring.addresses.iter().copied().map(Some).collect();
            if stored["spec"]["containerID"] != record.identity.container.as_str() {
                faults.push(format!("its endpoint {name} is another container's"));
            } else if named != wanted {
                faults.push(format!("its endpoint {name} names other addresses"));
            }
        }
    }
    if record.ipam == CALICO_IPAM {
        let handle = record.handle();
        let held = planner.ips_by_handle(&handle)?.unwrap_or_default();
        let addresses = record.addresses.iter().map(|held| held.network.address());
        for address in addresses.filter(|address| !held.contains(address)) {
            faults.push(format!("{address} is not allocated to {handle}"));
        }
    }
    Ok(faults)
}

/// Removes an endpoint, provided that it is this sandbox's: a later sandbox of the same pod has
/// one of the same name.
fn release_endpoint(planner: &mut Planner<'_>, key: &str, identity: &Identity) -> Planned<bool> {
    let Some(bytes) = planner.get(key)? else { return Ok(false) };
    let value = text::json::parse(&bytes).unwrap_or_default();
    let owner = value["spec"]["containerID"].as_str().unwrap_or_default();
    if !owner.is_empty() && owner != identity.container {
        return Ok(false);
    }
    planner.delete(key)?;
    Ok(true)
}

/// The key of a sandbox's endpoint.
pub fn endpoint_key(record: &Record) -> String {
    resource_key(Kind::WorkloadEndpoint, record.workload.namespace(), &record.endpoint)
}

/// The key of a resource.
pub fn resource_key(kind: Kind, namespace: &str, name: &str) -> String {
    let key =
        ResourceKey { kind: kind.into(), namespace: namespace.to_owned(), name: name.to_owned() };
    Key::Resource(key).path().unwrap_or_default()
}

/// The object with what the datastore adds, in Calico's order.
fn created(object: &Value, uid: &str, now: ipam::Moment) -> Value {
    let mut object = object.clone();
    let metadata = &object["metadata"];
    let mut ordered = serde_json::Map::new();
    for field in ["name", "namespace"] {
        if let Some(value) = metadata.get(field) {
            ordered.insert(field.to_owned(), value.clone());
        }
    }
    ordered.insert("uid".to_owned(), uid.into());
    ordered.insert("creationTimestamp".to_owned(), now.text().into());
    if let Some(labels) = metadata.get("labels") {
        ordered.insert("labels".to_owned(), labels.clone());
    }
    object["metadata"] = Value::Object(ordered);
    object
}

/// Fields of the second over those of the first.
fn merged(stored: &Value, wanted: &Value) -> Value {
    let mut fields = stored.as_object().cloned().unwrap_or_default();
    for (name, value) in wanted.as_object().into_iter().flatten() {
        fields.insert(name.clone(), value.clone());
    }
    json!(fields)
}

/// A time as Go prints it: Calico notes it beside the address.
fn go_time(nanoseconds: u64) -> String {
    let seconds = i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX);
    let date = api::schema::utc(seconds).replace('T', " ").replace('Z', "");
    let fraction = format!("{:09}", nanoseconds % 1_000_000_000);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{date}{dot}{fraction} +0000 UTC")
}
