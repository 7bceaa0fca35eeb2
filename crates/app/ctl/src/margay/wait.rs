//! `margay wait`: until the kernels of all nodes have what was written.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use api::Kind;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};
use store::resources::Name;

use super::arguments::Format;
use super::complete;
use super::failure::Failure;
use super::realised::{Approach, Reached, spent};
use super::session::{Session, kind_of, name_of, spoken};
use super::structured;
use super::terminal::{Mark, printable_line};

/// A time longer than the clock can hold is this long.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
/// Stands for what was removed, among the keys of objects.
const REMOVED: &str = "";
/// After so long a person is told what is waited for.
const SILENCE: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
pub(crate) struct WaitArguments {
    /// KIND/NAME, KIND/NAMESPACE/NAME, or a KIND with the NAMEs behind it; all policies without
    #[arg(value_name = "OBJECT", add = ArgValueCompleter::new(complete::objects))]
    pub(crate) objects: Vec<String>,
    /// What to wait for: realised, which is when the nodes' kernels have them
    #[arg(long = "for", value_name = "WHAT", default_value = "realised")]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    pub(crate) state: State,
    /// The namespace
    #[arg(short, long, add = ArgValueCompleter::new(complete::namespaces))]
    pub(crate) namespace: Option<String>,
    /// How long: 500ms, 5s, 2m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum State {
    Realised,
}

/// A span of time: Go's form, or a number of seconds.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u32>().ok().map(|seconds| Duration::from_secs(seconds.into()));
    let span = || text.parse::<net::Duration>().ok().and_then(net::Duration::to_std);
    seconds.or_else(span).ok_or_else(|| "such as 500ms, 5s or 2m".to_owned())
}

/// A span that somebody chose, for people.
pub(crate) fn words(span: Duration) -> String {
    match (span.as_secs(), span.subsec_nanos()) {
        (seconds, 0) if seconds > 0 => format!("{seconds} s"),
        _ => spent(span),
    }
}

/// What is waited for.
struct Wanted {
    /// In words.
    what: String,
    is_one: bool,
    /// The revisions that nodes are to reach, by key.
    revisions: BTreeMap<String, i64>,
}

/// Runs the command; true when all nodes have the objects.
pub(crate) fn run(session: &Session, arguments: &WaitArguments) -> Result<bool, Failure> {
    let State::Realised = arguments.state;
    let began = Instant::now();
    let wanted = wanted(session, arguments)?;
    if wanted.revisions.is_empty() {
        super::get::complain(&format!("there are no {} to wait for", wanted.what))?;
        return Ok(true);
    }
    let end = began.checked_add(arguments.timeout).unwrap_or(began + YEAR);
    let mut approach = Approach::start(session)?;
    let mut reached = approach.wait(&wanted.revisions, end.min(began + SILENCE))?;
    let is_there =
        |reached: &Option<Reached>| reached.as_ref().is_some_and(|it| it.has(&wanted.revisions));
    let mut screen = Screen(io::stderr().is_terminal());
    while !is_there(&reached) && Instant::now() < end {
        screen.show(&progress(&wanted, reached.as_ref(), &approach))?;
        reached = approach.wait(&wanted.revisions, end.min(Instant::now() + SILENCE))?;
    }
    screen.clear()?;
    let time = began.elapsed();
    if let Some(format) = arguments.format.output {
        let answer = value(&wanted, reached.as_ref(), time);
        io::stdout().lock().write_all(structured(format, &answer).as_bytes())?;
        return Ok(is_there(&reached));
    }
    let Some(reached) = reached else {
        let why = approach.outage().unwrap_or("the datastore does not answer").to_owned();
        return Err(Failure::new("it is not known how far the nodes have come").why(why));
    };
    match reached.has(&wanted.revisions) {
        true => said(session, &wanted, &reached, time)?,
        false => {
            let failure = late(&wanted, &reached, time);
            let failure = match approach.outage() {
                Some(outage) => failure.why(outage),
                None => failure,
            };
            write!(io::stderr().lock(), "{failure}")?;
            return Ok(false);
        }
    }
    Ok(true)
}

fn said(
    session: &Session,
    wanted: &Wanted,
    reached: &Reached,
    time: Duration,
) -> Result<(), Failure> {
    let mark = session.terminal.mark(Mark::Fine);
    let (what, is) = (printable_line(&wanted.what), if wanted.is_one { "is" } else { "are" });
    let (count, time) = (reached.count(&wanted.revisions), spent(time));
    let newest = wanted.newest();
    writeln!(
        io::stdout().lock(),
        "{mark} {what} {is} realised on {count} nodes (revision {newest}, {time})"
    )?;
    for (node, _, lack) in reached.each(&wanted.revisions) {
        if let Some(lack) = lack {
            super::get::complain(&format!("note: {} {lack}", printable_line(node)))?;
        }
    }
    Ok(())
}

/// The nodes that do not have it, each with why.
fn late(wanted: &Wanted, reached: &Reached, time: Duration) -> Failure {
    let (what, is) = (printable_line(&wanted.what), if wanted.is_one { "is" } else { "are" });
    let (count, time) = (reached.count(&wanted.revisions), spent(time));
    let newest = wanted.newest();
    let failure = Failure::new(format!(
        "{what} {is} not realised on all nodes after {time}: {count} at revision {newest}"
    ));
    let lacking = reached.each(&wanted.revisions);
    let lines: Vec<String> =
        lacking.filter_map(|(node, _, lack)| Some(format!("{node}: {}", lack?))).collect();
    match lines.is_empty() {
        true => failure.why("there are no nodes in this datastore").help("margay setup"),
        false => lines.into_iter().fold(failure, Failure::detail).help("margay status, on them"),
    }
}

fn progress(wanted: &Wanted, reached: Option<&Reached>, approach: &Approach<'_>) -> String {
    match (approach.outage(), reached) {
        (Some(outage), _) => format!("waiting: {outage}"),
        (None, None) => "waiting for the datastore".to_owned(),
        (None, Some(reached)) => {
            let lacking = reached.each(&wanted.revisions);
            let lacking: Vec<&str> =
                lacking.filter_map(|(node, _, lack)| lack.map(|_| node)).collect();
            let some = lacking.iter().take(5).copied().collect::<Vec<_>>().join(", ");
            let more = if lacking.len() > 5 { ", …" } else { "" };
            let count = reached.count(&wanted.revisions);
            format!("realised on {count} nodes, waiting for {some}{more}")
        }
    }
}

/// A line on standard error that replaces itself, where that is a terminal.
struct Screen(bool);

impl Screen {
    fn show(&mut self, line: &str) -> io::Result<()> {
        match self.0 {
            true => write!(io::stderr().lock(), "\r\x1b[K{}", printable_line(line)),
            false => Ok(()),
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        if self.0 { write!(io::stderr().lock(), "\r\x1b[K") } else { Ok(()) }
    }
}

fn value(wanted: &Wanted, reached: Option<&Reached>, time: Duration) -> Value {
    let nodes: serde_json::Map<String, Value> = reached
        .into_iter()
        .flat_map(|reached| reached.each(&wanted.revisions))
        .map(|(node, revision, lack)| {
            let value = match lack {
                None => json!({ "isRealised": true, "revision": revision }),
                Some(why) => json!({ "isRealised": false, "revision": revision, "why": why }),
            };
            (node.to_owned(), value)
        })
        .collect();
    json!({
        "isRealised": reached.is_some_and(|reached| reached.has(&wanted.revisions)),
        "revision": wanted.newest(),
        "milliseconds": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        "nodes": nodes,
    })
}

impl Wanted {
    fn newest(&self) -> i64 {
        self.revisions.values().max().copied().unwrap_or_default()
    }
}

/// The objects that were typed, as of now.
fn wanted(session: &Session, arguments: &WaitArguments) -> Result<Wanted, Failure> {
    let namespace = arguments.namespace.as_deref();
    let all = |kinds: &[Kind], what: String| {
        let mut revisions = all_of(session, kinds, namespace)?;
        // What was removed has no revision any more, but the first node to hear of it has told.
        let newest = Reached::now(session)?.newest();
        let only = revisions.first_key_value().filter(|_| revisions.len() == 1);
        let what = match (only.and_then(|(key, _)| Name::at_key(key)), revisions.len()) {
            (Some(only), _) => spoken(&only),
            (None, 0) if newest.is_some() => format!("all {what}"),
            (None, 0) => what,
            (None, n) => format!("{n} {what}"),
        };
        let is_one = revisions.len() == 1;
        revisions.extend(newest.map(|newest| (REMOVED.to_owned(), newest)));
        Ok(Wanted { what, is_one, revisions })
    };
    let (first, rest) = match arguments.objects.split_first() {
        None => {
            return all(&POLICIES, "policies".to_owned());
        }
        Some(split) => split,
    };
    if is_any_policy(first) && rest.is_empty() {
        return all(&POLICIES, "policies".to_owned());
    }
    if !first.contains('/') && rest.is_empty() {
        let kind = told_of(kind_of(first)?)?;
        return all(&[kind], kind.plural().to_owned());
    }
    let mut kind = None;
    let mut names = Vec::new();
    let mut revisions = BTreeMap::new();
    for word in &arguments.objects {
        let (typed, name) = match (word.split_once('/'), kind) {
            // Behind a kind of its own, `shop/db` is a policy in a namespace.
            (_, Some(kind)) => (kind, word.as_str()),
            (Some((kind, name)), None) => (kind, name),
            (None, None) => {
                kind = Some(word.as_str());
                continue;
            }
        };
        for (name, revision) in found(session, typed, namespace, name)? {
            revisions.insert(name.key(), revision);
            names.push(name);
        }
    }
    let what: Vec<String> = names.iter().map(spoken).collect();
    Ok(Wanted { what: what.join(", "), is_one: names.len() == 1, revisions })
}

/// Kinds that people mean by a policy.
const POLICIES: [Kind; 2] = [Kind::NetworkPolicy, Kind::GlobalNetworkPolicy];

/// Whether a policy is meant, be it of a namespace or of all.
pub(super) fn is_any_policy(typed: &str) -> bool {
    ["policy", "policies"].iter().any(|it| typed.eq_ignore_ascii_case(it))
}

/// The objects of a name with their revisions: of a policy also the global one.
fn found(
    session: &Session,
    typed: &str,
    namespace: Option<&str>,
    word: &str,
) -> Result<Vec<(Name, i64)>, Failure> {
    let name = named(told_of(kind_of(typed)?)?, namespace, word);
    let stored = session.resources.get(&name).map(|stored| (name, stored.revision));
    let is_global = is_any_policy(typed) && namespace.is_none() && !word.contains('/');
    let global = is_global.then(|| name_of(Kind::GlobalNetworkPolicy, None, word));
    let global = global.and_then(|name| {
        let stored = session.resources.get(&name).ok()?;
        Some((name, stored.revision))
    });
    match (stored, global) {
        (Ok(stored), global) => Ok([stored].into_iter().chain(global).collect()),
        (Err(_), Some(global)) => Ok(vec![global]),
        (Err(error), None) => Err(Failure::from(error)),
    }
}

fn named(kind: Kind, namespace: Option<&str>, typed: &str) -> Name {
    match typed.split_once('/') {
        Some((namespace, name)) if kind.is_namespaced() => name_of(kind, Some(namespace), name),
        _ => name_of(kind, namespace, typed),
    }
}

/// The kind, if agents tell how far they have come with it.
fn told_of(kind: Kind) -> Result<Kind, Failure> {
    match store::realised::counts(&name_of(kind, None, "x").key()) {
        true => Ok(kind),
        false => Err(Failure::new(format!("nodes do not tell whether a {kind} is realised"))
            .help("margay wait policy/NAME -n NAMESPACE, gnp/NAME, tier/NAME, profile/NAME…")),
    }
}

/// The revisions of all objects of some kinds.
fn all_of(
    session: &Session,
    kinds: &[Kind],
    namespace: Option<&str>,
) -> Result<BTreeMap<String, i64>, Failure> {
    let mut revisions = BTreeMap::new();
    for kind in kinds {
        let namespace = namespace.filter(|_| kind.is_namespaced());
        let listed = session.resources.each_part(*kind, namespace, Some(&[]), |one| {
            // What cannot be used is not carried out by anybody; `get` names it.
            revisions.extend(one.ok().map(|stored| (stored.name.key(), stored.revision)));
            ControlFlow::Continue(())
        });
        listed.map_err(Failure::from)?;
    }
    Ok(revisions)
}
