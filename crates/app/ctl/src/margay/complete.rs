//! Completion that knows kinds, and the names in the store.

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use api::Kind;
use clap_complete::CompletionCandidate;
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Zsh};

use super::arguments::{Place, Shell};
use super::failure::Failure;
use super::session::Session;

/// The variable by which a shell asks for candidates.
pub(crate) const VARIABLE: &str = "COMPLETE";
/// More names than this help nobody, and a slow answer annoys at every key.
const NAMES_MAX: usize = 500;
/// A shell that hangs at a key is worse than one that does not know.
const PATIENCE: Duration = Duration::from_secs(1);

/// The script that a shell reads once.
pub(crate) fn script(shell: Shell) -> Result<Vec<u8>, Failure> {
    let program = std::env::args().next().unwrap_or_else(|| "margay".to_owned());
    let mut text = Vec::new();
    let write = |completer: &dyn EnvCompleter, text: &mut Vec<u8>| -> io::Result<()> {
        completer.write_registration(VARIABLE, "margay", "margay", &program, text)
    };
    match shell {
        Shell::Bash => write(&Bash, &mut text)?,
        Shell::Elvish => write(&Elvish, &mut text)?,
        Shell::Fish => write(&Fish, &mut text)?,
        Shell::Zsh => write(&Zsh, &mut text)?,
    }
    Ok(text)
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
    let typed = current.to_string_lossy().into_owned();
    let words: Vec<String> = std::env::args().collect();
    // Behind `--` stands the command line being completed: program, verb, kind, names.
    let line = words.iter().position(|word| word == "--").map_or(&[][..], |at| &words[at + 1..]);
    let Some(kind) = line.iter().skip(2).find_map(|word| Kind::from_alias(word)) else {
        return Vec::new();
    };
    let after = |flags: [&str; 2]| {
        line.iter().enumerate().find_map(|(at, word)| match word.split_once('=') {
            Some((flag, value)) if flags.contains(&flag) => Some(value.to_owned()),
            _ if flags.contains(&word.as_str()) => line.get(at + 1).cloned(),
            _ => None,
        })
    };
    let place = Place {
        config: after(["-c", "--config"]).map(Into::into),
        store: after(["--store", "--store"]).map(Into::into),
        ..Place::default()
    };
    let opened = Session::open_with(&place, |config| config.timeout = PATIENCE);
    let Ok(session) = opened else { return Vec::new() };
    let namespace = after(["-n", "--namespace"])
        .unwrap_or_else(|| super::session::DEFAULT_NAMESPACE.to_owned());
    let namespace = kind.is_namespaced().then_some(namespace.as_str());
    let Ok(listing) = session.resources.list(kind, namespace) else { return Vec::new() };
    let names = listing.objects.into_iter().map(|stored| stored.name.name);
    names
        .filter(|name| name.starts_with(&typed))
        .take(NAMES_MAX)
        .map(CompletionCandidate::new)
        .collect()
}
