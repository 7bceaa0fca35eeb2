//! A wrong command line, in the shape of all errors.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands of calicoctl that this version does not have.
const NOT_YET: [&str; 8] =
    ["checksystem", "cluster", "datastore", "diags", "run", "check", "release", "split"];

/// What is wrong with the words typed, and what would be right.
pub(super) fn text(error: &clap::Error) -> String {
    let complaint = error.render().to_string();
    let help = help(error);
    let complaint = match help.is_some() && error.kind() == ErrorKind::InvalidSubcommand {
        // What looks alike is not what does it.
        true => without_tips(&complaint),
        false => complaint,
    };
    text::usage::plain(&complaint, help.as_deref())
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

fn help(error: &clap::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = context(error, ContextKind::InvalidSubcommand);
            NOT_YET.contains(&typed).then(|| {
                format!("help: {typed} is not part of this version; Calico's own calicoctl has it")
            })
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let is_number = context(error, ContextKind::InvalidArg) == "[NUMBER]";
            is_number.then(|| "help: margay history shows the numbers of the writes".to_owned())
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(missing)) => missing.concat(),
                _ => String::new(),
            };
            missing.contains("<FILE>").then(|| {
                "help: name files or folders, with or without -f; - is standard input".to_owned()
            })
        }
        _ => None,
    }
}
