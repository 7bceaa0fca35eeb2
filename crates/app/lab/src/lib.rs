//! `margay lab`: a cluster in a box.
//!
//! Nodes and pods are network namespaces of this machine; the agents, the CNI calls and the
//! datastore are the shipped ones. Everything of a lab lies in one folder, every process of it
//! carries the folder in its environment, and `lab down` finds all of it by these two alone: what
//! was written down about a lab is never needed to remove it.
//!
//! Other parts of the product are used as a user would: by running this very binary.

mod agents;
mod arguments;
mod cni;
mod complete;
mod datastore;
mod denials;
mod down;
mod exec;
mod failure;
mod faults;
mod guard;
mod heal;
mod lab;
mod list;
mod matrix;
mod parallel;
mod ping;
mod place;
mod pods;
mod probe;
mod processes;
mod remedy;
mod rights;
mod rootless;
mod screen;
mod server;
mod state;
mod status;
mod topology;
mod up;
mod waiting;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use arguments::{Arguments, PodVerb, Verb};
use failure::Failure;
use place::Place;

/// The exit code of something degraded.
const DEGRADED: u8 = 1;
/// The exit code of something broken, and of an error.
const BROKEN: u8 = 2;

/// How a command ended, when it could do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Fine,
    Degraded,
    Broken,
}

/// The command line of the lab, for help and completion.
pub fn command_line() -> clap::Command {
    Arguments::command()
}

/// Runs a command of the lab if the words name one: `lab`, or what the lab runs of itself. The
/// first word is the name that the program was called by.
pub fn run(words: &[OsString]) -> Option<ExitCode> {
    let (called, rest) = words.split_first()?;
    if Path::new(called).file_name() == Some(OsStr::new(ping::NAME)) {
        return Some(finish(ping::run(words)));
    }
    let (first, rest) = rest.split_first()?;
    let ended = match first.to_str()? {
        "lab" => return Some(command(rest)),
        guard::COMMAND => return Some(build(rest)),
        server::COMMAND => server::run(rest),
        rootless::COMMAND => rootless::hold(rest),
        _ => return None,
    };
    Some(finish(ended.map(|()| Outcome::Fine)))
}

fn command(rest: &[OsString]) -> ExitCode {
    match parse(rest) {
        Ok(Arguments { name, command: Verb::Up(_) }) => {
            let place = Place::named(&name);
            place.and_then(|place| guard::run(&place, rest)).unwrap_or_else(failed)
        }
        Ok(arguments) => finish(dispatch(arguments)),
        Err(error) => {
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            let complaint = text::usage::plain(&error.render().to_string(), None);
            let _ = io::stderr().lock().write_all(complaint.as_bytes());
            ExitCode::from(BROKEN)
        }
    }
}

fn parse(rest: &[OsString]) -> Result<Arguments, clap::Error> {
    let own = std::iter::once(OsStr::new("margay lab"));
    Arguments::try_parse_from(own.chain(rest.iter().map(AsRef::as_ref)))
}

/// The part of `lab up` that builds.
fn build(rest: &[OsString]) -> ExitCode {
    let built = guard::begin(rest).and_then(|words| match parse(words) {
        Ok(arguments) => dispatch(arguments),
        Err(error) => Err(Failure::new(error.to_string())),
    });
    finish(built)
}

fn finish(ended: Result<Outcome, Failure>) -> ExitCode {
    match ended {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Degraded) => ExitCode::from(DEGRADED),
        Ok(Outcome::Broken) => ExitCode::from(BROKEN),
        Err(failure) => failed(failure),
    }
}

fn failed(failure: Failure) -> ExitCode {
    let _ = write!(io::stderr().lock(), "{failure}");
    ExitCode::from(BROKEN)
}

fn dispatch(arguments: Arguments) -> Result<Outcome, Failure> {
    let place = Place::named(&arguments.name)?;
    match arguments.command {
        Verb::Up(up) => up::run(&place, &up),
        Verb::Exec(exec) => exec::run(&place, &exec),
        Verb::Pod(PodVerb::Add(add)) => pods::add_command(&place, &add),
        Verb::Pod(PodVerb::Rm { pod, format }) => pods::remove_command(&place, &pod, format),
        Verb::Status { format } => status::run(&place, format),
        Verb::List { format } => list::run(format),
        Verb::Test(test) => matrix::run(&place, &test),
        Verb::Break(fault) => faults::break_command(&place, &fault),
        Verb::Heal { format } => heal::run(&place, format),
        Verb::Down { all, format } => down::run(&place, all, format),
    }
}
