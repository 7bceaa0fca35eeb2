//! Blocks, handles and affinities survive reading and writing, damage included.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn damaged() -> Value {
    json!({
        "cidr": "10.0.0.0/30",
        "affinity": "host:n1",
        "allocations": [0, null, 7, -1, null],
        "unallocated": [1, 1, 9],
        "attributes": [{"handle_id": "h", "secondary": {"node": "n2"}, "later": 1}],
        "sequenceNumber": 3,
        "sequenceNumberForAllocation": {"0": 2},
        "futureField": {"a": [1]},
        "deleted": false
    })
}

#[test]
fn a_damaged_block_is_read_whole_and_its_faults_are_named() {
    let block = Block::decode(&damaged()).unwrap();
    let faults: Vec<String> = block.check().iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "allocations: 5 entries for 4 addresses",
            "allocations[2]: there are only 1 attributes",
            "allocations[3]: there are only 1 attributes",
            "unallocated[1]: the address is listed twice",
            "unallocated[2]: the block has no such address",
            "allocations[4]: the address is free but not listed as such",
        ]
    );
    assert_eq!(block.attribute(2), None);
    assert_eq!(block.attribute(99), None);
    assert_eq!(block.address(4), None);
}

#[test]
fn a_block_too_large_for_its_list_is_a_fault() {
    for cidr in ["10.0.0.0", "10.0.0.0/8", "::/0"] {
        let mut value = damaged();
        value["cidr"] = json!(cidr);
        assert_eq!(Block::decode(&value).unwrap().check()[0].path, "allocations", "{cidr}");
    }
    assert_eq!(Block::decode(&json!(3)).unwrap_err()[0].path, "");
}

#[test]
fn unknown_fields_stay_where_they_stood() {
    let block = Block::decode(&damaged()).unwrap();
    assert_eq!(block.encode().to_string(), damaged().to_string());
}

#[test]
fn a_new_block_has_every_address_free() {
    let block = Block::new("10.0.0.0/26".parse().unwrap()).unwrap();
    assert_eq!(block.check(), []);
    assert_eq!(block.unallocated.len(), 64);
    assert!(Block::new("10.0.0.0/8".parse().unwrap()).is_none());
    assert!(Block::new("::/0".parse().unwrap()).is_none());
}

#[test]
fn wrong_types_are_named_with_their_place() {
    let mut value = damaged();
    value["attributes"][0]["secondary"] = json!([]);
    value["deleted"] = json!("no");
    let problems = Block::decode(&value).unwrap_err();
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["attributes[0].secondary", "deleted"]);
}

/// What the long way says of a text, and that the short one agrees or says nothing.
fn both_ways(text: &str) -> bool {
    let long = read(&tables::BLOCK, text.as_bytes(), Block::decode);
    let short = regular::block(text.as_bytes());
    if let Some(short) = &short {
        assert_eq!(Some(short), long.as_ref().ok(), "{text}");
    }
    let handle = regular::handle(text.as_bytes());
    if let Some(handle) = &handle {
        let long = read(&tables::HANDLE, text.as_bytes(), Handle::decode);
        assert_eq!(Some(handle), long.as_ref().ok(), "{text}");
    }
    let affinity = regular::affinity(text.as_bytes());
    if let Some(affinity) = &affinity {
        let long = read(&tables::AFFINITY, text.as_bytes(), Affinity::decode);
        assert_eq!(Some(affinity), long.as_ref().ok(), "{text}");
    }
    short.is_some() || handle.is_some() || affinity.is_some()
}

#[test]
fn the_short_way_takes_what_calico_writes() {
    let mut block = Block::new("10.0.0.0/30".parse().unwrap()).unwrap();
    assert!(both_ways(&text::json::to_string(&block.encode())));
    block.affinity = Some("host:n1".to_owned());
    block.affinity_claim_time = Some("2025-06-01T12:00:00Z".to_owned());
    let owner = [("node".to_owned(), "n1".to_owned())];
    let mut attribute = Attribute::new(Some("net.c0".to_owned()), owner.into());
    attribute.released_at = Some("2025-06-01T12:00:00Z".to_owned());
    block.attributes = vec![attribute];
    (block.allocations[0], block.unallocated) = (Some(0), vec![1, 2, 3]);
    block.sequence_number_for_allocation = [("0".to_owned(), u64::MAX)].into();
    assert!(both_ways(&text::json::to_string(&block.encode())));
    assert!(both_ways(r#"{"block":{"10.0.0.0/26":1},"deleted":false}"#));
    assert!(both_ways(r#"{"state":"confirmed","deleted":false}"#));
    assert_eq!(Affinity::read(b"").unwrap(), Affinity::default());
}

#[test]
fn the_short_way_leaves_what_is_odd() {
    for text in [
        r#"["10.0.0.0/30", null, null, null, null, null, 0, null, false, null]"#,
        r#"{"cidr": "10.0.0.0/30", "attributes": [["h", null, null, null]]}"#,
        r#"{"cidr": "10.0.0.0/30", "CIDR": "10.0.0.4/30"}"#,
        r#"{"cidr": "10.0.0.0/30", "cidr": "10.0.0.4/30"}"#,
        r#"{"cidr": "10.0.0.0/30", "affinity_claim_time": "0001-01-01T00:00:00Z"}"#,
        r#"{"cidr": "10.0.0.0/30", "affinity_claim_time": "lately"}"#,
        r#"{"cidr": "10.0.0.0/30", "allocations": [1.5]}"#,
        r#"{"cidr": "10.0.0.0/30", "later": 1}"#,
        r#"[{"10.0.0.0/26": 1}, false]"#,
        r#"["confirmed", false]"#,
    ] {
        assert!(!both_ways(text), "{text}");
    }
}

/// A piece of JSON under which a field of a block may have been left.
fn odd_value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
        Just("[null, 0, -1, 18446744073709551615]".to_owned()),
        Just("[0, 1.0]".to_owned()),
        Just(r#"{"0": 3, "0": 4, "1": null}"#.to_owned()),
        Just(r#"[{"handle_id": null, "secondary": {}, "releasedAt": null}]"#.to_owned()),
        Just(r#"[{"handle_id": "h", "secondary": {"node": "n"}}, null]"#.to_owned()),
        Just(r#""2025-06-01T14:00:00+02:00""#.to_owned()),
        Just(r#""10.0.0.1/30""#.to_owned()),
        Just(r#""::ffff:10.0.0.1""#.to_owned()),
        (-3i64..9).prop_map(|number| number.to_string()),
    ]
}

proptest! {
    #[test]
    fn both_ways_agree(fields in proptest::collection::vec((0usize..15, odd_value()), 0..6)) {
        const NAMES: [&str; 15] = [
            "cidr", "affinity", "affinity_claim_time", "allocations", "unallocated", "attributes",
            "sequenceNumber", "sequenceNumberForAllocation", "deleted", "hostAffinity", "block",
            "state", "Deleted", "later", "cidr",
        ];
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{:?}: {value}", NAMES[*name])).collect();
        both_ways(&format!("{{{}}}", fields.join(", ")));
        both_ways(&format!(r#"{{"cidr": "10.0.0.0/30", {}}}"#, fields.join(", ")));
    }

    #[test]
    fn an_address_is_found_at_its_place(octets in any::<[u8; 4]>(), ordinal in 0usize..64) {
        let block = Block::new(net::Cidr::new(octets.into(), 26).unwrap()).unwrap();
        let address = block.address(ordinal).unwrap();
        prop_assert_eq!(block.ordinal(address), Some(ordinal));
    }
}
