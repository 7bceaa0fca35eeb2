//! The objects that are measured: like those of a real cluster, and the same in every run.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

/// A typical policy: two rules each way, selectors, networks and ports. About 1 KB when stored.
pub(crate) fn policy(number: usize) -> Value {
    let app = number % 97;
    json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": "GlobalNetworkPolicy",
        "metadata": {"name": format!("policy-{number:05}")},
        "spec": {
            "order": 100 + number % 50,
            "selector": format!("app == 'app-{app}' && layer in {{'frontend', 'backend'}}"),
            "types": ["Ingress", "Egress"],
            "ingress": [
                {
                    "action": "Allow", "protocol": "TCP",
                    "source": {
                        "selector": format!("app == 'app-{}'", (app + 1) % 97),
                        "namespaceSelector": "environment == 'production'",
                    },
                    "destination": {"ports": [80, 443, "8080:8090"]},
                },
                {
                    "action": "Allow", "protocol": "TCP",
                    "source": {
                        "nets": [format!("10.{app}.0.0/16"), "192.168.7.0/24"],
                        "notNets": [format!("10.{app}.7.0/24")],
                    },
                    "destination": {"ports": [9090]},
                },
            ],
            "egress": [
                {
                    "action": "Allow", "protocol": "UDP",
                    "destination": {"selector": "k8s-app == 'kube-dns'", "ports": [53]},
                },
                {"action": "Deny", "destination": {"nets": ["169.254.169.254/32"]}},
            ],
        },
    })
}

/// The policies with these numbers as one file of YAML documents.
pub(crate) fn policies(count: usize) -> String {
    (0..count).map(|number| "---\n".to_owned() + &text::yaml::to_string(&policy(number))).collect()
}

/// A pod, as far as its endpoint names it.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    /// Tells it from all others: container, interface and uid are made of it.
    pub(crate) number: usize,
    pub(crate) namespace: String,
    pub(crate) app: String,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) address: Ipv4Addr,
}

/// The address in 10.0.0.0/8 with this number.
pub(crate) fn address(number: usize) -> Ipv4Addr {
    let low = u32::try_from(number & 0xff_ffff).unwrap_or_default();
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) | low)
}

/// A container's id: in no order, as runtimes draw them.
pub(crate) fn container(number: usize) -> String {
    let spread = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{spread:016x}{number:048x}")
}

/// A pod's endpoint as it is stored: its key and its value.
pub(crate) fn workload_endpoint(number: usize) -> (String, Vec<u8>) {
    let app = format!("service-{}", number % 1000);
    let hash = number / 7 * 2_654_435_761 % 0xffff_ffff;
    endpoint_of(&Pod {
        number,
        namespace: format!("team-{}", number % 200),
        name: format!("{app}-{hash:08x}-{number:05x}"),
        app,
        node: format!("node-{}", number / 100),
        address: address(number),
    })
}

/// The endpoint of a pod as it is stored: its key and its value.
pub(crate) fn endpoint_of(pod: &Pod) -> (String, Vec<u8>) {
    let Pod { number, namespace, app, name: pod, node, address } = pod;
    let escaped = |text: &str| text.replace('-', "--");
    let name = format!("{}-k8s-{}-eth0", escaped(node), escaped(pod));
    let value = json!({
        "kind": "WorkloadEndpoint",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {
            "name": name, "namespace": namespace,
            "uid": format!("7c9e6679-7425-40de-944b-{number:012x}"),
            "creationTimestamp": "2025-06-01T12:00:00Z",
            "labels": {
                "app": app, "environment": "production", "pod-template-hash": format!("{:08x}", number / 7),
                "projectcalico.org/namespace": namespace,
                "projectcalico.org/orchestrator": "k8s",
                "projectcalico.org/serviceaccount": "default",
            },
        },
        "spec": {
            "orchestrator": "k8s", "node": node,
            "containerID": container(*number),
            "pod": pod, "endpoint": "eth0", "serviceAccountName": "default",
            "ipNetworks": [format!("{address}/32")],
            "profiles": [format!("kns.{namespace}"), format!("ksa.{namespace}.default")],
            "interfaceName": format!("cali{number:011x}"),
        },
    });
    let key = format!("{WORKLOAD_ENDPOINTS}{namespace}/{name}");
    (key, text::json::to_string(&value).into_bytes())
}

/// Where workload endpoints lie.
pub(crate) const WORKLOAD_ENDPOINTS: &str =
    "/calico/resources/v3/projectcalico.org/workloadendpoints/";

/// Where global network policies lie.
pub(crate) const POLICIES: &str = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/";

/// Selectors of the shapes that policies use.
pub(crate) fn selector(number: usize) -> String {
    let app = number % 251;
    match number % 5 {
        0 => format!("app == 'service-{app}'"),
        1 => format!("app == 'service-{app}' && environment in {{'production', 'staging'}}"),
        2 => format!("has(zone) && app != 'service-{app}' && layer == 'backend'"),
        3 => format!("app starts with 'service-{app}' || (layer == 'frontend' && !has(debug))"),
        _ => format!("projectcalico.org/namespace == 'team-{app}' && app not in {{'a', 'b'}}"),
    }
}

/// Labels of a pod.
pub(crate) fn labels(number: usize) -> std::collections::BTreeMap<String, String> {
    [
        ("app", format!("service-{}", number % 251)),
        ("environment", if number.is_multiple_of(3) { "staging" } else { "production" }.to_owned()),
        ("layer", if number.is_multiple_of(2) { "frontend" } else { "backend" }.to_owned()),
        ("pod-template-hash", format!("{number:08x}")),
        ("projectcalico.org/namespace", format!("team-{}", number % 40)),
        ("projectcalico.org/orchestrator", "k8s".to_owned()),
        ("zone", format!("zone-{}", number % 4)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
