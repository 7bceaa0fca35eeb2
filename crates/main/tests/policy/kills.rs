//! Packets flow through the shipped agent's rules while policies change and the agent is killed at
//! any moment: what no state allows never passes, and what each state allows is never lost.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use kernel::Netns;
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::conntrack;
use crate::node::{Node, may_run};
use crate::packet::{self, TCP};
use crate::probes::{End, Fate, Place, Probe, Prober};
use crate::world::{World, run};

const N_ROUNDS: usize = 16;
/// Allowed by each of the policies, by some, and by none.
const PORTS: [u16; 3] = [80, 443, 22];

/// Allows one port, or two.
fn policy(is_wide: bool) -> Value {
    let ports = if is_wide { json!([80, 443]) } else { json!([80]) };
    let rule = json!({ "action": "Allow", "protocol": "TCP", "destination": { "ports": ports } });
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
        "metadata": { "name": "web" },
        "spec": { "selector": "all()", "types": ["Ingress"], "ingress": [rule] },
    })
}

fn apply(node: &Node, is_wide: bool) {
    let file = node.path("policy.json");
    std::fs::write(&file, policy(is_wide).to_string()).unwrap();
    let applied = node.margay(&["apply", "-f", file.to_str().unwrap()]).output().unwrap();
    assert!(applied.status.success(), "{applied:?}");
}

/// The ends of a node's containers, whose neighbours are known beforehand.
fn ends(node: &Node, n_containers: usize) -> Vec<End> {
    let host = Netns::open(node.netns("host")).unwrap();
    let mut ends = Vec::new();
    for number in 0..n_containers {
        let answer = node.must("ADD", &format!("pod{number}"), number);
        let ips = answer["ips"].as_array().unwrap().iter();
        let addresses: Vec<IpAddr> = ips
            .map(|it| it["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap())
            .collect();
        let name = format!("c{number}");
        let netns = Netns::open(node.netns(&name)).unwrap();
        let gateway = "lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent";
        let inside = format!(
            "neighbour replace 169.254.1.1 {gateway}\n\
             neighbour replace fe80::ecee:eeff:feee:eeee {gateway}\n"
        );
        run(&netns, "ip", &["-batch", "-"], &inside);
        let link: Value =
            serde_json::from_str(&run(&netns, "ip", &["-j", "link", "show", "eth0"], "")).unwrap();
        let mac = link[0]["address"].as_str().unwrap();
        for address in &addresses {
            let found = run(&host, "ip", &["-j", "route", "get", &address.to_string()], "");
            let route: Value = serde_json::from_str(&found).unwrap();
            let device = route[0]["dev"].as_str().unwrap();
            let line =
                format!("neighbour replace {address} lladdr {mac} dev {device} nud permanent\n");
            run(&host, "ip", &["-batch", "-"], &line);
        }
        ends.push(End::open(&name, &netns, addresses));
    }
    ends
}

/// Connections to each of the ports, in both families.
fn send(prober: &mut Prober, n_sent: &mut u16) -> Vec<(u16, bool, Fate)> {
    conntrack::forget(&prober.world.node);
    let mut probes = Vec::new();
    for (port, is_ipv4) in PORTS.iter().flat_map(|port| [(*port, true), (*port, false)]) {
        for (from, to) in [(Place::Pod(0), Place::Pod(1)), (Place::Pod(1), Place::Pod(0))] {
            *n_sent = n_sent.wrapping_add(1);
            let (source, destination) =
                (prober.end(from).address(is_ipv4), prober.end(to).address(is_ipv4));
            let ports = Some((1024 | *n_sent, port));
            let packet = packet::plain(source, destination, TCP, ports);
            probes.push((port, is_ipv4, Probe { from, to, packet, is_traced: true }));
        }
    }
    let only: Vec<Probe> = probes.iter().map(|it| it.2.clone()).collect();
    let fates = prober.send(&only);
    probes.into_iter().zip(fates).map(|((port, is_ipv4, _), fate)| (port, is_ipv4, fate)).collect()
}

/// Changes the policy and kills the agent, at moments that nobody foresees.
fn torment(node: &mut Node, rng: &mut Rng) {
    for round in 0..N_ROUNDS {
        apply(node, round % 2 == 0);
        std::thread::sleep(Duration::from_millis(rng.u64(0..60)));
        match rng.u8(0..3) {
            0 => node.kill_agent(false),
            1 => {
                node.kill_agent(true);
                node.start_agent();
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(rng.u64(0..120)));
    }
}

#[test]
fn an_agent_that_is_killed_lets_nothing_through_and_loses_nothing() {
    if !may_run() {
        return;
    }
    let everywhere = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut node = Node::new(3);
    node.start_agent();
    let mut pods = ends(&node, 3);
    apply(&node, false);
    let host = Netns::open(node.netns("host")).unwrap();
    let own = crate::world::NODE_ADDRESSES.to_vec();
    let (remote, end) = (pods.pop().unwrap(), End::open("node", &host, own));
    let mut prober = Prober::new(World { node: host, pods, remote, aside: None, host: end });
    let mut n_sent = 0;
    let started = Instant::now();
    let is_narrow = |it: &(u16, bool, Fate)| it.2.arrived == (it.0 == 80);
    while !send(&mut prober, &mut n_sent).iter().all(is_narrow) {
        assert!(started.elapsed() < Duration::from_secs(60), "the policy is not in force");
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sched_setaffinity(Pid::from_raw(0), &everywhere).unwrap();
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                torment(&mut node, &mut Rng::with_seed(3));
            }));
            is_over.store(true, Ordering::SeqCst);
            assert!(done.is_ok(), "the agent did not live through it");
        });
        while !is_over.load(Ordering::SeqCst) {
            for (port, is_ipv4, fate) in send(&mut prober, &mut n_sent) {
                let is_wrong = match port {
                    80 => !fate.arrived || fate.answered == Some(false),
                    22 => fate.arrived,
                    _ => false,
                };
                assert!(!is_wrong, "port {port}, IPv4: {is_ipv4}: {fate:?}");
            }
        }
    });
    // The last policy allows one port only.
    let started = Instant::now();
    while !send(&mut prober, &mut n_sent).iter().all(is_narrow) {
        assert!(started.elapsed() < Duration::from_secs(60), "the last policy is not in force");
    }
}
