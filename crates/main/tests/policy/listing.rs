//! What `nft` lists of our tables it loads again: whoever keeps the ruleset of a node as a file has
//! one that works.

use kernel::Netns;
use policy::intent::Intent;
use policy::render::{
    Counters, DenyAction, EndpointToHost, Listeners, Rate, ServiceLoops, Settings, Surroundings,
    Tunnels,
};

use crate::dataplane::{self, Dataplane};
use crate::hosts::{self, Stage, host_cases};
use crate::objects::Cluster;
use crate::semantics::{cases, intent_with};
use crate::world::{NODE_ADDRESSES, run};

/// Everything that can be set to something else.
fn other_settings() -> Settings {
    let rate = Rate { n_packets: 5, per_seconds: 1, burst: 20 };
    Settings {
        endpoint_to_host: EndpointToHost::Return,
        deny_action: DenyAction::Reject,
        drops_invalid: false,
        may_spoof: true,
        counters: Counters::All,
        denials: Some(Listeners { group: 7, n_bytes: 128, rate, rate_of_all: rate }),
        log_rate: Some(rate),
        service_loops: ServiceLoops::Reject,
        nat_address: Some("172.30.0.7".parse().unwrap()),
        nat_ports: Some((1024, 2047)),
        nat_interface: Some("eth+".to_owned()),
        nat_spares_hosts: true,
        wireguard_v4: Some(51820),
        wireguard_v6: Some(51821),
        external_nodes: vec!["198.51.100.0/24".parse().unwrap()],
        ..Settings::default()
    }
}

fn other_surroundings() -> Surroundings {
    Surroundings {
        pools: ["10.65.0.0/16", "fd65::/31"].map(|it| it.parse().unwrap()).into(),
        nat_outgoing: ["10.65.0.0/24", "fd65::/64"].map(|it| it.parse().unwrap()).into(),
        tunnels: Tunnels { ipip: true, vxlan_v4: true, vxlan_v6: true },
        host_addresses: NODE_ADDRESSES.into(),
        service_networks: ["10.96.0.0/12", "fd96::/112"].map(|it| it.parse().unwrap()).into(),
        interfaces: hosts::interfaces(),
    }
}

/// Has each workload speak for a network behind it as well.
fn with_networks_behind(mut intent: Intent) -> Intent {
    for (number, workload) in (0..).zip(intent.workloads.values_mut()) {
        let nets = [format!("10.77.{number}.0/24"), format!("fd77:{number:x}::/64")];
        workload.allowed_sources = nets.map(|net| net.parse().unwrap()).to_vec();
    }
    intent
}

/// The words of a listing in the order of the alphabet: the elements of a set come in any.
fn words(listing: &str) -> Vec<&str> {
    let is_between = |c: char| c.is_whitespace() || c == ',';
    let mut words: Vec<&str> = listing.split(is_between).filter(|it| !it.is_empty()).collect();
    words.sort_unstable();
    words
}

fn is_loaded_again(node: &Netns, name: &str) {
    let listed = run(node, "nft", &["list", "ruleset"], "");
    let other = Netns::create().unwrap();
    run(&other, "nft", &["-f", "-"], &listed);
    let again = run(&other, "nft", &["list", "ruleset"], "");
    // What is rejected in a rule of one family is rejected in its manner, which goes unsaid before.
    let again = again.replace(" with icmp port-unreachable", "");
    let again = again.replace(" with icmpv6 port-unreachable", "");
    assert_eq!(words(&listed), words(&again), "{name}");
}

#[test]
fn what_nft_lists_it_loads_again() {
    let cluster = Cluster::read();
    let Some(world) = cluster.world() else { return };
    let (node, stage) = (&world.node, Stage::new());
    for (settings, around) in
        [(dataplane::settings(), Surroundings::default()), (other_settings(), other_surroundings())]
    {
        let mut dataplane = Dataplane::new(node, settings);
        dataplane.surroundings = around;
        for case in cases() {
            dataplane.install(with_networks_behind(intent_with(&cluster, &case.objects)));
            is_loaded_again(node, &case.name);
        }
        dataplane.surroundings.interfaces = hosts::interfaces();
        for case in host_cases() {
            dataplane.install(stage.intent(&case));
            is_loaded_again(node, &case.name);
        }
    }
}
