//! Pods: a namespace with a process in it, connected by CNI.

use std::process::Stdio;
use std::time::{Duration, Instant};

use kernel::Netns;
use serde_json::json;

use crate::Outcome;
use crate::agents;
use crate::arguments::{Format, PodAdd};
use crate::cni;
use crate::failure::Failure;
use crate::faults;
use crate::lab::{Lab, flag};
use crate::place::{self, Place};
use crate::processes;
use crate::screen::Screen;
use crate::server;
use crate::state::{Node, Pod};
use crate::topology;
use crate::waiting::patiently;

/// The first pods of a node, by what they might do.
const ROLES: [&str; 10] =
    ["web", "db", "api", "cache", "queue", "mail", "auth", "cart", "search", "batch"];

/// What the pod with this number on a node does.
pub(crate) fn role(number: usize) -> String {
    ROLES.get(number).map_or_else(|| format!("p{}", number + 1), |role| (*role).to_owned())
}

/// A pod that is to be made.
pub(crate) fn planned(node: &str, role: &str) -> Pod {
    let name = format!("{node}-{role}");
    Pod {
        container: fresh_container(&name),
        name,
        node: node.to_owned(),
        interface: String::new(),
        addresses: Vec::new(),
    }
}

/// A runtime never uses an identifier twice. Interfaces are named after the first characters, so
/// these are the ones that differ.
pub(crate) fn fresh_container(name: &str) -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{}-{name}", random.chars().take(10).collect::<String>())
}

/// Makes a pod; how long the CNI call took comes with it.
pub(crate) fn start(lab: &Lab, planned: &Pod) -> Result<(Pod, Duration), Failure> {
    if lab.place.namespace(&planned.name).exists() {
        // No pod of the lab has it: somebody was interrupted, or made it by hand.
        stop(lab, &planned.name)?;
    }
    topology::namespace(lab, &planned.name)?;
    serve(lab, &planned.name)?;
    connect(lab, planned)
}

/// The part of the lab that the process of a pod is.
pub(crate) fn part(name: &str) -> String {
    format!("pod/{name}")
}

/// Starts the process of a pod.
pub(crate) fn serve(lab: &Lab, name: &str) -> Result<(), Failure> {
    let mut command = lab.margay(&[server::COMMAND, name], &part(name))?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    processes::spawn_in(&lab.netns(name)?, &mut command).map(|_| ())
}

/// Connects a pod by CNI ADD.
pub(crate) fn connect(lab: &Lab, pod: &Pod) -> Result<(Pod, Duration), Failure> {
    let began = Instant::now();
    let given = cni::add(lab, pod)?;
    let took = began.elapsed();
    let mut pod = pod.clone();
    (pod.interface, pod.addresses) = (given.interface, given.addresses);
    if pod.addresses.is_empty() {
        return Err(Failure::new(format!("CNI ADD of {} gave no address", pod.name)));
    }
    Ok((pod, took))
}

/// Ends the processes of a pod and removes its namespace.
pub(crate) fn stop(lab: &Lab, name: &str) -> Result<(), Failure> {
    let (_, left) = processes::end(|| processes::inside(&lab.place, name));
    if let Some(process) = left.first() {
        return Err(Failure::new(format!("process {} in {name} cannot be killed", process.pid)));
    }
    Ok(Netns::delete_named(lab.place.namespaces(), name)?)
}

/// `lab pod add`.
pub(crate) fn add_command(place: &Place, add: &PodAdd) -> Result<Outcome, Failure> {
    let (mut lab, _lock) = Lab::open_to_change(place)?;
    let node = lab.state.wanted_node("pod add", &add.node)?.clone();
    if let Some(hindrance) = agents::hindrance(&lab, &node.name) {
        let what = format!("{}; it connects the pods", hindrance.what());
        return Err(Failure::new(what).help(hindrance.fix()));
    }
    discard_begun(&mut lab)?;
    let role = match &add.role {
        Some(role) => chosen(&lab, &node, role)?,
        None => next_role(&lab, &node),
    };
    let pod = planned(&node.name, &role);
    lab.state.begun = Some(pod.clone());
    lab.save()?;
    let what = format!("CNI ADD of {}, waiting for the agent of {}", pod.name, node.name);
    let made = patiently(&what, cni::CALL_WAIT, || start(&lab, &pod));
    let (pod, took) = made.inspect_err(|_| {
        // The error says what is wrong; what is left of the attempt would only add to it. Without
        // an agent it cannot be taken back now: the next command does, once there is one.
        if agents::is_well(&lab, &node.name) {
            let _ = discard_begun(&mut lab);
        }
    })?;
    lab.state.begun = None;
    let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
    let screen = Screen::detect(add.format);
    let line = format!(
        "{} {} has {} ({}, CNI ADD {} ms)\n",
        screen.mark(Outcome::Fine),
        pod.name,
        addresses.join(" "),
        pod.interface,
        took.as_millis()
    );
    let mut answer = json!(pod);
    answer["milliseconds"] = json!(u64::try_from(took.as_millis()).ok());
    lab.state.pods.push(pod);
    lab.state.pods.sort_by_key(|pod| node_number(&lab.state.nodes, &pod.node));
    lab.save()?;
    screen.answer(&answer)?;
    screen.say(&line)?;
    Ok(Outcome::Fine)
}

/// Takes back a pod whose making was begun and not ended.
pub(crate) fn discard_begun(lab: &mut Lab) -> Result<(), Failure> {
    let Some(pod) = lab.state.begun.take() else { return Ok(()) };
    let flag = flag(&lab.place.name);
    let what = format!("taking back {}, which was never finished", pod.name);
    patiently(&what, cni::CALL_WAIT, || {
        if lab.place.namespace(&pod.name).exists() {
            cni::del(lab, &pod)?;
        }
        stop(lab, &pod.name)
    })
    .map_err(|failure| failure.help(format!("margay lab heal{flag}     and once more")))?;
    lab.save()
}

fn node_number(nodes: &[Node], name: &str) -> u16 {
    nodes.iter().find(|node| node.name == name).map_or(u16::MAX, |node| node.number)
}

fn chosen(lab: &Lab, node: &Node, role: &str) -> Result<String, Failure> {
    if !place::is_role(role) {
        return Err(Failure::new(format!("{role:?} cannot be part of the name of a pod"))
            .help("small letters, digits and -, at most 16 of them"));
    }
    let name = format!("{}-{role}", node.name);
    match lab.state.pod(&name) {
        Some(_) => Err(Failure::new(format!("there is a pod {name} already"))),
        None => Ok(role.to_owned()),
    }
}

fn next_role(lab: &Lab, node: &Node) -> String {
    let is_taken = |role: &String| lab.state.pods_of(&node.name).any(|pod| pod.role() == role);
    (0..).map(role).find(|role| !is_taken(role)).expect("there are more names than pods")
}

/// `lab pod rm`.
pub(crate) fn remove_command(
    place: &Place,
    name: &str,
    format: Format,
) -> Result<Outcome, Failure> {
    let (mut lab, _lock) = Lab::open_to_change(place)?;
    let pod = lab.state.wanted_pod("pod rm", name)?.clone();
    let screen = Screen::detect(format);
    if let Some(hindrance) = agents::hindrance(&lab, &pod.node) {
        let (mark, what) = (screen.mark(Outcome::Degraded), hindrance.what());
        screen.say(&format!(
            "{mark} {what}: the plugin waits for it, and then leaves it the rest\nfix: {}\n",
            hindrance.fix()
        ))?;
    }
    let what = format!("CNI DEL of {name}, waiting for the agent of {}", pod.node);
    patiently(&what, cni::CALL_WAIT, || cni::del(&lab, &pod))?;
    stop(&lab, name)?;
    faults::forget(&mut lab, name)?;
    lab.state.pods.retain(|pod| pod.name != name);
    lab.save()?;
    screen.answer(&json!({"removed": pod}))?;
    screen.say(&format!("{} {name} is gone\n", screen.mark(Outcome::Fine)))?;
    Ok(Outcome::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_of_a_node_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<String> = (0..60).map(role).collect();
        assert_eq!(names.len(), 60);
        assert!(names.iter().all(|name| place::is_role(name)));
    }

    #[test]
    fn no_two_sandboxes_have_the_same_identifier() {
        let (a, b) = (planned("n1", "web"), planned("n1", "web"));
        assert_eq!((a.name.as_str(), b.name.as_str()), ("n1-web", "n1-web"));
        assert_ne!(a.container, b.container);
    }
}
