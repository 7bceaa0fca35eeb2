//! What can be completed under the name `calicoctl`: its own commands and flags, and no others.

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use super::{formats, kinds, names, namespaces};
use crate::calicoctl::{self, Flag, PROGRAM, Takes};

/// The program as its table of commands says.
pub(super) fn command() -> Command {
    build(&PROGRAM)
}

fn build(described: &'static calicoctl::Command) -> Command {
    let flags = described.flags.iter().chain(calicoctl::EVERYWHERE);
    // A flag without a word on it is only there so that old scripts go on.
    let flags = flags.filter(|flag| !flag.help.is_empty()).map(|flag| argument(described, flag));
    let command = Command::new(described.name)
        .about(described.about)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .args(flags)
        .subcommands(described.commands.iter().map(build));
    match described.name {
        "get" | "delete" | "patch" | "label" => command
            .arg(Arg::new("kind").add(ArgValueCompleter::new(kinds)))
            .arg(Arg::new("names").num_args(0..).add(ArgValueCompleter::new(names))),
        _ => command,
    }
}

fn argument(command: &calicoctl::Command, flag: &'static Flag) -> Arg {
    let argument = Arg::new(flag.long).long(flag.long).help(flag.help);
    let argument = match flag.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    if matches!(flag.takes, Takes::Bool) {
        return argument.action(ArgAction::SetTrue);
    }
    match (command.name, flag.long) {
        (_, "namespace") => argument.add(ArgValueCompleter::new(namespaces)),
        ("get", "output") => argument.add(ArgValueCompleter::new(formats)),
        (_, "strictaffinity") => argument.value_parser(["true", "false"]),
        (_, "kubevirt-ip-persistence") => argument.value_parser(["Enabled", "Disabled"]),
        (_, "log-level") => {
            argument.value_parser(["panic", "fatal", "error", "warn", "info", "debug"])
        }
        (_, "filename" | "config" | "output" | "kubeconfig" | "from-report" | "log-dir") => {
            argument.value_hint(ValueHint::AnyPath)
        }
        _ => argument,
    }
}
