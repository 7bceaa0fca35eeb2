//! One valid object of every kind that users write, with some depth.

use serde_json::{Value, json};

pub(super) fn all() -> Vec<Value> {
    let mut all = [configuration(), addresses(), policies(), endpoints()].concat();
    for sample in &mut all {
        sample["apiVersion"] = json!("projectcalico.org/v3");
    }
    all
}

pub(super) fn one(kind: &str) -> Value {
    all().into_iter().find(|sample| sample["kind"] == kind).expect("a sample of the kind")
}

fn rule() -> Value {
    json!({
        "action": "Allow", "protocol": "TCP", "ipVersion": 4,
        "source": {"selector": "role == 'db'", "nets": ["10.0.0.0/8"], "notPorts": [22]},
        "destination": {"ports": [80, "443:445", "http"]},
        "metadata": {"annotations": {"why": "web"}}
    })
}

fn configuration() -> Vec<Value> {
    vec![
        json!({"kind": "Node", "metadata": {"name": "node-1", "labels": {"zone": "a"}}, "spec": {
            "bgp": {"ipv4Address": "10.10.0.1/24", "asNumber": 64512},
            "addresses": [{"address": "10.10.0.1/24", "type": "CalicoNodeIP"}]
        }}),
        json!({"kind": "BGPConfiguration", "metadata": {"name": "default"}, "spec": {
            "asNumber": 64512, "nodeToNodeMeshEnabled": true,
            "communities": [{"name": "c", "value": "64512:100"}],
            "prefixAdvertisements": [{"cidr": "10.65.0.0/24", "communities": ["c"]}],
            "serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]
        }}),
        json!({"kind": "BGPFilter", "metadata": {"name": "filter"}, "spec": {
            "importV4": [{"action": "Accept", "matchOperator": "In", "cidr": "10.0.0.0/8"}]
        }}),
        json!({"kind": "BGPPeer", "metadata": {"name": "peer"}, "spec": {
            "peerIP": "192.0.2.1", "asNumber": 64513, "node": "node-1"
        }}),
        json!({"kind": "CalicoNodeStatus", "metadata": {"name": "status"}, "spec": {
            "node": "node-1", "classes": ["Agent", "BGP"], "updatePeriodSeconds": 10
        }}),
        json!({"kind": "FelixConfiguration", "metadata": {"name": "default"}, "spec": {
            "logSeverityScreen": "Info", "reportingInterval": "30s", "mtuIfacePattern": "^eth.*",
            "healthPort": 9099, "bpfEnabled": false, "externalNodesList": ["10.1.0.0/16"]
        }}),
        json!({"kind": "KubeControllersConfiguration", "metadata": {"name": "default"}, "spec": {
            "logSeverityScreen": "Info",
            "controllers": {"node": {"reconcilerPeriod": "5m", "syncLabels": "Enabled"}}
        }}),
    ]
}

fn addresses() -> Vec<Value> {
    vec![
        json!({"kind": "IPAMConfiguration", "metadata": {"name": "default"}, "spec": {
            "strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 4
        }}),
        json!({"kind": "IPPool", "metadata": {"name": "pool"}, "spec": {
            "cidr": "10.65.0.0/24", "blockSize": 29, "natOutgoing": true,
            "allowedUses": ["Workload"]
        }}),
        json!({"kind": "IPReservation", "metadata": {"name": "reserved"}, "spec": {
            "reservedCIDRs": ["10.65.0.0/32"]
        }}),
    ]
}

fn policies() -> Vec<Value> {
    vec![
        json!({"kind": "Tier", "metadata": {"name": "platform"}, "spec": {"order": 100}}),
        json!({"kind": "GlobalNetworkPolicy", "metadata": {"name": "platform.all"}, "spec": {
            "tier": "platform", "order": 1.5, "selector": "all()",
            "ingress": [rule()], "egress": [{"action": "Deny"}]
        }}),
        json!({"kind": "GlobalNetworkSet", "metadata": {"name": "set"}, "spec": {
            "nets": ["198.51.100.0/24"]
        }}),
        json!({"kind": "NetworkPolicy", "metadata": {"name": "web", "namespace": "prod"}, "spec": {
            "selector": "app == 'web'", "ingress": [rule(), {"action": "Deny"}]
        }}),
        json!({"kind": "NetworkSet", "metadata": {"name": "set", "namespace": "prod"}, "spec": {
            "nets": ["198.51.100.0/24", "203.0.113.7"]
        }}),
        json!({"kind": "Profile", "metadata": {"name": "profile"}, "spec": {
            "ingress": [rule()], "labelsToApply": {"stage": "prod"}
        }}),
        json!({"kind": "StagedGlobalNetworkPolicy", "metadata": {"name": "staged"}, "spec": {
            "stagedAction": "Set", "selector": "all()", "egress": [rule()]
        }}),
        json!({
            "kind": "StagedKubernetesNetworkPolicy",
            "metadata": {"name": "staged", "namespace": "prod"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "web"}},
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}],
                             "ports": [{"protocol": "TCP", "port": 80}]}]
            }
        }),
        json!({"kind": "StagedNetworkPolicy", "metadata": {"name": "staged", "namespace": "prod"},
            "spec": {"stagedAction": "Set", "selector": "all()", "ingress": [rule()]}
        }),
    ]
}

fn endpoints() -> Vec<Value> {
    vec![
        json!({"kind": "HostEndpoint", "metadata": {"name": "host"}, "spec": {
            "node": "node-1", "interfaceName": "eth0", "expectedIPs": ["10.10.0.1"],
            "profiles": ["profile"], "ports": [{"name": "http", "protocol": "TCP", "port": 80}]
        }}),
        json!({
            "kind": "WorkloadEndpoint",
            "metadata": {"namespace": "prod", "labels": {"app": "web"}},
            "spec": {
                "node": "node-1", "orchestrator": "k8s", "pod": "web-1", "endpoint": "eth0",
                "containerID": "c1", "interfaceName": "cali123", "mac": "ee:ee:ee:ee:ee:ee",
                "ipNetworks": ["10.65.0.1/32"], "profiles": ["profile"]
            }
        }),
    ]
}
