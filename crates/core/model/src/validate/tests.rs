use api::Kind;
use api::schema::{Mode, decode, object_for};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::prepare::{Context, Neighbours, prepare_create, prepare_update};

/// Specs that touch every group of rules.
fn specs() -> Vec<Value> {
    let rule = json!({
        "action": "Allow", "protocol": "TCP", "ipVersion": 4,
        "source": {"nets": ["10.0.0.0/8"], "notNets": ["10.1.0.0/16"], "ports": [80, "90:100"],
            "namespaceSelector": "global()", "services": {"name": "s", "namespace": "n"}},
        "destination": {"ports": ["http"], "selector": "all()"},
        "http": {"methods": ["GET"], "paths": [{"exact": "/a"}]},
        "icmp": {"type": 1, "code": 2}, "metadata": {"annotations": {"a": "b"}},
    });
    vec![
        json!({"types": ["Ingress"], "ingress": [rule], "egress": [rule], "tier": "default",
            "order": 1, "selector": "all()", "preDNAT": true, "applyOnForward": true}),
        json!({"cidr": "10.0.0.0/16", "blockSize": 26, "allowedUses": ["Workload"],
            "ipipMode": "Always", "nodeSelector": "all()"}),
        json!({"node": "n", "peerIP": "10.0.0.1:179", "asNumber": 1, "reachableBy": "10.0.0.2",
            "communities": [{"name": "c", "value": "1:2"}],
            "prefixAdvertisements": [{"cidr": "10.0.0.0/8", "communities": ["c", "1:2:3"]}]}),
        json!({"importV4": [{"action": "Accept", "cidr": "10.0.0.0/8", "matchOperator": "In",
            "prefixLength": {"min": 8}, "operations": [{"setPriority": {"value": 1}}]}]}),
        json!({"routeTableRange": {"min": 1, "max": 2}, "routeTableRanges": [{"min": 1, "max": 9}],
            "kubeNodePortRanges": ["30000:32767"], "externalNodesList": ["10.0.0.0/8"],
            "healthTimeoutOverrides": [{"name": "x", "timeout": "1m0s"}],
            "natOutgoingAddress": "10.0.0.1", "openstackRegion": "r"}),
        json!({"node": "n", "orchestrator": "k8s", "pod": "p", "endpoint": "eth0",
            "interfaceName": "cali0", "ipNetworks": ["10.0.0.1/32"], "ipv4Gateway": "10.0.0.2",
            "ipNATs": [{"internalIP": "10.0.0.1", "externalIP": "10.0.0.3"}],
            "ports": [{"name": "a", "protocol": "TCP", "port": 80}]}),
        json!({"controllers": {"node": {"hostEndpoint": {"templates": [
            {"generateName": "a", "interfaceCIDRs": ["10.0.0.0/8"]}]}}, "loadBalancer": {}}}),
        json!({"stagedAction": "Delete", "podSelector": {},
            "ingress": [{"ports": [{"port": 80, "endPort": 90}]}]}),
    ]
}

fn any_scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|float| json!(float)),
        "[ -~é]{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "/",
            "0.0.0.0/0",
            "::/0",
            "-",
            ".",
            ":",
            "1:2",
            "global( ",
            "999999999999999999999",
            "Delete",
            "[",
            "\u{0}"
        ])
        .prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([{}, null, 1, "a"])),
    ]
}

/// The JSON pointers of every value in the tree.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{here}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                places(item, &format!("{here}/{name}"), found);
            }
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn no_object_of_any_kind_breaks_the_rules_themselves(
        which in any::<prop::sample::Index>(),
        spec in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        with in any_scalar(),
    ) {
        let kinds: Vec<Kind> = Kind::all().collect();
        let kind = kinds[which.index(kinds.len())];
        let specs = specs();
        let mut object = json!({
            "kind": kind.name(), "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"a": "b"}},
            "spec": specs[spec.index(specs.len())],
        });
        let original = object.clone();
        let mut all = Vec::new();
        places(&object, "", &mut all);
        let place = &all[place.index(all.len())];
        *object.pointer_mut(place).expect("the place was found in it") = with;
        // Straight, as no caller should; and read first, as every caller does.
        validate(kind, &object);
        let (decoded, _) = decode(object_for(kind), object, Mode::User);
        validate(kind, &decoded);
        let context = Context {
            uid: "u".to_owned(),
            now: "2026-01-01T00:00:00Z".to_owned(),
            default_namespace: "default".to_owned(),
        };
        let neighbours = Neighbours { tier_exists: true, ..Neighbours::default() };
        let _ = prepare_create(kind, decoded.clone(), &context, &neighbours);
        let _ = prepare_update(kind, &original, decoded, &context, &neighbours);
    }
}

#[test]
fn a_namespace_is_one_part_of_a_key() {
    let object = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "NetworkSet",
        "metadata": {"name": "a", "namespace": "../x"}, "spec": {},
    });
    let (object, _) = decode(object_for(Kind::NetworkSet), object, Mode::User);
    let paths: Vec<String> =
        validate(Kind::NetworkSet, &object).into_iter().map(|problem| problem.path).collect();
    assert_eq!(paths, ["metadata.namespace"]);
}

#[test]
fn each_item_of_a_long_list_has_its_own_problem() {
    let nets: Vec<Value> = (0..20_000).map(|n| json!(format!("net-{n}"))).collect();
    let object = json!({"metadata": {"name": "a"}, "spec": {"nets": nets}});
    let (object, _) = decode(object_for(Kind::GlobalNetworkSet), object, Mode::User);
    let problems = validate(Kind::GlobalNetworkSet, &object);
    let last = problems.iter().rfind(|problem| problem.path == "spec.nets[19999]");
    assert!(last.is_some_and(|problem| problem.message.contains("net-19999")));
}
