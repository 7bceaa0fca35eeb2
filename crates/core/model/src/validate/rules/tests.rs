use api::Kind;
use api::schema::{Mode, apply_defaults, decode, object_for};
use serde_json::{Value, json};

use super::*;

/// The paths that the rules blame in an object with this spec.
fn blamed(kind: Kind, name: &str, spec: Value) -> Vec<String> {
    let table = object_for(kind);
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    let (mut object, problems) = decode(table, object, Mode::User);
    assert_eq!(problems, [], "the test's own object");
    let mut problems = check_rules(table, &object);
    apply_defaults(table, &mut object);
    problems.extend(check_schema_rules(table, &object));
    let mut paths: Vec<String> = problems.into_iter().map(|problem| problem.path).collect();
    paths.sort();
    paths.dedup();
    paths
}

fn policy(rule: Value) -> Vec<String> {
    blamed(Kind::GlobalNetworkPolicy, "p", json!({ "ingress": [rule] }))
}

#[test]
fn a_plain_object_is_not_blamed() {
    assert!(
        policy(json!({"action": "Allow", "protocol": "TCP",
        "destination": {"ports": [80, "90:100", "http"]}}))
        .is_empty()
    );
    assert!(blamed(Kind::IpPool, "p", json!({"cidr": "10.0.0.0/16"})).is_empty());
    assert!(blamed(Kind::Tier, "t", json!({"order": 1})).is_empty());
}

#[test]
fn numeric_ports_need_a_protocol_that_has_ports() {
    let ports = json!({ "ports": [80] });
    assert_eq!(
        policy(json!({"action": "Allow", "source": ports})),
        ["spec.ingress[0].source.ports"]
    );
    assert_eq!(
        policy(json!({"action": "Allow", "protocol": "ICMP", "source": ports})),
        ["spec.ingress[0].source.ports"]
    );
    assert!(policy(json!({"action": "Allow", "source": {"ports": ["http"]}})).is_empty());
}

#[test]
fn a_rule_is_of_one_ip_version() {
    let nets = |nets: &[&str], not: &[&str]| json!({"nets": nets, "notNets": not});
    assert_eq!(
        policy(json!({"action": "Allow", "source": nets(&["10.0.0.0/8", "fd00::/8"], &[])})),
        ["spec.ingress[0].source.nets"]
    );
    assert_eq!(
        policy(json!({"action": "Allow", "ipVersion": 6, "source": nets(&["10.0.0.0/8"], &[])})),
        ["spec.ingress[0].source.nets"]
    );
    assert_eq!(
        policy(json!({"action": "Allow", "source": nets(&[], &["10.0.0.0/8", "0.0.0.0/0"])})),
        ["spec.ingress[0].source.notNets[1]"]
    );
}

#[test]
fn services_stand_alone_on_the_far_side() {
    let services = json!({"services": {"name": "s", "namespace": "n"}, "selector": "all()"});
    assert_eq!(
        policy(json!({"action": "Allow", "source": services})),
        ["spec.ingress[0].source.selector"]
    );
    let services = json!({"services": {"name": "s"}});
    assert_eq!(
        policy(json!({"action": "Allow", "source": services})),
        ["spec.ingress[0].source.services.namespace"]
    );
    assert_eq!(
        policy(json!({"action": "Allow", "destination": services})),
        ["spec.ingress[0].destination.services"]
    );
}

#[test]
fn icmp_and_http_fit_their_rule() {
    assert_eq!(
        policy(json!({"action": "Allow", "protocol": "ICMP", "icmp": {"code": 1}})),
        ["spec.ingress[0].icmp.code"]
    );
    assert_eq!(policy(json!({"action": "Allow", "icmp": {"type": 1}})), ["spec.ingress[0].icmp"]);
    assert_eq!(
        policy(json!({"action": "Deny", "http": {"paths": [{"exact": "a"}]}})),
        ["spec.ingress[0].http", "spec.ingress[0].http.paths[0]"]
    );
}

#[test]
fn global_is_for_namespaces_of_peers() {
    let spec = json!({"selector": "global()"});
    assert_eq!(blamed(Kind::NetworkPolicy, "p", spec), ["spec.selector"]);
    let peer =
        |selector: &str| json!({"action": "Allow", "source": {"namespaceSelector": selector}});
    assert!(policy(peer("global( )")).is_empty());
    assert_eq!(policy(peer("global() && all()")), ["spec.ingress[0].source.namespaceSelector"]);
}

#[test]
fn a_staged_deletion_says_nothing_else() {
    let spec = json!({"stagedAction": "Delete", "tier": "t", "order": 0});
    assert_eq!(blamed(Kind::StagedNetworkPolicy, "p", spec), ["spec.order"]);
    let spec = json!({"stagedAction": "Delete", "tier": "t"});
    assert!(blamed(Kind::StagedNetworkPolicy, "p", spec).is_empty());
}

#[test]
fn names_have_the_form_of_their_kind() {
    let name = ["metadata.name"];
    assert_eq!(blamed(Kind::Tier, "a.b", json!({})), name);
    assert_eq!(blamed(Kind::GlobalNetworkPolicy, "a.b.c", json!({})), name);
    assert!(blamed(Kind::GlobalNetworkPolicy, "a.b", json!({})).is_empty());
    assert!(blamed(Kind::NetworkPolicy, "knp.default.a.b.c", json!({})).is_empty());
    assert_eq!(blamed(Kind::GlobalNetworkSet, "A", json!({})), name);
    assert_eq!(blamed(Kind::GlobalNetworkSet, &"a".repeat(254), json!({})), name);
}

#[test]
fn well_known_tiers_keep_their_values() {
    assert_eq!(blamed(Kind::Tier, "default", json!({"order": 1})), ["spec.order"]);
    let spec = json!({"order": 1000, "defaultAction": "Deny"});
    assert_eq!(blamed(Kind::Tier, "kube-admin", spec), ["spec.defaultAction"]);
}

#[test]
fn a_pool_is_a_prefix_that_blocks_fit_into() {
    let pool = |spec: Value| blamed(Kind::IpPool, "p", spec);
    assert_eq!(pool(json!({"cidr": "10.0.0.1/16"})), ["spec.cidr"]);
    assert_eq!(pool(json!({"cidr": "169.254.1.0/24"})), ["spec.cidr"]);
    assert_eq!(pool(json!({"cidr": "10.0.0.0/28"})), ["spec.cidr"]);
    assert!(pool(json!({"cidr": "10.0.0.0/28", "disabled": true})).is_empty());
    assert_eq!(pool(json!({"cidr": "10.0.0.0/16", "blockSize": 19})), ["spec.blockSize"]);
    assert_eq!(pool(json!({"cidr": "fd00::/64", "ipipMode": "Always"})), ["spec.ipipMode"]);
}

#[test]
fn bgp_settings_fit_together() {
    let spec = json!({"communities": [{"name": "a", "value": "70000:1"}],
        "prefixAdvertisements": [{"cidr": "10.0.0.0/8", "communities": ["b"]}]});
    assert_eq!(
        blamed(Kind::BgpConfiguration, "default", spec),
        ["spec.communities[0].value", "spec.prefixAdvertisements[0].communities[0]"]
    );
    let spec = json!({"peerIP": "10.0.0.1:179", "reachableBy": "fd00::1"});
    assert_eq!(blamed(Kind::BgpPeer, "p", spec), ["spec.reachableBy"]);
    let spec = json!({"exportV4": [{"action": "Reject", "cidr": "10.0.0.0/8",
        "operations": [{"setPriority": {"value": 1}}]}]});
    assert_eq!(
        blamed(Kind::BgpFilter, "f", spec),
        ["spec.exportV4[0].cidr", "spec.exportV4[0].operations"]
    );
}

#[test]
fn an_address_that_cannot_be_read_is_a_plain_fault() {
    let spec = json!({"ipNetworks": ["x"], "ipv4Gateway": "y",
        "ipNATs": [{"internalIP": "z", "externalIP": "10.0.0.1"}]});
    assert_eq!(
        blamed(Kind::WorkloadEndpoint, "w", spec),
        ["spec.ipNATs[0].internalIP", "spec.ipNetworks[0]", "spec.ipv4Gateway"]
    );
}

#[test]
fn felix_tables_are_a_bounded_number() {
    let spec = json!({"routeTableRanges": [{"min": 1, "max": 70000}, {"min": 9, "max": 8}]});
    assert_eq!(
        blamed(Kind::FelixConfiguration, "default", spec),
        ["spec.routeTableRanges", "spec.routeTableRanges[1].min"]
    );
}

#[test]
fn an_update_may_not_move_a_pool() {
    let old = json!({"spec": {"cidr": "10.0.0.0/16", "blockSize": 26}});
    let new = json!({"spec": {"cidr": "10.1.0.0/16", "blockSize": 26}});
    let problems = check_update_rules(Kind::IpPool, &old, &new);
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["spec.cidr"]);
    assert_eq!(check_update_rules(Kind::IpPool, &old, &old), []);
}
