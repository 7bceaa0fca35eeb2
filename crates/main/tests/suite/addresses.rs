//! The records of addresses: what is wrong with them is named, mended, and put back.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use ipam::repair::Step;
use serde_json::{Value, json};

use crate::harness::{Place, until};

const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29";
const WEPS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/";

fn object(kind: &str, name: &str, spec: &Value) -> String {
    json!({
        "kind": kind, "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
    })
    .to_string()
}

/// Two nodes; on the first one a pod, and an address of a pod that is gone.
fn fill(place: &Place) {
    let root = "/calico/resources/v3/projectcalico.org";
    let pool =
        json!({"cidr": "10.0.0.0/24", "blockSize": 29, "ipipMode": "Never", "vxlanMode": "Never"});
    place.put(&format!("{root}/ippools/pool"), &object("IPPool", "pool", &pool));
    let cluster = json!({"clusterGUID": "g", "datastoreReady": true});
    let cluster = object("ClusterInformation", "default", &cluster);
    place.put(&format!("{root}/clusterinformations/default"), &cluster);
    for node in ["n1", "n2"] {
        place.put(&format!("{root}/nodes/{node}"), &object("Node", node, &json!({})));
    }
    let held = |handle: &str, pod: &str| json!({"handle_id": handle, "secondary": {"node": "n1", "namespace": "shop", "pod": pod}});
    let block = json!({
        "cidr": "10.0.0.0/29", "affinity": "host:n1",
        "allocations": [0, 1, null, null, null, null, null, null],
        "unallocated": [2, 3, 4, 5, 6, 7],
        "attributes": [held("net.c0", "web"), held("net.gone", "old")],
        "sequenceNumber": 9, "sequenceNumberForAllocation": {"0": 4, "1": 5}, "deleted": false,
    });
    place.put(BLOCK, &block.to_string());
    for handle in ["net.c0", "net.gone"] {
        let value = json!({"block": {"10.0.0.0/29": 1}, "deleted": false}).to_string();
        place.put(&format!("/calico/ipam/v2/handle/{handle}"), &value);
    }
    place.put("/calico/ipam/v2/host/n1/ipv4/block/10.0.0.0-29", r#"{"state":"confirmed"}"#);
    let mut endpoint: Value = serde_json::from_str(&object(
        "WorkloadEndpoint",
        "n1-k8s-web-eth0",
        &json!({
            "orchestrator": "k8s", "node": "n1", "pod": "web", "containerID": "c0",
            "endpoint": "eth0", "ipNetworks": ["10.0.0.0/32"], "interfaceName": "cali0",
        }),
    ))
    .unwrap();
    endpoint["metadata"]["namespace"] = "shop".into();
    place.put(&format!("{WEPS}n1-k8s-web-eth0"), &endpoint.to_string());
}

#[test]
fn what_is_wrong_is_named_mended_and_put_back() {
    for place in Place::both() {
        fill(&place);
        place.margay("ipam check").code(1).says(&[
            "! 1 problem in 1 blocks, 2 addresses, 1 endpoints",
            "LEAK                    10.0.0.1: held by net.gone (shop/old)",
            "MG-IPAM-108",
        ]);
        let far = place.margay("ipam repair --plan").code(1);
        far.says(&["nothing to mend", "only n1 itself knows all that lives there"]);
        place.margay("ipam repair --all-nodes").code(2).complains(&["nobody is there to ask"]);

        let damaged = place.dump();
        let plan = place.margay("ipam repair --plan --all-nodes").code(1);
        plan.says(&["10.0.0.1 is let go", "handle net.gone is removed"]);
        assert_eq!(place.dump(), damaged, "a plan changes nothing");
        let done = place.margay("ipam repair --yes --all-nodes").ok();
        done.says(&["2 records mended", "undo: margay ipam repair --undo"]);
        place.margay("ipam check").ok().says(&["no problems in 1 blocks, 1 addresses"]);
        assert_eq!(place.stored(BLOCK)["unallocated"], json!([2, 3, 4, 5, 6, 7, 1]));

        place.margay("ipam repair --undo --yes").ok().says(&["2 records put back"]);
        assert_eq!(place.dump(), damaged);
        place.margay("ipam repair --yes --all-nodes").ok();
        let mut block = place.stored(BLOCK);
        block["sequenceNumber"] = json!(99);
        place.put(BLOCK, &block.to_string());
        let refused = place.margay("ipam repair --undo --yes").code(2);
        refused.complains(&["nothing was put back: 1 record changed since the repair", BLOCK]);
    }
}

#[test]
fn an_endpoint_that_cannot_be_read_keeps_what_it_may_hold() {
    for place in Place::both() {
        fill(&place);
        place.put(&format!("{WEPS}n1-k8s-web-eth0"), "{\"kind\":\"WorkloadEndpoint\"");
        let checked = place.margay("ipam check -o json").code(2);
        let found: Value = serde_json::from_str(&checked.out).unwrap();
        let classes: Vec<&str> = found["problems"]
            .as_array()
            .unwrap()
            .iter()
            .map(|problem| problem["class"].as_str().unwrap())
            .collect();
        assert_eq!(classes, ["unreadable", "leak", "leak"]);
        let plan = place.margay("ipam repair --yes --all-nodes").code(1);
        plan.says(&["nothing to mend", "an endpoint of its node cannot be read"]);
    }
}

#[test]
fn a_damaged_block_is_mended_with_what_lives_in_place() {
    for place in Place::both() {
        fill(&place);
        for damage in
            ["\"allocations\":[\"x\",7,", "\"allocations\":[null,-1,", "\"cidr\":7,\"x\":["]
        {
            let text = place.stored(BLOCK).to_string();
            place.put(BLOCK, &text.replacen("\"allocations\":[0,1,", damage, 1));
            place.margay("ipam check").code(2);
            place.margay("ipam repair --yes").code(1);
            let block = place.stored(BLOCK);
            let held = usize::try_from(block["allocations"][0].as_u64().unwrap()).unwrap();
            assert_eq!(block["attributes"][held]["handle_id"], "net.c0");
            assert!(!block["unallocated"].as_array().unwrap().contains(&json!(0)), "{block}");
            fill(&place);
        }
    }
}

#[test]
fn a_repair_that_is_killed_is_finished_by_the_next_one() {
    let place = Place::embedded();
    fill(&place);
    // Many claims without a block: several transactions.
    for network in 0..400 {
        let (high, low) = (network / 32, network % 32 * 8);
        let key = format!("/calico/ipam/v2/host/n2/ipv4/block/10.1.{high}.{low}-29");
        place.put(&key, r#"{"state":"confirmed"}"#);
    }
    let claims = || place.store().list("/calico/ipam/v2/host/n2/").unwrap().entries.len();
    assert_eq!(claims(), 400);
    let mut repair = place
        .command(&["ipam", "repair", "--yes"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("some of it is done", || claims() < 400 || repair.try_wait().unwrap().is_some());
    repair.kill().unwrap();
    repair.wait().unwrap();
    place.margay("ipam repair --yes").code(1);
    assert_eq!(claims(), 0);
    assert_eq!(place.stored(BLOCK)["allocations"][0], 0, "what lives is where it was");
}

#[test]
fn a_repair_that_ends_at_any_step_is_repeated_or_put_back() {
    let points = Step::ALL
        .into_iter()
        .flat_map(|step| ["before", "after"].map(|when| format!("{when}-{}", step.name())));
    let points: Vec<String> = points.collect();
    for place in Place::both() {
        for point in &points {
            fill(&place);
            let damaged = place.dump();
            let repair = ["ipam", "repair", "--yes", "--all-nodes"];
            let ended = place.command(&repair).env("MARGAY_FAULT", point).output().unwrap();
            assert_eq!(ended.status.signal(), Some(6), "{point} was not met: {ended:?}");
            // What was kept leads back from anywhere.
            if point != "before-keep" {
                place.margay("ipam repair --undo --yes").ok();
                assert_eq!(place.dump(), damaged, "{point}");
                let ended = place.command(&repair).env("MARGAY_FAULT", point).output().unwrap();
                assert_eq!(ended.status.signal(), Some(6), "{point} was not met: {ended:?}");
            }
            place.margay("ipam repair --yes --all-nodes").ok();
            place.margay("ipam check").ok();
            assert_eq!(place.stored(BLOCK)["allocations"][0], 0, "what lives is where it was");
        }
    }
}

#[test]
fn an_address_in_use_is_not_released_by_mistake() {
    let place = Place::embedded();
    fill(&place);
    let refused = place.margay("ipam release --ip 10.0.0.0 --yes").code(2);
    refused.complains(&["10.0.0.0 is in use by shop/web (c0) on n1; it was not let go"]);
    // Who is not on its node cannot know that nothing lives there.
    let refused = place.margay("ipam release --ip 10.0.0.1 --yes").code(2);
    refused.complains(&["10.0.0.1 was not let go: only n1 itself knows all that lives there"]);
    let released = place.margay("ipam release --ip 10.0.0.1 --yes --all-nodes").ok();
    released.says(&["1 address let go"]);
    fill(&place);
    place.margay("ipam check -o report.json").code(1);
    let nothing = place.margay("ipam release --from-report report.json --yes").code(1);
    nothing.says(&["! 1 address of the report still held and not let go; 10.0.0.1: only n1"]);
    let forced = place.margay("ipam release --from-report report.json --force --yes").ok();
    forced.says(&["1 address let go"]);
}

#[test]
fn a_pool_is_split_and_put_together_again() {
    let place = Place::embedded();
    fill(&place);
    place.margay("ipam split 3 pool --yes").code(2).complains(&["does not fall into 3 equal"]);
    place.margay("ipam split 2 pool --yes").ok().says(&["split-pool-1  10.0.0.128/25", "undo"]);
    place.margay("ipam check").code(1).says(&["LEAK"]);
    place.margay("undo").code(0);
    place.margay("get ippool").code(0).says(&["10.0.0.0/24"]);
}

#[test]
fn room_and_past_holders_are_shown() {
    let place = Place::embedded();
    fill(&place);
    let plan = place.json("ipam plan");
    assert_eq!(plan["pools"][0]["inUse"], 2);
    assert_eq!(plan["nodes"][0]["node"], "n1");
    assert_eq!(plan["nodes"][0]["addresses"], 2);
    let event = |number: u64, time: &str, sort: &str, pod: &str| {
        let text = format!("pod shop/{pod} (c eth0), 10.0.0.0 on cali0, network net");
        json!({"number": number, "time": time, "sort": sort, "text": text}).to_string() + "\n"
    };
    let events = event(1, "2026-01-01T00:00:00Z", "added", "old")
        + &event(2, "2026-01-02T00:00:00Z", "removed", "old")
        + &event(3, "2026-01-03T00:00:00Z", "added", "web");
    place.file("state/events.jsonl", &events);
    let shown = place.margay("ipam who-had 10.0.0.0").code(0);
    shown.says(&["10.0.0.0 is held by net.c0 now", "pod shop/old", "pod shop/web"]);
    let then = place.margay("ipam who-had 10.0.0.0 --at 2026-01-01T12:00:00Z").code(0);
    assert!(then.out.contains("shop/old") && !then.out.contains("shop/web"), "{then:?}");
    place.margay("ipam who-had 10.0.0.5").code(1);
}
