//! `lab break` and `lab heal`: what goes wrong in real clusters, on purpose and with a way back.

mod records;
mod routes;
mod tables;

use std::time::Duration;

use clap::ValueEnum as _;
use kernel::{LinkName, Netlink, Operation};
use serde_json::{Value, json};

use crate::Outcome;
use crate::agents;
use crate::arguments::{Break, DatastoreKind, Format, Scenario};
use crate::cni;
use crate::datastore;
use crate::failure::Failure;
use crate::lab::{Lab, flag};
use crate::matrix::Matrix;
use crate::parallel;
use crate::place::Place;
use crate::pods;
use crate::processes;
use crate::screen::{Screen, count};
use crate::state::{Fault, Node, Pod};
use crate::topology;
use crate::waiting::patiently;

/// How long all pairs may take to answer again.
const SETTLE_WAIT: Duration = Duration::from_secs(10);

/// The name of a scenario as it is typed.
pub(crate) fn name(scenario: Scenario) -> String {
    let value = scenario.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What a scenario did: a sentence, and what healing needs.
struct Done {
    what: String,
    saved: Value,
}

impl Done {
    fn new(what: impl Into<String>, saved: Value) -> Self {
        Self { what: what.into(), saved }
    }
}

/// `lab break`.
pub(crate) fn break_command(place: &Place, asked: &Break) -> Result<Outcome, Failure> {
    let (mut lab, _lock) = Lab::open_to_change(place)?;
    let scenario = asked.scenario;
    let target = target(&lab, scenario, asked.target.as_deref())?;
    let done = cause(&lab, scenario, &target)?;
    lab.state.broken.push(Fault { scenario, target, saved: done.saved });
    lab.save()?;
    let screen = Screen::detect(Format::default());
    let flag = flag(&place.name);
    screen.say(&format!("{} {}\n", screen.mark(Outcome::Degraded), done.what))?;
    screen.say(&format!("see: margay lab status{flag}\nundo: margay lab heal{flag}\n"))?;
    Ok(Outcome::Fine)
}

/// Whether a scenario is about a node, and not about a pod.
pub(crate) fn is_of_node(scenario: Scenario) -> bool {
    use Scenario::{AgentKilled, GhostEndpoint, LinkDown, RouteDeleted, TableFlushed};
    matches!(scenario, AgentKilled | LinkDown | RouteDeleted | TableFlushed | GhostEndpoint)
}

/// The node or pod that is meant: by default of the second node, as the first is looked at most.
fn target(lab: &Lab, scenario: Scenario, named: Option<&str>) -> Result<String, Failure> {
    let is_of_node = is_of_node(scenario);
    let state = &lab.state;
    if let Some(name) = named {
        let asking = self::name(scenario);
        match is_of_node {
            true => state.wanted_node(&asking, name).map(|_| ())?,
            false => state.wanted_pod(&asking, name).map(|_| ())?,
        }
        return Ok(name.to_owned());
    }
    let node = state.nodes.get(1).or(state.nodes.first());
    let node = node.ok_or_else(|| Failure::new("the lab has no nodes"))?;
    if is_of_node {
        return Ok(node.name.clone());
    }
    let pod = state.pods_of(&node.name).next().or(state.pods.first());
    pod.map(|pod| pod.name.clone()).ok_or_else(|| {
        let flag = flag(&lab.place.name);
        Failure::new("the lab has no pods").help(format!("margay lab pod add{flag} {}", node.name))
    })
}

fn node<'a>(lab: &'a Lab, name: &str) -> Result<&'a Node, Failure> {
    lab.state.node(name).ok_or_else(|| lab.state.unknown(name))
}

fn pod<'a>(lab: &'a Lab, name: &str) -> Result<&'a Pod, Failure> {
    lab.state.pod(name).ok_or_else(|| lab.state.unknown(name))
}

fn cause(lab: &Lab, scenario: Scenario, target: &str) -> Result<Done, Failure> {
    match scenario {
        Scenario::AgentKilled => {
            let n = agents::kill(lab, target)?;
            if n == 0 {
                let heal = format!("margay lab heal{}", flag(&lab.place.name));
                return Err(Failure::new(format!("no agent runs on {target}, so none was killed"))
                    .help(format!("{heal}     starts it")));
            }
            let processes = count(n, "process");
            Ok(Done::new(format!("the agent of {target} is killed ({processes})"), Value::Null))
        }
        Scenario::LinkDown => {
            topology::plug(lab, target, false)?;
            Ok(Done::new(format!("the cable of {target} is pulled"), Value::Null))
        }
        Scenario::RouteDeleted => {
            let saved = routes::delete(lab, target)?;
            let n = count(saved.as_array().map_or(0, Vec::len), "route");
            Ok(Done::new(format!("{n} to other nodes' pods deleted on {target}"), saved))
        }
        Scenario::InterfaceDeleted => {
            let pod = pod(lab, target)?;
            let mut netlink = Netlink::in_netns(&lab.netns(&pod.node)?)?;
            let link = topology::find(&mut netlink, &pod.interface)?;
            netlink.apply(&Operation::DeleteLink(link.index))?;
            let what = format!("{} of {target} is deleted on {}", pod.interface, pod.node);
            Ok(Done::new(what, json!({"container": pod.container})))
        }
        Scenario::TableFlushed => {
            let saved = tables::flush(lab, target)?;
            let n = count(saved.as_array().map_or(0, Vec::len), "table");
            Ok(Done::new(format!("{n} of the packet filter flushed on {target}"), saved))
        }
        Scenario::EndpointDeleted => {
            let pod = pod(lab, target)?;
            let saved = records::delete(lab, pod)?;
            Ok(Done::new(format!("the record of {target} is deleted from the datastore"), saved))
        }
        Scenario::GhostEndpoint => {
            let saved = records::add_ghost(lab, node(lab, target)?)?;
            let what = format!("the datastore has a record of a pod on {target} that is not there");
            Ok(Done::new(what, saved))
        }
        Scenario::DuplicateAddress => {
            let (on, saved) = records::add_twin(lab, pod(lab, target)?)?;
            let what =
                format!("the datastore has a second pod with the address of {target}, on {on}");
            Ok(Done::new(what, saved))
        }
    }
}

/// Whether a fault is no longer there, and how that is said; what cannot be looked at is still so.
pub(crate) fn put_right(lab: &Lab, fault: &Fault) -> Option<&'static str> {
    const BY_AGENT: &str = "put right by the agent";
    const SINCE: &str = "put right since";
    let Fault { scenario, target, saved } = fault;
    let (is_over, how) = match scenario {
        Scenario::AgentKilled => (Ok(agents::is_running(lab, target)), SINCE),
        Scenario::LinkDown => (topology::is_plugged(lab, target), SINCE),
        Scenario::RouteDeleted => (routes::are_back(lab, target, saved), BY_AGENT),
        Scenario::TableFlushed => (tables::are_back(lab, target, saved), BY_AGENT),
        Scenario::InterfaceDeleted => (has_interface(lab, target), SINCE),
        Scenario::EndpointDeleted => (records::is_there(lab, saved), BY_AGENT),
        Scenario::GhostEndpoint | Scenario::DuplicateAddress => {
            (records::is_there(lab, saved).map(|is_there| !is_there), SINCE)
        }
    };
    is_over.unwrap_or(false).then_some(how)
}

/// Whether the node's side of a pod's interface is there.
fn has_interface(lab: &Lab, pod: &str) -> Result<bool, Failure> {
    let pod = self::pod(lab, pod)?;
    let mut netlink = Netlink::in_netns(&lab.netns(&pod.node)?)?;
    Ok(netlink.link_by_name(&LinkName::new(&pod.interface)?)?.is_some())
}

/// `lab heal`.
pub(crate) fn heal_command(place: &Place) -> Result<Outcome, Failure> {
    let (mut lab, _lock) = Lab::open_to_change(place)?;
    let screen = Screen::detect(Format::default());
    let mut outcome = Outcome::Fine;
    let mut faults: Vec<Fault> = std::mem::take(&mut lab.state.broken).into_iter().rev().collect();
    // Agents first, then cables: they put right some of the rest by themselves.
    faults.sort_by_key(|fault| match fault.scenario {
        Scenario::AgentKilled => 0,
        Scenario::LinkDown => 1,
        _ => 2,
    });
    let n_faults = faults.len();
    let mut n_started = start_missing(&lab, screen, &faults)?;
    n_started += reconnect_cut_off(&mut lab, screen, &faults)?;
    pods::discard_begun(&mut lab)?;
    for fault in faults {
        let healed = match is_of_gone(&lab, &fault) {
            true => {
                let (name, target) = (name(fault.scenario), &fault.target);
                Ok(format!("{target} is gone: there is no {name} to heal"))
            }
            false => heal(&mut lab, &fault),
        };
        let (mark, what) = match healed {
            Ok(what) => (Outcome::Fine, what),
            Err(failure) => {
                let what = format!("{} {}: {}", name(fault.scenario), fault.target, failure.what());
                lab.state.broken.insert(0, fault);
                (Outcome::Broken, what)
            }
        };
        outcome = outcome.max(mark);
        lab.save()?;
        screen.say(&format!("{} {what}\n", screen.mark(mark)))?;
    }
    if n_faults == 0 && n_started == 0 {
        screen.say(&format!("{} nothing is broken on purpose\n", screen.mark(Outcome::Fine)))?;
        return Ok(outcome);
    }
    let step = screen.step("pairs");
    let matrix = Matrix::settle(&lab, SETTLE_WAIT, |matrix| {
        let (fine, all) = matrix.pairs();
        let limit = SETTLE_WAIT.as_secs();
        step.progress(&format!("{fine}/{all} answer, waiting up to {limit} s for the rest"));
    })?;
    step.clear()?;
    let (fine, all) = matrix.pairs();
    let mark = screen.mark(matrix.outcome());
    screen.say(&format!("{mark} {fine}/{all} pairs answer\n{}", matrix.problems(screen)))?;
    Ok(outcome.max(matrix.outcome()))
}

/// What ended by itself, or by somebody's hand, is started again too.
fn start_missing(lab: &Lab, screen: Screen, faults: &[Fault]) -> Result<usize, Failure> {
    let mut n_started = 0;
    let mark = screen.mark(Outcome::Fine);
    let running = processes::all(&lab.place);
    let runs = |part: &str| running.iter().any(|process| process.part.as_deref() == Some(part));
    if lab.state.datastore == DatastoreKind::Etcd && !runs(datastore::PART) {
        datastore::start_etcd(lab)?;
        n_started += 1;
        screen.say(&format!("{mark} etcd runs again\n"))?;
    }
    for pod in &lab.state.pods {
        if !runs(&pods::part(&pod.name)) {
            pods::serve(lab, &pod.name)?;
            n_started += 1;
            screen.say(&format!("{mark} the process of {} runs again\n", pod.name))?;
        }
    }
    let nodes = &lab.state.nodes;
    let asked = format!("asking {}", count(nodes.len(), "agent"));
    let answer = patiently(&asked, agents::all_wait(nodes.len()), || {
        parallel::each(nodes, agents::N_ASKED, |node| agents::is_well(lab, &node.name))
    });
    for (node, is_well) in nodes.iter().zip(answer) {
        let is_meant =
            |fault: &Fault| fault.scenario == Scenario::AgentKilled && fault.target == node.name;
        if !is_well && !faults.iter().any(is_meant) {
            agents::kill(lab, &node.name)?;
            agents::start(lab, node)?;
            n_started += 1;
            screen.say(&format!("{mark} the agent of {} runs again\n", node.name))?;
        }
    }
    Ok(n_started)
}

/// Connects the pods anew whose interface somebody deleted by hand.
fn reconnect_cut_off(lab: &mut Lab, screen: Screen, faults: &[Fault]) -> Result<usize, Failure> {
    let is_meant = |pod: &Pod| {
        faults.iter().any(|it| it.scenario == Scenario::InterfaceDeleted && it.target == pod.name)
    };
    let is_cut_off = |pod: &&Pod| has_interface(lab, &pod.name).is_ok_and(|is_there| !is_there);
    let others = lab.state.pods.iter().filter(|pod| !is_meant(pod));
    let cut_off: Vec<String> = others.filter(is_cut_off).map(|pod| pod.name.clone()).collect();
    for pod in &cut_off {
        let done = reconnect(lab, pod)?;
        lab.save()?;
        screen.say(&format!("{} {done}\n", screen.mark(Outcome::Fine)))?;
    }
    Ok(cut_off.len())
}

/// Whether a fault was about something that is not there any more.
fn is_of_gone(lab: &Lab, fault: &Fault) -> bool {
    // A false record stays in the datastore whatever becomes of the pod that it is like.
    let leaves_record =
        matches!(fault.scenario, Scenario::GhostEndpoint | Scenario::DuplicateAddress);
    let state = &lab.state;
    let target = &fault.target;
    !leaves_record && state.node(target).is_none() && state.pod(target).is_none()
}

/// Forgets the faults of a pod that is removed; the records that it was given are removed too.
pub(crate) fn forget(lab: &mut Lab, pod: &str) -> Result<(), Failure> {
    let broken = std::mem::take(&mut lab.state.broken);
    let (its, others): (Vec<Fault>, Vec<Fault>) =
        broken.into_iter().partition(|fault| fault.target == pod);
    lab.state.broken = others;
    for fault in its.iter().filter(|fault| fault.scenario == Scenario::DuplicateAddress) {
        records::remove(lab, pod, &fault.saved)?;
    }
    Ok(())
}

fn heal(lab: &mut Lab, fault: &Fault) -> Result<String, Failure> {
    let target = fault.target.as_str();
    match fault.scenario {
        Scenario::AgentKilled => {
            if agents::is_running(lab, target) {
                return Ok(format!("the agent of {target} runs already"));
            }
            agents::start(lab, node(lab, target)?)?;
            Ok(format!("the agent of {target} runs again"))
        }
        Scenario::LinkDown => {
            topology::plug(lab, target, true)?;
            Ok(format!("the cable of {target} is plugged in"))
        }
        Scenario::RouteDeleted => routes::restore(lab, target, &fault.saved),
        Scenario::TableFlushed => tables::restored(lab, target, &fault.saved),
        Scenario::InterfaceDeleted => reconnect(lab, target),
        Scenario::EndpointDeleted => records::restore(lab, pod(lab, target)?, &fault.saved),
        Scenario::GhostEndpoint | Scenario::DuplicateAddress => {
            records::remove(lab, target, &fault.saved)
        }
    }
}

/// What a runtime does with a pod whose network is gone: a new sandbox.
fn reconnect(lab: &mut Lab, name: &str) -> Result<String, Failure> {
    let old = pod(lab, name)?.clone();
    cni::del(lab, &old)?;
    let fresh = Pod { container: pods::fresh_container(name), ..old };
    let (connected, _) = pods::connect(lab, &fresh)?;
    let address = connected.addresses.first().map(ToString::to_string).unwrap_or_default();
    if let Some(place) = lab.state.pods.iter_mut().find(|pod| pod.name == name) {
        *place = connected;
    }
    Ok(format!("{name} is connected again, as {address}"))
}
