//! Random endpoints of the node, with random policies of every sort: after each change packets to
//! it, from it and through it do what the oracle says.

use std::collections::BTreeSet;

use fastrand::Rng;
use policy::interfaces::Interfaces;
use policy::render::Settings;
use serde_json::{Value, json};

use crate::dataplane::{self, Dataplane};
use crate::hosts::{LAST, Question, Stage, host_endpoint, interfaces, mismatches};
use crate::probes::Prober;
use crate::random::{Changing, place};

const N_SEEDS: u64 = 20;
/// Flushes in a sequence.
const N_STEPS: usize = 5;
/// Packets after each of them.
const N_QUESTIONS: usize = 200;

impl Changing {
    fn host(&mut self) -> Value {
        let mut host = host_endpoint(self.pick(&["eth0", "eth1", "side", "side6", "all"]));
        if self.is(3) {
            host["spec"]["profiles"] = json!([self.pick(&["kns.shop", "kns.dark", "gone"])]);
        }
        if self.is(3) {
            host["metadata"]["labels"]["app"] = json!("web");
        }
        host
    }

    fn host_policy(&mut self) -> Value {
        let mut policy = self.policy();
        let selectors = ["host == 'n1'", "by == 'name'", "by != 'name'", "has(host) || has(app)"];
        policy["kind"] = json!(self.pick(&["GlobalNetworkPolicy", "StagedGlobalNetworkPolicy"]));
        if !self.is(8) {
            policy["kind"] = json!("GlobalNetworkPolicy");
        }
        policy["metadata"] = json!({ "name": policy["metadata"]["name"] });
        let spec = &mut policy["spec"];
        spec["selector"] = json!(self.pick(&selectors));
        match self.rng.u8(0..5) {
            0 => {}
            1 | 2 => spec["applyOnForward"] = json!(true),
            3 => {
                spec["applyOnForward"] = json!(true);
                spec["doNotTrack"] = json!(true);
            }
            _ => {
                spec["applyOnForward"] = json!(true);
                spec["preDNAT"] = json!(true);
                spec["types"] = json!(["Ingress"]);
                spec.as_object_mut().unwrap().shift_remove("egress");
            }
        }
        policy
    }

    /// What is known of the interfaces: one may not be there yet, or have no addresses.
    fn moved(&mut self) -> Interfaces {
        let mut known = interfaces();
        known.retain(|_, _| !self.is(4));
        known.values_mut().filter(|_| self.is(4)).for_each(BTreeSet::clear);
        known
    }

    fn change_hosts(&mut self) {
        for _ in 0..self.rng.usize(2..7) {
            let object = if self.is(3) { self.host() } else { self.host_policy() };
            let is_gone = self.is(4);
            match is_gone {
                true => self.remove(&place(&object)),
                false => self.put(object),
            }
        }
    }
}

fn settings(seed: u64) -> Settings {
    let mut settings = dataplane::settings();
    if seed.is_multiple_of(2) {
        settings.failsafe_inbound.clear();
        settings.failsafe_outbound.clear();
    }
    settings.failsafe_outbound.push(LAST);
    settings
}

fn sequence(stage: &Stage, all: &[Question<'_>], prober: &mut Prober, seed: u64) {
    let mut changing = Changing::new(&stage.cluster, seed);
    let mut dataplane = Dataplane::new(&prober.world.node, settings(seed));
    dataplane.surroundings.interfaces = interfaces();
    changing.graph.flush();
    dataplane.install(changing.graph.intent().clone());
    for step in 0..N_STEPS {
        changing.change_hosts();
        let dirty = changing.graph.flush();
        changing.check();
        dataplane.surroundings.interfaces = changing.moved();
        dataplane.update(changing.graph.intent().clone(), &dirty);
        let some = Rng::with_seed(seed).choose_multiple(all.iter(), N_QUESTIONS);
        let some: Vec<Question<'_>> = some.into_iter().cloned().collect();
        let wrong = mismatches(prober, &mut dataplane, &some);
        let objects: Vec<String> = changing.objects.values().map(Value::to_string).collect();
        assert!(
            wrong.is_empty(),
            "MARGAY_POLICY_SEED={seed}, step {step}, {} wrong:\n{}\nobjects:\n{}",
            wrong.len(),
            wrong[..wrong.len().min(10)].join("\n"),
            objects.join("\n")
        );
    }
}

#[test]
fn the_kernel_follows_random_changes_of_hosts() {
    let stage = Stage::new();
    let Some(mut prober) = stage.prober() else { return };
    let all = stage.questions(&[], 0);
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seeds = match number("MARGAY_POLICY_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MARGAY_POLICY_SEEDS").unwrap_or(N_SEEDS),
    };
    for seed in seeds {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            sequence(&stage, &all, &mut prober, seed);
        }));
        assert!(done.is_ok(), "MARGAY_POLICY_SEED={seed} shows it alone");
    }
    // Of both there is plenty.
    let n_fewest = prober.n_arrived.min(prober.n_dropped);
    assert!(n_fewest > (prober.n_arrived + prober.n_dropped) / 10, "{n_fewest}");
}
