//! The program under the name `calicoctl`: its commands, its answers, its exit codes.
//!
//! What scripts can depend on (standard output, exit codes, the words of errors) is as in the
//! real program. Where that program crashes, says things twice or prints memory addresses, ours
//! does not: see `docs/differences.md`.

mod actions;
mod arguments;
mod commands;
mod get;
mod help;
mod ipam;
mod label;
mod report;
mod resources;
mod session;
mod stop;
mod targets;
mod version;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

pub(crate) use arguments::{Command, Flag, Takes};
pub(crate) use commands::{EVERYWHERE, PROGRAM};

use arguments::Parsed;
use commands::Verb;
use resources::Action;
use session::{Datastore, Session};
use stop::Stop;

const LOG_LEVELS: &str = "panic, fatal, error, warn, info, debug";

/// What shells show for a program that ended because nobody reads its output.
const BROKEN_PIPE: u8 = 141;

/// Runs the program with these arguments, the program's own name not among them.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    let answered = answer(arguments, &mut out);
    let flushed = out.flush().map_err(Stop::Output);
    match answered.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => say(stop, &mut out).unwrap_or(ExitCode::FAILURE),
    }
}

fn say(stop: Stop, out: &mut dyn Write) -> io::Result<ExitCode> {
    match stop {
        Stop::Error(text) => writeln!(io::stderr(), "Error: {}", stop::shortened(&text))?,
        Stop::Said(text) => {
            writeln!(out, "{text}")?;
            out.flush()?;
        }
        Stop::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            return Ok(ExitCode::from(BROKEN_PIPE));
        }
        Stop::Output(error) => writeln!(io::stderr(), "Error: cannot write the output: {error}")?,
    }
    Ok(ExitCode::FAILURE)
}

fn answer(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> Result<(), Stop> {
    let arguments: Result<Vec<String>, OsString> = arguments.map(OsString::into_string).collect();
    let mut arguments = arguments.map_err(|odd| {
        Stop::Error(format!("the argument {} is not UTF-8", odd.to_string_lossy()))
    })?;
    let wants_help = arguments.first().is_some_and(|word| word == "help");
    if wants_help {
        arguments.remove(0);
    }
    let parsed = arguments::parse(&PROGRAM, EVERYWHERE, arguments)?;
    let Some(verb) = parsed.command().verb.filter(|_| !wants_help && !parsed.is_set("help")) else {
        return Ok(out.write_all(help::text(&parsed.path).as_bytes())?);
    };
    parsed.check_words()?;
    check_log_level(&parsed)?;
    let datastore = Datastore::new(parsed.text("config"));
    let mut session = Session { parsed: &parsed, out, datastore };
    let performed = perform(verb, &mut session);
    for key in session.datastore.foreign_keys() {
        writeln!(io::stderr(), "warning: {key} is left out: the key is not UTF-8")?;
    }
    performed
}

fn check_log_level(parsed: &Parsed) -> Result<(), Stop> {
    let level = parsed.text("log-level").unwrap_or("panic");
    let known = LOG_LEVELS.split(", ").chain(["warning", "trace"]);
    match known.into_iter().any(|known| level.eq_ignore_ascii_case(known)) {
        true => Ok(()),
        false => {
            Err(Stop::Error(format!("unknown log level: {level}, expected one of: {LOG_LEVELS}")))
        }
    }
}

fn perform(verb: Verb, session: &mut Session<'_>) -> Result<(), Stop> {
    match verb {
        Verb::Apply => report::write(session, Action::Apply, "apply", "applied"),
        Verb::Create => report::write(session, Action::Create, "create", "created"),
        Verb::Validate => report::write(session, Action::Validate, "validate", "validated"),
        Verb::Replace => report::replace(session),
        Verb::Delete => report::delete(session),
        Verb::Patch => report::patch(session),
        Verb::Get => get::run(session),
        Verb::Label => label::run(session),
        Verb::Version => version::run(session),
        Verb::IpamCheck => ipam::check(session),
        Verb::IpamRelease => ipam::release(session),
        Verb::IpamSplit => ipam::split(session),
        Verb::IpamShow => ipam::show(session),
        Verb::IpamConfigure => ipam::configure(session),
        Verb::NotYet => {
            let names: Vec<&str> = session.parsed.path.iter().map(|one| one.name).collect();
            Err(Stop::Error(format!("{} is not part of this version", names.join(" "))))
        }
    }
}

#[cfg(test)]
mod tests;
