//! Records of the datastore that are deleted, left over, or contradict each other.

use std::time::{Duration, Instant};

use api::Kind;
use api::keys::{ListOptions, ResourceList};
use serde_json::{Value, json};
use store::{Compare, KeyValue, Op, Txn};

use crate::datastore::with_store;
use crate::failure::Failure;
use crate::lab::Lab;
use crate::state::{Node, Pod};

/// An address that no pod gets: the last block of the pool.
const GHOST_ADDRESS: &str = "10.65.255.251/32";
/// How long the agent gets to restore a record before the lab does.
const AGENT_WAIT: Duration = Duration::from_secs(2);

/// Deletes the record of a pod; what was there is needed to put it back.
pub(super) fn delete(lab: &Lab, pod: &Pod) -> Result<Value, Failure> {
    let entry = record_of(lab, pod)?;
    let key = entry.key.clone();
    commit(lab, Txn { compares: Vec::new(), ops: vec![Op::Delete { key }] })?;
    Ok(json!({"key": entry.key, "value": String::from_utf8_lossy(&entry.value)}))
}

/// Puts a record back, unless the agent has done so.
pub(super) fn restore(lab: &Lab, pod: &Pod, saved: &Value) -> Result<String, Failure> {
    let (key, value) = saved_entry(saved)?;
    let name = &pod.name;
    let record = text::json::parse(value.as_bytes()).unwrap_or_default();
    if record["spec"]["interfaceName"] != pod.interface.as_str() {
        return Ok(format!("{name} has a new sandbox since: its old record stays deleted"));
    }
    let began = Instant::now();
    while began.elapsed() < AGENT_WAIT {
        if exists(lab, &key)? {
            return Ok(format!("the record of {name}: restored by the agent"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let op = Op::Put { key: key.clone(), value: value.into_bytes() };
    commit(lab, Txn { compares: vec![Compare::Absent(key)], ops: vec![op] })?;
    Ok(format!("the record of {name}: restored by the lab, not by the agent"))
}

/// Removes a record that never had a pod.
pub(super) fn remove(lab: &Lab, name: &str, saved: &Value) -> Result<String, Failure> {
    let (key, _) = saved_entry(saved)?;
    if !exists(lab, &key)? {
        return Ok(format!("the false record on {name}: removed by the agent"));
    }
    commit(lab, Txn { compares: Vec::new(), ops: vec![Op::Delete { key }] })?;
    Ok(format!("the false record on {name}: removed by the lab"))
}

/// Writes the record of a pod that does not exist.
pub(super) fn add_ghost(lab: &Lab, node: &Node) -> Result<Value, Failure> {
    let records = lab.state.pods.iter().map(|pod| record_of(lab, pod));
    let entry = records.reduce(Result::or);
    let entry = entry.ok_or_else(|| Failure::new("the lab has no pod to write alike"))??;
    let networks = json!([GHOST_ADDRESS]);
    write_like(lab, &entry, &node.name, "ghost", Some(networks))
}

/// Writes the record of a pod on another node with the address of this one.
pub(super) fn add_twin(lab: &Lab, pod: &Pod) -> Result<(String, Value), Failure> {
    let entry = record_of(lab, pod)?;
    let others = lab.state.nodes.iter().filter(|node| node.name != pod.node);
    let node = others.map(|node| node.name.clone()).next().unwrap_or_else(|| pod.node.clone());
    let saved = write_like(lab, &entry, &node, "twin", None)?;
    Ok((node, saved))
}

fn write_like(
    lab: &Lab,
    entry: &KeyValue,
    node: &str,
    container: &str,
    networks: Option<Value>,
) -> Result<Value, Failure> {
    let unreadable = || Failure::new(format!("the record {} cannot be read", entry.key));
    let mut record = text::json::parse(&entry.value).map_err(|_| unreadable())?;
    let endpoint = record["spec"]["endpoint"].as_str().unwrap_or("eth0").to_owned();
    let name = format!("{node}-cni-{container}-{endpoint}");
    let (folder, _) = entry.key.rsplit_once('/').ok_or_else(unreadable)?;
    let key = format!("{folder}/{name}");
    record["metadata"]["name"] = name.into();
    record["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    let spec = &mut record["spec"];
    spec["node"] = node.into();
    spec["interfaceName"] = format!("cali{container}").into();
    for field in ["containerID", "workload"] {
        if spec.get(field).is_some() {
            spec[field] = container.into();
        }
    }
    if let Some(networks) = networks {
        spec["ipNetworks"] = networks;
    }
    let value = text::json::to_string(&record);
    let op = Op::Put { key: key.clone(), value: value.clone().into_bytes() };
    commit(lab, Txn { compares: Vec::new(), ops: vec![op] })?;
    Ok(json!({"key": key, "value": value}))
}

/// The record of a pod, found by its node and interface.
fn record_of(lab: &Lab, pod: &Pod) -> Result<KeyValue, Failure> {
    let all = ListOptions::Resource(ResourceList::all(Kind::WorkloadEndpoint));
    let entries = with_store(lab, |store| store.list(&all.root()))?.entries;
    let is_meant = |entry: &&KeyValue| {
        let Ok(record) = text::json::parse(&entry.value) else { return false };
        let spec = &record["spec"];
        spec["node"] == pod.node.as_str() && spec["interfaceName"] == pod.interface.as_str()
    };
    let found = entries.iter().find(is_meant).cloned();
    found.ok_or_else(|| Failure::new(format!("the datastore has no record of {}", pod.name)))
}

/// Whether the record that was deleted, or written without a pod, is in the datastore.
pub(super) fn is_there(lab: &Lab, saved: &Value) -> Result<bool, Failure> {
    exists(lab, &saved_entry(saved)?.0)
}

fn exists(lab: &Lab, key: &str) -> Result<bool, Failure> {
    with_store(lab, |store| Ok(store.get(key)?.0.is_some()))
}

fn commit(lab: &Lab, txn: Txn) -> Result<(), Failure> {
    match with_store(lab, |store| store.commit(txn))? {
        store::Committed::Applied { .. } => Ok(()),
        store::Committed::Conflict { .. } => {
            Err(Failure::new("somebody else wrote the record at the same time"))
        }
    }
}

fn saved_entry(saved: &Value) -> Result<(String, String), Failure> {
    let text = |name: &str| saved[name].as_str().map(str::to_owned);
    let entry = text("key").zip(text("value"));
    entry.ok_or_else(|| Failure::new("what was there before was not remembered"))
}
