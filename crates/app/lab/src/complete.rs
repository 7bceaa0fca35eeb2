//! Completes the names of labs, nodes and pods.

use std::ffi::OsStr;

use clap_complete::CompletionCandidate;

use crate::arguments::Scenario;
use crate::faults;
use crate::place::Place;
use crate::state::State;

/// The command line being completed: it stands behind `--`.
fn line() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.skip_while(|word| word != "--").skip(1).collect()
}

/// The lab that the command line is about; a lab that cannot be read has no names.
fn state(line: &[String]) -> Option<State> {
    let named = line.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--name=") {
        Some(name) => Some(name),
        None if word == "--name" => line.get(at + 1).map(String::as_str),
        None => None,
    });
    State::read(&Place::named(named.unwrap_or("default")).ok()?).ok()?
}

fn beginning_with(
    current: &OsStr,
    all: impl IntoIterator<Item = String>,
) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let fitting = all.into_iter().filter(|one| one.starts_with(&*typed));
    fitting.map(CompletionCandidate::new).collect()
}

fn node_names(state: Option<&State>) -> impl Iterator<Item = String> {
    state.into_iter().flat_map(|state| state.nodes.iter().map(|node| node.name.clone()))
}

fn pod_names(state: Option<&State>) -> impl Iterator<Item = String> {
    state.into_iter().flat_map(|state| state.pods.iter().map(|pod| pod.name.clone()))
}

/// Labs of this user.
pub(crate) fn labs(current: &OsStr) -> Vec<CompletionCandidate> {
    let places = Place::all().unwrap_or_default();
    beginning_with(current, places.into_iter().map(|place| place.name))
}

/// Nodes of the lab.
pub(crate) fn nodes(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning_with(current, node_names(state(&line()).as_ref()))
}

/// Pods of the lab.
pub(crate) fn pods(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning_with(current, pod_names(state(&line()).as_ref()))
}

/// Pods and nodes of the lab.
pub(crate) fn pods_and_nodes(current: &OsStr) -> Vec<CompletionCandidate> {
    let state = state(&line());
    beginning_with(current, pod_names(state.as_ref()).chain(node_names(state.as_ref())))
}

/// What the scenario on the command line can be caused on.
pub(crate) fn targets(current: &OsStr) -> Vec<CompletionCandidate> {
    let scenario =
        line().iter().find_map(|word| <Scenario as clap::ValueEnum>::from_str(word, false).ok());
    match scenario.is_some_and(faults::is_of_node) {
        true => nodes(current),
        false => pods(current),
    }
}
