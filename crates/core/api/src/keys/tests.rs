//! Facts about keys that hold for every key, not only for recorded ones.

use proptest::prelude::*;

use super::*;
use crate::Kind;

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_.:-]{1,12}"
}

fn cidr() -> impl Strategy<Value = Cidr> {
    let v4 = (any::<[u8; 4]>(), 0u8..=32)
        .prop_map(|(octets, length)| Cidr::new(octets.into(), length).unwrap().masked());
    let v6 = (any::<[u16; 8]>(), 0u8..=128)
        .prop_map(|(groups, length)| Cidr::new(groups.into(), length).unwrap().masked());
    prop_oneof![v4, v6]
}

fn workload_endpoint() -> impl Strategy<Value = WorkloadEndpointKey> {
    // The parts that Calico escapes when it writes.
    let escaped = || "[a-z0-9%/.-]{1,12}";
    (name(), escaped(), escaped(), escaped()).prop_map(
        |(host, orchestrator, workload, endpoint)| WorkloadEndpointKey {
            host,
            orchestrator,
            workload,
            endpoint,
        },
    )
}

fn resource() -> impl Strategy<Value = Key> {
    let kinds: Vec<ResourceKind> = ResourceKind::all().collect();
    (proptest::sample::select(kinds), name(), name()).prop_map(|(kind, namespace, name)| {
        let namespace = if kind.is_namespaced() { namespace } else { String::new() };
        Key::Resource(ResourceKey { kind, namespace, name })
    })
}

fn host_endpoint() -> impl Strategy<Value = HostEndpointKey> {
    (name(), "[a-z0-9%/.-]{1,12}").prop_map(|(host, endpoint)| HostEndpointKey { host, endpoint })
}

fn key() -> impl Strategy<Value = Key> {
    let affinity = (any::<bool>(), name(), cidr()).prop_map(|(virtually, owner, cidr)| {
        let owner_type = if virtually { AffinityType::Virtual } else { AffinityType::Host };
        Key::BlockAffinity(BlockAffinityKey { owner_type, owner, cidr })
    });
    let named = (0usize..14, name(), name()).prop_map(|(which, host, name)| match which {
        0 => Key::ProfileRules { name },
        1 => Key::ProfileLabels { name },
        2 => Key::Tier { name },
        3 => Key::NetworkSet { name },
        4 => Key::GlobalConfig { name },
        5 => Key::HostConfig { host, name },
        6 => Key::HostMetadata { host },
        7 => Key::Wireguard { host },
        8 => Key::OrchestratorRefs { host },
        9 => Key::NodeBgpConfig { node: host, name },
        10 => Key::BgpNode { host },
        11 => Key::IpamHandle { id: name },
        12 => Key::ActiveStatusReport { region: name, host },
        _ => Key::LastStatusReport { region: name, host },
    });
    prop_oneof![
        resource(),
        affinity,
        named,
        cidr().prop_map(|cidr| Key::Block { cidr }),
        cidr().prop_map(|cidr| Key::IpPool { cidr }),
        workload_endpoint().prop_map(Key::WorkloadEndpoint),
        (name(), workload_endpoint())
            .prop_map(|(region, endpoint)| Key::WorkloadEndpointStatus { region, endpoint }),
        host_endpoint().prop_map(Key::HostEndpoint),
        host_endpoint().prop_map(Key::HostEndpointStatus),
        Just(Key::ReadyFlag),
        Just(Key::IpamConfig),
    ]
}

proptest! {
    #[test]
    fn a_path_names_its_key(key in key()) {
        let path = key.path().unwrap();
        prop_assert_eq!(Key::parse(&path), Some(key));
    }

    #[test]
    fn any_path_is_read_or_refused(path in "(/?calico/)?([a-z0-9/%._:-]|\\PC){0,60}") {
        if let Some(key) = Key::parse(&path) {
            let _ = key.path();
        }
        for options in lists() {
            let _ = options.read(&path);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(key in key(), raw in any::<Vec<u8>>()) {
        let _ = value::parse(&key, &raw);
    }

    #[test]
    fn any_json_is_read_or_refused(key in key(), raw in json()) {
        if let Ok(stored) = value::parse(&key, raw.to_string().as_bytes()) {
            // Once read, a value is in its final form.
            let written = value::write(&stored);
            prop_assert_eq!(value::parse(&key, &written), Ok(stored));
        }
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let field = proptest::sample::select(vec![
        "cidr",
        "affinity",
        "allocations",
        "attributes",
        "block",
        "state",
        "metadata",
        "spec",
        "labels",
        "order",
        "inbound_rules",
        "mac",
        "value",
        "NAME",
        "secondary",
        "unknown",
    ]);
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "\\PC{0,6}".prop_map(Into::into),
        Just("10.0.0.0/26".into()),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let field = field.clone();
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::vec((field, inner), 0..4).prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                serde_json::Value::Object(fields.collect())
            }),
        ]
    })
}

fn lists() -> Vec<ListOptions> {
    vec![
        ListOptions::Resource(ResourceList::all(Kind::IpPool)),
        ListOptions::Resource(ResourceList::all(Kind::NetworkPolicy)),
        ListOptions::BlockAffinity { owner_type: AffinityType::Host, owner: None, family: None },
        ListOptions::Block { family: None },
        ListOptions::IpamHandle,
        ListOptions::IpPool { cidr: None },
        ListOptions::GlobalBgpPeer { address: None, port: 0 },
        ListOptions::NodeBgpPeer { node: None, address: None, port: 0 },
        ListOptions::NodeBgpConfig { node: None, name: None },
        ListOptions::HostConfig { host: None, name: None },
        ListOptions::LastStatusReport { region: None, host: None },
        ListOptions::Profile { name: None },
    ]
}

#[test]
fn a_workload_endpoint_prefix_lists_longer_names_too() {
    let list = ListOptions::Resource(ResourceList {
        kind: Kind::WorkloadEndpoint.into(),
        namespace: Some("ns".to_owned()),
        name: Some("node--1-k8s-".to_owned()),
        name_is_prefix: true,
    });
    let root = "/calico/resources/v3/projectcalico.org/workloadendpoints/ns/node--1-k8s-";
    assert_eq!(list.root(), root);
    assert!(list.root_is_name_prefix());
    assert!(!list.names_one_object());
    assert!(list.read(&format!("{root}pod-eth0")).is_some());
    assert!(list.read(&root.replace("/ns/", "/other/")).is_none());
}

#[test]
fn a_path_without_its_last_part_is_refused_not_a_crash() {
    assert_eq!(Key::parse("/calico/v1/policy/profile/name"), None);
    assert_eq!(Key::parse("/calico"), None);
    assert_eq!(Key::parse(""), None);
}

/// What is stored under the path after it was read and written again.
fn again(path: &str, raw: &str) -> String {
    let key = Key::parse(path).unwrap();
    String::from_utf8(value::write(&value::parse(&key, raw.as_bytes()).unwrap())).unwrap()
}

#[test]
fn a_stored_policy_keeps_its_stored_name_and_unknown_fields() {
    let path = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/default.p";
    let raw = concat!(
        r#"{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","#,
        r#""metadata":{"name":"default.p","#,
        r#""annotations":{"projectcalico.org/metadata":"{\"name\":\"p\"}"}},"#,
        r#""spec":{"order":1e+21,"selector":"a \u003c b","newField":[1]}}"#,
    );
    assert_eq!(again(path, raw), raw);
}

#[test]
fn an_affinity_of_an_old_version_has_no_value() {
    let path = "/calico/ipam/v2/host/n/ipv4/block/10.0.0.0-26";
    assert_eq!(again(path, ""), r#"{"state":"","deleted":false}"#);
}

#[test]
fn a_block_without_addresses_is_refused() {
    let key = Key::parse("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26").unwrap();
    for raw in ["", "null", "{}", "[]", r#"{"cidr":"10.0.0.0/26","allocations":["a"]}"#] {
        assert!(value::parse(&key, raw.as_bytes()).is_err(), "{raw}");
    }
}
