//! Rulesets that are made from policies.

#[expect(dead_code, reason = "the tests of the renderer need more of it")]
#[path = "../../../../core/policy/src/render/tests/random.rs"]
mod random;

use std::collections::BTreeMap;

use kernel::nft::{Element, Nft, Rule, TableFamily, TableId};
use policy::render::{
    Counters, DenyAction, EndpointToHost, Failsafe, Listeners, Rate, Renderer, ServiceLoops,
    Settings, Surroundings,
};
use random::Dice;

use crate::world::world;

/// What stands in our tables, in an order of its own.
type Listed = (BTreeMap<String, Vec<Rule>>, BTreeMap<(TableFamily, String), Vec<Element>>);

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
        denials: Some(Listeners { group: 7, n_bytes: 128, rate }),
        log_rate: Some(rate),
        failsafe_inbound: vec![Failsafe { protocol: 6, port: 22, net }, Failsafe::new(17, 68)],
        service_loops: ServiceLoops::Reject,
        nat_address: Some([192, 0, 2, 9].into()),
        nat_ports: Some((1024, 2048)),
        nat_interface: Some("eth+".to_owned()),
        nat_spares_hosts: true,
        ..Settings::default()
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
        ..random::surroundings()
    };
    for seed in 1000..1010 {
        let mut dice = Dice::new(seed);
        let mut intent = random::intent(&mut dice);
        let mut renderer = Renderer::new(settings(seed));
        let change = renderer.install(&intent, &surroundings);
        changed.commit(&change.batch).unwrap();
        renderer.committed(change);
        for _ in 0..4 {
            let (after, dirty) = random::changed(&intent, &mut dice);
            let change = renderer.update(&after, &dirty, &surroundings);
            changed.commit(&change.batch).unwrap();
            renderer.committed(change);
            intent = after;
        }
        anew.commit(&renderer.install(&intent, &surroundings).batch).unwrap();
        assert_eq!(listed(&mut changed), listed(&mut anew), "seed {seed}");
    }
}
