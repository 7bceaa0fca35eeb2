//! `lab break`: what goes wrong in real clusters, on purpose and with a way back.

mod records;
mod routes;
mod tables;

use clap::ValueEnum as _;
use kernel::{LinkName, Netlink, Operation};
use serde_json::{Value, json};

use crate::Outcome;
use crate::agents;
use crate::arguments::{Break, Scenario};
use crate::cni;
use crate::failure::Failure;
use crate::lab::{Lab, flag};
use crate::place::Place;
use crate::pods;
use crate::screen::{Screen, count};
use crate::state::{Fault, Node, Pod};
use crate::topology;

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
    let flag = flag(&place.name);
    let is_same = |fault: &Fault| fault.scenario == scenario && fault.target == target;
    let same = lab.state.broken.iter().find(|fault| is_same(fault));
    // That no agent runs is said by who looks for one.
    if scenario != Scenario::AgentKilled
        && same.is_some_and(|fault| put_right(&lab, fault).is_none())
    {
        return Err(Failure::new(format!("{target} is broken so already: {}", name(scenario)))
            .help(format!("margay lab heal{flag}")));
    }
    let done = cause(&lab, scenario, &target)?;
    lab.state.broken.retain(|fault| !is_same(fault));
    let fault = Fault { scenario, target, saved: done.saved };
    let mut answer = fault.json();
    answer["problem"] = done.what.as_str().into();
    lab.state.broken.push(fault);
    lab.save()?;
    let screen = Screen::detect(asked.format);
    screen.answer(&answer)?;
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
pub(crate) fn has_interface(lab: &Lab, pod: &str) -> Result<bool, Failure> {
    let pod = self::pod(lab, pod)?;
    let mut netlink = Netlink::in_netns(&lab.netns(&pod.node)?)?;
    Ok(netlink.link_by_name(&LinkName::new(&pod.interface)?)?.is_some())
}

/// Whether a fault was about something that is not there any more.
pub(crate) fn is_of_gone(lab: &Lab, fault: &Fault) -> bool {
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

/// Puts a fault right, and says how that went.
pub(crate) fn heal(lab: &mut Lab, fault: &Fault) -> Result<String, Failure> {
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
pub(crate) fn reconnect(lab: &mut Lab, name: &str) -> Result<String, Failure> {
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
