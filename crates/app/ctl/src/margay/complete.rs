//! Completion that knows kinds, fields, writes, and the names in the store.

mod calicoctl;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use api::Kind;
use clap::{Command, CommandFactory};
use clap_complete::CompletionCandidate;
use clap_complete::env::{Elvish, EnvCompleter, Fish, Zsh};
use store::resources::Name;

use super::Part;
use super::arguments::{Arguments, Place, Shell};
use super::failure::Failure;
use super::history::History;
use super::session::{Session, with_surroundings};

/// The variable by which a shell asks for candidates.
pub(crate) const VARIABLE: &str = "COMPLETE";
/// More names than this help nobody, and a slow answer annoys at every key.
const NAMES_MAX: usize = 500;
/// Nor are more objects than this looked at for them.
const SEEN_MAX: usize = 20_000;
/// A shell that hangs at a key is worse than one that does not know.
const PATIENCE: Duration = Duration::from_secs(1);

/// The command line of a part of the program.
pub(crate) fn part(parts: &[Part], name: &str) -> Option<Command> {
    let whole = format!("margay {name}");
    parts
        .iter()
        .map(|part| part())
        .find(|part| part.get_name() == whole)
        .map(|it| it.bin_name(whole))
}

/// The command line whose words can be completed: ours, what `calicoctl` has of it, or that of
/// another part of the program.
pub(crate) fn command(parts: &[Part]) -> Command {
    let line = line();
    let program = line.first().map(Path::new);
    if program.and_then(Path::file_name) == Some(OsStr::new("calicoctl")) {
        return calicoctl::command();
    }
    let first = line.get(1).filter(|_| line.len() > 2).map_or("", String::as_str);
    let other = match first {
        "calicoctl" => Some(calicoctl::command()),
        first => part(parts, first).map(|part| part.name(first.to_owned())),
    };
    match other {
        Some(other) => Command::new("margay").disable_help_subcommand(true).subcommand(other),
        None => Arguments::command(),
    }
}

/// The script that a shell reads once. It completes both names: whoever answers to `calicoctl`
/// on this host, the kinds and the names in the store are the same.
pub(crate) fn script(shell: Shell) -> Result<Vec<u8>, Failure> {
    let program = std::env::args().next().unwrap_or_else(|| "margay".to_owned());
    let mut text = Vec::new();
    let mut write = |completer: &dyn EnvCompleter| -> io::Result<()> {
        ["margay", "calicoctl"].into_iter().try_for_each(|name| {
            completer.write_registration(VARIABLE, name, name, &program, &mut text)
        })
    };
    match shell {
        Shell::Bash => return Ok(bash(&program).into_bytes()),
        Shell::Elvish => write(&Elvish)?,
        Shell::Fish => write(&Fish)?,
        Shell::Zsh => write(&Zsh)?,
    }
    Ok(text)
}

/// Our own for bash, which hands over `--flag=value` in pieces.
fn bash(program: &str) -> String {
    let program = format!("'{}'", program.replace('\'', "'\\''"));
    let script = include_str!("complete/script.bash");
    ["margay", "calicoctl"]
        .map(|name| script.replace("NAME", name).replace("PROGRAM", &program))
        .concat()
}

/// The command line being completed, its program first: it stands behind `--`.
fn line() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.skip_while(|word| word != "--").skip(1).collect()
}

/// The value of a flag on the command line.
fn after(line: &[String], flags: [&str; 2]) -> Option<String> {
    line.iter().enumerate().find_map(|(at, word)| match word.split_once('=') {
        Some((flag, value)) if flags.contains(&flag) => Some(value.to_owned()),
        _ if flags.contains(&word.as_str()) => line.get(at + 1).cloned(),
        _ => None,
    })
}

fn place(line: &[String]) -> Place {
    Place {
        config: after(line, ["-c", "--config"]).map(Into::into),
        store: after(line, ["--store", "--store"]).map(Into::into),
        ..Place::default()
    }
}

fn kind_on(line: &[String]) -> Option<Kind> {
    // Behind the program and the verb.
    line.iter().skip(2).find_map(|word| Kind::from_alias(word))
}

/// Those that begin with what was typed, as many as help.
fn beginning_with(
    current: &OsStr,
    all: impl IntoIterator<Item = impl Into<String>>,
) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let all = all.into_iter().map(Into::into).filter(|one: &String| one.starts_with(&*typed));
    all.take(NAMES_MAX).map(CompletionCandidate::new).collect()
}

/// Kinds that begin with what was typed: plurals first, short names where they are meant.
pub(crate) fn kinds(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy().to_ascii_lowercase();
    let all = Kind::all().flat_map(|kind| {
        let aliases = kind.aliases().iter().filter(|_| !typed.is_empty()).copied();
        std::iter::once(kind.plural()).chain(aliases).map(move |name| (name, kind))
    });
    all.filter(|(name, _)| name.starts_with(&typed))
        .map(|(name, kind)| CompletionCandidate::new(name).help(Some(kind.name().into())))
        .collect()
}

/// Names in the store of the kind that stands on the command line already.
pub(crate) fn names(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = line();
    let Some(kind) = kind_on(&line) else { return Vec::new() };
    let opened = Session::open_with(&place(&line), |config| config.timeout = PATIENCE);
    let Ok(session) = opened else { return Vec::new() };
    let everywhere = line.iter().any(|word| word == "-A" || word == "--all-namespaces");
    let namespace = after(&line, ["-n", "--namespace"])
        .unwrap_or_else(|| super::session::DEFAULT_NAMESPACE.to_owned());
    let namespace = (kind.is_namespaced() && !everywhere).then_some(namespace.as_str());
    let names: BTreeSet<String> = found(&session, kind, namespace, |name| Some(name.name));
    beginning_with(current, names)
}

/// `kind/name`, for the kinds whose carrying out nodes tell of.
pub(crate) fn objects(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let Some((alias, _)) = typed.split_once('/') else {
        let all = Kind::all().filter(|kind| {
            store::realised::counts(&super::session::name_of(*kind, None, "x").key())
        });
        return beginning_with(current, all.map(|kind| format!("{}/", kind.plural())));
    };
    let Some(kind) = Kind::from_alias(alias) else { return Vec::new() };
    let line = line();
    let opened = Session::open_with(&place(&line), |config| config.timeout = PATIENCE);
    let Ok(session) = opened else { return Vec::new() };
    let namespace = after(&line, ["-n", "--namespace"]).filter(|_| kind.is_namespaced());
    let names = found(&session, kind, namespace.as_deref(), |name| match &namespace {
        None if kind.is_namespaced() => Some(format!("{}/{}", name.namespace, name.name)),
        _ => Some(name.name),
    });
    beginning_with(current, names.into_iter().map(|name| format!("{alias}/{name}")))
}

/// Namespaces: those of Kubernetes, of which there is a profile each, and those of the objects of
/// the kind that stands on the command line.
pub(crate) fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = line();
    let opened = Session::open_with(&place(&line), |config| config.timeout = PATIENCE);
    let Ok(session) = opened else { return Vec::new() };
    let mut all = found(&session, Kind::Profile, None, |name| {
        name.name.strip_prefix("kns.").map(str::to_owned)
    });
    let kind = kind_on(&line).filter(|kind| kind.is_namespaced()).unwrap_or(Kind::NetworkPolicy);
    all.extend(found(&session, kind, None, |name| Some(name.namespace)));
    beginning_with(current, all)
}

/// What can be one end of traffic, namespace/pod or a node; policies behind the word policy.
pub(crate) fn ends(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = line();
    let opened = Session::open_with(&place(&line), |config| config.timeout = PATIENCE);
    let Ok(session) = opened else { return Vec::new() };
    if line.iter().any(|word| word == "policy") && line.get(1).is_some_and(|it| it == "explain") {
        let spoken = |name: Name| Some(format!("{}/{}", name.namespace, name.name));
        let mut all = found(&session, Kind::NetworkPolicy, None, spoken);
        all.extend(found(&session, Kind::GlobalNetworkPolicy, None, |name| Some(name.name)));
        return beginning_with(current, all);
    }
    let mut all = BTreeSet::new();
    let _ = session.resources.each(Kind::WorkloadEndpoint, None, |one| {
        let pod = |stored: store::resources::Stored| {
            let pod = stored.object["spec"]["pod"].as_str()?.to_owned();
            Some(format!("{}/{pod}", stored.name.namespace))
        };
        all.extend(one.ok().and_then(pod));
        match all.len() < SEEN_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    all.extend(found(&session, Kind::Node, None, |name| Some(name.name)));
    beginning_with(current, all)
}

/// Something of the names of objects, each once.
fn found(
    session: &Session,
    kind: Kind,
    namespace: Option<&str>,
    part: impl Fn(Name) -> Option<String>,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut n_seen = 0;
    // What could be read until the store fell silent is better than nothing.
    let _ = session.resources.each(kind, namespace, |one| {
        n_seen += 1;
        found.extend(one.ok().and_then(|stored| part(stored.name)));
        match n_seen < SEEN_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    found
}

/// The values of `get -o`.
pub(crate) fn formats(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    if let Some(columns) = typed.strip_prefix("custom-columns=") {
        let before = columns.rfind(',').map_or("", |at| &columns[..=at]);
        let kind = kind_on(&line());
        let known = kind.into_iter().flat_map(crate::columns::all);
        let known = known.filter(|column| !before.split(',').any(|one| one == column.heading));
        let all = known.map(|column| format!("custom-columns={before}{}", column.heading));
        return beginning_with(current, all);
    }
    let with_values = ["custom-columns=", "go-template=", "go-template-file="];
    beginning_with(current, ["ps", "wide", "yaml", "json"].into_iter().chain(with_values))
}

/// Commands and codes, and behind `help field` the paths of fields.
pub(crate) fn help_words(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = line();
    if line.iter().rev().nth(1).is_some_and(|word| word == "field") {
        return beginning_with(current, super::explain_field::paths(&current.to_string_lossy()));
    }
    let whole = Arguments::command();
    let verbs = whole.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs = verbs.map(|verb| verb.get_name().to_owned());
    let codes = host::codes::CODES.iter().map(|it| it.code);
    let rest = ["field", "codes"].into_iter().chain(codes).map(str::to_owned);
    beginning_with(current, verbs.chain(rest))
}

/// The numbers of writes that can be taken back, the newest first, each with its command.
pub(crate) fn undo_numbers(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy().into_owned();
    let dir = with_surroundings(&place(&line()), |surroundings| surroundings.state_dir());
    let Ok(kept) = History::below(dir).kept() else { return Vec::new() };
    let kept = kept.entries.into_iter().filter(|(_, entry)| !entry.under_way);
    let kept: Vec<_> = kept.collect();
    let numbers = kept.into_iter().rev().map(|(number, entry)| (number.to_string(), entry.command));
    let wanted = numbers.filter(|(number, _)| number.starts_with(&typed)).take(NAMES_MAX);
    wanted
        .map(|(number, command)| CompletionCandidate::new(number).help(Some(command.into())))
        .collect()
}

/// The numbers of writes that are to be confirmed.
pub(crate) fn unconfirmed_numbers(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy().into_owned();
    let dir = with_surroundings(&place(&line()), |surroundings| surroundings.state_dir());
    let numbers = History::below(dir).unconfirmed().unwrap_or_default();
    let numbers = numbers.iter().rev().map(ToString::to_string);
    numbers.filter(|number| number.starts_with(&typed)).map(CompletionCandidate::new).collect()
}
