//! `lab heal`: puts right what `break` broke, and starts what does not run or answer.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Outcome;
use crate::agents;
use crate::arguments::{DatastoreKind, Format, Scenario};
use crate::datastore;
use crate::failure::Failure;
use crate::faults;
use crate::lab::Lab;
use crate::matrix::Matrix;
use crate::parallel;
use crate::place::Place;
use crate::pods;
use crate::processes;
use crate::screen::{Screen, count};
use crate::state::{Fault, Pod};
use crate::waiting::patiently;

/// How long all pairs may take to answer again.
const SETTLE_WAIT: Duration = Duration::from_secs(10);

/// What was done so far, told as it is done.
struct Healing {
    screen: Screen,
    outcome: Outcome,
    steps: Vec<Value>,
}

impl Healing {
    fn tell(&mut self, outcome: Outcome, what: &str) -> Result<(), Failure> {
        self.outcome = self.outcome.max(outcome);
        self.steps.push(json!({"isDone": outcome == Outcome::Fine, "what": what}));
        Ok(self.screen.say(&format!("{} {what}\n", self.screen.mark(outcome)))?)
    }
}

/// The command.
pub(crate) fn run(place: &Place, format: Format) -> Result<Outcome, Failure> {
    let (mut lab, _lock) = Lab::open_to_change(place)?;
    let screen = Screen::detect(format);
    let mut healing = Healing { screen, outcome: Outcome::Fine, steps: Vec::new() };
    let mut faults: Vec<Fault> = lab.state.broken.iter().rev().cloned().collect();
    // Agents first, then cables: they put right some of the rest by themselves.
    faults.sort_by_key(|fault| match fault.scenario {
        Scenario::AgentKilled => 0,
        Scenario::LinkDown => 1,
        _ => 2,
    });
    start_missing(&lab, &mut healing, &faults)?;
    for fault in &faults {
        put_right(&mut lab, &mut healing, fault)?;
    }
    // Both need agents, which run by now.
    reconnect_cut_off(&mut lab, &mut healing, &faults)?;
    pods::discard_begun(&mut lab)?;
    if healing.steps.is_empty() {
        screen.answer(&json!({"lab": place.name, "steps": []}))?;
        screen.say(&format!("{} nothing is broken on purpose\n", screen.mark(Outcome::Fine)))?;
        return Ok(Outcome::Fine);
    }
    let step = screen.step("pairs");
    let matrix = Matrix::settle(&lab, SETTLE_WAIT, |matrix| {
        let (said, limit) = (matrix.pairs().said(), SETTLE_WAIT.as_secs());
        step.progress(&format!("{said}, waiting up to {limit} s for the rest"));
    })?;
    step.clear()?;
    let pairs = matrix.pairs();
    screen.answer(&json!({
        "lab": place.name,
        "steps": healing.steps,
        "pairs": pairs.json(),
    }))?;
    let mark = screen.mark(matrix.outcome());
    screen.say(&format!("{mark} {}\n{}", pairs.said(), matrix.problems(screen)))?;
    Ok(healing.outcome.max(matrix.outcome()))
}

/// Heals one fault and forgets it; one that cannot be healed stays.
fn put_right(lab: &mut Lab, healing: &mut Healing, fault: &Fault) -> Result<(), Failure> {
    let healed = match faults::is_of_gone(lab, fault) {
        true => {
            let (name, target) = (faults::name(fault.scenario), &fault.target);
            Ok(format!("{target} is gone: there is no {name} to heal"))
        }
        false => faults::heal(lab, fault),
    };
    let (outcome, what) = match healed {
        Ok(what) => {
            lab.state
                .broken
                .retain(|other| other.scenario != fault.scenario || other.target != fault.target);
            (Outcome::Fine, what)
        }
        Err(failure) => {
            let name = faults::name(fault.scenario);
            (Outcome::Broken, format!("{name} {}: {}", fault.target, failure.what()))
        }
    };
    lab.save()?;
    healing.tell(outcome, &what)
}

/// What ended or hangs, by itself or by somebody's hand, is started again too.
fn start_missing(lab: &Lab, healing: &mut Healing, faults: &[Fault]) -> Result<(), Failure> {
    let running = processes::all(&lab.place);
    let runs = |part: &str| running.iter().any(|process| process.part.as_deref() == Some(part));
    if lab.state.datastore == DatastoreKind::Etcd && !runs(datastore::PART) {
        datastore::start_etcd(lab)?;
        healing.tell(Outcome::Fine, "etcd runs again")?;
    }
    for pod in &lab.state.pods {
        if !runs(&pods::part(&pod.name)) {
            pods::serve(lab, &pod.name)?;
            healing.tell(Outcome::Fine, &format!("the process of {} runs again", pod.name))?;
        }
    }
    let nodes = &lab.state.nodes;
    let asked = format!("asking {}", count(nodes.len(), "agent"));
    let are_well = patiently(&asked, agents::all_wait(nodes.len()), || {
        parallel::each(nodes, agents::N_ASKED, |node| agents::is_well(lab, &node.name))
    });
    for (node, is_well) in nodes.iter().zip(are_well) {
        let is_meant =
            |fault: &Fault| fault.scenario == Scenario::AgentKilled && fault.target == node.name;
        let is_next = faults.iter().any(is_meant) && !agents::is_running(lab, &node.name);
        if !is_well && !is_next {
            agents::kill(lab, &node.name)?;
            agents::start(lab, node)?;
            healing.tell(Outcome::Fine, &format!("the agent of {} runs again", node.name))?;
        }
    }
    Ok(())
}

/// Connects the pods anew whose interface somebody deleted by hand.
fn reconnect_cut_off(
    lab: &mut Lab,
    healing: &mut Healing,
    faults: &[Fault],
) -> Result<(), Failure> {
    let is_meant = |pod: &Pod| {
        faults.iter().any(|it| it.scenario == Scenario::InterfaceDeleted && it.target == pod.name)
    };
    let is_cut_off =
        |pod: &&Pod| faults::has_interface(lab, &pod.name).is_ok_and(|is_there| !is_there);
    let others = lab.state.pods.iter().filter(|pod| !is_meant(pod));
    let cut_off: Vec<String> = others.filter(is_cut_off).map(|pod| pod.name.clone()).collect();
    for pod in &cut_off {
        let done = faults::reconnect(lab, pod)?;
        lab.save()?;
        healing.tell(Outcome::Fine, &done)?;
    }
    Ok(())
}
