//! Chains of other programs, and what they lose of pods' packets.

use kernel::nft::expression::{Comparison, Ct, LookupResult, Meta, Rejection, ct_state};
use kernel::nft::{ChainKind, Expression, Key, Register, Rule, Source, Verdict};

use super::*;

fn base(name: &str, hook: Hook, drops_by_default: bool) -> Chain {
    let base = Base { drops_by_default, ..Base::new(ChainKind::Filter, hook, 0) };
    Chain::based(name, base)
}

fn filter() -> TableId {
    TableId::new(TableFamily::Ip, "filter")
}

fn world() -> World {
    let pods = ["cali853", "cali9f0"].iter().zip(1..).map(|(name, n)| Link::new(name, n));
    World {
        prefixes: vec!["cali".to_owned(), "eni".to_owned()],
        pods: pods.chain([Link::to_come("cali")]).collect(),
        uplinks: vec![Link::new("eth0", 7)],
        networks: vec!["10.244.0.0/16".parse().unwrap(), "fd00:10::/48".parse().unwrap()],
    }
}

/// What is lost in a table with these rules, in their order.
fn lost_in(table: &TableId, chains: &[Chain], rules: &[Rule], sets: &[(&str, Vec<Key>)]) -> Drops {
    let listed: Vec<ListedRule> = rules
        .iter()
        .zip(1..)
        .map(|(rule, handle)| ListedRule { table: table.clone(), handle, rule: rule.clone() })
        .collect();
    let mut members = |name: &str| {
        let found = sets.iter().find(|(known, _)| *known == name);
        found.map(|(_, keys)| keys.iter().cloned().map(Element::member).collect())
    };
    Seen { table, chains, rules: &listed, world: &world() }.drops(&mut members)
}

/// What a forward chain `guard` with these rules loses, in words.
fn lost(rules: &[Rule]) -> Option<String> {
    let chains = [base("guard", Hook::Forward, false), Chain::plain("s")];
    let drops = lost_in(&filter(), &chains, rules, &[]);
    drops.into_values().next().map(|it| it.what)
}

fn guard() -> Rule {
    Rule::new("guard")
}

fn named(rule: Rule, side: Meta, name: &[u8]) -> Rule {
    rule.when(Source::Meta(side), name)
}

fn in_state(rule: Rule, states: u32) -> Rule {
    rule.when_any_bit(Source::Ct(Ct::State), states)
}

/// A match of iptables for states of connections.
fn by_conntrack(rule: Rule, states: u16) -> Rule {
    let mut info = vec![0; 164];
    info[146..148].copy_from_slice(&1u16.to_ne_bytes());
    info[150..152].copy_from_slice(&states.to_ne_bytes());
    rule.with(Expression::Match { name: "conntrack".into(), info })
}

fn by_comment(rule: Rule) -> Rule {
    rule.with(Expression::Match { name: "comment".into(), info: vec![0; 256] })
}

#[test]
fn what_loses_packets_of_pods_is_named_and_the_rest_is_not() {
    let chains = [
        base("FORWARD", Hook::Forward, true),
        base("guard", Hook::Prerouting, false),
        base("fine", Hook::Forward, false),
        base("INPUT", Hook::Input, true),
    ];
    let drop = |chain: &str| Rule::new(chain).verdict(Verdict::Drop);
    let rules = [
        drop("guard"),
        named(Rule::new("fine"), Meta::InputName, b"eth9\0").verdict(Verdict::Drop),
        Rule::new("fine").verdict(Verdict::Accept),
        drop("INPUT"),
    ];
    let drops = lost_in(&filter(), &chains, &rules, &[]);
    let places: Vec<&str> = drops.keys().map(|(_, chain)| chain.as_str()).collect();
    assert_eq!(places, ["FORWARD", "guard"]);
}

#[test]
fn interfaces_of_pods_and_ways_out_are_not_narrow() {
    let one = Some("has a rule that drops (handle 1)".to_owned());
    let drop = |side, name: &[u8]| vec![named(guard(), side, name).verdict(Verdict::Drop)];
    for name in [&b"cali"[..], b"cali853\0", b"eth0\0", b"eth"] {
        assert_eq!(lost(&drop(Meta::InputName, name)), one, "{name:?}");
        assert_eq!(lost(&drop(Meta::OutputName, name)), one, "{name:?}");
    }
    for name in [&b"docker0\0"[..], b"cali000\0", b"eth1\0"] {
        assert_eq!(lost(&drop(Meta::InputName, name)), None, "{name:?}");
    }
    assert_eq!(lost(&drop(Meta::InputIndex, &7u32.to_ne_bytes())), one);
    assert_eq!(lost(&drop(Meta::InputIndex, &3u32.to_ne_bytes())), None);
    let reject =
        named(guard(), Meta::OutputName, b"eth0\0").with(Expression::Reject(Rejection::Icmp(1)));
    assert_eq!(lost(&[reject]), one);
    // From one interface that is not ours to any other: what containers of Docker do.
    let docker = named(guard(), Meta::InputName, b"docker0\0")
        .unless(Source::Meta(Meta::OutputName), b"docker0\0");
    assert_eq!(lost(&[docker.verdict(Verdict::Drop)]), None);
}

#[test]
fn states_of_connections_are_narrow_only_if_they_are_invalid() {
    let drop = |states| vec![in_state(guard(), states).verdict(Verdict::Drop)];
    assert!(lost(&drop(ct_state::NEW)).is_some());
    assert!(lost(&drop(ct_state::NEW | ct_state::INVALID)).is_some());
    assert_eq!(lost(&drop(ct_state::INVALID)), None);
    let state = |states| vec![by_conntrack(guard(), states).verdict(Verdict::Drop)];
    assert!(lost(&state(8)).is_some());
    assert_eq!(lost(&state(1)), None);
    // Every state is accepted before the end, one after the other.
    let open = [
        in_state(guard(), ct_state::ESTABLISHED | ct_state::RELATED).verdict(Verdict::Accept),
        in_state(guard(), ct_state::NEW).verdict(Verdict::Accept),
        guard().verdict(Verdict::Drop),
    ];
    assert_eq!(lost(&open), None);
    assert!(lost(&open[1..]).is_some());
}

#[test]
fn rules_behind_jumps_count_as_far_as_packets_of_pods_come_there() {
    let jump = |rule: Rule| rule.verdict(Verdict::Jump("s".into()));
    let drop = Rule::new("s").verdict(Verdict::Drop);
    let place = "has a rule that drops (handle 2 in chain s)";
    assert_eq!(lost(&[jump(guard()), drop.clone()]).as_deref(), Some(place));
    assert_eq!(
        lost(&[jump(in_state(guard(), ct_state::NEW)), drop.clone()]).as_deref(),
        Some(place)
    );
    assert_eq!(lost(&[jump(named(guard(), Meta::InputName, b"eth9\0")), drop.clone()]), None);
    // What the jump asks for and what the rule asks for exclude each other.
    let mine = named(guard(), Meta::InputName, b"cali853\0");
    let other = named(Rule::new("s"), Meta::InputName, b"cali9f0\0").verdict(Verdict::Drop);
    assert_eq!(lost(&[jump(mine), other]), None);
    // Whoever went elsewhere, or came back before, does not meet what comes next.
    let back = Rule::new("s").verdict(Verdict::Return);
    assert_eq!(lost(&[jump(guard()), back.clone(), drop.clone()]), None);
    let gone = named(guard(), Meta::InputName, b"cali").verdict(Verdict::Goto("s".into()));
    let late = named(guard(), Meta::InputName, b"cali").verdict(Verdict::Drop);
    assert_eq!(lost(&[gone, late, back]), None);
    // A circle ends.
    let circle = Rule::new("s").verdict(Verdict::Jump("s".into()));
    assert_eq!(lost(&[jump(guard()), circle]), None);
}

#[test]
fn matches_of_iptables_ask_nothing_if_they_are_comments_and_else_cannot_be_told() {
    assert!(lost(&[by_comment(guard()).verdict(Verdict::Drop)]).is_some());
    assert!(lost(&[by_comment(guard()).with(Expression::Target("REJECT".into()))]).is_some());
    let recent = Expression::Match { name: "recent".into(), info: Vec::new() };
    assert_eq!(lost(&[guard().with(recent).verdict(Verdict::Drop)]), None);
    assert_eq!(lost(&[guard().with(Expression::Target("LOG".into()))]), None);
}

#[test]
fn addresses_count_if_pods_have_them() {
    let to = |address: &[u8]| guard().when(Source::network(16, 4), address);
    let drop = |rule: Rule| vec![rule.verdict(Verdict::Drop)];
    assert_eq!(lost(&drop(to(&[9, 9, 9, 9]))), None);
    assert!(lost(&drop(to(&[10, 244, 1, 5]))).is_some());
    // The first byte only: 10.0.0.0/8.
    assert!(lost(&drop(guard().when(Source::network(12, 1), &[10]))).is_some());
    assert_eq!(lost(&drop(guard().when(Source::network(12, 1), &[192]))), None);
    // By a mask: 10.240.0.0/12, and 10.0.0.0/12.
    let masked = |network: [u8; 4]| {
        let register = Register::FIRST;
        let (mask, xor) = (vec![255, 240, 0, 0], vec![0; 4]);
        guard()
            .with(Expression::Load { source: Source::IPV4_SOURCE, register })
            .with(Expression::Bitwise { register, mask, xor })
            .with(Expression::Compare {
                register,
                operator: Comparison::Equal,
                value: network.to_vec(),
            })
    };
    assert!(lost(&drop(masked([10, 240, 0, 0]))).is_some());
    assert_eq!(lost(&drop(masked([10, 0, 0, 0]))), None);
    // Both ends in one question.
    let both = |to: u8| guard().when(Source::network(12, 8), &[10, 244, 0, 1, to, 244, 0, 2]);
    assert!(lost(&drop(both(10))).is_some());
    assert_eq!(lost(&drop(both(11))), None);
    // Both directions are accepted by the network of the pods.
    let accept = |side| guard().when(Source::network(side, 2), &[10, 244]).verdict(Verdict::Accept);
    let closed = guard().verdict(Verdict::Drop);
    assert_eq!(lost(&[accept(12), accept(16), closed.clone()]), None);
    assert!(lost(&[accept(12), closed]).is_some());
}

#[test]
fn members_of_sets_decide_and_sets_that_cannot_be_read_do_not() {
    let chains = [base("guard", Hook::Forward, false)];
    let in_set = |is_inverted| {
        let register = Register::FIRST;
        let result = LookupResult::Member { is_inverted };
        guard()
            .with(Expression::Load { source: Source::IPV4_DESTINATION, register })
            .with(Expression::Lookup { register, set: "bad".into(), result })
            .verdict(Verdict::Drop)
    };
    let of = |rule: Rule, keys: Vec<Key>| {
        !lost_in(&filter(), &chains, &[rule], &[("bad", keys)]).is_empty()
    };
    let key = |text: &str| Key::prefix(text.parse().unwrap());
    assert!(!of(in_set(false), vec![key("10.96.0.10/32"), key("203.0.113.0/24")]));
    assert!(of(in_set(false), vec![key("10.96.0.10/32"), key("10.244.3.0/24")]));
    assert!(of(in_set(true), vec![key("10.96.0.10/32")]));
    assert!(lost_in(&filter(), &chains, &[in_set(false)], &[]).is_empty());
}

#[test]
fn what_asks_for_marks_rates_or_odd_packets_is_no_loss() {
    let drop = |rule: Rule| vec![rule.verdict(Verdict::Drop)];
    assert_eq!(lost(&drop(guard().when_any_bit(Source::Meta(Meta::Mark), 0x8000))), None);
    let limit = Expression::Limit { rate: 5, per_seconds: 1, burst: 5, is_inverted: true };
    assert_eq!(lost(&drop(guard().with(limit))), None);
    assert_eq!(lost(&drop(guard().when(Source::transport(13, 1), &[3]))), None);
    assert_eq!(lost(&drop(guard().when(Source::ICMP_TYPE, &[5]))), None);
    assert!(lost(&drop(guard().when(Source::ICMP_TYPE, &[8]))).is_some());
    assert!(lost(&drop(guard().when(Source::DESTINATION_PORT, &[0, 25]))).is_some());
}

#[test]
fn chains_on_devices_count_on_those_that_pods_use() {
    let table = TableId::new(TableFamily::Netdev, "edge");
    let of = |hook, device: &str| {
        let base =
            Base { devices: vec![device.to_owned()], ..Base::new(ChainKind::Filter, hook, 0) };
        let rules = [Rule::new("guard").verdict(Verdict::Drop)];
        let drops = lost_in(&table, &[Chain::based("guard", base)], &rules, &[]);
        drops.into_values().next().map(|it| it.fix)
    };
    for device in ["cali853", "eth0"] {
        for hook in [Hook::Ingress, Hook::Egress] {
            let fix = of(hook, device).unwrap();
            assert!(
                fix.starts_with(
                    "nft insert rule netdev edge guard ip saddr 10.244.0.0/16 accept; "
                ),
                "{fix}"
            );
        }
    }
    assert_eq!(of(Hook::Ingress, "docker0"), None);
}

#[test]
fn a_family_without_pods_loses_nothing() {
    let table = TableId::new(TableFamily::Ip6, "filter");
    let chains = [base("FORWARD", Hook::Forward, true)];
    let of = |world: &World| {
        Seen { table: &table, chains: &chains, rules: &[], world }.drops(&mut |_| None).len()
    };
    let mut world = world();
    assert_eq!(of(&world), 1);
    world.networks.pop();
    assert_eq!(of(&world), 0);
}

#[test]
fn a_chain_that_accepts_sandboxes_first_drops_nothing_of_theirs() {
    let chains = [base("FORWARD", Hook::Forward, true), Chain::plain("DOCKER-USER")];
    let jump = Rule::new("FORWARD").counted().verdict(Verdict::Jump("DOCKER-USER".into()));
    let accept = |side| named(Rule::new("DOCKER-USER"), side, b"cali").verdict(Verdict::Accept);
    let (from, to) = (accept(Meta::InputName), accept(Meta::OutputName));
    let of = |rules: &[Rule]| lost_in(&filter(), &chains, rules, &[]);
    assert_eq!(of(&[jump.clone(), from.clone(), to.clone()]), Drops::new());
    // One side only is not enough, and nobody is asked who is not on the way.
    for rules in [vec![jump, from.clone()], vec![from, to]] {
        let drops = of(&rules);
        let loss = &drops[&("ip filter".to_owned(), "FORWARD".to_owned())];
        assert!(loss.fix.starts_with("iptables -I DOCKER-USER -i cali+"), "{loss:?}");
        assert!(loss.fix.ends_with("iptables -I DOCKER-USER -o eni+ -j ACCEPT"), "{loss:?}");
    }
}

#[test]
fn what_comes_before_a_rule_that_drops_counts_and_what_comes_after_does_not() {
    let accept = |side| named(guard(), side, b"cali").verdict(Verdict::Accept);
    let (from, to) = (accept(Meta::InputName), accept(Meta::OutputName));
    let drop = guard().verdict(Verdict::Drop);
    assert_eq!(lost(&[from.clone(), to.clone(), drop.clone()]), None);
    let table = TableId::new(TableFamily::Inet, "mine");
    let chains = [base("guard", Hook::Forward, false)];
    let drops = lost_in(&table, &chains, &[drop, from, to], &[]);
    let loss = &drops[&("inet mine".to_owned(), "guard".to_owned())];
    assert_eq!(loss.what, "has a rule that drops (handle 1)");
    assert!(loss.fix.starts_with("nft insert rule inet mine guard iifname"), "{loss:?}");
}
