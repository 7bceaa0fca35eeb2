//! What it costs to know which policies a node has to carry out, from nothing and change by change.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;

use anyhow::ensure;
use model::resource::Action;
use net::{Cidr, Port, Protocol};
use policy::End;
use policy::graph::Graph;
use policy::input::{
    Change, Entity, Policy, PolicyId, PolicyKind, Profile, Rule, Stage, Tier, Workload,
};

use crate::Options;
use crate::process::{cpu_seconds, resident_mib};
use crate::report::{Figure, median};
use crate::samples;

/// The word that makes this program a holder of a graph.
pub(crate) const HOLD: &str = "hold-graph";

/// The node that is looked at: the first hundred endpoints are on it.
const NODE: &str = "node-0";
const NAMESPACE: &str = "projectcalico.org/namespace";
const N_ENDPOINTS: usize = 10_000;
const N_POLICIES: usize = 1000;
const N_NAMESPACES: usize = 200;
/// Of the namespaces those that have endpoints on the node.
const N_NAMESPACES_HERE: usize = 100;
const MANY_ENDPOINTS: usize = 100_000;
const REPEAT: usize = 7;
const N_CHANGES: usize = 500;

pub(crate) fn measure(options: &Options) -> anyhow::Result<Vec<Figure>> {
    options.say("the graph");
    let mut figures = cold()?;
    figures.extend(single_changes()?);
    for (n_policies, aim) in [(0, Some(60.0)), (N_POLICIES, None)] {
        let output = Command::new(std::env::current_exe()?)
            .args([HOLD, &n_policies.to_string()])
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", error.trim());
        let grown: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
        let what = format!("graph of 100,000 endpoints, {n_policies} policies");
        figures.push(Figure::less(what, "MiB", grown).aim(aim));
    }
    Ok(figures)
}

/// The holder: fills a graph and prints by how many MiB the process grew.
pub(crate) fn hold(n_policies: &str) -> anyhow::Result<String> {
    let n_policies = n_policies.parse()?;
    let before = resident_mib()?;
    let mut graph = Graph::new(NODE);
    (0..MANY_ENDPOINTS).for_each(|number| graph.absorb(endpoint(number, "")));
    scope().chain((0..n_policies).map(|it| policy(it, 80))).for_each(|it| graph.absorb(it));
    graph.flush();
    let grown = resident_mib()? - before;
    ensure!(graph.intent().policies.len() == n_policies, "not all policies are in effect");
    Ok(format!("{grown}"))
}

fn cold() -> anyhow::Result<Vec<Figure>> {
    let endpoints: Vec<Change> = (0..N_ENDPOINTS).map(|it| endpoint(it, "")).collect();
    let policies: Vec<Change> = scope().chain((0..N_POLICIES).map(|it| policy(it, 80))).collect();
    let forwards: Vec<&Change> = endpoints.iter().chain(&policies).collect();
    let backwards: Vec<&Change> = policies.iter().chain(&endpoints).collect();
    let mut figures = Vec::new();
    for (order, changes) in [("endpoints first", forwards), ("policies first", backwards)] {
        let mut n_members = 0;
        let seconds = cpu_seconds(REPEAT, || {
            let mut graph = Graph::new(NODE);
            changes.iter().for_each(|change| graph.absorb((*change).clone()));
            black_box(graph.flush());
            n_members = graph.intent().sets.values().map(|set| set.members.len()).sum();
        });
        ensure!(n_members > N_ENDPOINTS, "{n_members} members");
        let what = format!("graph of 10,000 endpoints, 1,000 policies, {order}");
        figures.push(Figure::less(what, "CPU ms", seconds * 1000.0).aim(100.0));
    }
    Ok(figures)
}

fn single_changes() -> anyhow::Result<Vec<Figure>> {
    let mut graph = Graph::new(NODE);
    let endpoints = (0..N_ENDPOINTS).map(|it| endpoint(it, ""));
    let policies = (0..N_POLICIES).map(|it| policy(it, 80));
    endpoints.chain(scope()).chain(policies).for_each(|change| graph.absorb(change));
    graph.flush();
    let far = |at: usize| N_NAMESPACES_HERE + at;
    type Make<'a> = &'a dyn Fn(usize) -> Change;
    let kinds: [(&str, Make<'_>, Make<'_>); 5] = [
        ("endpoint elsewhere gone and back", &|at| gone(far(at)), &|at| endpoint(far(at), "")),
        ("endpoint elsewhere with another label and back", &|at| endpoint(far(at), "x"), &|at| {
            endpoint(far(at), "")
        }),
        ("endpoint here with another label and back", &|at| endpoint(at % 100, "x"), &|at| {
            endpoint(at % 100, "")
        }),
        ("policy with another rule and back", &|at| policy(at, 81), &|at| policy(at, 80)),
        ("policy gone and back", &|at| Change::Policy(id(at), None), &|at| policy(at, 80)),
    ];
    let mut figures = Vec::new();
    for (what, there, back) in kinds {
        let changes = (0..N_CHANGES).flat_map(|at| [there(at), back(at)]);
        figures.push(each(what, &mut graph, changes).aim(100.0));
    }
    // The most that one change can touch here: every endpoint of the node has every policy.
    let everywhere = |number| policy_for(number, 80, "all()", None);
    (0..N_POLICIES).for_each(|number| graph.absorb(everywhere(number)));
    graph.flush();
    let changes = (0..N_CHANGES / 10).flat_map(|at| [Change::Policy(id(at), None), everywhere(at)]);
    figures.push(each(
        "policy of all 100 endpoints, one of 1,000, gone and back",
        &mut graph,
        changes,
    ));
    Ok(figures)
}

/// Changes and flushes in turn.
fn each(what: &str, graph: &mut Graph, changes: impl Iterator<Item = Change>) -> Figure {
    let changes: Vec<Change> = changes.collect();
    let took: Vec<f64> = changes
        .into_iter()
        .map(|change| {
            cpu_seconds(1, || {
                graph.absorb(change.clone());
                black_box(graph.flush());
            })
        })
        .collect();
    Figure::less(what, "CPU us a change", median(took) * 1e6)
}

/// A pod's endpoint; `variant` makes another app of it.
fn endpoint(number: usize, variant: &str) -> Change {
    let (service, team) = (number % 1000, number % N_NAMESPACES);
    let app = format!("service-{service}{variant}");
    let labels = [
        ("app", app.clone()),
        ("environment", "production".to_owned()),
        ("pod-template-hash", format!("{:08x}", number / 7)),
        (NAMESPACE, format!("team-{team}")),
        ("projectcalico.org/orchestrator", "k8s".to_owned()),
        ("projectcalico.org/serviceaccount", "default".to_owned()),
    ];
    let workload = Workload {
        node: format!("node-{}", number / 100),
        interface: format!("cali{number:011x}"),
        addresses: vec![Cidr::host(samples::address(number).into())],
        labels: labels.map(|(name, value)| (name.to_owned(), value)).into(),
        profiles: vec![format!("kns.team-{team}"), format!("ksa.team-{team}.default")],
        ports: Vec::new(),
        allowed_sources: Vec::new(),
    };
    Change::Workload(key(number), Some(Arc::new(workload)))
}

fn gone(number: usize) -> Change {
    Change::Workload(key(number), None)
}

fn key(number: usize) -> String {
    let (team, service) = (number % N_NAMESPACES, number % 1000);
    let node = number / 100;
    format!("team-{team}/node--{node}-k8s-service--{service}--{number:05x}-eth0")
}

fn id(number: usize) -> PolicyId {
    let namespace = format!("team-{}", number % N_NAMESPACES_HERE);
    PolicyId { kind: PolicyKind::NetworkPolicy, namespace, name: format!("policy-{number}") }
}

/// A policy for the pods of a namespace, of which the node has one. It lets in the pods of one app
/// and what all may be reached from, and out to the pods of another namespace.
fn policy(number: usize, port: u16) -> Change {
    let selector = format!("{NAMESPACE} == 'team-{}'", number % N_NAMESPACES_HERE);
    policy_for(number, port, &selector, Some((100 + number % 50) as f64))
}

fn policy_for(number: usize, port: u16, selector: &str, order: Option<f64>) -> Change {
    let allow = |source: &str, destination: &str, port| {
        let entity = |selector: &str| Entity {
            selector: selector.parse().ok().filter(|_| !selector.is_empty()),
            ..Entity::default()
        };
        let ports = vec![Port::single(port)];
        Rule {
            action: Action::Allow,
            is_ipv4: None,
            protocol: Some(Protocol::from("TCP")),
            not_protocol: None,
            icmp: None,
            not_icmp: None,
            source: entity(source),
            destination: Entity { ports, ..entity(destination) },
        }
    };
    let app = format!("app == 'service-{number}' && environment in {{'production', 'staging'}}");
    let out = format!("{NAMESPACE} == 'team-{}'", (number + 1) % N_NAMESPACES);
    let policy = Policy {
        tier: "default".to_owned(),
        order,
        selector: selector.parse().unwrap_or_default(),
        is_for_ingress: true,
        is_for_egress: true,
        ingress: vec![allow(&app, "", port), allow("environment == 'production'", "", 9090)],
        egress: vec![allow("", &out, 443)],
        stage: Stage::Normal,
        is_for_forward: false,
        is_needed_everywhere: false,
    };
    Change::Policy(id(number), Some(Arc::new(policy)))
}

/// The tier, and the profiles of all namespaces.
fn scope() -> impl Iterator<Item = Change> {
    let tier = Change::Tier("default".to_owned(), Some(Tier { order: Some(1e6), end: End::Deny }));
    let profile = |team: usize| {
        let labels = BTreeMap::from([("pcns.team".to_owned(), format!("{team}"))]);
        let profile = Profile { labels, ..Profile::default() };
        Change::Profile(format!("kns.team-{team}"), Some(Arc::new(profile)))
    };
    std::iter::once(tier).chain((0..N_NAMESPACES).map(profile))
}
