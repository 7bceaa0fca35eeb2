//! Every single field of every kind is spoilt, straight in the datastore: what cannot be used is
//! named, and everything else goes on.

mod running;

use std::collections::BTreeMap;
use std::net::IpAddr;

use intent::{Inputs, Read};
use model::felix::{Source, Sources};
use model::resource::Direction;
use policy::input::PolicyId;
use policy::intent::Intent;
use policy::render::{Renderer, Settings};
use policy::{Judge, Outcome, Packet};
use serde_json::json;

use crate::samples::{self, REQUESTS, Sample, problems};
use crate::spoil::spoilt;

pub(crate) const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// A node as the agent sees it, without its kernel.
struct Engine {
    inputs: Inputs,
    renderer: Renderer,
}

impl Engine {
    fn new() -> Engine {
        let mut inputs = Inputs::new("n1");
        for number in 0..3 {
            let name = format!("n1-cni-pod{number}-eth0");
            let endpoint = json!({
                "apiVersion": "projectcalico.org/v3", "kind": "WorkloadEndpoint",
                "metadata": {
                    "name": name, "namespace": "default",
                    "labels": { "role": if number == 0 { "victim" } else { "other" } },
                },
                "spec": {
                    "node": "n1", "orchestrator": "cni", "containerID": format!("pod{number}"),
                    "endpoint": "eth0", "interfaceName": format!("cali{number}"),
                    "ipNetworks": [format!("10.65.0.{number}/32")],
                },
            });
            let key = format!("{RESOURCES}/workloadendpoints/default/{name}");
            inputs.absorb(&key, Some(endpoint.to_string().as_bytes()));
        }
        inputs.complete();
        let mut engine = Engine { inputs, renderer: Renderer::new(Settings::default()) };
        engine.flush();
        engine
    }

    fn take(&mut self, key: &str, value: Option<&[u8]>) -> &Intent {
        self.inputs.absorb(key, value);
        self.flush();
        self.inputs.policy()
    }

    /// The same for a value that may not be usable, where another one was before it.
    fn take_after(&mut self, earlier: Option<&Read>, key: &str, value: &[u8]) -> &Intent {
        let instead = Read::new(key, value).and_then(|read| {
            let instead = read.instead(earlier?.clone())?;
            Some((instead, read.problems()?.to_vec()))
        });
        match instead {
            Some((instead, problems)) => self.inputs.keep(key, instead, 1, problems),
            None => self.inputs.absorb(key, Some(value)),
        };
        self.flush();
        self.inputs.policy()
    }

    fn flush(&mut self) {
        let dirty = self.inputs.flush_policy();
        let around = self.inputs.surroundings();
        let change = self.renderer.update(self.inputs.policy(), &dirty, &around);
        self.renderer.committed(change);
        let _ = (self.inputs.routes(), self.inputs.settings(), self.inputs.census());
        let _ = (self.inputs.twins(), self.inputs.disputes(), self.inputs.impostors());
    }
}

/// A sample of settings without those that the rules of writes let pass and no parameter takes.
fn usable(sample: &Sample) -> Sample {
    let mut sample = sample.clone();
    if !sample.key.contains("/felixconfigurations/") {
        return sample;
    }
    let read = Read::new(&sample.key, sample.value.to_string().as_bytes());
    for problem in read.iter().flat_map(|read| read.problems().unwrap_or_default()) {
        let field = problem.strip_prefix("spec.").and_then(|rest| rest.split(':').next());
        sample.value["spec"].as_object_mut().unwrap().remove(field.unwrap());
    }
    sample
}

/// Every corruption of a sample, one after the other in the place of the good one.
fn spoil_in_place(sample: &Sample, faults: &mut Vec<String>) -> (usize, usize) {
    let sample = &usable(sample);
    let mut engine = Engine::new();
    let before = engine.inputs.policy().clone();
    let good = sample.value.to_string();
    let with_good = engine.take(&sample.key, Some(good.as_bytes())).clone();
    let verdicts = verdicts(&with_good);
    let settings = engine.inputs.settings();
    let earlier = Read::new(&sample.key, good.as_bytes()).filter(Read::is_whole);
    let named = engine.inputs.quarantined();
    assert!(named.is_empty() || sample.name == REQUESTS, "{named:?}");
    let (mut n_all, mut n_named) = (0, 0);
    for bad in spoilt(sample, (0, stride(13))) {
        n_all += 1;
        let earlier = earlier.as_ref().filter(|_| bad.key == sample.key);
        engine.take_after(earlier, &bad.key, &bad.bytes);
        let invalid = problems(&bad.key, &bad.bytes);
        match engine.inputs.quarantined().get(&bad.key) {
            // What is good by the rules of writes may still have no meaning.
            Some(words) if words.iter().all(|it| it.contains(": ") || invalid.contains(it)) => {
                n_named += 1;
            }
            Some(words) => faults.push(format!("{} does not say where: {words:?}", bad.what)),
            None if invalid.is_empty() || !is_used(sample) => {}
            None => faults.push(format!("{} is not named: {invalid:?}", bad.what)),
        }
        let now = engine.inputs.policy();
        if !invalid.is_empty() && earlier.is_some() && opens(now, &with_good, &verdicts) {
            faults.push(format!("{} opens what was closed", bad.what));
        }
        let n_other = n_other(&settings, &engine.inputs.settings());
        if !invalid.is_empty() && n_other > 1 {
            faults.push(format!("{} costs {n_other} settings", bad.what));
        }
        if *engine.take(&sample.key, Some(good.as_bytes())) != with_good {
            faults.push(format!("{} leaves something behind", bad.what));
            break;
        }
    }
    if *engine.take(&sample.key, None) != before || !engine.inputs.quarantined().is_empty() {
        faults.push(format!("{} leaves something behind", sample.name));
    }
    (n_all, n_named)
}

/// What becomes of packets to and from the endpoint that the samples of policies select.
fn verdicts(intent: &Intent) -> Vec<Outcome> {
    let victim = intent.workloads.get("default/n1-cni-pod0-eth0").unwrap();
    let judge = Judge { sets: &intent.sets };
    let mut verdicts = Vec::new();
    for direction in [Direction::Ingress, Direction::Egress] {
        let rules = intent.rules(&victim.tiers, &victim.profiles, direction);
        for packet in packets() {
            verdicts.push(judge.endpoint(&rules, &packet).outcome);
        }
    }
    verdicts
}

fn packets() -> Vec<Packet> {
    let ends = ["10.1.0.5", "10.1.1.5", "10.2.0.5", "10.65.0.1", "192.0.2.1"];
    let ends = ends.map(|it| it.parse::<IpAddr>().unwrap());
    let sorts = [(6, Some(80), None), (6, Some(8080), None), (17, Some(53), None)];
    let more = [(1, None, Some((8, 0))), (1, None, Some((3, 1))), (132, Some(9), None)];
    let mut packets = Vec::new();
    for (source, destination) in ends.iter().flat_map(|from| ends.map(|to| (*from, to))) {
        for (protocol, port, icmp) in sorts.into_iter().chain(more) {
            let ports = port.map(|port| (1024, port));
            let (before_nat, is_of_host) = (None, false);
            packets.push(Packet {
                source,
                destination,
                protocol,
                ports,
                icmp,
                before_nat,
                is_of_host,
            });
        }
    }
    packets
}

/// Whether a policy is gone, or something is allowed that was denied when all could be read.
fn opens(now: &Intent, before: &Intent, verdicts_before: &[Outcome]) -> bool {
    let opened =
        |(before, now): (&Outcome, &Outcome)| *before == Outcome::Deny && *now == Outcome::Allow;
    // Staged ones decide nothing.
    let enforced = |id: &&PolicyId| !id.kind.is_staged();
    now.policies.keys().filter(enforced).ne(before.policies.keys().filter(enforced))
        || now.hosts.keys().ne(before.hosts.keys())
        || verdicts_before.iter().zip(&verdicts(now)).any(opened)
}

/// How many settings are not what they were.
fn n_other(before: &Sources, now: &Sources) -> usize {
    let count = |(source, texts): (&Source, &BTreeMap<String, String>)| {
        let now = now.get(source).cloned().unwrap_or_default();
        texts.iter().filter(|(name, text)| now.get(*name) != Some(text)).count()
    };
    before.iter().map(count).sum()
}

/// Whether the agent acts on it by the rules of writes; of the others it only asks that they can be
/// read.
pub(crate) fn is_used(sample: &Sample) -> bool {
    let unused = [
        "BGP peers by labels",
        "BGP peers that are workloads",
        "BGP filter",
        "BGP peer",
        "node status",
        "cluster",
        "settings of addresses",
        "reservation",
        "controllers",
        "migration",
    ];
    !unused.contains(&sample.name)
}

/// One in so many is tried; all of them where that is asked for.
pub(crate) fn stride(usual: usize) -> usize {
    if std::env::var_os("MARGAY_SPOIL_ALL").is_some() { 1 } else { usual }
}

#[test]
fn every_field_has_a_good_value_to_spoil() {
    // Where rules of writes never allow one.
    let never = ["ingress.destination.services", "egress.source.services", "egress.http"];
    let mut missing = samples::missing(&samples::all());
    missing.retain(|path| !never.iter().any(|it| path.ends_with(it)));
    assert!(missing.is_empty(), "{} fields: {missing:#?}", missing.len());
}

#[test]
fn the_engine_bears_every_field_of_every_kind_spoilt() {
    let mut faults = Vec::new();
    let mut total = (0, 0);
    for sample in samples::all() {
        let counts = spoil_in_place(&sample, &mut faults);
        total = (total.0 + counts.0, total.1 + counts.1);
    }
    eprintln!("{} spoilt, {} of them put aside", total.0, total.1);
    assert!(total.0 > 1000 && total.1 * 2 > total.0, "{total:?}");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
