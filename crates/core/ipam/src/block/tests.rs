use serde_json::{Value, json};

use super::*;

fn sample() -> Value {
    json!({
        "cidr": "10.65.0.0/30", "affinity": "host:n1", "affinity_claim_time": "2026-01-01T00:00:00Z",
        "allocations": [0, 1, null, 0], "unallocated": [2],
        "attributes": [
            {"handle_id": "a", "secondary": {"node": "n1"}, "later": 1},
            {"handle_id": "b", "secondary": {"node": "n2"}}
        ],
        "sequenceNumber": 18_446_744_073_709_551_000_u64,
        "sequenceNumberForAllocation": {"0": 7, "1": 8, "3": 9},
        "deleted": false, "later": true
    })
}

fn none() -> Cooldown {
    Cooldown { now: Moment::default(), seconds: 0 }
}

/// A cool-down of 30 seconds, seen so many seconds after the start of 2026.
fn after(seconds: u64) -> Cooldown {
    let now = Moment::from_nanoseconds((1_767_225_600 + seconds) * 1_000_000_000);
    Cooldown { now, seconds: 30 }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn releasing_frees_renumbers_and_keeps_what_is_unknown() {
    let mut block = Block::decode(&sample()).unwrap();
    let lost = release(&mut block, &[ip("10.65.0.1"), ip("10.65.0.2"), ip("10.9.9.9")], none());
    assert_eq!(lost, BTreeMap::from([("b".to_owned(), 1)]));
    assert_eq!(
        block.encode(),
        json!({
            "cidr": "10.65.0.0/30", "affinity": "host:n1",
            "affinity_claim_time": "2026-01-01T00:00:00Z",
            "allocations": [0, null, null, 0], "unallocated": [2, 1],
            "attributes": [{"handle_id": "a", "secondary": {"node": "n1"}, "later": 1}],
            "sequenceNumber": 18_446_744_073_709_551_001_u64,
            "sequenceNumberForAllocation": {"0": 7, "3": 9},
            "deleted": false, "later": true
        })
    );
}

#[test]
fn the_first_attribute_goes_and_the_others_move_up() {
    let mut block = Block::decode(&sample()).unwrap();
    let lost = release(&mut block, &[ip("10.65.0.0"), ip("10.65.0.3"), ip("10.65.0.0")], none());
    assert_eq!(lost, BTreeMap::from([("a".to_owned(), 2)]));
    assert_eq!(block.encode()["allocations"], json!([null, 0, null, null]));
    assert_eq!(block.encode()["unallocated"], json!([2, 0, 3]));
    assert_eq!(block.encode()["attributes"][0]["handle_id"], json!("b"));
    assert!(!is_empty(&block));
}

#[test]
fn an_address_in_cool_down_is_neither_free_nor_released_twice() {
    let mut block = Block::decode(&sample()).unwrap();
    let early = after(60);
    assert_eq!(release(&mut block, &[ip("10.65.0.1")], early).len(), 1);
    assert_eq!(block.encode()["allocations"], json!([0, 1, null, 0]));
    assert_eq!(block.encode()["attributes"][1], json!({"releasedAt": "2026-01-01T00:01:00Z"}));
    assert_eq!(release(&mut block, &[ip("10.65.0.1")], early).len(), 0);
    let late = after(120);
    release(&mut block, &[ip("10.65.0.0"), ip("10.65.0.3")], late);
    assert_eq!(block.encode()["allocations"], json!([0, null, null, 0]));
    assert_eq!(block.encode()["unallocated"], json!([2, 1]));
}

#[test]
fn releasing_nothing_changes_nothing() {
    let mut block = Block::decode(&sample()).unwrap();
    assert!(release(&mut block, &[ip("10.65.0.2"), ip("::1")], none()).is_empty());
    assert_eq!(block.encode(), sample());
}

#[test]
fn only_what_windows_keeps_leaves_a_block_empty() {
    let mut block = sample();
    block["attributes"][0]["handle_id"] = json!("Windows-Reserved-IPAM-Handle");
    block["attributes"][1]["handle_id"] = json!("windows-reserved-ipam-handle");
    assert!(is_empty(&Block::decode(&block).unwrap()));
}
