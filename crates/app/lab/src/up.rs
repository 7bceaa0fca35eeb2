//! `lab up`: builds a lab step by step.

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;

use crate::Outcome;
use crate::agents;
use crate::arguments::{DatastoreKind, Up};
use crate::datastore;
use crate::down;
use crate::failure::Failure;
use crate::faults;
use crate::lab::{Lab, flag};
use crate::matrix::{Matrix, Pairs};
use crate::parallel;
use crate::ping;
use crate::place::Place;
use crate::pods;
use crate::processes;
use crate::rights;
use crate::rootless;
use crate::screen::{Screen, Step, age, count, seconds};
use crate::state::{Fault, Node, Pod, State};
use crate::topology;

/// Nodes that are made at the same time: most of each is waiting.
const N_WORKERS: usize = 8;
/// How long all pairs may take to answer.
const SETTLE_WAIT: Duration = Duration::from_secs(10);
/// Names of the programs in the lab's folder that are this binary.
const PROGRAMS: [&str; 5] = ["margay", "calico", "calico-ipam", "calicoctl", ping::NAME];

/// The command.
pub(crate) fn run(place: &Place, up: &Up) -> Result<Outcome, Failure> {
    let screen = Screen::detect(up.format);
    let began = Instant::now();
    let lock = place.lock()?;
    if let Some(outcome) = running(place, up, screen)? {
        return Ok(outcome);
    }
    if place.folder.exists() {
        down::remove(place)?;
    }
    let ground = lay_ground(place, up, screen).inspect_err(|_| {
        // So early there is nothing to look at; the error says it all.
        let _ = down::remove(place);
        place.forget(&lock);
    });
    let mut lab = ground?;
    let matrix = populate(&mut lab, up, screen).map_err(|failure| {
        failure
            .detail(format!("what stands so far: margay lab down{} removes it", flag(&place.name)))
    })?;
    report(&lab, &matrix, screen, began.elapsed())?;
    Ok(matrix.outcome())
}

/// What there is to say about a lab that is there already; nothing if it has to be built.
fn running(place: &Place, up: &Up, screen: Screen) -> Result<Option<Outcome>, Failure> {
    // What cannot be read or entered is built anew.
    let Ok(lab) = Lab::open(place) else { return Ok(None) };
    let state = &lab.state;
    let nodes = count(state.nodes.len(), "node");
    let pods = count(state.pods.len(), "pod");
    let since = age(now().saturating_sub(state.since));
    let name = &place.name;
    let missed = missed(state, up);
    let outcome = if missed.is_empty() { Outcome::Fine } else { Outcome::Degraded };
    let mark = screen.mark(outcome);
    let mut answer = state.json();
    answer["isNew"] = false.into();
    let still = state.broken.iter().filter(|fault| faults::put_right(&lab, fault).is_none());
    answer["brokenOnPurpose"] = still.map(Fault::json).collect();
    answer["otherwiseThanAsked"] = json!(missed);
    screen.answer(&answer)?;
    screen.say(&format!("{mark} lab {name:?} is up already: {nodes}, {pods}, since {since}\n"))?;
    if !missed.is_empty() {
        let flag = flag(name);
        screen.say(&format!(
            "  but not as asked for: {}\nfix: margay lab down{flag}     and up again, or another \
             lab beside it: --name NAME\n",
            missed.join(", ")
        ))?;
    }
    Ok(Some(outcome))
}

/// What was asked for by name and is otherwise in a lab that is there.
fn missed(state: &State, up: &Up) -> Vec<String> {
    let mut missed = Vec::new();
    if let Some(nodes) = up.nodes.map(usize::from)
        && nodes != state.nodes.len()
    {
        missed.push(format!("--nodes {nodes} (it has {})", state.nodes.len()));
    }
    if let Some(pods) = up.pods.map(usize::from)
        && state.nodes.iter().any(|node| state.pods_of(&node.name).count() != pods)
    {
        missed.push(format!("--pods {pods} (it has {} in all)", state.pods.len()));
    }
    if let Some(datastore) = up.datastore
        && datastore != state.datastore
    {
        missed.push(format!("--datastore (it has {})", state.datastore.name()));
    }
    if up.ipv6 && !state.ipv6 {
        missed.push("--ipv6 (it has IPv4 only)".to_owned());
    }
    missed
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The folder, the right to make namespaces, and the fabric.
fn lay_ground(place: &Place, up: &Up, screen: Screen) -> Result<Lab, Failure> {
    place.check_depth()?;
    let step = screen.step("fabric");
    if up.datastore() == DatastoreKind::Etcd {
        datastore::check_etcd()?;
    }
    prepare(place)?;
    let state = State {
        name: place.name.clone(),
        is_built: false,
        since: now(),
        datastore: up.datastore(),
        ipv6: up.ipv6,
        nodes: (1..=up.n_nodes()).map(Node::new).collect(),
        pods: Vec::new(),
        broken: Vec::new(),
        begun: None,
    };
    let lab = Lab { place: place.clone(), state };
    lab.save()?;
    topology::fabric(&lab)?;
    step.done(Outcome::Fine, "fabric", "")?;
    Ok(lab)
}

fn populate(lab: &mut Lab, up: &Up, screen: Screen) -> Result<Matrix, Failure> {
    if up.datastore() == DatastoreKind::Etcd {
        let step = screen.step("etcd");
        datastore::start_etcd(lab)?;
        step.done(Outcome::Fine, "etcd", datastore::ENDPOINT)?;
    }
    make_nodes(lab, screen)?;
    lab.state.pods = make_pods(lab, up.n_pods(), screen)?;
    lab.state.is_built = true;
    lab.save()?;
    settle(lab, screen)
}

/// The folder with the programs in it, and the right to make namespaces.
fn prepare(place: &Place) -> Result<(), Failure> {
    place.make(&place.folder)?;
    rootless::start(place)?;
    rights::check()?;
    place.make(&place.programs())?;
    let binary = processes::own_binary()?;
    for name in PROGRAMS {
        let link = place.programs().join(name);
        symlink(&binary, &link)
            .map_err(|error| Failure::new(format!("{}: {error}", link.display())))?;
    }
    Ok(())
}

fn make_nodes(lab: &Lab, screen: Screen) -> Result<(), Failure> {
    let nodes = &lab.state.nodes;
    let step = screen.step(&count(nodes.len(), "node"));
    let n_done = AtomicUsize::new(0);
    datastore::apply_pools(lab)?;
    let made = parallel::try_each(nodes, N_WORKERS, |node| {
        topology::node(lab, node)?;
        agents::start(lab, node)?;
        say_progress(&step, &n_done, nodes.len(), "agents ready");
        Ok(())
    });
    made.map_err(first_of)?;
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let shown = match names.as_slice() {
        [first, .., last] if names.len() > 5 => format!("{first} … {last}"),
        names => names.join(" "),
    };
    let detail = format!("{shown}, agents ready");
    step.done(Outcome::Fine, &count(nodes.len(), "node"), &detail)?;
    Ok(())
}

fn make_pods(lab: &Lab, n_each: usize, screen: Screen) -> Result<Vec<Pod>, Failure> {
    let planned: Vec<Pod> = lab
        .state
        .nodes
        .iter()
        .flat_map(|node| (0..n_each).map(|at| pods::planned(&node.name, &pods::role(at))))
        .collect();
    let label = count(planned.len(), "pod");
    if planned.is_empty() {
        return Ok(Vec::new());
    }
    let step = screen.step(&label);
    let n_done = AtomicUsize::new(0);
    // A call keeps a processor busy: more of them at once would only wait for each other.
    let n_workers = std::thread::available_parallelism().map_or(2, usize::from);
    let made = parallel::try_each(&planned, n_workers, |pod| {
        let made = pods::start(lab, pod)?;
        say_progress(&step, &n_done, planned.len(), "connected");
        Ok(made)
    });
    let (pods, mut times): (Vec<Pod>, Vec<Duration>) = made.map_err(first_of)?.into_iter().unzip();
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let detail = format!("{n_each} a node, by CNI ADD (median {} ms)", median.as_millis());
    step.done(Outcome::Fine, &label, &detail)?;
    Ok(pods)
}

fn settle(lab: &Lab, screen: Screen) -> Result<Matrix, Failure> {
    let step = screen.step("pairs");
    let matrix = Matrix::settle(lab, SETTLE_WAIT, |matrix| {
        let Pairs { fine, all, .. } = matrix.pairs();
        let limit = SETTLE_WAIT.as_secs();
        step.progress(&format!("{fine}/{all} answer, waiting up to {limit} s for the rest"));
    })?;
    let Pairs { fine, all, .. } = matrix.pairs();
    let detail = format!("answer ({})", matrix.manners());
    if all > 0 {
        step.done(matrix.outcome(), &format!("{fine}/{all} pairs"), &detail)?;
    }
    Ok(matrix)
}

fn report(lab: &Lab, matrix: &Matrix, screen: Screen, took: Duration) -> Result<(), Failure> {
    let name = &lab.place.name;
    let mut answer = lab.state.json();
    for (name, value) in matrix.json(lab).as_object_mut().into_iter().flatten() {
        answer[name.as_str()] = value.take();
    }
    answer["isNew"] = true.into();
    answer["milliseconds"] = json!(u64::try_from(took.as_millis()).ok());
    screen.answer(&answer)?;
    screen.say(&matrix.grid(screen))?;
    screen.say(&matrix.problems(screen))?;
    let flag = flag(name);
    let from = lab.state.pods.first();
    let others = || lab.state.pods.iter().skip(1).rev();
    let to = others().find(|pod| Some(pod.role()) != from.map(Pod::role)).or(others().next());
    let but = match matrix.outcome() {
        Outcome::Fine => "",
        _ => ", but not every pair answers",
    };
    let mut text = format!("lab {name:?} is up in {}{but}. Try:\n", seconds(took));
    if let (Some(from), Some(to)) = (from, to) {
        text += &format!("  margay lab exec{flag} {} -- ping -c1 {}\n", from.name, to.name);
    }
    text += &format!(
        "  margay lab break{flag} agent-killed     and then     margay lab status{flag}\n"
    );
    text += &format!("  margay lab down{flag}\n");
    screen.say(&text)?;
    Ok(())
}

fn say_progress(step: &Step, n_done: &AtomicUsize, all: usize, what: &str) {
    let done = n_done.fetch_add(1, Ordering::Relaxed) + 1;
    step.progress(&format!("{done} of {all} {what}"));
}

/// The first failure, with the number of the others.
fn first_of((failure, n_failed): (Failure, usize)) -> Failure {
    match n_failed {
        0 | 1 => failure,
        more => failure.detail(format!("and {} more failed", more - 1)),
    }
}
