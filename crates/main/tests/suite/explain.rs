//! Why traffic is let through or denied, as users ask: from documents in the store to the verdict.

use serde_json::Value;
use store::realised::Realised;

use crate::harness::Place;

fn endpoint(node: &str, pod: &str, address: &str, app: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\nmetadata:\n  \
         name: {node}-k8s-{}-eth0\n  namespace: shop\n  labels:\n    app: {app}\n    \
         projectcalico.org/namespace: shop\n    projectcalico.org/orchestrator: k8s\nspec:\n  \
         node: {node}\n  orchestrator: k8s\n  pod: {pod}\n  endpoint: eth0\n  containerID: c1\n  \
         interfaceName: cali{app}\n  ipNetworks: [{address}/32]\n  profiles: [kns.shop]\n---\n",
        pod.replace('-', "--")
    )
}

const POLICIES: &str = r#"apiVersion: projectcalico.org/v3
kind: Profile
metadata: {name: kns.shop}
spec:
  ingress: [{action: Allow}]
  egress: [{action: Allow}]
---
apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: security}
spec: {order: 10}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: baseline}
spec:
  tier: security
  selector: all()
  ingress:
  - {action: Deny, protocol: TCP, destination: {ports: [23]}}
  - {action: Pass}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: db-in, namespace: shop}
spec:
  selector: app == 'db'
  ingress:
  - {action: Allow, protocol: TCP, source: {selector: app == 'api'}, destination: {ports: [5432]}}
  - {action: Allow, protocol: TCP, source: {selector: app == 'api'}, destination: {ports: [5432]}}
"#;

fn shop() -> Place {
    let place = Place::embedded();
    let pods = [
        endpoint("n1", "web-1", "10.65.0.1", "web"),
        endpoint("n2", "db-0", "10.65.0.2", "db"),
        endpoint("n1", "api-1", "10.65.0.3", "api"),
    ];
    place.file("shop.yaml", &(pods.concat() + POLICIES));
    place.margay("apply -f shop.yaml").ok();
    place
}

#[test]
fn a_denied_connection_is_explained_and_the_suggestion_allows_it() {
    let place = shop();
    let asked = "shop/web-1 shop/db-0 --port 5432";
    let denied = place.margay(&format!("explain {asked}")).code(1);
    let lines: Vec<&str> = denied.out.lines().collect();
    assert!(
        lines[0]
            .starts_with("✗ denied at ingress of shop/db-0 by tier default: no policy allows it"),
        "{denied:?}"
    );
    let near =
        r#"policy shop/db-in rule 1  allow tcp 5432 from app == "api"      web-1 has app=web"#;
    let help = format!("margay policy suggest {asked}");
    let passed = "tier security: pass (policy baseline, rule 2) → tier default: 1 policy applies";
    denied.says(&[near, &help, passed, "web-1 → caliweb (n1) → calidb (n2) → db-0"]);

    let suggested = place.margay(&format!("policy suggest {asked}")).code(0);
    assert!(suggested.out.starts_with("apiVersion: projectcalico.org/v3\n"), "{suggested:?}");
    assert!(suggested.err.contains("or put its rule into policy shop/db-in"), "{suggested:?}");
    place.file("allow.yaml", &suggested.out);
    place.margay("apply -f allow.yaml").ok().says(&["1 created"]);
    let allowed = place.margay(&format!("explain {asked}")).ok();
    allowed.says(&["✓ allowed: tcp 5432 from shop/web-1 to shop/db-0", "10.65.0.1/32"]);
    place.margay(&format!("policy suggest {asked}")).code(0).complains(&["it is allowed"]);
    // Nothing else.
    place.margay("explain shop/web-1 shop/db-0 --port 5433").code(1);
    place.margay("explain 192.0.2.7 shop/db-0 --port 5432").code(1);
}

#[test]
fn the_deciding_rule_is_named_and_json_says_the_same() {
    let place = shop();
    let denied = place.margay("explain api-1 10.65.0.2 -p 23 -n shop -o json").code(1);
    let said: Value = serde_json::from_str(&denied.out).unwrap();
    assert_eq!(said["verdict"], "deny");
    assert_eq!(said["deniedBy"], "policy baseline, ingress rule 1");
    assert_eq!(said["destination"]["name"], "shop/db-0");
    let tiers = said["hops"][1]["tiers"].as_array().unwrap();
    assert_eq!((tiers.len(), &tiers[0]["step"]), (1, &Value::from("deny")));
    let allowed = place.margay("explain shop/api-1 shop/db-0 --port 5432").ok();
    allowed.says(&["✓ allowed", "tier default: allow (policy shop/db-in, rule 1)"]);
    place.margay("explain shop/web-2 shop/db-0").refused(&["did you mean shop/web-1?"]);
    place.margay("explain shop/web-1 shop/db-0 --protocol tpc").refused(&["tpc is not a protocol"]);
}

#[test]
fn a_policy_is_reviewed() {
    let place = shop();
    let said = place.margay("explain policy shop/db-in").code(1);
    said.says(&[
        "policy shop/db-in: selects 1 endpoint, 1 rule never matches",
        "shop/db-0",
        "never matches: rule 1 decides all that it would match",
    ]);
    place.margay("explain policy baseline").ok().says(&["✓ policy baseline: selects 3 endpoints"]);
    place.margay("explain policy shop/db-im").refused(&["did you mean shop/db-in?"]);
}

#[test]
fn hosts_have_ports_that_no_policy_closes_and_pods_do_not_reach_their_own() {
    let place = shop();
    let host = "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: n1}\n\
        spec: {bgp: {ipv4Address: 172.30.0.11/24}}\n---\n\
        apiVersion: projectcalico.org/v3\nkind: HostEndpoint\n\
        metadata: {name: n1-all, labels: {role: gateway}}\n\
        spec: {node: n1, interfaceName: '*', expectedIPs: [172.30.0.11]}\n";
    place.give("apply", host).ok();
    place.margay("explain 192.0.2.7 n1 --port 22").ok().says(&["failsafe port"]);
    let denied = place.margay("explain shop/db-0 n1 --port 8080").code(1);
    denied.says(&["✗ denied at ingress of n1: no profile allows it"]);
    let own = place.margay("explain shop/web-1 n1 --port 22").code(1);
    own.says(&["denied at egress of shop/web-1: defaultEndpointToHostAction is Drop"]);
    let suggested = place.margay("policy suggest shop/db-0 n1 --port 8080").code(0);
    place.give("apply", &suggested.out).ok();
    place.margay("explain shop/db-0 n1 --port 8080").ok();
    // Pods of the host come by no interface of its own, so its policies have no say.
    let open = "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\n\
        metadata: {name: default}\nspec: {defaultEndpointToHostAction: Return}\n";
    place.give("apply", open).ok();
    place.margay("explain shop/web-1 n1 --port 8081").ok();
    place.margay("explain shop/db-0 n1 --port 8081").code(1);
}

/// What agents salvage of an object decides here as there, and settings of selected nodes count.
#[test]
fn what_is_left_of_bad_objects_decides_as_on_nodes() {
    let place = shop();
    place.margay("explain shop/web-1 shop/api-1 --port 80").ok();
    let root = "/calico/resources/v3/projectcalico.org";
    let policy = r#"{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3",
        "metadata":{"name":"old","namespace":"shop"},"spec":{"selector":"app == 'api'",
        "ingress":[{"action":"Allow","protocol":"nonsense"},
        {"action":"Deny","source":{"nets":["10.0.0.0/99"]}}]}}"#;
    place.put(&format!("{root}/networkpolicies/shop/old"), policy);
    let denied = place.margay("explain shop/web-1 shop/api-1 --port 80").code(1);
    denied.says(&[
        "by policy shop/old, ingress rule 1",
        "note: 1 object cannot be used and is not in force as it is, such as NetworkPolicy shop/old",
    ]);
    let documents = "apiVersion: projectcalico.org/v3\nkind: Node\n\
        metadata: {name: n1, labels: {zone: a}}\nspec: {bgp: {ipv4Address: 172.30.0.11/24}}\n---\n\
        apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: some}\n\
        spec: {nodeSelector: zone == 'a', defaultEndpointToHostAction: Accept}\n";
    place.margay("explain shop/web-1 shop/db-0 --protocol 4").code(1).says(&["IPIP packet"]);
    let vxlan = "explain shop/web-1 shop/db-0 --protocol udp --port 4789";
    place.margay(vxlan).code(1).says(&["VXLAN packet of a workload"]);
    let services = "apiVersion: projectcalico.org/v3\nkind: BGPConfiguration\n\
        metadata: {name: default}\nspec: {serviceClusterIPs: [{cidr: 10.96.0.0/12}]}\n";
    place.give("apply", services).ok();
    let note = "note: unless something translates 10.96.0.10, n1 drops it: address of a service";
    place.margay("explain shop/web-1 10.96.0.10 --port 80").ok().says(&[note]);
    place.give("apply", documents).ok();
    place.margay("explain shop/web-1 n1 --port 80").ok();
}

/// A node that does not carry out what decides is named; what has no say there is not.
#[test]
fn a_policy_that_a_node_holds_is_named_where_it_decides() {
    let place = shop();
    let asked = "explain shop/api-1 shop/db-0 --port 5432";
    let root = "/calico/resources/v3/projectcalico.org";
    let tell = |key: &str, why: &str, is_absent: bool| {
        let key = format!("{root}/{key}");
        let told = Realised {
            revision: 1_000_000,
            refused: [(key.clone(), why.to_owned())].into(),
            absent: is_absent.then_some(key).into_iter().collect(),
        };
        told.publish(&place.store(), "n2").unwrap();
    };
    let why = "held: it cuts n2 off from etcd";
    tell("networkpolicies/shop/db-in", why, true);
    place.margay(asked).code(1).says(&[
        "! allowed: tcp 5432 from shop/api-1 to shop/db-0",
        "not as such in the kernel of n2)",
        "\n! n2 does not carry out NetworkPolicy shop/db-in (held: it cuts n2 off from etcd); \
         the answer is what the datastore wants\n",
    ]);
    let said: Value = place.margay(&format!("{asked} -o json")).code(1).out.parse().unwrap();
    let kernel = &said["kernels"][0];
    assert_eq!(kernel["lacks"], format!("refused NetworkPolicy shop/db-in: {why}"));
    assert_eq!(kernel["refused"][0]["object"], "NetworkPolicy shop/db-in");
    // Nothing of it is in force there, and it has no say.
    place.margay("explain shop/db-0 shop/web-1 --port 80").ok().says(&["in the kernel of n2"]);
    // An earlier value of it may be.
    tell("networkpolicies/shop/db-in", why, false);
    place.margay("explain shop/db-0 shop/web-1 --port 80").code(1).says(&["n2 does not carry out"]);
    tell("globalnetworkpolicies/gone", why, false);
    place
        .margay(asked)
        .code(1)
        .says(&["! n2 goes on with GlobalNetworkPolicy gone, which was removed (held: "]);
    tell("workloadendpoints/shop/n2-k8s-other-eth0", why, false);
    place.margay(asked).ok();
}

#[test]
fn drops_are_asked_of_the_agent() {
    let place = Place::embedded();
    place.margay("drops --run-dir .").refused(&["no agent runs here"]);
}
