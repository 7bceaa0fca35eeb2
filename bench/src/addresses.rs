//! What it costs to look at every record of addresses of a large cluster, and to plan its repair.
//!
//! 10,000 blocks of 64 addresses, 30 of them held by pods, each with its handle and its endpoint;
//! for the plan every hundredth endpoint is missing, so that its address is leaked.

use serde_json::json;

use crate::Options;
use crate::home;
use crate::process::Program;
use crate::report::{Figure, median};
use crate::samples;

const BLOCKS: usize = 10_000;
const HELD: usize = 30;
const SIZE: usize = 64;
const RUNS: usize = 3;
const AIM_MS: f64 = 5000.0;
const AIM_MIB: f64 = 300.0;

pub(crate) fn measure(options: &Options) -> anyhow::Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let address = home::address(&folder.path().join("store.db"));
    options.say("storing 10,000 blocks and 300,000 addresses");
    let store = home::open(&address)?;
    home::fill(&store, cluster())?;
    home::fill(&store, (0..BLOCKS).flat_map(block_records))?;
    home::fill(&store, (0..BLOCKS * HELD).map(endpoint))?;
    drop(store);
    let margay = match &options.margay {
        Some(margay) => margay.display().to_string(),
        None => crate::command_line::build()?.display().to_string(),
    };
    let state = folder.path().join("state").display().to_string();
    let program = Program {
        // A plan with something to do ends with 1, which is no failure here.
        words: ["sh", "-c", "\"$0\" \"$@\" || test $? = 1", &margay].map(str::to_owned).to_vec(),
        environment: vec![
            ("MARGAY_STORE".to_owned(), address.clone()),
            ("MARGAY_STATE_DIR".to_owned(), state.clone()),
            ("MARGAY_RUN_DIR".to_owned(), state),
        ],
    };
    let mut figures = Vec::new();
    let mut run = |what: &str, words: &[&str]| -> anyhow::Result<()> {
        options.say(what);
        let costs: Vec<_> = (0..RUNS).map(|_| program.run(words)).collect::<anyhow::Result<_>>()?;
        let wall = median(costs.iter().map(|cost| cost.wall_ms));
        let cpu = median(costs.iter().map(|cost| cost.cpu_ms));
        let peak = median(costs.iter().map(|cost| cost.peak_mib));
        figures.push(Figure::less(what, "wall ms", wall).aim(AIM_MS));
        figures.push(Figure::less(what, "CPU ms", cpu));
        figures.push(Figure::less(what, "peak MiB", peak).aim(AIM_MIB));
        Ok(())
    };
    run("ipam check, 10,000 blocks, 300,000 addresses", &["ipam", "check"])?;
    let store = home::open(&address)?;
    let gone = (0..BLOCKS * HELD).step_by(100).map(|number| endpoint(number).0);
    let gone: Vec<_> = gone.map(|key| store::Op::Delete { key }).collect();
    for ops in gone.chunks(100) {
        store.commit(store::Txn { compares: Vec::new(), ops: ops.to_vec() })?;
    }
    drop(store);
    let words = ["ipam", "repair", "--plan", "--all-nodes"];
    run("ipam repair --plan, 3,000 leaks among them", &words)?;
    Ok(figures)
}

fn node(block: usize) -> String {
    format!("node-{}", block / 10)
}

fn container(number: usize) -> String {
    format!("{number:064x}")
}

fn network(block: usize) -> String {
    let first = block * SIZE;
    format!("10.{}.{}.{}", first >> 16 & 255, first >> 8 & 255, first & 255)
}

fn cluster() -> impl Iterator<Item = (String, Vec<u8>)> {
    let object = |plural: &str, kind: &str, name: String, spec: serde_json::Value| {
        let key = format!("/calico/resources/v3/projectcalico.org/{plural}/{name}");
        let value = json!({
            "kind": kind, "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name, "uid": "u", "creationTimestamp": "2025-06-01T12:00:00Z"},
            "spec": spec,
        });
        (key, text::json::to_string(&value).into_bytes())
    };
    let pool = json!({"cidr": "10.0.0.0/12", "blockSize": 26});
    let nodes =
        (0..BLOCKS).step_by(10).map(move |block| object("nodes", "Node", node(block), json!({})));
    std::iter::once(object("ippools", "IPPool", "pool".to_owned(), pool)).chain(nodes)
}

/// A block, the claim of its node, and the handles of its pods.
fn block_records(block: usize) -> Vec<(String, Vec<u8>)> {
    let (network, node) = (network(block), node(block));
    let pods = (0..HELD).map(|at| block * HELD + at);
    let attributes: Vec<_> = pods
        .clone()
        .map(|number| {
            json!({
                "handle_id": format!("k8s-pod-network.{}", container(number)),
                "secondary": {
                    "namespace": format!("team-{}", number % 200), "node": node,
                    "pod": format!("service-{number}"),
                    "timestamp": "2025-06-01 12:00:00.123456789 +0000 UTC",
                },
            })
        })
        .collect();
    let allocations: Vec<_> = (0..SIZE).map(|at| (at < HELD).then_some(at)).collect();
    let numbers: serde_json::Map<String, serde_json::Value> =
        (0..HELD).map(|at| (at.to_string(), json!(1_748_779_200_000_000_000_u64))).collect();
    let value = json!({
        "cidr": format!("{network}/26"), "affinity": format!("host:{node}"),
        "allocations": allocations, "unallocated": (HELD..SIZE).collect::<Vec<_>>(),
        "attributes": attributes, "sequenceNumber": 1_748_779_200_000_000_100_u64,
        "sequenceNumberForAllocation": numbers, "deleted": false,
    });
    let bytes = |value: &serde_json::Value| text::json::to_string(value).into_bytes();
    let mut records = vec![
        (format!("/calico/ipam/v2/assignment/ipv4/block/{network}-26"), bytes(&value)),
        (
            format!("/calico/ipam/v2/host/{node}/ipv4/block/{network}-26"),
            bytes(&json!({"state": "confirmed", "deleted": false})),
        ),
    ];
    let cidr = format!("{network}/26");
    records.extend(pods.map(|number| {
        let key = format!("/calico/ipam/v2/handle/k8s-pod-network.{}", container(number));
        (key, bytes(&json!({"block": {cidr.as_str(): 1}, "deleted": false})))
    }));
    records
}

fn endpoint(number: usize) -> (String, Vec<u8>) {
    let (block, at) = (number / HELD, number % HELD);
    let (node, pod) = (node(block), format!("service-{number}"));
    let namespace = format!("team-{}", number % 200);
    let name = format!("{}-k8s-{}-eth0", node.replace('-', "--"), pod.replace('-', "--"));
    let first = block * SIZE + at;
    let address = format!("10.{}.{}.{}/32", first >> 16 & 255, first >> 8 & 255, first & 255);
    let value = json!({
        "kind": "WorkloadEndpoint",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {
            "name": name, "namespace": namespace,
            "uid": format!("7c9e6679-7425-40de-944b-{number:012x}"),
            "creationTimestamp": "2025-06-01T12:00:00Z",
            "labels": {
                "app": pod, "projectcalico.org/namespace": namespace,
                "projectcalico.org/orchestrator": "k8s",
            },
        },
        "spec": {
            "orchestrator": "k8s", "node": node, "containerID": container(number), "pod": pod,
            "endpoint": "eth0", "serviceAccountName": "default", "ipNetworks": [address],
            "profiles": [format!("kns.{namespace}")], "interfaceName": format!("cali{number:011x}"),
        },
    });
    let key = format!("{}{namespace}/{name}", samples::WORKLOAD_ENDPOINTS);
    (key, text::json::to_string(&value).into_bytes())
}
