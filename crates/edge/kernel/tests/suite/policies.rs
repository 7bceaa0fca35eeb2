//! Rulesets that are made from policies.

#[expect(dead_code, reason = "the tests of the renderer need more of it")]
#[path = "../../../../core/policy/src/render/tests/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::nft::{Element, Nft, Rule as Listing, TableFamily, TableId};
use model::resource::Action;
use net::Protocol;
use policy::input::{PolicyId, PolicyKind};
use policy::intent::{Directions, Intent, TierInForce, Workload};
use policy::render::{
    Change, Counters, DenyAction, EndpointToHost, Failsafe, Listeners, Rate, Renderer,
    ServiceLoops, Settings, Surroundings, Tunnels,
};
use policy::{End, Rule};
use random::Dice;

use crate::world::world;

/// What stands in our tables, in an order of its own.
type Listed = (BTreeMap<String, Vec<Listing>>, BTreeMap<(TableFamily, String), Vec<Element>>);

fn listed(nft: &mut Nft) -> Listed {
    let (mut chains, mut sets) = (BTreeMap::new(), BTreeMap::new());
    for family in [TableFamily::Inet, TableFamily::Arp] {
        let table = TableId::new(family, "margay");
        for (_, chain) in nft.chains(Some(&table)).unwrap() {
            chains.insert(chain.name, Vec::new());
        }
        for rule in nft.rules(Some(&table)).unwrap() {
            chains.get_mut(&rule.rule.chain).unwrap().push(rule.rule);
        }
        for set in nft.sets(&table).unwrap() {
            let mut elements = nft.elements(&table, &set).unwrap();
            elements.sort_by(|a, b| a.key.cmp(&b.key));
            sets.insert((family, set.name), elements);
        }
    }
    (chains, sets)
}

/// Every setting that makes other rules, on and off.
fn settings(seed: u64) -> Settings {
    let rate = Rate { n_packets: 10, per_seconds: 60, burst: 5 };
    if seed.is_multiple_of(2) {
        return Settings::default();
    }
    let net = Some("192.0.2.0/25".parse().unwrap());
    Settings {
        interface_prefixes: vec!["cali".to_owned(), "tap".to_owned()],
        endpoint_to_host: EndpointToHost::Return,
        deny_action: DenyAction::Reject,
        counters: Counters::All,
        denials: Some(Listeners { group: 7, n_bytes: 128, rate, rate_of_all: rate }),
        log_rate: Some(rate),
        failsafe_inbound: vec![Failsafe { protocol: 6, port: 22, net }, Failsafe::new(17, 68)],
        service_loops: ServiceLoops::Reject,
        nat_address: Some([192, 0, 2, 9].into()),
        nat_ports: Some((1024, 2048)),
        nat_interface: Some("eth+".to_owned()),
        nat_spares_hosts: true,
        wireguard_v4: Some(51_820),
        wireguard_v6: Some(51_821),
        external_nodes: vec!["198.51.100.0/24".parse().unwrap()],
        ..Settings::default()
    }
}

fn commit(nft: &mut Nft, change: &Change) {
    for step in &change.steps {
        nft.commit(&step.batch).unwrap();
    }
}

#[test]
fn changes_are_accepted_and_lead_to_what_is_installed_anew() {
    let (Some(changed), Some(anew)) = (world(), world()) else { return };
    let mut changed = Nft::in_netns(&changed.netns).unwrap();
    let mut anew = Nft::in_netns(&anew.netns).unwrap();
    let surroundings = Surroundings {
        pools: ["10.0.0.0/8".parse().unwrap(), "fd00::/64".parse().unwrap()].into(),
        nat_outgoing: ["10.0.0.0/9".parse().unwrap(), "10.128.0.0/9".parse().unwrap()].into(),
        service_networks: ["10.96.0.0/12".parse().unwrap()].into(),
        tunnels: Tunnels { ipip: true, vxlan_v4: true, vxlan_v6: true },
        ..random::surroundings()
    };
    for seed in 1000..1010 {
        let mut dice = Dice::new(seed);
        let mut intent = random::intent(&mut dice);
        let mut renderer = Renderer::new(settings(seed));
        let change = renderer.install(&intent, &surroundings);
        commit(&mut changed, &change);
        renderer.committed(change);
        for _ in 0..4 {
            let (after, dirty) = random::changed(&intent, &mut dice);
            let change = renderer.update(&after, &dirty, &surroundings);
            commit(&mut changed, &change);
            renderer.committed(change);
            intent = after;
        }
        commit(&mut anew, &renderer.install(&intent, &surroundings));
        assert_eq!(listed(&mut changed), listed(&mut anew), "seed {seed}");
    }
}

/// A workload with that many tiers, each of which asks for ten ports.
fn with_tiers(n_tiers: usize) -> Intent {
    let rule = |port: u16| {
        let mut rule = Rule::all(Action::Allow);
        rule.protocol = Some(Protocol::Number(6));
        rule.destination.ports.ranges.push((port, port));
        rule
    };
    let rules = || (0..10).map(rule).collect();
    let id = PolicyId {
        kind: PolicyKind::GlobalNetworkPolicy,
        namespace: String::new(),
        name: "ports".to_owned(),
    };
    let tier = |number: usize| TierInForce {
        name: format!("t{number}"),
        end: End::Pass,
        ingress: vec![id.clone()],
        egress: vec![id.clone()],
    };
    let workload = Workload {
        interface: "cali1".to_owned(),
        addresses: vec!["10.0.0.1/32".parse().unwrap(), "fd00::1/128".parse().unwrap()],
        tiers: (0..n_tiers).map(tier).collect(),
        profiles: vec!["open".to_owned()],
        ..Workload::default()
    };
    let directions = Arc::new(Directions { ingress: rules(), egress: rules() });
    Intent {
        workloads: [("w".to_owned(), workload)].into(),
        policies: [(id.clone(), directions.clone())].into(),
        profiles: [("open".to_owned(), directions)].into(),
        ..Intent::default()
    }
}

/// The kernel takes 16 levels, which is fewer than there may be tiers.
#[test]
fn any_number_of_tiers_is_carried_out() {
    let Some(world) = world() else { return };
    let mut nft = Nft::in_netns(&world.netns).unwrap();
    let renderer = Renderer::new(Settings::default());
    for n_tiers in (0..=30).chain([100]) {
        let change = renderer.install(&with_tiers(n_tiers), &Surroundings::default());
        assert_eq!(change.refused, []);
        commit(&mut nft, &change);
        let (_, sets) = listed(&mut nft);
        assert_eq!(sets[&(TableFamily::Inet, "to4".to_owned())].len(), 1, "it is open");
    }
}
