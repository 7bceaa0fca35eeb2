//! The objects of a cluster whose policies one node carries out, and the changes that are made.

use anyhow::Context;
use serde_json::{Value, json};

use crate::samples::{self, Pod};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";
/// All endpoints have this profile, so that one label of it is a label of each of them.
const EVERYONE: &str = "everyone";
pub(super) const N_TEAMS: usize = 200;
const N_SERVICES: usize = 1000;
const ENDPOINTS_PER_NODE: usize = 100;

/// For whom the policies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Each for one pod of the node: all pods have the same number of them.
    Spread { n_local: usize },
    /// Every policy for every pod.
    All,
}

/// What all clusters have: nodes, a tier, and profiles.
pub(super) fn scope(n_remote: usize) -> impl Iterator<Item = (String, Vec<u8>)> {
    let tier = object("Tier", "tiers", "default", json!({ "order": 1_000_000 }), &json!({}));
    let profile = |team: usize| {
        let spec = json!({ "labelsToApply": { "pcns.team": format!("team-{team}") } });
        object("Profile", "profiles", &format!("kns.team-{team}"), spec, &json!({}))
    };
    let node = |number: usize| {
        let address = format!("172.30.{}.{}/16", 1 + number / 250, number % 250);
        let spec = json!({ "bgp": { "ipv4Address": address } });
        object("Node", "nodes", &format!("node-{number}"), spec, &json!({}))
    };
    let n_nodes = n_remote.div_ceil(ENDPOINTS_PER_NODE);
    [tier, everyone("a")].into_iter().chain((0..N_TEAMS).map(profile)).chain((0..n_nodes).map(node))
}

/// The profile of all endpoints, with one value of its label.
pub(super) fn everyone(stage: &str) -> (String, Vec<u8>) {
    let spec = json!({ "labelsToApply": { "stage": stage } });
    object("Profile", "profiles", EVERYONE, spec, &json!({}))
}

/// A pod on another node; `variant` makes another app of it.
pub(super) fn remote(number: usize, variant: &str) -> anyhow::Result<(String, Vec<u8>)> {
    let team = number % N_TEAMS;
    let service = number % N_SERVICES;
    let (key, value) = samples::endpoint_of(&Pod {
        number,
        namespace: format!("team-{team}"),
        name: format!("service-{service}-{number:05x}"),
        app: format!("service-{service}{variant}"),
        node: format!("node-{}", number / ENDPOINTS_PER_NODE),
        address: samples::address(number),
    });
    Ok((key, labelled(&value, team, service, variant)?))
}

/// An endpoint of this node that no runtime has asked for.
pub(super) fn local(number: usize, team: usize) -> anyhow::Result<(String, Vec<u8>)> {
    let number = 0xff_0000 + number;
    let (key, value) = samples::endpoint_of(&Pod {
        number,
        namespace: "default".to_owned(),
        name: format!("extra-{number}"),
        app: "extra".to_owned(),
        node: "n1".to_owned(),
        address: samples::address(number),
    });
    Ok((key, labelled(&value, team, number % N_SERVICES, "")?))
}

/// The name of its interface.
pub(super) fn local_interface(number: usize) -> String {
    format!("cali{:011x}", 0xff_0000 + number)
}

/// A stored endpoint with the labels and the profile of the scene.
pub(super) fn labelled(
    value: &[u8],
    team: usize,
    service: usize,
    variant: &str,
) -> anyhow::Result<Vec<u8>> {
    let mut endpoint = text::json::parse(value).context("an endpoint")?;
    let labels = &mut endpoint["metadata"]["labels"];
    labels["app"] = format!("service-{service}{variant}").into();
    labels["environment"] = "production".into();
    labels["team"] = format!("team-{team}").into();
    endpoint["spec"]["profiles"] = json!([format!("kns.team-{}", team % N_TEAMS), EVERYONE]);
    Ok(text::json::to_string(&endpoint).into_bytes())
}

/// A policy as people write it. It lets in the pods of one app, all of production, and, if it is
/// the first one, whoever has the label of all; and out to the pods of one team.
pub(super) fn policy(number: usize, reach: Reach) -> Value {
    let selector = match reach {
        Reach::Spread { n_local } => format!("team == 'team-{}'", number % n_local),
        Reach::All => "all()".to_owned(),
    };
    let allow = |from: &str, port: u16| {
        json!({
            "action": "Allow", "protocol": "TCP",
            "source": { "selector": from }, "destination": { "ports": [port] },
        })
    };
    let service = number % N_SERVICES;
    let app = format!("app == 'service-{service}' && environment in {{'production', 'staging'}}");
    let mut ingress = vec![allow(&app, PORT), allow("environment == 'production'", 9090)];
    if number == 0 {
        ingress.push(allow("stage == 'b'", 7000));
    }
    let to = format!("team == 'team-{}'", (number + 1) % N_TEAMS);
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
        "metadata": { "name": format!("policy-{number:05}") },
        "spec": {
            "order": 100 + number % 50, "selector": selector, "types": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": [{
                "action": "Allow", "protocol": "TCP",
                "destination": { "selector": to, "ports": [443] },
            }],
        },
    })
}

const PORT: u16 = 80;

/// A stored policy whose first rule allows another port.
pub(super) fn with_other_port(value: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut policy = text::json::parse(value).context("a policy")?;
    policy["spec"]["ingress"][0]["destination"]["ports"] = json!([PORT + 1]);
    Ok(text::json::to_string(&policy).into_bytes())
}

fn object(kind: &str, folder: &str, name: &str, spec: Value, labels: &Value) -> (String, Vec<u8>) {
    let value = json!({
        "kind": kind, "apiVersion": "projectcalico.org/v3",
        "metadata": {
            "name": name, "uid": "7c9e6679-7425-40de-944b-000000000000", "labels": labels,
            "creationTimestamp": "2025-06-01T12:00:00Z",
        },
        "spec": spec,
    });
    (format!("{RESOURCES}{folder}/{name}"), text::json::to_string(&value).into_bytes())
}
