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

proptest! {
    #[test]
    fn an_address_is_found_at_its_place(octets in any::<[u8; 4]>(), ordinal in 0usize..64) {
        let block = Block::new(net::Cidr::new(octets.into(), 26).unwrap()).unwrap();
        let address = block.address(ordinal).unwrap();
        prop_assert_eq!(block.ordinal(address), Some(ordinal));
    }
}
