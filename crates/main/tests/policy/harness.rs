//! What the other tests rest on: a packet that arrives is seen, and one that is dropped is not.

use std::net::IpAddr;

use crate::packet::{self, ICMP, ICMPV6, SCTP, TCP, UDP};
use crate::probes::{Place, Probe, Prober};
use crate::trace::Said;
use crate::world::{Pod, run, world};

fn two_pods() -> Option<Prober> {
    let pod = |number: u8| Pod {
        interface: format!("cali{number}"),
        addresses: vec![
            IpAddr::from([10, 65, 0, number]),
            format!("fd65::{number}").parse().unwrap(),
        ],
    };
    let elsewhere = ["192.0.2.1", "2001:db8::1"].map(|it| it.parse().unwrap());
    world(&[pod(1), pod(2)], &elsewhere).map(Prober::new)
}

fn every_sort(prober: &Prober) -> Vec<Probe> {
    let places = [Place::Pod(0), Place::Pod(1), Place::Remote, Place::Node];
    let mut probes = Vec::new();
    for is_ipv4 in [true, false] {
        for (from, to) in places.iter().flat_map(|from| places.map(|to| (*from, to))) {
            let has_pod = [from, to].iter().any(|it| matches!(it, Place::Pod(_)));
            if from == to || !has_pod {
                continue;
            }
            let (source, destination) =
                (prober.end(from).address(is_ipv4), prober.end(to).address(is_ipv4));
            let (icmp, echo) = if is_ipv4 { (ICMP, 8) } else { (ICMPV6, 128) };
            for protocol in [TCP, UDP, icmp, SCTP, 136, 253] {
                if to == Place::Node && ![TCP, icmp].contains(&protocol) {
                    continue;
                }
                let ports = ![icmp, 253].contains(&protocol);
                let ports = ports.then_some((4000, 80));
                let mut packet = packet::plain(source, destination, protocol, ports);
                packet.icmp = (protocol == icmp).then_some((echo, 0));
                probes.push(Probe { from, to, packet, is_traced: true });
            }
        }
    }
    probes
}

#[test]
fn everything_arrives_where_nothing_forbids_it() {
    let Some(mut prober) = two_pods() else { return };
    let probes = every_sort(&prober);
    for (probe, fate) in probes.iter().zip(prober.send(&probes)) {
        assert!(fate.arrived && fate.answered != Some(false), "{probe:?} {fate:?}");
    }
}

#[test]
fn what_a_rule_drops_is_not_seen_and_the_trace_names_the_rule() {
    let Some(mut prober) = two_pods() else { return };
    let rules = "table inet t {
        chain f {
            type filter hook forward priority 0
            meta l4proto udp drop
            meta l4proto 253 accept
        }
    }";
    run(&prober.world.node, "nft", &["-f", "-"], rules);
    let probes: Vec<Probe> = every_sort(&prober)
        .into_iter()
        .filter(|it| ![it.from, it.to].contains(&Place::Node))
        .collect();
    for (probe, fate) in probes.iter().zip(prober.send(&probes)) {
        let said: Vec<&Said> = fate.trace.iter().map(|step| &step.verdict).collect();
        let wanted = match probe.packet.protocol {
            UDP => (false, vec![&Said::Drop]),
            253 => (true, vec![&Said::Accept]),
            // The end of the chain.
            _ => (true, vec![&Said::Continue]),
        };
        assert_eq!((fate.arrived, said), wanted, "{probe:?} {fate:?}");
    }
}
