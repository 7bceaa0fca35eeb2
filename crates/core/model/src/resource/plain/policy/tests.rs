use api::Kind;
use proptest::prelude::*;

use super::super::tests::{ODD, by_all_rules, edited, with};
use super::*;
use crate::resource::Resource;

const GLOBAL: &str = r#"{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","uid":"7c9e6679-7425-40de-944b-e07fc1f90ae7","creationTimestamp":"2026-02-28T23:59:59Z","labels":{"projectcalico.org/tier":"default"},"annotations":{"projectcalico.org/metadata":"{\"name\":\"web\"}"}},"spec":{"tier":"default","order":100,"ingress":[{"action":"Allow","protocol":"TCP","source":{"selector":"app == 'a' \u0026\u0026 environment in {'production', 'staging'}","nets":["10.0.0.0/8"]},"destination":{"ports":[80,443]}},{"action":"Pass","source":{"notSelector":"has(x)","namespaceSelector":"all()"}}],"egress":[{"action":"Deny","protocol":"UDP","destination":{"nets":["fd00::/8"],"ports":[53]}}],"selector":"team == 'b'","types":["Ingress","Egress"]}}"#;

fn of_namespace() -> String {
    GLOBAL
        .replace("GlobalNetworkPolicy", "NetworkPolicy")
        .replace(r#""metadata":{"name":"web","#, r#""metadata":{"name":"web","namespace":"shop","#)
}

/// Whether it is read here; if so, it must be read there, as the same.
fn is_read(bytes: &[u8]) -> bool {
    let root = "/calico/resources/v3/projectcalico.org";
    let global = plain_policy("GlobalNetworkPolicy", bytes).map(Resource::GlobalNetworkPolicy);
    let own = plain_policy("NetworkPolicy", bytes).map(Resource::NetworkPolicy);
    let (path, kind, plain) = match (global, own) {
        (Some(global), None) => ("globalnetworkpolicies/a", Kind::GlobalNetworkPolicy, global),
        (None, Some(own)) => ("networkpolicies/n/a", Kind::NetworkPolicy, own),
        (None, None) => return false,
        (Some(_), Some(_)) => panic!("it is of two kinds"),
    };
    let all = by_all_rules(&format!("{root}/{path}"), kind, bytes);
    assert_eq!(Some(plain), all, "{}", String::from_utf8_lossy(bytes));
    true
}

#[test]
fn what_people_write_is_read_at_once() {
    assert!(is_read(GLOBAL.as_bytes()) && is_read(of_namespace().as_bytes()));
    let spare = GLOBAL.replace(r#""order":100,"#, "").replace(r#""selector":"team == 'b'","#, "");
    assert!(is_read(spare.as_bytes()));
    for beyond in ["\"ICMP\"", "6", "\"tcp\""] {
        assert!(!is_read(with(GLOBAL, "protocol", beyond).as_bytes()), "{beyond}");
    }
}

const FIELDS: [&str; 31] = [
    "kind",
    "apiVersion",
    "metadata",
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "labels",
    "annotations",
    "projectcalico.org/tier",
    "projectcalico.org/metadata",
    "spec",
    "tier",
    "order",
    "ingress",
    "egress",
    "action",
    "protocol",
    "source",
    "destination",
    "selector",
    "notSelector",
    "namespaceSelector",
    "nets",
    "notNets",
    "ports",
    "types",
    "ipVersion",
    "preDNAT",
    "serviceAccountSelector",
    "Types",
];

const ODD_HERE: [&str; 39] = [
    r#""all()""#,
    r#""global()""#,
    r#""a == 'b'""#,
    r#""a == \"b\"""#,
    r#""a == 'global'""#,
    r#""a ==""#,
    r#"" has(a) ""#,
    r#""has(a) && !has(b) || c in {}""#,
    r#""projectcalico.org/namespace == 'x'""#,
    r#"["Ingress"]"#,
    r#"["Egress"]"#,
    r#"["Egress","Ingress"]"#,
    r#"["Ingress","Ingress"]"#,
    r#"["ingress"]"#,
    "[80]",
    "[0]",
    "[65535]",
    "[80,80]",
    r#"["80"]"#,
    r#"["80:90"]"#,
    r#"["http"]"#,
    "[80.0]",
    "1.5",
    "1e3",
    "1e400",
    "-0.0",
    "9007199254740993",
    r#"["0.0.0.0/0"]"#,
    r#"["::/0"]"#,
    r#"["10.0.0.1"]"#,
    r#"["10.0.0.1/8"]"#,
    r#"["10.0.0.0/8","fd00::/8"]"#,
    r#""Allow""#,
    r#""Log""#,
    r#""allow""#,
    r#"[{"action":"Allow"}]"#,
    r#"[{"action":"Allow","destination":{"ports":[80]}}]"#,
    r#"[["Allow"]]"#,
    r#"[{}]"#,
];

#[test]
fn what_is_odd_in_one_field_is_read_alike_or_left_alone() {
    let long = [1, 15, 63, 64, 253, 254, 511, 513, 5000].map(|n| format!("\"{}\"", "a".repeat(n)));
    let many = [31, 32, 33, 2000].map(|n| format!("[{}]", vec!["1"; n].join(",")));
    let odds = || ODD.into_iter().chain(ODD_HERE);
    let odds = || odds().chain(long.iter().chain(&many).map(String::as_str));
    let mut n_read = 0;
    for sample in [GLOBAL.to_owned(), of_namespace()] {
        for field in FIELDS {
            for odd in odds() {
                n_read += usize::from(is_read(with(&sample, field, odd).as_bytes()));
            }
            // Without the first field of that name.
            let without =
                with(&sample, field, "null").replacen(&format!("\"{field}\":null,"), "", 1);
            n_read += usize::from(is_read(without.as_bytes()));
        }
    }
    assert!(n_read > 150, "{n_read}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_is_spoilt_anywhere_is_read_alike_or_left_alone(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3, any::<u8>()), 1..3),
        text in "[ -~]",
        is_global in any::<bool>(),
    ) {
        let sample = if is_global { GLOBAL.to_owned() } else { of_namespace() };
        is_read(&edited(&sample, &edits, text.as_bytes()[0]));
    }
}
