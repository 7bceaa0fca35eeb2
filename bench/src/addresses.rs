//! What it costs to look at every record of addresses of a large cluster, and to plan its repair.
//!
//! 10,000 blocks of 64 addresses, 30 of them held by pods, each with its handle and its endpoint;
//! for the plan every hundredth endpoint is missing, so that its address is leaked.

use std::path::Path;

use serde_json::json;

use crate::Options;
use crate::home;
use crate::process::{Cost, Program};
use crate::report::{Figure, median};
use crate::samples::{self, Pod, container};

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
    let before = options.before.as_ref().map(|before| before.display().to_string());
    let programs: Vec<(&str, Program)> = std::iter::once(("", margay))
        .chain(before.map(|before| ("before: ", before)))
        .map(|(name, margay)| (name, program(&margay, &address, folder.path())))
        .collect();
    let mut figures = Vec::new();
    let mut run = |what: &str, words: &[&str]| -> anyhow::Result<()> {
        options.say(what);
        let mut costs = vec![Vec::new(); programs.len()];
        for _ in 0..RUNS {
            for ((_, program), costs) in programs.iter().zip(&mut costs) {
                costs.push(program.run(words)?);
            }
        }
        for ((name, _), costs) in programs.iter().zip(&costs) {
            figures.extend(told(&format!("{name}{what}"), costs));
        }
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

fn program(margay: &str, address: &str, folder: &Path) -> Program {
    let state = folder.join("state").display().to_string();
    Program {
        // A plan with something to do ends with 1, which is no failure here.
        words: ["sh", "-c", "\"$0\" \"$@\" || test $? = 1", margay].map(str::to_owned).to_vec(),
        environment: vec![
            ("MARGAY_STORE".to_owned(), address.to_owned()),
            ("MARGAY_STATE_DIR".to_owned(), state.clone()),
            ("MARGAY_RUN_DIR".to_owned(), state),
        ],
    }
}

fn told(what: &str, costs: &[Cost]) -> [Figure; 3] {
    [
        Figure::less(what, "wall ms", median(costs.iter().map(|it| it.wall_ms))).aim(AIM_MS),
        Figure::less(what, "CPU ms", median(costs.iter().map(|it| it.cpu_ms))),
        Figure::less(what, "peak MiB", median(costs.iter().map(|it| it.peak_mib))).aim(AIM_MIB),
    ]
}

fn node(block: usize) -> String {
    format!("node-{}", block / 10)
}

fn namespace(number: usize) -> String {
    format!("team-{}", number % 200)
}

fn pod(number: usize) -> String {
    format!("service-{number}")
}

fn network(block: usize) -> String {
    samples::address(block * SIZE).to_string()
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
                    "namespace": namespace(number), "node": node, "pod": pod(number),
                    "timestamp": format!("2025-06-01 12:00:00.{number:09} +0000 UTC"),
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
    let (namespace, app) = (namespace(number), format!("service-{}", number % 1000));
    let (name, node) = (pod(number), node(block));
    let address = samples::address(block * SIZE + at);
    samples::endpoint_of(&Pod { number, namespace, app, name, node, address })
}
