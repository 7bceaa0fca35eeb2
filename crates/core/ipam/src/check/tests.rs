//! A small store in order, every way to spoil one field of it, and what is said then.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::*;
use crate::Moment;

/// A store: values by key.
pub(crate) type Store = BTreeMap<String, String>;

const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29";
const POD: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/n1-k8s-web-eth0";

pub(crate) fn reach() -> Reach {
    let now = Moment::from_nanoseconds(1_800_000_000_000_000_000);
    Reach { all_nodes: true, now }
}

fn object(store: &mut Store, plural: &str, name: &str, kind: &str, spec: Value) {
    let key = format!("/calico/resources/v3/projectcalico.org/{plural}/{name}");
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let mut metadata = json!({"name": name, "uid": "u"});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    let object = json!({
        "kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": spec,
    });
    store.insert(key, object.to_string());
}

fn endpoint(store: &mut Store, name: &str, spec: Value) {
    let mut spec = spec;
    spec["interfaceName"] = "cali0".into();
    object(store, "workloadendpoints", name, "WorkloadEndpoint", spec);
}

/// Two nodes with a block each: pods, a container, a tunnel, a reserve, a borrowed address.
pub(crate) fn sample() -> Store {
    let mut store = Store::new();
    let since = "2017-03-01 10:00:00.000000000 +0000 UTC";
    let held = |handle: &str, owner: Value| json!({"handle_id": handle, "secondary": owner});
    let block = json!({
        "cidr": "10.0.0.0/29", "affinity": "host:n1", "affinity_claim_time": "2017-03-01T10:00:00Z",
        "allocations": [0, 1, 2, 3, 4, null, null, null],
        "unallocated": [6, 5, 7],
        "attributes": [
            held("net.c0", json!({"node": "n1", "namespace": "shop", "pod": "web", "timestamp": since})),
            held("net.c1", json!({"node": "n1"})),
            held("ipip-tunnel-addr-n1", json!({"node": "n1", "type": "ipipTunnelAddress"})),
            held("net.c3", json!({"node": "n2", "namespace": "shop", "pod": "db"})),
            json!({"handle_id": "margay-reserve.n1"}),
        ],
        "sequenceNumber": 20,
        "sequenceNumberForAllocation": {"0": 11, "1": 12, "2": 13, "3": 14, "4": 15},
        "deleted": false,
    });
    store.insert(BLOCK.to_owned(), block.to_string());
    let other = json!({
        "cidr": "10.0.0.8/29", "affinity": "host:n2", "allocations": [0, null, null, null, null, null, null, null],
        "unallocated": [1, 2, 3, 4, 5, 6, 7],
        "attributes": [held("net.c8", json!({"node": "n2", "namespace": "shop", "pod": "api"}))],
        "sequenceNumber": 7, "sequenceNumberForAllocation": {"0": 3}, "deleted": false,
    });
    store.insert("/calico/ipam/v2/assignment/ipv4/block/10.0.0.8-29".to_owned(), other.to_string());
    for handle in ["net.c0", "net.c1", "ipip-tunnel-addr-n1", "net.c3", "margay-reserve.n1"] {
        let value = json!({"block": {"10.0.0.0/29": 1}, "deleted": false});
        store.insert(format!("/calico/ipam/v2/handle/{handle}"), value.to_string());
    }
    let value = json!({"block": {"10.0.0.8/29": 1}, "deleted": false});
    store.insert("/calico/ipam/v2/handle/net.c8".to_owned(), value.to_string());
    for (node, cidr) in [("n1", "10.0.0.0-29"), ("n2", "10.0.0.8-29")] {
        let key = format!("/calico/ipam/v2/host/{node}/ipv4/block/{cidr}");
        store.insert(key, json!({"state": "confirmed", "deleted": false}).to_string());
    }
    let spec = json!({"cidr": "10.0.0.0/24", "blockSize": 29});
    object(&mut store, "ippools", "pool", "IPPool", spec);
    let tunnel = json!({"bgp": {"ipv4IPIPTunnelAddr": "10.0.0.2"}});
    object(&mut store, "nodes", "n1", "Node", tunnel);
    object(&mut store, "nodes", "n2", "Node", json!({}));
    for (node, pod, container, address) in [
        ("n1", "web", "c0", "10.0.0.0/32"),
        ("n2", "db", "c3", "10.0.0.3/32"),
        ("n2", "api", "c8", "10.0.0.8/32"),
    ] {
        let spec = json!({
            "orchestrator": "k8s", "node": node, "pod": pod, "containerID": container,
            "endpoint": "eth0", "ipNetworks": [address],
        });
        endpoint(&mut store, &format!("shop/{node}-k8s-{pod}-eth0"), spec);
    }
    let spec = json!({
        "orchestrator": "cni", "node": "n1", "containerID": "c1", "endpoint": "eth0",
        "ipNetworks": ["10.0.0.1/32"], "profiles": ["net"],
    });
    endpoint(&mut store, "default/n1-cni-c1-eth0", spec);
    store
}

/// The addresses that somebody uses in the sample.
pub(crate) fn used() -> Vec<IpAddr> {
    [0, 1, 2, 3, 4, 8].map(|last| IpAddr::from([10, 0, 0, last])).to_vec()
}

pub(crate) fn inventory(store: &Store) -> Inventory {
    let mut inventory = Inventory::default();
    for prefix in prefixes() {
        for (key, value) in store.range(prefix.clone()..).take_while(|it| it.0.starts_with(&prefix))
        {
            inventory.absorb(key, value.as_bytes(), 1);
        }
    }
    inventory
}

/// Every way to spoil one field of a value: left out, nothing, of another type, another value.
pub(crate) fn spoilt(value: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let mut others = vec![Value::Null, json!(7), json!("x"), json!([]), json!({}), json!(true)];
    match value {
        Value::String(text) => others.extend([json!(format!("{text}x")), json!("")]),
        Value::Number(number) => {
            let number = number.as_i64().unwrap_or_default();
            others.extend([json!(number + 1), json!(-1), json!(1e30), json!(i64::MAX)]);
        }
        Value::Bool(flag) => others.push(json!(!flag)),
        Value::Array(items) => {
            others.extend(items.split_last().map(|(_, rest)| json!(rest)));
            others.extend(items.split_first().map(|(_, rest)| json!(rest)));
            let twice: Vec<_> = items.iter().chain(items.first()).collect();
            others.push(json!(twice));
            for (index, item) in items.iter().enumerate() {
                for (path, item) in spoilt(item) {
                    let mut items = items.clone();
                    items[index] = item;
                    all.push((format!("[{index}]{path}"), Value::Array(items)));
                }
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let mut less = fields.clone();
                less.shift_remove(name);
                all.push((format!(".{name} left out"), Value::Object(less)));
                for (path, field) in spoilt(field) {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), field);
                    all.push((format!(".{name}{path}"), Value::Object(fields)));
                }
            }
        }
        Value::Null => {}
    }
    let others = others.into_iter().filter(|other| other != value);
    all.extend(others.map(|other| (format!(" = {other}"), other)));
    all
}

/// Every store with one spoilt field of a block, handle, claim or endpoint.
pub(crate) fn spoilt_stores() -> Vec<(String, String, Store)> {
    let sample = sample();
    let mut all = Vec::new();
    for (key, text) in &sample {
        if !key.starts_with("/calico/ipam/") && !key.contains("/workloadendpoints/") {
            continue;
        }
        let mut values: Vec<(String, String)> = spoilt(&serde_json::from_str(text).unwrap())
            .into_iter()
            .map(|(path, value)| (path, value.to_string()))
            .collect();
        values.push((" cut off".to_owned(), text[..text.len() / 2].to_owned()));
        values.push((" empty".to_owned(), String::new()));
        for (path, value) in values {
            let mut store = sample.clone();
            store.insert(key.clone(), value);
            all.push((key.clone(), path, store));
        }
    }
    all
}

/// Whether a record still says the same about addresses. Times of old, and numbers that only grow,
/// say nothing; the profile is asked only for the network of a container without a handle.
fn means_the_same(key: &str, spoilt: &Inventory, good: &Inventory) -> bool {
    let blank = |inventory: &Inventory| {
        let mut inventory = inventory.clone();
        for stock in inventory.blocks.values_mut() {
            for (_, slot) in &mut stock.slots {
                if let stock::Slot::Held(holder) = slot {
                    holder.since = None;
                }
            }
        }
        for endpoint in &mut inventory.endpoints {
            endpoint.network = None;
        }
        inventory
    };
    let states = |inventory: &Inventory| -> Vec<bool> {
        let claims = inventory.claims.values();
        claims.map(|it| it.unreadable.is_none() && !it.is_deleted && it.is_settled()).collect()
    };
    let (spoilt, good) = (blank(spoilt), blank(good));
    !spoilt.unreadable.contains_key(key)
        && spoilt.blocks == good.blocks
        && spoilt.handles == good.handles
        && states(&spoilt) == states(&good)
        && spoilt.endpoints == good.endpoints
}

#[test]
fn a_store_in_order_has_no_problems() {
    let findings = inventory(&sample()).check(Reach::default());
    assert_eq!(findings.problems, []);
    assert_eq!((findings.blocks, findings.addresses), (2, 6));
    assert_eq!((findings.handles, findings.endpoints), (6, 4));
}

#[test]
fn every_spoilt_field_is_named() {
    let good = inventory(&sample());
    let (mut n_named, mut unnamed) = (0, Vec::new());
    for (key, path, store) in spoilt_stores() {
        let spoilt = inventory(&store);
        let findings = spoilt.check(reach());
        n_named += usize::from(!findings.problems.is_empty());
        if findings.problems.is_empty() && !means_the_same(&key, &spoilt, &good) {
            unnamed.push(key + &path);
        }
    }
    assert_eq!(unnamed, [] as [String; 0]);
    assert!(n_named > 900, "{n_named}");
}

fn classes(store: &Store) -> Vec<&'static str> {
    let findings = inventory(store).check(Reach::default());
    let mut names: Vec<_> = findings.problems.iter().map(|it| it.class.name()).collect();
    names.dedup();
    names
}

#[test]
fn what_is_wrong_has_its_name() {
    let without = |key: &str| {
        let mut store = sample();
        store.remove(key).unwrap();
        store
    };
    assert_eq!(classes(&without(POD)), ["leak"]);
    assert_eq!(classes(&without("/calico/ipam/v2/handle/net.c0")), ["wrong-handle"]);
    assert_eq!(
        classes(&without("/calico/ipam/v2/host/n1/ipv4/block/10.0.0.0-29")),
        ["orphan-block"]
    );
    let gone = "/calico/resources/v3/projectcalico.org/nodes/n2";
    assert!(classes(&without(gone)).contains(&"node-gone"));
    let pool = "/calico/resources/v3/projectcalico.org/ippools/pool";
    assert_eq!(classes(&without(pool)), ["out-of-pool"]);
    let unclaimed = classes(&without("/calico/ipam/v2/assignment/ipv4/block/10.0.0.8-29"));
    assert_eq!(unclaimed, ["not-allocated", "ghost-handle"]);
    let mut store = sample();
    let twin = store[POD]
        .replace("\"web\"", "\"web2\"")
        .replace("k8s-web", "k8s-web2")
        .replace("\"c0\"", "\"c9\"");
    store.insert(POD.replace("k8s-web", "k8s-web2"), twin);
    assert_eq!(classes(&store), ["duplicate"]);
}

#[test]
fn a_node_speaks_for_itself() {
    let mut store = sample();
    store.remove(POD);
    let leak = |live: Live| {
        let mut inventory = inventory(&store);
        inventory.witness(live);
        let findings = inventory.check(Reach { all_nodes: false, ..reach() });
        findings.problems.into_iter().map(|it| (it.class, it.kept)).collect::<Vec<_>>()
    };
    let live = Live { node: "n1".to_owned(), ..Live::default() };
    assert_eq!(leak(live.clone()), [(Class::Leak, None)]);
    let why = Some("the journal cannot be read".to_owned());
    let deaf = Live { incomplete: why.clone(), ..live.clone() };
    assert_eq!(leak(deaf), [(Class::Leak, why)]);
    let sees = Live { in_kernel: [IpAddr::from([10, 0, 0, 0])].into(), ..live.clone() };
    assert_eq!(leak(sees), [], "an address that the kernel leads somewhere lives");
    let elsewhere = leak(Live { node: "n2".to_owned(), ..live });
    assert!(elsewhere[0].1.as_ref().unwrap().contains("only n1 itself"), "{elsewhere:?}");
}

#[test]
fn endpoints_lie_where_objects_of_their_kind_do() {
    assert_eq!(endpoints_prefix(), crate::record::kind_prefix(api::Kind::WorkloadEndpoint));
}
