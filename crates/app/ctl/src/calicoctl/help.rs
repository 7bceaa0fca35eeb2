//! The text of `--help`.

use super::arguments::{Command, Flag, Takes};
use super::commands::{EVERYWHERE, Verb};

const COLUMN: usize = 34;

/// The help of the last command of a path.
pub(crate) fn text(path: &[&'static Command]) -> String {
    let Some(command) = path.last() else { return String::new() };
    let names: Vec<&str> = path.iter().map(|command| command.name).collect();
    let mut text = format!("{}\n\nUsage: {} {}\n", command.about, names.join(" "), command.usage);
    if command.verb == Some(Verb::NotYet) {
        text.push_str("\nThis command is not part of this version.\n");
    }
    if !command.commands.is_empty() {
        text.push_str("\nCommands:\n");
        for command in command.commands {
            let later = match command.verb {
                Some(Verb::NotYet) => " (not in this version)",
                _ => "",
            };
            line(&mut text, command.name, &format!("{}{later}", command.about));
        }
    }
    if !command.examples.is_empty() {
        text.push_str("\nExamples:\n");
        for example in command.examples {
            text.push_str(&format!("  {example}\n"));
        }
    }
    if !command.flags.is_empty() {
        text.push_str("\nFlags:\n");
        flags(&mut text, command.flags);
    }
    text.push_str("\nFlags of every command:\n");
    flags(&mut text, EVERYWHERE);
    text
}

fn flags(text: &mut String, flags: &[Flag]) {
    for flag in flags.iter().filter(|flag| !flag.help.is_empty()) {
        let short = flag.short.map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
        let takes = match flag.takes {
            Takes::Bool => "",
            Takes::Text => " TEXT",
            Takes::Int => " NUMBER",
        };
        line(text, &format!("{short}--{}{takes}", flag.long), flag.help);
    }
}

fn line(text: &mut String, left: &str, right: &str) {
    text.push_str(&format!("  {left:<COLUMN$}  {right}\n"));
}

#[cfg(test)]
mod tests {
    use super::super::commands::PROGRAM;
    use super::*;

    #[test]
    fn every_command_says_what_it_does_and_lists_its_flags() {
        fn visit(path: &mut Vec<&'static Command>) {
            let command = *path.last().unwrap();
            let help = text(path);
            assert!(help.starts_with(command.about) && !command.about.is_empty());
            for flag in command.flags.iter().filter(|flag| !flag.help.is_empty()) {
                assert!(help.contains(&format!("--{}", flag.long)), "{}", command.name);
            }
            for next in command.commands {
                path.push(next);
                visit(path);
                path.pop();
            }
        }
        visit(&mut vec![&PROGRAM]);
    }

    #[test]
    fn commands_of_later_versions_are_marked() {
        let help = text(&[&PROGRAM]);
        assert!(help.contains("get") && !help.contains("not in this version"));
        let node = PROGRAM.commands.iter().find(|command| command.name == "node").unwrap();
        assert!(text(&[&PROGRAM, node]).contains("(not in this version)"));
    }
}
