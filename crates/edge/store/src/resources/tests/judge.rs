//! What was judged quickly is what was judged closely.

use super::*;
use crate::resources::read::{Judge, stored};

const KINDS: [Kind; 4] = [
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
];

/// Good ones, bad ones, and some that are good in one direction, or in one kind, only.
const RULES: &[&str] = &[
    r#"{"action":"Allow","source":{},"destination":{}}"#,
    r#"{"action":"Allow","protocol":"TCP","source":{},"destination":{"ports":[80,"8080:8090"]}}"#,
    r#"{"action":"Allow","protocol":"TCP","source":{},"destination":{"ports":[80,"9:8"]}}"#,
    r#"{"action":"Allow","source":{},"destination":{"ports":[80]}}"#,
    r#"{"action":"Deny","source":{"nets":["10.0.0.0/8"]},"destination":{"nets":["fd00::/8"]}}"#,
    r#"{"action":"Deny","source":{"nets":["10.0.0.1/8"]},"destination":{}}"#,
    r#"{"action":"Deny","source":{"selector":"a == 'b'"},"destination":{"selector":"a =="}}"#,
    r#"{"action":"allow","source":{},"destination":{}}"#,
    r#"{"action":"Allow","source":{"services":{"name":"s"}},"destination":{}}"#,
    r#"{"action":"Allow","source":{},"destination":{"services":{"name":"s"}}}"#,
    r#"{"action":"Allow","source":{},"destination":{"services":{"name":"s","namespace":"n"}}}"#,
    r#"{"action":"Allow","source":{},"destination":{},"http":{"methods":["GET"]}}"#,
    r#"{"action":"Allow","protocol":"ICMP","source":{},"destination":{},"icmp":{"code":1}}"#,
    r#"{"action":"Allow","source":{},"destination":{},"later":1}"#,
    r#"{"destination":{},"source":{},"action":"Allow"}"#,
    r#"{"action":"Allow","source":{"selector":"global()"},"destination":{}}"#,
    r#"{"action":"Allow","action":"Foo","source":{},"destination":{}}"#,
    "null",
    "{}",
    "[]",
    "7",
];

const SPECS: &[&str] = &[
    r#""tier":"default","order":1,"#,
    r#""order":1e3,"selector":"all()","#,
    r#""stagedAction":"Delete","#,
    r#""selector":"a ==","#,
    r#""preDNAT":true,"applyOnForward":true,"#,
    r#""ordr":1,"#,
];

fn entry(kind: Kind, name: &str, spec: &str, ingress: &[&str], egress: &[&str]) -> crate::KeyValue {
    let namespace = if kind.is_namespaced() { "ns" } else { "" };
    let name = Name::namespaced(kind, namespace, name);
    let listed = |name: &str, rules: &[&str]| match rules {
        [] => String::new(),
        rules => format!(r#""{name}":[{}],"#, rules.join(",")),
    };
    let value = format!(
        r#"{{"kind":"{kind}","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{}"}},"spec":{{{spec}{}{}"types":["Ingress"]}}}}"#,
        name.name,
        listed("ingress", ingress),
        listed("egress", egress),
    );
    let value = value.into_bytes();
    crate::KeyValue {
        key: name.key(),
        value,
        create_revision: 1,
        mod_revision: 7,
        version: 1,
        lease: 0,
    }
}

/// Every pair of rules, twice over: the second time all that is good is familiar.
#[test]
fn every_pair_of_rules_is_judged_alike() {
    let mut n_quick = 0;
    for kind in KINDS {
        let mut judge = Judge::new(kind, None);
        let mut brief = Judge::new(kind, Some(&["order"]));
        for round in 0..2 {
            let pairs = (0..RULES.len()).flat_map(|n| (0..RULES.len()).map(move |m| (n, m)));
            for (n, m) in pairs {
                let both = [RULES[n], RULES[m]];
                let (ingress, egress) = match n % 3 {
                    0 => (&both[..], &[][..]),
                    1 => (&[][..], &both[..]),
                    _ => (&both[..1], &both[1..]),
                };
                let spec = SPECS[(n / 3 + m) % SPECS.len()];
                let entry = entry(kind, "default.a", spec, ingress, egress);
                let closely = stored(kind, &entry).and_then(Stored::judged);
                let quickly = judge.judged(&entry);
                assert_eq!(quickly, closely, "{}", String::from_utf8_lossy(&entry.value));
                let briefly = brief.judged(&entry);
                n_quick += usize::from(round == 1 && briefly.is_ok());
                let of = |field: &str, one: &Result<Stored, Quarantined>| {
                    one.clone().map(|one| one.object["spec"][field].clone())
                };
                assert_eq!(of("order", &briefly), of("order", &closely));
                assert_eq!(of("types", &briefly), of("types", &closely));
            }
        }
    }
    assert!(n_quick > 50, "{n_quick}");
}

/// One byte after the other is another one: what comes of it is the same as well.
#[test]
fn damaged_texts_are_judged_alike() {
    let kind = Kind::NetworkPolicy;
    let mut judge = Judge::new(kind, None);
    let good = entry(kind, "default.a", SPECS[0], &RULES[..2], &RULES[10..11]);
    assert!(judge.judged(&good).is_ok());
    for at in 0..good.value.len() {
        for byte in *b"\"{}[],:0a \\\xff" {
            let mut entry = good.clone();
            entry.value[at] = byte;
            let closely = stored(kind, &entry).and_then(Stored::judged);
            assert_eq!(judge.judged(&entry), closely, "{byte} at {at}");
        }
    }
}
