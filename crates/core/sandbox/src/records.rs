//! The objects that Calico's plugin keeps in the datastore: the endpoint of a sandbox, and the
//! profile of a plain network.

use serde_json::{Map, Value, json};

use crate::identity::{Identity, Workload};
use crate::wiring::{Wiring, mac_text};

/// What an endpoint says.
#[derive(Clone, Debug)]
pub struct Endpoint<'a> {
    /// Its name.
    pub name: &'a str,
    /// The node.
    pub node: &'a str,
    /// The sandbox.
    pub identity: &'a Identity,
    /// Who runs there.
    pub workload: &'a Workload,
    /// Its profiles.
    pub profiles: Vec<String>,
    /// Labels beside those that every endpoint has.
    pub labels: Vec<(String, String)>,
    /// How it is wired.
    pub wiring: &'a Wiring,
}

impl Endpoint<'_> {
    /// The WorkloadEndpoint, without what the datastore adds.
    pub fn object(&self) -> Value {
        let namespace = self.workload.namespace();
        let mut labels: Map<String, Value> =
            self.labels.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
        labels.insert("projectcalico.org/namespace".into(), namespace.into());
        let orchestrator = self.workload.orchestrator();
        labels.insert("projectcalico.org/orchestrator".into(), orchestrator.into());
        labels.sort_keys();
        let mut spec = Map::new();
        spec.insert("orchestrator".into(), orchestrator.into());
        spec.insert("node".into(), self.node.into());
        spec.insert("containerID".into(), self.identity.container.clone().into());
        if let Workload::Pod { name, .. } = self.workload {
            spec.insert("pod".into(), name.clone().into());
        }
        spec.insert("endpoint".into(), self.identity.interface.clone().into());
        let networks: Vec<String> = self
            .wiring
            .addresses
            .iter()
            .map(|address| format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 }))
            .collect();
        spec.insert("ipNetworks".into(), networks.into());
        spec.insert("profiles".into(), self.profiles.clone().into());
        spec.insert("interfaceName".into(), self.wiring.host_interface.clone().into());
        spec.insert("mac".into(), mac_text(self.wiring.mac).into());
        json!({
            "kind": "WorkloadEndpoint",
            "apiVersion": "projectcalico.org/v3",
            "metadata": { "name": self.name, "namespace": namespace, "labels": labels },
            "spec": spec,
        })
    }
}

/// The profile of a network without Kubernetes: its containers may talk to each other, and to
/// everybody outside.
pub fn profile(network: &str, workload: &Workload) -> Value {
    let ingress = match workload {
        Workload::Plain => json!({
            "action": "Allow",
            "source": { "selector": format!("has({network})") },
        }),
        Workload::Pod { .. } => json!({ "action": "Allow" }),
    };
    json!({
        "kind": "Profile",
        "apiVersion": "projectcalico.org/v3",
        "metadata": { "name": network },
        "spec": {
            "ingress": [ingress],
            "egress": [{ "action": "Allow" }],
            "labelsToApply": { network: "" },
        },
    })
}
