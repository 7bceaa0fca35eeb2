mod etcd;
#[path = "../../tests/suite/free_port.rs"]
mod free_port;
mod judge;
mod restore;
mod samples;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use api::keys::ipam::IpamConfig;
use serde_json::json;

use super::*;
use crate::{Op, Txn};

struct Fresh {
    client: Resources,
    _folder: tempfile::TempDir,
}

fn fresh() -> Fresh {
    fresh_with(Manner::default())
}

fn fresh_with(manner: Manner) -> Fresh {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::sqlite::Store::open(folder.path().join("store")).unwrap();
    let client = Resources::new(Store::Sqlite(store), manner);
    client.initialise().unwrap();
    Fresh { client, _folder: folder }
}

/// Reads it as a user's document and writes it.
fn give(client: &Resources, verb: Verb, object: &Value) -> Result<Written, Error> {
    client.write(verb, &decoded(object))
}

fn decoded(object: &Value) -> Value {
    let kind: Kind = object["kind"].as_str().unwrap().parse().unwrap();
    let (object, problems) = decode(object_for(kind), object.clone(), Mode::User);
    assert_eq!(problems, []);
    object
}

fn put(client: &Resources, key: &str, value: &str) {
    let op = Op::Put { key: key.to_owned(), value: value.as_bytes().to_vec() };
    client.store.commit(Txn { compares: vec![], ops: vec![op] }).unwrap();
}

fn raw(client: &Resources, name: &Name) -> Value {
    let entry = client.store.get(&name.key()).unwrap().0.unwrap();
    serde_json::from_slice(&entry.value).unwrap()
}

fn policy(name: &str) -> Value {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "prod"}, "spec": {"selector": "all()"}
    })
}

#[test]
fn every_kind_lives_through_create_update_conflict_and_delete() {
    let fresh = fresh();
    let client = &fresh.client;
    life_of_every_kind(client);
}

fn life_of_every_kind(client: &Resources) {
    let mut made = Vec::new();
    for sample in samples::all() {
        let written = give(client, Verb::Create, &sample).unwrap();
        assert_eq!(written.applied, Applied::Created);
        let name = written.name.clone();
        assert!(matches!(
            give(client, Verb::Create, &sample),
            Err(Error::AlreadyExists(twice)) if twice == name
        ));
        assert_eq!(client.get(&name).unwrap(), written.stored().unwrap());
        let listed = client.list(name.kind, None).unwrap();
        assert!(listed.objects.contains(&written.stored().unwrap()), "{name}");
        assert!(listed.quarantined.is_empty(), "{name}: {:?}", listed.quarantined);
        let unchanged = client.write(Verb::Apply, &written.stored().unwrap().object).unwrap();
        assert_eq!(unchanged.applied, Applied::Unchanged, "{name}");
        assert_eq!(unchanged.stored().unwrap(), written.stored().unwrap());
        let mut labelled = written.stored().unwrap().object.clone();
        labelled["metadata"]["labels"]["colour"] = json!("blue");
        let changed = client.write(Verb::Update, &labelled).unwrap();
        assert_eq!(changed.applied, Applied::Changed, "{name}");
        assert_eq!(changed.stored().unwrap().object["metadata"]["labels"]["colour"], "blue");
        assert_eq!(
            changed.stored().unwrap().object["metadata"]["uid"],
            labelled["metadata"]["uid"]
        );
        assert!(changed.revision > written.revision);
        assert!(matches!(client.write(Verb::Update, &labelled), Err(Error::Conflict(_))));
        made.push((name, written.revision));
    }
    for (name, stale) in made.into_iter().rev() {
        assert!(matches!(client.delete(&name, Some(stale)), Err(Error::Conflict(_))), "{name}");
        client.delete(&name, None).unwrap();
        assert!(matches!(client.delete(&name, None), Err(Error::NotFound(_))), "{name}");
        assert!(matches!(client.get(&name), Err(Error::NotFound(_))), "{name}");
    }
}

/// Every place in a stored object, as a pointer and as a path, with what stands there.
fn places(value: &Value, pointer: &str, path: &str, found: &mut Vec<(String, String)>) {
    if !pointer.is_empty() {
        found.push((pointer.to_owned(), path.to_owned()));
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                let dot = if path.is_empty() { "" } else { "." };
                places(
                    value,
                    &format!("{pointer}/{escaped}"),
                    &format!("{path}{dot}{name}"),
                    found,
                );
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                places(value, &format!("{pointer}/{index}"), &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn any_single_damaged_field_is_named_and_the_other_objects_are_served() {
    let fresh = fresh();
    let client = &fresh.client;
    let mut damaged = 0;
    for sample in samples::all() {
        let name = give(client, Verb::Create, &sample).unwrap().name;
        let good = raw(client, &name);
        let served = client.list(name.kind, None).unwrap().objects.len();
        let mut found = Vec::new();
        places(&good, "", "", &mut found);
        for (pointer, path) in found {
            let mut bad = good.clone();
            let place = bad.pointer_mut(&pointer).unwrap();
            let is_nested = place.is_object() || place.is_array();
            *place = if is_nested { json!(7) } else { json!([{"damaged": true}]) };
            let neighbour = Name { name: format!("{}-bad", name.name), ..name.clone() };
            put(client, &neighbour.key(), &bad.to_string());
            let listing = client.list(name.kind, None).unwrap();
            assert_eq!(listing.objects.len(), served, "{name} {path}");
            let [quarantined] = &listing.quarantined[..] else { panic!("{name} {path}") };
            assert_eq!(quarantined.name.as_ref(), Some(&neighbour));
            let named = quarantined.problems.iter().map(|it| &it.path);
            let plain = |path: &str| path.replace(']', "").replace('[', ".");
            let is_named = |it: &String| plain(&path).starts_with(&plain(it)) && !it.is_empty();
            assert!(named.clone().any(is_named), "{path}: {:?}", named.collect::<Vec<_>>());
            assert!(matches!(client.get(&neighbour), Err(Error::Unreadable(_))));
            client.remove(&neighbour, None).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 300, "{damaged}");
}

#[test]
fn values_that_are_no_objects_are_quarantined_and_can_be_deleted() {
    let fresh = fresh();
    let client = &fresh.client;
    let tiers = client.list(Kind::Tier, None).unwrap().objects.len();
    for bad in ["", "{", "[]", "null", "7", "\u{0}", r#"{"kind":"Node"}"#] {
        let name = Name::cluster(Kind::Tier, "bad");
        put(client, &name.key(), bad);
        let listing = client.list(Kind::Tier, None).unwrap();
        assert_eq!(listing.objects.len(), tiers, "{bad}");
        assert_eq!(listing.quarantined.len(), 1, "{bad}");
        let mut count = 0;
        client
            .each(Kind::Tier, None, |object| {
                count += usize::from(object.is_ok());
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(count, tiers);
        let apply = json!({"kind": "Tier", "metadata": {"name": "bad"}, "spec": {}});
        assert!(matches!(give(client, Verb::Apply, &apply), Err(Error::Unreadable(_))), "{bad}");
        assert_eq!(client.delete(&name, None).unwrap().object, Value::Null);
    }
    put(client, "/calico/resources/v3/projectcalico.org/tiers/a/b", "{}");
    assert_eq!(client.list(Kind::Tier, None).unwrap().quarantined[0].name, None);
}

#[test]
fn fields_that_nobody_knows_survive_updates() {
    let fresh = fresh();
    let client = &fresh.client;
    let written =
        give(client, Verb::Create, &samples::one("NetworkPolicy")).unwrap().stored().unwrap();
    let mut later = raw(client, &written.name);
    later["spec"]["later"] = json!({"a": [1]});
    later["metadata"]["later"] = json!(true);
    later["spec"]["ingress"][0]["source"]["later"] = json!("x");
    later["status"] = json!({"later": 1});
    put(client, &written.name.key(), &later.to_string());
    let seen = client.get(&written.name).unwrap();
    assert_eq!(seen.object["spec"].get("later"), None);
    let mut next = seen.object.clone();
    next["metadata"]["labels"]["colour"] = json!("blue");
    next["spec"]["ingress"][0]["action"] = json!("Deny");
    client.write(Verb::Update, &next).unwrap();
    let stored = raw(client, &written.name);
    assert_eq!(stored["spec"]["later"], json!({"a": [1]}));
    assert_eq!(stored["metadata"]["later"], json!(true));
    assert_eq!(stored["spec"]["ingress"][0]["source"]["later"], "x");
    assert_eq!(stored["spec"]["ingress"][0]["action"], "Deny");
    assert_eq!(stored["metadata"]["labels"]["colour"], "blue");
    assert_eq!(stored["status"], json!({"later": 1}));
}

#[test]
fn a_policy_keeps_the_form_in_which_its_name_was_noted() {
    let fresh = fresh();
    let client = &fresh.client;
    let name = Name::namespaced(Kind::NetworkPolicy, "prod", "default.old");
    let note = r#"{"name":"old", "x":1}"#;
    let mut stored = policy("default.old");
    stored["metadata"]["annotations"] = json!({"projectcalico.org/metadata": note});
    put(client, &name.key(), &stored.to_string());
    let mut seen = client.get(&name).unwrap().object;
    assert_eq!(seen["metadata"]["name"], "old");
    assert_eq!(seen["metadata"].get("annotations"), None);
    seen["metadata"]["name"] = json!("default.old");
    seen["spec"]["order"] = json!(7);
    client.write(Verb::Update, &seen).unwrap();
    let after = raw(client, &name);
    assert_eq!(after["metadata"]["annotations"]["projectcalico.org/metadata"], note);
    assert_eq!(after["spec"]["order"], 7);
}

#[test]
fn a_status_that_the_user_does_not_give_stays() {
    let fresh = fresh();
    let client = &fresh.client;
    let written = give(client, Verb::Create, &samples::one("Node")).unwrap().stored().unwrap();
    let mut reported = written.object.clone();
    reported["status"] =
        json!({"wireguardPublicKey": "jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY="});
    client.write(Verb::Update, &reported).unwrap();
    let mut next = samples::one("Node");
    next["metadata"]["labels"] = json!({"zone": "b"});
    let next = give(client, Verb::Apply, &next).unwrap().stored().unwrap().object;
    assert_eq!(next["status"], reported["status"]);
    assert_eq!(next["metadata"]["labels"], json!({"zone": "b"}));
}

#[test]
fn concurrent_updates_all_arrive() {
    let fresh = fresh();
    let client = &fresh.client;
    let set = samples::one("GlobalNetworkSet");
    give(client, Verb::Create, &set).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let set = decoded(&set);
            scope.spawn(move || {
                for round in 0..10 {
                    loop {
                        let mut seen =
                            client.get(&Name::of(Kind::GlobalNetworkSet, &set)).unwrap().object;
                        seen["metadata"]["labels"][format!("t{thread}-{round}")] = json!("x");
                        match client.write(Verb::Update, &seen) {
                            Ok(_) => break,
                            Err(Error::Conflict(_)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    let labels = raw(client, &Name::of(Kind::GlobalNetworkSet, &set))["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), 40);
}

#[test]
fn a_request_of_many_objects_is_written_whole_or_not_at_all() {
    let fresh = fresh();
    let client = &fresh.client;
    let mut bad = policy("bad");
    bad["spec"]["selector"] = json!("(((");
    let outcomes = client.write_all(
        Verb::Apply,
        &[decoded(&policy("a")), decoded(&bad), decoded(&policy("b"))],
        Together::AllOrNothing,
    );
    assert!(matches!(&outcomes[0], Err(Error::NotAttempted(name)) if name.name == "a"));
    assert!(matches!(&outcomes[1], Err(Error::Invalid { .. })));
    assert!(client.list(Kind::NetworkPolicy, None).unwrap().objects.is_empty());
    let mut tiered = policy("in-new-tier");
    tiered["spec"]["tier"] = json!("platform");
    let objects: Vec<Value> =
        [samples::one("Tier"), tiered, policy("a"), policy("a")].iter().map(decoded).collect();
    let outcomes = client.write_all(Verb::Apply, &objects, Together::AllOrNothing);
    let written: Vec<Written> = outcomes.into_iter().map(Result::unwrap).collect();
    let revisions: BTreeSet<i64> = written.iter().map(|it| it.revision).collect();
    assert_eq!(revisions.len(), 1, "one transaction");
    assert_eq!(written[2].applied, Applied::Created);
    assert_eq!(written[3].applied, Applied::Unchanged);
}

#[test]
fn of_objects_that_stand_alone_the_good_ones_are_written() {
    let fresh = fresh();
    let client = &fresh.client;
    let mut objects: Vec<Value> = (0..250).map(|it| decoded(&policy(&format!("p{it}")))).collect();
    objects[7]["spec"]["selector"] = json!("(((");
    objects[120]["metadata"]["name"] = json!("p3");
    let outcomes = client.write_all(Verb::Create, &objects, Together::EachForItself);
    assert!(matches!(&outcomes[7], Err(Error::Invalid { .. })));
    assert!(matches!(&outcomes[120], Err(Error::AlreadyExists(name)) if name.name == "p3"));
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 248);
    assert_eq!(client.list(Kind::NetworkPolicy, Some("prod")).unwrap().objects.len(), 248);
    assert!(client.list(Kind::NetworkPolicy, Some("pro")).unwrap().objects.is_empty());
}

#[test]
fn a_thousand_policies_take_few_transactions() {
    let fresh = fresh();
    let client = &fresh.client;
    let objects: Vec<Value> = (0..1000).map(|it| decoded(&policy(&format!("p{it}")))).collect();
    let outcomes = client.write_all(Verb::Apply, &objects, Together::AllOrNothing);
    let revisions: BTreeSet<i64> =
        outcomes.iter().map(|it| it.as_ref().unwrap().revision).collect();
    assert_eq!(revisions.len(), 10);
    let again = client.write_all(Verb::Apply, &objects, Together::AllOrNothing);
    assert!(again.iter().all(|it| it.as_ref().unwrap().applied == Applied::Unchanged));
}

#[test]
fn calicos_manner_moves_the_revision_of_what_did_not_change() {
    let manner = Manner { rewrite_unchanged: true, ..Manner::default() };
    let fresh = fresh_with(manner);
    let first = give(&fresh.client, Verb::Apply, &policy("a")).unwrap();
    let second = give(&fresh.client, Verb::Apply, &policy("a")).unwrap();
    assert_eq!(second.applied, Applied::Changed);
    assert_eq!(second.revision, first.revision + 1);
}

#[test]
fn initialising_writes_once_and_never_changes_the_version() {
    let manner = Manner { calico_version: "v3.99.0".to_owned(), ..Manner::default() };
    let fresh = fresh_with(manner);
    let client = &fresh.client;
    let information = Name::cluster(Kind::ClusterInformation, "default");
    let before = client.get(&information).unwrap();
    assert_eq!(before.object["spec"]["calicoVersion"], "v3.99.0");
    let other = Manner { calico_version: "v4".to_owned(), ..Manner::default() };
    Resources::new(client.store.clone(), other).initialise().unwrap();
    assert_eq!(client.get(&information).unwrap(), before);
    client.set_datastore_ready(false).unwrap();
    client.initialise().unwrap();
    let locked = client.get(&information).unwrap();
    assert_eq!(locked.object["spec"]["datastoreReady"], false);
    assert_eq!(locked.object["spec"]["clusterGUID"], before.object["spec"]["clusterGUID"]);
    let refused = give(
        client,
        Verb::Apply,
        &json!({"kind": "ClusterInformation", "metadata": {"name": "default"}}),
    );
    assert_eq!(
        refused.unwrap_err().calico(),
        "operation apply is not supported on ClusterInformation: resource is readonly"
    );
}

#[test]
fn tiers_with_policies_and_built_in_things_stay() {
    let fresh = fresh();
    let client = &fresh.client;
    give(client, Verb::Create, &samples::one("Tier")).unwrap();
    give(client, Verb::Create, &samples::one("GlobalNetworkPolicy")).unwrap();
    let refused = |kind: Kind, name: &str| {
        client.delete(&Name::cluster(kind, name), None).unwrap_err().calico()
    };
    assert_eq!(
        refused(Kind::Tier, "platform"),
        "operation delete is not supported on platform: Cannot delete a non-empty tier"
    );
    assert_eq!(
        refused(Kind::Tier, "kube-admin"),
        "operation Delete is not supported on kube-admin: Cannot delete kube-admin tier"
    );
    assert!(refused(Kind::Profile, "projectcalico-default-allow").contains("cannot be deleted"));
    client.delete(&Name::cluster(Kind::GlobalNetworkPolicy, "platform.all"), None).unwrap();
    client.delete(&Name::cluster(Kind::Tier, "platform"), None).unwrap();
    let mut orphan = policy("x");
    orphan["spec"]["tier"] = json!("platform");
    assert_eq!(
        give(client, Verb::Create, &orphan).unwrap_err().calico(),
        "resource does not exist: Tier(platform) with error: <nil>"
    );
    let profiles = client.list(Kind::Profile, None).unwrap().objects;
    assert_eq!(profiles.last().unwrap().name.name, "projectcalico-default-allow");
    assert_eq!(client.get(&profiles[0].name).unwrap(), profiles[0]);
}

fn block(cidr: &str, affinity: Value, held: &[(usize, &str, &str)]) -> String {
    let allocations: Vec<Option<usize>> =
        (0..8).map(|ordinal| held.iter().position(|(at, ..)| *at == ordinal)).collect();
    let free: Vec<usize> = (0..8).filter(|it| allocations[*it].is_none()).collect();
    let attributes: Vec<Value> = held
        .iter()
        .map(|(_, handle, node)| json!({"handle_id": handle, "secondary": {"node": node}}))
        .collect();
    json!({
        "cidr": cidr, "affinity": affinity, "allocations": allocations, "unallocated": free,
        "attributes": attributes, "sequenceNumber": 1, "sequenceNumberForAllocation": {},
        "later": 1, "deleted": false
    })
    .to_string()
}

const BLOCK_A: &str = "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-29";
const BLOCK_B: &str = "/calico/ipam/v2/assignment/ipv4/block/10.65.0.8-29";

fn with_addresses(client: &Resources) {
    for kind in ["IPPool", "Node", "WorkloadEndpoint", "BGPPeer", "HostEndpoint"] {
        give(client, Verb::Create, &samples::one(kind)).unwrap();
    }
    let held = [(1, "h1", "node-1"), (2, "h2", "node-2")];
    put(client, BLOCK_A, &block("10.65.0.0/29", json!("host:node-1"), &held));
    put(client, BLOCK_B, &block("10.65.0.8/29", json!("host:node-1"), &[]));
    for cidr in ["10.65.0.0-29", "10.65.0.8-29"] {
        let key = format!("/calico/ipam/v2/host/node-1/ipv4/block/{cidr}");
        put(client, &key, r#"{"state":"confirmed","deleted":false}"#);
    }
    put(client, "/calico/ipam/v2/handle/h1", r#"{"block":{"10.65.0.0/29":1},"deleted":false}"#);
    put(client, "/calico/ipam/v2/handle/h2", r#"{"block":{"10.65.0.0/29":1},"deleted":false}"#);
}

fn ipam_keys(client: &Resources) -> Vec<String> {
    let entries = client.store.list("/calico/ipam/").unwrap().entries;
    entries.into_iter().map(|entry| entry.key).collect()
}

#[test]
fn with_a_node_go_its_addresses_endpoints_and_claims_but_not_those_of_others() {
    let fresh = fresh();
    let client = &fresh.client;
    with_addresses(client);
    let node = Name::cluster(Kind::Node, "node-1");
    assert!(matches!(client.delete(&node, Some(1)), Err(Error::Conflict(_))));
    assert_eq!(ipam_keys(client).len(), 6, "a wrong revision touches nothing");
    client.delete(&node, None).unwrap();
    assert_eq!(ipam_keys(client), [BLOCK_A, "/calico/ipam/v2/handle/h2"]);
    let left = client.store.get(BLOCK_A).unwrap().0.unwrap().value;
    assert_eq!(
        String::from_utf8(left).unwrap(),
        concat!(
            r#"{"cidr":"10.65.0.0/29","affinity":null,"#,
            r#""allocations":[null,null,0,null,null,null,null,null],"#,
            r#""unallocated":[0,3,4,5,6,7,1],"#,
            r#""attributes":[{"handle_id":"h2","secondary":{"node":"node-2"}}],"#,
            r#""sequenceNumber":3,"sequenceNumberForAllocation":{},"deleted":false,"later":1}"#
        )
    );
    for kind in [Kind::WorkloadEndpoint, Kind::BgpPeer, Kind::HostEndpoint, Kind::Node] {
        assert!(client.list(kind, None).unwrap().objects.is_empty(), "{kind}");
    }
}

#[test]
fn with_a_pool_go_the_claims_on_its_blocks() {
    let fresh = fresh();
    let client = &fresh.client;
    with_addresses(client);
    let other = json!({"kind": "IPPool", "metadata": {"name": "other"},
        "spec": {"cidr": "10.65.0.128/25"}});
    let overlap = give(client, Verb::Create, &other).unwrap_err().calico();
    assert!(overlap.contains("IPPool(other) CIDR overlaps with IPPool(pool) CIDR"), "{overlap}");
    client.delete(&Name::cluster(Kind::IpPool, "pool"), None).unwrap();
    let handles = ["/calico/ipam/v2/handle/h1", "/calico/ipam/v2/handle/h2"];
    assert_eq!(ipam_keys(client), [BLOCK_A, handles[0], handles[1]]);
    let mut coarse = samples::one("IPPool");
    coarse["spec"]["blockSize"] = json!(26);
    let sizes = give(client, Verb::Create, &coarse).unwrap_err().calico();
    assert!(sizes.contains("conflicts with existing allocations"), "{sizes}");
}

#[test]
fn usage_settings_and_holders_are_read_from_the_store() {
    let fresh = fresh();
    let client = &fresh.client;
    with_addresses(client);
    give(client, Verb::Create, &samples::one("IPReservation")).unwrap();
    put(client, "/calico/ipam/v2/assignment/ipv4/block/10.65.0.16-29", r#"{"cidr":"x"}"#);
    let nowhere =
        block("10.65.0.24/29", json!(null), &[(1, "h", "n")]).replace("[null,0", "[null,9");
    put(client, "/calico/ipam/v2/assignment/ipv4/block/10.65.0.24-29", &nowhere);
    let usage = client.ipam_usage().unwrap();
    let pool = &usage.pools[0];
    assert_eq!((pool.capacity, pool.in_use, pool.reserved, pool.free), (256, 2, 1, 253));
    let faults = usage.quarantined.iter().map(|it| it.problems[0].path.as_str());
    assert_eq!(faults.collect::<Vec<_>>(), ["cidr", "allocations[1]"]);
    let holder = client.ipam_holder("10.65.0.2".parse().unwrap()).unwrap().unwrap();
    assert_eq!(holder.handle.as_deref(), Some("h2"));
    assert_eq!(client.ipam_holder("10.65.0.3".parse().unwrap()).unwrap(), None);
    assert_eq!(client.ipam_borrowed().unwrap().0.len(), 1);
    assert_eq!(client.ipam_settings().unwrap(), IpamConfig::default());
    let refused = client.change_ipam_settings(|it| it.max_blocks_per_host = 3).unwrap_err();
    assert_eq!(refused.calico(), "MaxBlocksPerHost requires StrictAffinity to be enabled");
    put(client, "/calico/ipam/v2/config", r#"{"auto_allocate_blocks":true,"later":1}"#);
    client.change_ipam_settings(|it| it.strict_affinity = true).unwrap();
    let stored = client.store.get("/calico/ipam/v2/config").unwrap().0.unwrap().value;
    assert_eq!(
        String::from_utf8(stored).unwrap(),
        r#"{"strict_affinity":true,"auto_allocate_blocks":true,"later":1}"#
    );
}

#[test]
fn a_watch_tells_of_objects_and_of_unusable_ones() {
    let fresh = fresh();
    let client = &fresh.client;
    give(client, Verb::Create, &policy("a")).unwrap();
    let mut watch = client.watch(Kind::NetworkPolicy, Some("prod"));
    let mut next = || watch.next(std::time::Duration::from_secs(10)).unwrap();
    assert!(matches!(next(), ResourceEvent::Put(it) if it.name.name == "a"));
    assert!(matches!(next(), ResourceEvent::InSync(_)));
    let name = Name::namespaced(Kind::NetworkPolicy, "prod", "a");
    put(client, &name.key(), r#"{"kind":"NetworkPolicy","spec":{"order":"x"}}"#);
    assert!(matches!(next(), ResourceEvent::Quarantined(it)
        if it.problems[0].path == "spec.order"));
    client.delete(&name, None).unwrap();
    assert!(matches!(next(), ResourceEvent::Deleted { name: gone, .. } if gone == name));
}

fn pool(name: &str, cidr: &str) -> Value {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
        "metadata": {"name": name}, "spec": {"cidr": cidr}
    })
}

/// Of several who want the same addresses at the same time one gets them.
fn one_pool_wins(client: &Resources) {
    for round in 0..5 {
        let create = |index: usize| {
            let pool = pool(&format!("pool-{round}-{index}"), &format!("10.{round}.0.0/16"));
            give(client, Verb::Create, &pool)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|it| scope.spawn(move || create(it))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|it| it.is_ok()).count(), 1, "{results:?}");
        assert!(!results.iter().any(|it| matches!(it, Err(Error::Conflict(_)))), "{results:?}");
    }
    assert_eq!(client.list(Kind::IpPool, None).unwrap().objects.len(), 5);
}

/// A tier goes or gets a policy, never both.
fn no_policy_loses_its_tier(client: &Resources) {
    let tier = json!({"apiVersion": "projectcalico.org/v3", "kind": "Tier",
        "metadata": {"name": "t"}, "spec": {"order": 1}});
    let mut policy = policy("t.p");
    policy["spec"]["tier"] = json!("t");
    let tier_name = Name::cluster(Kind::Tier, "t");
    for _ in 0..20 {
        give(client, Verb::Create, &tier).unwrap();
        let (deleted, created) = std::thread::scope(|scope| {
            let deleting = scope.spawn(|| client.delete(&tier_name, None));
            let created = give(client, Verb::Create, &policy);
            (deleting.join().unwrap(), created)
        });
        assert!(deleted.is_ok() != created.is_ok(), "{deleted:?} {created:?}");
        if let Ok(written) = created {
            client.delete(&written.name, None).unwrap();
            client.delete(&tier_name, None).unwrap();
        }
    }
}

#[test]
fn concurrent_writers_do_not_break_what_each_has_checked() {
    let fresh = fresh();
    one_pool_wins(&fresh.client);
    no_policy_loses_its_tier(&fresh.client);
}

#[test]
fn more_pools_than_fit_a_transaction_are_written_together() {
    let fresh = fresh();
    let pools: Vec<Value> =
        (0..250).map(|it| decoded(&pool(&format!("p{it}"), &format!("10.{it}.0.0/16")))).collect();
    let outcomes = fresh.client.write_all(Verb::Create, &pools, Together::AllOrNothing);
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 250);
}
