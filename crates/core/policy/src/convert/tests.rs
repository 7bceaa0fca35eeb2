//! What stored objects mean to policy.

use serde_json::{Value, json};

use super::*;

fn key(kind: Kind, namespace: &str, name: &str) -> ResourceKey {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    ResourceKey { kind: ResourceKind::Api(kind), namespace, name }
}

fn converted(kind: Kind, namespace: &str, name: &str, rest: Value) -> Result<Option<Change>> {
    let mut object = json!({ "metadata": { "name": name, "namespace": namespace } });
    if let Some(labels) = rest.get("labels") {
        object["metadata"]["labels"] = labels.clone();
    }
    object["spec"] = rest["spec"].clone();
    let resource = Resource::typed(kind, &object).expect("the object has the right types");
    convert(&key(kind, namespace, name), Some(&resource))
}

fn policy_of(kind: Kind, namespace: &str, spec: Value) -> Policy {
    match converted(kind, namespace, "p", json!({ "spec": spec })) {
        Ok(Some(Change::Policy(_, Some(policy)))) => (*policy).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rule_with_any_selector_stays_in_the_namespace_of_its_policy() {
    let rules = json!([
        { "action": "Allow", "source": { "selector": "a == 'b'" } },
        { "action": "Allow", "source": { "notSelector": "a == 'b'" } },
        { "action": "Allow", "source": { "nets": ["10.0.0.7/8"] } },
        { "action": "Allow", "source": { "namespaceSelector": "!global()" } },
    ]);
    let policy = policy_of(Kind::NetworkPolicy, "ns", json!({ "ingress": rules }));
    let source = |at: usize| policy.ingress[at].source.selector.as_ref().map(Selector::canonical);
    assert_eq!(source(0), Some(r#"(projectcalico.org/namespace == "ns" && a == "b")"#));
    assert_eq!(source(1), Some(r#"projectcalico.org/namespace == "ns""#));
    assert_eq!(source(2), None);
    assert_eq!(policy.ingress[2].source.nets, ["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(source(3), Some("has(projectcalico.org/namespace)"));
    assert_eq!(policy.selector.canonical(), r#"projectcalico.org/namespace == "ns""#);
    assert!(policy.is_for_egress && policy.is_for_ingress);
}

#[test]
fn all_namespaces_are_not_all_endpoints() {
    let of = |spec| policy_of(Kind::GlobalNetworkPolicy, "", spec).selector.canonical().to_owned();
    assert_eq!(of(json!({ "namespaceSelector": "all()" })), "has(projectcalico.org/namespace)");
    // A selector that is given is narrowed, one that is not given is not there to be narrowed.
    assert_eq!(
        of(json!({ "namespaceSelector": "!has(e)", "selector": "all()" })),
        "(has(projectcalico.org/namespace) && !has(pcns.e))"
    );
    assert_eq!(of(json!({ "namespaceSelector": "!has(e)", "selector": "" })), "!has(pcns.e)");
    assert_eq!(of(json!({})), "all()");
}

#[test]
fn a_workload_cannot_claim_a_namespace_or_a_service_account() {
    let spec = json!({
        "node": "other", "orchestrator": "k8s", "pod": "w", "endpoint": "eth0",
        "interfaceName": "cali1", "ipNetworks": ["10.0.0.1/32"], "serviceAccountName": "sa",
    });
    let labels = json!({ "pcns.a": "b", "pcsa.c": "d", "e": "f" });
    let rest = json!({ "labels": labels, "spec": spec });
    let change = converted(Kind::WorkloadEndpoint, "ns", "node1-k8s-w-eth0", rest);
    let Ok(Some(Change::Workload(place, Some(workload)))) = change else { panic!("{change:?}") };
    assert_eq!((place.as_str(), workload.node.as_str()), ("ns/node1-k8s-w-eth0", "node1"));
    let labels = workload.labels.iter().map(|(name, value)| format!("{name}={value}"));
    assert_eq!(labels.collect::<Vec<_>>(), ["e=f", "projectcalico.org/serviceaccount=sa"]);
}

#[test]
fn a_workload_without_addresses_is_none_and_one_without_an_identity_unusable() {
    let spec = json!({
        "node": "node1", "orchestrator": "k8s", "pod": "w", "endpoint": "eth0",
        "interfaceName": "cali1", "ipNetworks": [],
    });
    let mut nowhere = spec.clone();
    nowhere["interfaceName"] = json!("");
    nowhere["ipNetworks"] = json!(["10.0.0.1"]);
    let of = |name| converted(Kind::WorkloadEndpoint, "ns", name, json!({ "spec": spec.clone() }));
    let place = "ns/node1-k8s-w-eth0".to_owned();
    assert_eq!(of("node1-k8s-w-eth0"), Ok(Some(Change::Workload(place, None))));
    let error = of("weird").unwrap_err().to_string();
    assert!(error.starts_with("metadata.name: \"weird\""), "{error}");
    let rest = json!({ "spec": nowhere });
    let error = converted(Kind::WorkloadEndpoint, "ns", "node1-k8s-w-eth0", rest).unwrap_err();
    assert!(error.to_string().starts_with("spec.interfaceName"), "{error}");
}

#[test]
fn a_set_of_a_namespace_takes_its_labels() {
    let change = converted(Kind::NetworkSet, "ns", "n", json!({ "spec": { "nets": ["1.2.3.4"] } }));
    let Ok(Some(Change::NetworkSet(_, Some(set)))) = change else { panic!("{change:?}") };
    assert_eq!(set.profiles, ["kns.ns"]);
    assert_eq!(set.labels.get(NAMESPACE).map(String::as_str), Some("ns"));
}

#[test]
fn a_staged_deletion_is_no_policy() {
    let spec = json!({ "stagedAction": "Delete" });
    let kind = Kind::StagedGlobalNetworkPolicy;
    let change = converted(kind, "", "p", json!({ "spec": spec }));
    assert_eq!(change, convert(&key(kind, "", "p"), None));
    assert!(matches!(change, Ok(Some(Change::Policy(_, None)))));
}

#[test]
fn the_profile_that_allows_everything_cannot_be_removed() {
    let removed = convert(&key(Kind::Profile, "", DEFAULT_ALLOW), None);
    assert_eq!(removed, Ok(Some(default_allow())));
}
