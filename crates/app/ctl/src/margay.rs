//! The program under its own name.

mod advice;
mod agent;
mod arguments;
mod complete;
mod confirm;
mod diff;
mod drops;
mod dry_run;
mod edit;
mod elsewhere;
mod events;
mod explain;
mod explain_field;
mod failure;
mod follow;
mod get;
mod help_codes;
mod history;
mod ipam;
mod kept_bytes;
mod overview;
mod read_documents;
mod realised;
mod reconcile;
mod recorder;
mod remove;
mod sandboxes;
mod selection;
mod session;
mod setup;
mod status;
mod table;
mod terminal;
mod undo;
mod usage;
mod validate;
mod version;
mod wait;
mod write;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use api::schema::{Mode, decode, object_for};
use api::{Kind, Problem};
use clap::{CommandFactory, Parser};
use serde_json::Value;
use store::resources;

use arguments::{Arguments, Ipam, Node, Place, Policy, Structured, Verb};
use failure::{BROKEN, DIFFERENT, Failure};
use session::Session;
use terminal::Terminal;

/// The command line of a part of the program that is not ours, for help and completion.
pub type Part = fn() -> clap::Command;

/// Runs the program with the words of a command line, its own name first. What other parts of the
/// program understand is only explained and completed here.
pub fn run(words: Vec<OsString>, parts: &'static [Part]) -> ExitCode {
    let whole = || complete::command(parts);
    clap_complete::CompleteEnv::with_factory(whole).var(complete::VARIABLE).complete();
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers, the rest are errors; both go where clap sends them.
            if !error.use_stderr() {
                return answered(&error);
            }
            let _ = io::stderr().lock().write_all(usage::text(&error, &words).as_bytes());
            return ExitCode::from(BROKEN);
        }
    };
    let place = arguments.place.clone();
    let Some(verb) = arguments.command else {
        return overview(&place);
    };
    match dispatch(&place, verb, parts) {
        Ok(code) => ExitCode::from(code),
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            let failure = failure.chosen_by(|| session::chosen_by(&place));
            let _ = write!(io::stderr().lock(), "{failure}");
            ExitCode::from(BROKEN)
        }
    }
}

/// Runs as Calico's `calico-ipam -upgrade`, with the words behind that name.
pub fn upgrade(words: impl Iterator<Item = OsString>) -> ExitCode {
    let ended = match ipam::upgrade::arguments(words) {
        Ok(arguments) => {
            ipam::upgrade::run_named(Terminal::detect(), &Place::default(), &arguments)
        }
        Err(error) if !error.use_stderr() => return answered(&error),
        Err(error) => Err(Failure::new(error.to_string().trim_start_matches("error: ").trim())),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let _ = write!(io::stderr().lock(), "{failure}");
            ExitCode::from(BROKEN)
        }
    }
}

/// Help and versions; they may be longer than the screen.
fn answered(answer: &clap::Error) -> ExitCode {
    let terminal = Terminal::detect();
    let text = match terminal.has_colour() {
        true => answer.render().ansi().to_string(),
        false => answer.render().to_string(),
    };
    match terminal.page(&text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(BROKEN),
        _ => ExitCode::SUCCESS,
    }
}

/// The answer to no command at all; a datastore that cannot be used is an error.
fn overview(place: &Place) -> ExitCode {
    let terminal = Terminal::detect();
    let (text, is_fine) = overview::text(terminal, place);
    match terminal.page(&text) {
        Ok(()) if is_fine => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => ExitCode::from(BROKEN),
    }
}

/// Does what was asked; the exit code.
fn dispatch(place: &Place, verb: Verb, parts: &[Part]) -> Result<u8, Failure> {
    let terminal = Terminal::detect();
    let is_fine = match verb {
        Verb::Status(arguments) | Verb::Node(Node::Status(arguments)) => {
            return status::run(terminal, &arguments);
        }
        Verb::Get(get) => get::run(&Session::open(place)?, &get),
        Verb::Create(write) => {
            let skips = write.skip_exists;
            let session = Session::open(place)?;
            write::documents(&session, resources::Verb::Create, &write.write, skips)
        }
        Verb::Apply(write) => {
            write::documents(&Session::open(place)?, resources::Verb::Apply, &write, false)
        }
        Verb::Replace(write) => {
            write::documents(&Session::open(place)?, resources::Verb::Update, &write, false)
        }
        Verb::Patch(patch) => write::patch(&Session::open(place)?, &patch),
        Verb::Delete(delete) => write::delete(&Session::open(place)?, &delete),
        Verb::Label(label) => write::label(&Session::open(place)?, &label),
        Verb::Validate(files) => validate::run(terminal, &files),
        Verb::Diff(write) => diff::run(&Session::open(place)?, &write),
        Verb::Undo { number } => {
            undo::run(&Session::open(place)?, number, &mut std::io::stdout().lock())
        }
        Verb::Confirm { number, format } => confirm::run(terminal, place, number, format.output),
        Verb::UndoUnlessConfirmed { number, within } => confirm::guard(place, number, within),
        Verb::History { format } => undo::list(terminal, place, format),
        Verb::Describe(other) => Err(elsewhere::describe(&other.words)),
        Verb::Edit(one) => edit::run(&Session::open(place)?, &one),
        Verb::Drops(arguments) => drops::run(terminal, place, &arguments),
        Verb::Explain(arguments) => explain::run(terminal, place, &arguments),
        Verb::Policy(Policy::Suggest(arguments)) => {
            explain::suggest::run(terminal, place, &arguments)
        }
        Verb::Wait(arguments) => wait::run(&Session::open(place)?, &arguments),
        Verb::Ipam(Ipam::Upgrade(arguments)) => {
            return ipam::upgrade::run(terminal, place, &arguments);
        }
        Verb::Ipam(ipam) => return ipam::run(&Session::open(place)?, &ipam),
        Verb::Sandboxes(arguments) => sandboxes::run(terminal, &arguments),
        Verb::Reconcile(arguments) => reconcile::run(terminal, &arguments),
        Verb::Events(arguments) => events::run(terminal, &arguments),
        Verb::Setup(arguments) => setup::run(terminal, place, &arguments),
        Verb::Remove(arguments) => remove::run(terminal, place, &arguments),
        Verb::Lab(other) => Err(elsewhere::lab(&other.words)),
        Verb::Agent(other) => Err(elsewhere::apart("agent", &other.words)),
        Verb::Cni(other) => Err(elsewhere::apart("cni", &other.words)),
        Verb::Calicoctl(other) => Err(elsewhere::apart("calicoctl", &other.words)),
        Verb::Version { client, format } => version::run(terminal, place, client, format),
        Verb::Help { words } => help(terminal, &words, parts),
        Verb::Completion { shell } => {
            let mut out = io::stdout().lock();
            out.write_all(&complete::script(shell)?)?;
            Ok(true)
        }
    };
    Ok(if is_fine? { 0 } else { DIFFERENT })
}

fn help(terminal: Terminal, words: &[String], parts: &[Part]) -> Result<bool, Failure> {
    match words {
        [field] if field == "field" => {
            return Err(Failure::new("which field?").help("margay help field IPPool.spec.cidr"));
        }
        // The steps may stand apart, as in `help field IPPool spec`.
        [field, steps @ ..] if field == "field" => {
            terminal.page(&explain_field::explain(terminal, &steps.join("."))?)?;
        }
        [codes] if codes == "codes" => terminal.page(&help_codes::list())?,
        [code] if code.to_ascii_uppercase().starts_with("MG-") => {
            terminal.page(&help_codes::explain(code)?)?;
        }
        words => {
            let part = words.first().and_then(|first| complete::part(parts, first));
            let (mut command, words) = match (part, words) {
                (Some(part), [_, rest @ ..]) => (part, rest),
                (_, words) => (Arguments::command(), words),
            };
            command.build();
            for word in words {
                let found = command.find_subcommand(word).cloned();
                let unknown =
                    || Failure::new(format!("there is no command {word}")).help("margay help");
                command = found.ok_or_else(unknown)?;
            }
            terminal.page(&command.render_long_help().to_string())?;
        }
    }
    Ok(true)
}

/// An answer as JSON or YAML.
fn structured(format: Structured, answer: &Value) -> String {
    match format {
        Structured::Json => text::json::to_string_indented(answer) + "\n",
        Structured::Yaml => text::yaml::to_string(answer),
    }
}

/// Reads an object that a person changed.
fn decode_user(kind: Kind, object: Value) -> Result<Value, Vec<Problem>> {
    let (decoded, problems) = decode(object_for(kind), object, Mode::User);
    if problems.is_empty() { Ok(decoded) } else { Err(problems) }
}
