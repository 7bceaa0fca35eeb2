//! A wrong command line, in the shape of all errors.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::arguments::Arguments;
use super::elsewhere;

/// Commands of calicoctl that this version does not have.
const NOT_YET: [&str; 5] = ["checksystem", "cluster", "datastore", "diags", "run"];

/// What is wrong with the words typed, and what would be right.
pub(super) fn text(error: &clap::Error, words: &[OsString]) -> String {
    let complaint = error.render().to_string();
    let help = help(error, words).map(|help| format!("help: {help}"));
    let complaint = match help {
        // What looks alike is not what does it.
        Some(_) => without_tips(&complaint),
        None => complaint,
    };
    text::usage::plain(&complaint, help.as_deref())
}

/// The command that was typed, wherever flags stand.
fn verb(words: &[OsString]) -> &str {
    let whole = Arguments::command();
    let mut typed = words.iter().skip(1).filter_map(|word| word.to_str());
    typed.find(|word| whole.find_subcommand(word).is_some()).unwrap_or_default()
}

fn without_tips(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("  tip: ")).collect::<Vec<_>>().join("\n")
}

fn context(error: &clap::Error, kind: ContextKind) -> &str {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text,
        _ => "",
    }
}

fn help(error: &clap::Error, words: &[OsString]) -> Option<String> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = context(error, ContextKind::InvalidSubcommand);
            match NOT_YET.contains(&typed) {
                true => Some(format!(
                    "{typed} is not part of this version; Calico's own calicoctl has it"
                )),
                false => elsewhere::command(typed),
            }
        }
        ErrorKind::UnknownArgument => {
            let typed = context(error, ContextKind::InvalidArg);
            elsewhere::flag(verb(words), typed).map(str::to_owned)
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let is_number = context(error, ContextKind::InvalidArg) == "[NUMBER]";
            is_number.then(|| "margay history shows the numbers of the writes".to_owned())
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(missing)) => missing.concat(),
                _ => String::new(),
            };
            missing.contains("<FILE>").then(|| {
                "name files or folders, with or without -f; - is standard input".to_owned()
            })
        }
        _ => None,
    }
}
