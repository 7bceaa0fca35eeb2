//! nf_tables: what is written is what `nft` shows and what is read back; transactions; traffic.

use std::net::Ipv4Addr;
use std::time::Duration;

use kernel::Errno;
use kernel::Error;
use kernel::nft::expression::{
    Comparison, Ct, FibResult, LookupResult, Meta, NatKind, Rejection, Target, ct_state, fib_flags,
    nat_flags,
};
use kernel::nft::{
    Base, Batch, Chain, ChainKind, DataType, Element, Expression, Hook, Key, Nft, Register, Rule,
    RulesetEvent, RulesetMonitor, Set, Source, Subject, Table, TableFamily, TableId, Verdict,
    merged,
};

use crate::world::{World, eventually, net, world};

fn inet() -> TableId {
    TableId::new(TableFamily::Inet, "margay")
}

/// A world with an empty table of ours.
fn with_table() -> Option<(World, Nft)> {
    let world = world()?;
    let mut nft = Nft::in_netns(&world.netns).unwrap();
    let mut batch = Batch::new();
    batch.add_table(&Table::new(inet()));
    nft.commit(&batch).unwrap();
    Some((world, nft))
}

fn link_name(name: &str) -> Vec<u8> {
    let Key::One(bytes) = Key::link_name(name) else { unreachable!() };
    bytes
}

fn lookup(set: &str, result: LookupResult) -> Expression {
    Expression::Lookup { register: Register::FIRST, set: set.into(), result }
}

fn constant(value: &[u8]) -> Expression {
    Expression::Constant { register: Register::FIRST, value: value.to_vec() }
}

/// Rules of a filter chain, each with the line that `nft` shows.
fn filter_rules() -> Vec<(Rule, &'static str)> {
    let rule = || Rule::new("forward");
    let tcp = || rule().when(Source::Meta(Meta::TransportProtocol), &[6]);
    let load = |source| Expression::Load { source, register: Register::FIRST };
    let ports = Expression::Range {
        register: Register::FIRST,
        is_inverted: true,
        first: vec![0, 80],
        last: vec![0, 90],
    };
    let established = ct_state::ESTABLISHED | ct_state::RELATED;
    let reverse_path =
        Source::Fib { flags: fib_flags::SOURCE | fib_flags::INPUT, result: FibResult::OutputIndex };
    vec![
        (
            rule().when_any_bit(Source::Ct(Ct::State), established).verdict(Verdict::Accept),
            "ct state established,related accept",
        ),
        (
            rule().when(Source::Ct(Ct::Direction), &[1]).verdict(Verdict::Return),
            "ct direction reply return",
        ),
        (rule().dispatch(Source::Meta(Meta::InputName), "dispatch"), "iifname vmap @dispatch"),
        (
            rule()
                .unless(Source::Meta(Meta::OutputName), &link_name("eth0"))
                .verdict(Verdict::Drop),
            "oifname != \"eth0\" drop",
        ),
        (
            rule()
                .when(Source::Meta(Meta::Family), &[2])
                .when_in(Source::IPV4_SOURCE, "sources")
                .counted()
                .comment("rule 17")
                .verdict(Verdict::Goto("target".into())),
            "ip saddr @sources counter packets 0 bytes 0 goto target comment \"rule 17\"",
        ),
        (
            rule()
                .when(Source::Meta(Meta::Family), &[10])
                .when(Source::IPV6_DESTINATION, &[0xfd; 16])
                .verdict(Verdict::Jump("target".into())),
            "ip6 daddr fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd jump target",
        ),
        (
            rule()
                .when(Source::Meta(Meta::Family), &[2])
                .with(load(Source::IPV4_SOURCE))
                .with(lookup("sources", LookupResult::Member { is_inverted: true })),
            "ip saddr != @sources",
        ),
        (tcp().with(load(Source::DESTINATION_PORT)).with(ports), "tcp dport != 80-90"),
        (
            tcp().with(load(Source::SOURCE_PORT)).with(Expression::Compare {
                register: Register::FIRST,
                operator: Comparison::GreaterOrEqual,
                value: vec![4, 0],
            }),
            "tcp sport >= 1024",
        ),
        (
            tcp().with(Expression::Reject(Rejection::TcpReset)),
            "meta l4proto tcp reject with tcp reset",
        ),
        (rule().with(Expression::Reject(Rejection::Icmp(3))), "reject with icmpx admin-prohibited"),
        (
            rule().with(Expression::Log { group: Some(7), prefix: "DROP ".into(), snap_len: 80 }),
            "log prefix \"DROP \" group 7 snaplen 80",
        ),
        (
            rule().with(Expression::Limit {
                rate: 10,
                per_seconds: 1,
                burst: 5,
                is_inverted: true,
            }),
            "limit rate over 10/second",
        ),
        (
            rule()
                .when(Source::Meta(Meta::Family), &[2])
                .with(load(Source::IPV4_SOURCE))
                .with(Expression::Constant {
                    register: Register::slot(1).unwrap(),
                    value: 7u32.to_ne_bytes().to_vec(),
                })
                .with(Expression::Update {
                    register: Register::FIRST,
                    set: "rates".into(),
                    step: Box::new(Expression::Limit {
                        rate: 10,
                        per_seconds: 1,
                        burst: 20,
                        is_inverted: true,
                    }),
                })
                .counted()
                .verdict(Verdict::Drop),
            "update @rates { ip saddr . 0x00000007 limit rate over 10/second burst 20 packets } \
             counter packets 0 bytes 0 drop",
        ),
        (rule().with(Expression::NamedCounter("denied".into())), "counter name \"denied\""),
        (
            rule().with(load(reverse_path)).with(Expression::Compare {
                register: Register::FIRST,
                operator: Comparison::Equal,
                value: vec![0; 4],
            }),
            "fib saddr . iif oif 0",
        ),
        (
            rule()
                .with(load(Source::Meta(Meta::Mark)))
                .with(Expression::Bitwise {
                    register: Register::FIRST,
                    mask: 0xffff_0000u32.to_ne_bytes().to_vec(),
                    xor: 0x1_0000u32.to_ne_bytes().to_vec(),
                })
                .with(Expression::Store {
                    target: Target::Meta(Meta::Mark),
                    register: Register::FIRST,
                }),
            "meta mark set meta mark & 0xffff0000 ^ 0x00010000",
        ),
        (
            rule().with(load(Source::Meta(Meta::Mark))).with(Expression::Store {
                target: Target::Ct(Ct::Mark),
                register: Register::FIRST,
            }),
            "ct mark set meta mark",
        ),
    ]
}

/// Rules of translating and raw chains.
fn other_rules() -> Vec<(Rule, &'static str)> {
    let tcp = |chain| Rule::new(chain).when(Source::Meta(Meta::TransportProtocol), &[6]);
    let port = |slot: u8, value: u16| Expression::Constant {
        register: Register::slot(slot).unwrap(),
        value: value.to_be_bytes().to_vec(),
    };
    let v4 = |chain| Rule::new(chain).when(Source::Meta(Meta::Family), &[2]);
    let nat = |kind, port| Expression::Nat {
        kind,
        is_ipv6: false,
        address: Some(Register::FIRST),
        port,
        last_port: None,
        flags: 0,
    };
    vec![
        (
            Rule::new("after")
                .with(Expression::Masquerade { flags: nat_flags::RANDOM_FULLY, ports: None }),
            "masquerade fully-random",
        ),
        (
            tcp("after").with(port(0, 1024)).with(port(1, 2048)).with(Expression::Masquerade {
                flags: 0,
                ports: Register::slot(0).zip(Register::slot(1)),
            }),
            "meta l4proto tcp masquerade to :1024-2048",
        ),
        (
            v4("after").with(constant(&[192, 0, 2, 1])).with(nat(NatKind::Source, None)),
            "snat ip to 192.0.2.1",
        ),
        (
            tcp("before")
                .with(constant(&[10, 0, 0, 9]))
                .with(port(4, 8080))
                .with(nat(NatKind::Destination, Register::slot(4))),
            "dnat ip to 10.0.0.9:8080",
        ),
        (
            v4("before")
                .with(Expression::Load {
                    source: Source::IPV4_DESTINATION,
                    register: Register::FIRST,
                })
                .with(lookup("services", LookupResult::Value(Register::FIRST)))
                .with(nat(NatKind::Destination, None)),
            "dnat ip to ip daddr map @services",
        ),
        (Rule::new("raw").with(Expression::NoTrack), "notrack"),
    ]
}

fn chains() -> Vec<Chain> {
    let drops = Base { drops_by_default: true, ..Base::new(ChainKind::Filter, Hook::Forward, -5) };
    vec![
        Chain::plain("target"),
        Chain::based("forward", drops),
        Chain::based("after", Base::new(ChainKind::Nat, Hook::Postrouting, 100)),
        Chain::based("before", Base::new(ChainKind::Nat, Hook::Prerouting, -100)),
        Chain::based("raw", Base::new(ChainKind::Filter, Hook::Prerouting, -300)),
    ]
}

#[test]
fn rules_are_what_nft_shows_and_what_is_read_back() {
    let Some((world, mut nft)) = with_table() else { return };
    let table = inet();
    let dispatch = Set::new("dispatch", &[DataType::LinkName]).to_verdicts();
    let mut batch = Batch::new();
    for chain in chains() {
        batch.add_chain(&table, &chain);
    }
    batch.add_set(&table, &Set::new("sources", &[DataType::Ipv4]));
    batch.add_set(&table, &Set::new("services", &[DataType::Ipv4]).to_values(DataType::Ipv4));
    batch.add_set(&table, &dispatch);
    let rates = Set::new("rates", &[DataType::Ipv4, DataType::Mark]);
    batch.add_set(&table, &rates.dynamic(Duration::from_secs(10), 8));
    batch.add_counter(&table, "denied");
    let to_target = Verdict::Jump("target".into());
    batch.add_elements(&table, &dispatch, &[Element::verdict(Key::link_name("cali1"), to_target)]);
    let rules: Vec<_> = filter_rules().into_iter().chain(other_rules()).collect();
    for (rule, _) in &rules {
        batch.add_rule(&table, rule);
    }
    nft.commit(&batch).unwrap();

    let shown = world.run("nft", "list ruleset");
    for (_, line) in &rules {
        assert!(shown.contains(line), "{line} in\n{shown}");
    }
    assert!(shown.contains("elements = { \"cali1\" : jump target }"), "{shown}");
    assert!(
        shown.contains("type filter hook forward priority filter - 5; policy drop;"),
        "{shown}"
    );
    let listed = nft.rules(Some(&table)).unwrap();
    for chain in chains() {
        let of = |rule: &Rule| rule.chain == chain.name;
        let written: Vec<&Rule> = rules.iter().map(|(rule, _)| rule).filter(|r| of(r)).collect();
        let read: Vec<&Rule> = listed.iter().map(|one| &one.rule).filter(|r| of(r)).collect();
        assert_eq!(read, written);
        assert!(nft.rules_of(&table, &chain.name).unwrap().iter().eq(written));
        assert!(nft.chains(Some(&table)).unwrap().contains(&(table.clone(), chain)));
    }
    assert_eq!(nft.counters(&table).unwrap()[0].name, "denied");
    assert_eq!(nft.tables().unwrap(), [Table::new(table)]);
}

#[test]
fn a_rule_is_replaced_and_deleted_by_its_handle() {
    let Some((world, mut nft)) = with_table() else { return };
    let table = inet();
    let mut batch = Batch::new();
    batch.add_chain(&table, &Chain::plain("c"));
    batch.add_rule(&table, &Rule::new("c").comment("one").verdict(Verdict::Accept));
    batch.add_rule(&table, &Rule::new("c").comment("two").verdict(Verdict::Accept));
    nft.commit(&batch).unwrap();
    let listed = nft.rules(Some(&table)).unwrap();
    let mut batch = Batch::new();
    let drop = Rule::new("c").comment("new").verdict(Verdict::Drop);
    batch.replace_rule(&table, listed[0].handle, &drop);
    batch.delete_rule(&table, "c", listed[1].handle);
    nft.commit(&batch).unwrap();
    let left = nft.rules(Some(&table)).unwrap();
    assert_eq!(left.iter().map(|one| &one.rule).collect::<Vec<_>>(), [&drop]);
    let mut batch = Batch::new();
    batch.flush_chain(&table, "c");
    batch.delete_chain(&table, "c");
    nft.commit(&batch).unwrap();
    assert!(!world.run("nft", "list ruleset").contains("chain"));
}

/// Sets of every sort with elements, and what `nft` shows of them.
fn sets() -> Vec<(Set, Vec<Element>, &'static str)> {
    let prefixes = |all: &[&str]| -> Vec<Element> {
        merged(all.iter().map(|one| net(one))).into_iter().map(Element::member).collect()
    };
    let endpoint = |prefix: &str, protocol: u8, first: u16, last: u16| {
        Element::member(Key::concatenation(&[
            Key::prefix(net(prefix)),
            Key::One(vec![protocol]),
            Key::Range(first.to_be_bytes().to_vec(), last.to_be_bytes().to_vec()),
        ]))
    };
    let named = Element {
        comment: Some("why".into()),
        ..Element::member(Key::address("10.0.0.1".parse().unwrap()))
    };
    let fading = Element {
        timeout: Some(Duration::from_secs(3600)),
        ..Element::member(Key::address("10.0.0.2".parse().unwrap()))
    };
    let mut with_timeouts = Set::new("fading", &[DataType::Ipv4]);
    with_timeouts.has_timeouts = true;
    let mut small = Set::new("small", &[DataType::Port]);
    small.n_elements_max = Some(4);
    small.comment = Some("ports of a service".into());
    let fields = [DataType::Ipv4, DataType::Protocol, DataType::Port];
    let pair = Key::concatenation(&[Key::One(vec![10, 0, 0, 3]), Key::One(vec![0, 53])]);
    let value = kernel::nft::ElementValue::Bytes(vec![10, 0, 0, 9]);
    let mapped = Element { value: Some(value), ..Element::member(Key::One(vec![10, 96, 0, 1])) };
    vec![
        (Set::new("plain", &[DataType::Ipv4]), vec![named], "10.0.0.1 comment \"why\""),
        (with_timeouts, vec![fading], "10.0.0.2 timeout 1h"),
        (small, vec![Element::member(Key::One(vec![0, 80]))], "elements = { 80 }"),
        (
            Set::new("nets", &[DataType::Ipv4]).with_ranges(),
            prefixes(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.1/32", "255.255.255.255/32"]),
            "10.0.0.0/8, 192.0.2.1",
        ),
        (
            Set::new("all4", &[DataType::Ipv4]).with_ranges(),
            prefixes(&["0.0.0.0/0", "10.0.0.0/8"]),
            "elements = { 0.0.0.0/0 }",
        ),
        (
            Set::new("nets6", &[DataType::Ipv6]).with_ranges(),
            prefixes(&["fd00::/8", "fd00::/64", "ffff::/16"]),
            "fd00::/8",
        ),
        (
            Set::new("all6", &[DataType::Ipv6]).with_ranges(),
            prefixes(&["::/0"]),
            "elements = { ::/0 }",
        ),
        (
            Set::new("pair", &[DataType::Ipv4, DataType::Port]),
            vec![Element::member(pair)],
            "10.0.0.3 . 53",
        ),
        (
            Set::new("endpoints", &fields).with_ranges(),
            vec![endpoint("10.2.0.0/16", 6, 80, 90), endpoint("10.3.0.1/32", 17, 53, 53)],
            "10.2.0.0/16 . tcp . 80-90",
        ),
        (
            Set::new("services", &[DataType::Ipv4]).to_values(DataType::Ipv4),
            vec![mapped],
            "10.96.0.1 : 10.0.0.9",
        ),
        (
            Set::new("verdicts", &[DataType::LinkName]).to_verdicts(),
            vec![
                Element::verdict(Key::link_name("cali1"), Verdict::Goto("target".into())),
                Element::verdict(Key::Rest, Verdict::Drop),
            ],
            "\"cali1\" : goto target",
        ),
        (
            Set::new("marks", &[DataType::Mark]),
            vec![Element::member(Key::One(7u32.to_ne_bytes().to_vec()))],
            "0x00000007",
        ),
    ]
}

/// The same elements in an order of their own.
fn sorted(mut elements: Vec<Element>) -> Vec<Element> {
    elements.sort_by(|a, b| a.key.cmp(&b.key));
    elements
}

#[test]
fn sets_are_what_nft_shows_and_what_is_read_back() {
    let Some((world, mut nft)) = with_table() else { return };
    let table = inet();
    let mut batch = Batch::new();
    batch.add_chain(&table, &Chain::plain("target"));
    for (set, elements, _) in sets() {
        batch.add_set(&table, &set);
        batch.add_elements(&table, &set, &elements);
    }
    nft.commit(&batch).unwrap();
    let shown = world.run("nft", "list ruleset");
    let listed = nft.sets(&table).unwrap();
    for (set, elements, line) in sets() {
        assert!(shown.contains(line), "{line} in\n{shown}");
        assert!(listed.contains(&set), "{set:?} in {listed:#?}");
        let read = nft.elements(&table, &set).unwrap();
        assert_eq!(sorted(read.clone()), sorted(elements.clone()), "{}", set.name);
        let mut batch = Batch::new();
        batch.delete_elements(&table, &set, &elements);
        nft.commit(&batch).unwrap();
        assert_eq!(nft.elements(&table, &set).unwrap(), []);
        // What was read can be written.
        let mut batch = Batch::new();
        batch.create_elements(&table, &set, &read);
        nft.commit(&batch).unwrap();
        let mut batch = Batch::new();
        batch.flush_set(&table, &set.name);
        batch.delete_set(&table, &set.name);
        nft.commit(&batch).unwrap();
    }
    assert_eq!(nft.sets(&table).unwrap(), []);
}

#[test]
fn ten_thousand_elements_are_one_transaction() {
    let Some((world, mut nft)) = with_table() else { return };
    let table = inet();
    let address = |n: u32| std::net::IpAddr::from(Ipv4Addr::from(0x0a00_0000 + n * 512));
    let prefix = |n| Key::prefix(ipnet::IpNet::new(address(n), 24).unwrap());
    let hash = Set::new("hash", &[DataType::Ipv4]);
    let ranges = Set::new("ranges", &[DataType::Ipv4]).with_ranges();
    let concatenation = Set::new("both", &[DataType::Ipv4, DataType::Port]).with_ranges();
    let port = || Key::One(vec![0, 80]);
    let all: Vec<(&Set, Vec<Element>)> = vec![
        (&hash, (0..10_000).map(|n| Element::member(Key::address(address(n)))).collect()),
        (&ranges, (0..10_000).map(|n| Element::member(prefix(n))).collect()),
        (
            &concatenation,
            (0..10_000)
                .map(|n| Element::member(Key::concatenation(&[prefix(n), port()])))
                .collect(),
        ),
    ];
    let mut batch = Batch::new();
    for (set, elements) in &all {
        batch.add_set(&table, set);
        batch.add_elements(&table, set, elements);
    }
    nft.commit(&batch).unwrap();
    for (set, elements) in all {
        assert_eq!(sorted(nft.elements(&table, set).unwrap()), sorted(elements), "{}", set.name);
    }
    let shown = world.run("nft", "list set inet margay hash");
    assert_eq!(shown.matches(',').count(), 9_999);
}

#[test]
fn a_refused_transaction_changes_nothing_and_names_each_fault() {
    let Some((world, mut nft)) = with_table() else { return };
    let table = inet();
    let before = world.run("nft", "list ruleset");
    let mut batch = Batch::new();
    batch.add_chain(&table, &Chain::plain("good"));
    let lost = Verdict::Jump("nowhere".into());
    batch.add_rule(&table, &Rule::new("good").comment("rule 5").verdict(lost));
    batch.delete_set(&table, "missing");
    let error = nft.commit(&batch).unwrap_err();
    let Error::Rejected(failures) = &error else { panic!("{error}") };
    let attempts: Vec<&str> = failures.iter().map(|failure| failure.attempt.as_str()).collect();
    assert_eq!(
        attempts,
        [
            "add rule \"rule 5\" in chain good of table inet margay",
            "delete set missing of table inet margay",
        ]
    );
    assert!(error.is_not_found(), "{error}");
    assert_eq!(world.run("nft", "list ruleset"), before);
    assert!(matches!(
        {
            let mut batch = Batch::new();
            batch.delete_table(&TableId::new(TableFamily::Inet, "other"));
            nft.commit(&batch)
        },
        Err(Error::Rejected(_))
    ));
}

#[test]
fn a_foreign_writer_in_between_is_noticed() {
    let Some((world, mut nft)) = with_table() else { return };
    let table = inet();
    let generation = nft.generation().unwrap();
    world.run("nft", "add table ip foreign");
    let mut batch = Batch::new();
    batch.add_chain(&table, &Chain::plain("c"));
    batch.if_generation(generation);
    let error = nft.commit(&batch).unwrap_err();
    assert!(matches!(error, Error::Outdated { .. }), "{error}");
    assert_eq!(error.remedy(), kernel::Remedy::Resync);
    assert_eq!(nft.chains(Some(&table)).unwrap(), []);
    batch.if_generation(nft.generation().unwrap());
    nft.commit(&batch).unwrap();
    assert_eq!(nft.chains(Some(&table)).unwrap().len(), 1);
}

#[test]
fn a_flush_by_somebody_else_is_an_event_that_names_him() {
    let Some((world, mut nft)) = with_table() else { return };
    let mut monitor = RulesetMonitor::open(Some(&world.netns)).unwrap();
    world.run("nft", "flush ruleset");
    let mut seen = Vec::new();
    while let Some(event) = monitor.next(Duration::ZERO).unwrap() {
        seen.push(event);
    }
    let gone = RulesetEvent::Changed {
        table: inet(),
        subject: Subject::Table,
        name: String::new(),
        is_deletion: true,
    };
    assert!(seen.contains(&gone), "{seen:?}");
    let generation = nft.generation().unwrap();
    let is_commit = |event: &RulesetEvent| {
        matches!(event, RulesetEvent::Committed {
        generation: found, program, ..
    } if *found == generation && program == "nft")
    };
    assert!(seen.iter().any(is_commit), "{seen:?}");
    assert_eq!(nft.tables().unwrap(), []);
}

#[test]
fn an_owned_table_outlives_flushes_and_its_owner() {
    let Some(world) = world() else { return };
    let mut owner = Nft::in_netns(&world.netns).unwrap();
    let table = Table { is_owned: true, is_persistent: true, ..Table::new(inet()) };
    let mut batch = Batch::new();
    batch.add_table(&table);
    batch.add_chain(&table.id, &Chain::plain("c"));
    match owner.commit(&batch) {
        Err(error) if error.errno() == Some(Errno::OPNOTSUPP) => {
            eprintln!("skipped: this kernel has no persistent tables: {error}");
            return;
        }
        committed => committed.unwrap(),
    }
    world.run("nft", "flush ruleset");
    assert_eq!(owner.chains(Some(&table.id)).unwrap().len(), 1);
    let mut other = Nft::in_netns(&world.netns).unwrap();
    let mut change = Batch::new();
    change.add_chain(&table.id, &Chain::plain("d"));
    assert_eq!(other.commit(&change).unwrap_err().errno(), Some(Errno::PERM));
    drop(owner);
    // A child of another test has a copy of the socket between its fork and its exec.
    let free = Table { is_owned: false, ..table.clone() };
    assert!(eventually(|| other.tables().unwrap() == [free.clone()]), "{:?}", other.tables());
    // Whoever adds it again, flags included, is the next owner.
    let mut adopt = Batch::new();
    adopt.add_table(&table);
    adopt.add_chain(&table.id, &Chain::plain("d"));
    other.commit(&adopt).unwrap();
    assert_eq!(other.chains(Some(&table.id)).unwrap().len(), 2);
}

#[test]
fn a_list_taken_while_rules_change_is_whole() {
    let Some((world, mut nft)) = with_table() else { return };
    let table = inet();
    let mut batch = Batch::new();
    batch.add_chain(&table, &Chain::plain("c"));
    for _ in 0..2_000 {
        batch.add_rule(&table, &Rule::new("c").counted().verdict(Verdict::Accept));
    }
    nft.commit(&batch).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = Nft::in_netns(&world.netns).unwrap();
            let foreign = Table::new(TableId::new(TableFamily::Ip, "foreign"));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut batch = Batch::new();
                batch.add_table(&foreign);
                batch.delete_table(&foreign.id);
                other.commit(&batch).unwrap();
            }
        });
        for _ in 0..20 {
            match nft.rules(Some(&table)) {
                Ok(found) => assert_eq!(found.len(), 2_000),
                Err(error) => assert_eq!(error.remedy(), kernel::Remedy::Retry, "{error}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(nft.rules(Some(&table)).unwrap().len(), 2_000);
}
