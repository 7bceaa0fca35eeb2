//! Reads a command line the way calicoctl does.
//!
//! Flags may stand anywhere, before or after the words they belong to; `--flag=value`,
//! `--flag value`, `-f value`, `-fvalue` and clusters like `-Ro yaml` all count, and the last
//! of two equal flags wins. Which flags there are is a table ([`super::commands`]); the
//! sentences about wrong ones are those that scripts know from calicoctl.

use std::collections::BTreeMap;

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing, or `=true` and `=false`.
    Bool,
    /// A text.
    Text,
    /// A whole number.
    Int,
}

/// A flag of a command.
#[derive(Debug)]
pub(crate) struct Flag {
    /// The name after the two dashes.
    pub(crate) long: &'static str,
    /// The letter after one dash.
    pub(crate) short: Option<char>,
    /// What it takes.
    pub(crate) takes: Takes,
    /// What it is for; empty for a flag that `--help` does not show.
    pub(crate) help: &'static str,
}

/// How many words a command takes beside its flags.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Words {
    /// Any number.
    Any,
    /// So many.
    Exactly(usize),
    /// So many or more.
    AtLeast(usize),
}

/// A command, or a group of them.
#[derive(Debug)]
pub(crate) struct Command {
    /// The word that calls it.
    pub(crate) name: &'static str,
    /// What stands after the name in the usage line.
    pub(crate) usage: &'static str,
    /// What it does, in a sentence.
    pub(crate) about: &'static str,
    /// A command line or two to start from.
    pub(crate) examples: &'static [&'static str],
    /// Its own flags, beside those that every command has.
    pub(crate) flags: &'static [Flag],
    /// How many words it takes.
    pub(crate) words: Words,
    /// What it runs; a group runs nothing.
    pub(crate) verb: Option<super::commands::Verb>,
    /// The commands of a group.
    pub(crate) commands: &'static [Command],
}

/// A command line that was understood.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// The commands from the program itself to the one that was called.
    pub(crate) path: Vec<&'static Command>,
    /// The words that are neither commands nor flags.
    pub(crate) words: Vec<String>,
    values: BTreeMap<&'static str, String>,
    /// Every value of each flag, in order.
    every: Vec<(&'static str, String)>,
}

impl Parsed {
    /// The command that was called.
    pub(crate) fn command(&self) -> &'static Command {
        self.path.last().expect("a path begins with the program itself")
    }

    /// Whether a flag without a value is set.
    pub(crate) fn is_set(&self, long: &str) -> bool {
        self.values.get(long).is_some_and(|value| value == "true")
    }

    /// The text of a flag; an empty one counts as not given.
    pub(crate) fn text(&self, long: &str) -> Option<&str> {
        self.values.get(long).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The texts of a flag that may be given several times.
    pub(crate) fn all(&self, long: &str) -> Vec<&str> {
        let given = self.every.iter().filter(|(name, _)| *name == long);
        given.map(|(_, value)| value.as_str()).collect()
    }

    /// The number of a flag.
    pub(crate) fn int(&self, long: &str) -> Option<i64> {
        self.values.get(long).and_then(|value| parse_int(value).ok())
    }

    /// Checks the number of words; not part of reading, because `--help` goes first.
    pub(crate) fn check_words(&self) -> Result<(), String> {
        let count = self.words.len();
        match self.command().words {
            Words::Exactly(wanted) if count != wanted => {
                Err(format!("accepts {wanted} arg(s), received {count}"))
            }
            Words::AtLeast(wanted) if count < wanted => {
                Err(format!("requires at least {wanted} arg(s), only received {count}"))
            }
            _ => Ok(()),
        }
    }
}

/// Reads a command line, without the program's name.
pub(crate) fn parse(
    program: &'static Command,
    everywhere: &'static [Flag],
    arguments: Vec<String>,
) -> Result<Parsed, String> {
    let mut path = vec![program];
    let mut rest = arguments;
    loop {
        let command = *path.last().expect("a path begins with the program itself");
        let known = Known { command, everywhere };
        let Some(position) = known.first_word(&rest) else { break };
        let Some(next) = command.commands.iter().find(|next| next.name == rest[position]) else {
            break;
        };
        rest.remove(position);
        path.push(next);
    }
    let command = *path.last().expect("a path begins with the program itself");
    let mut reader = Reader {
        known: Known { command, everywhere },
        rest: rest.into_iter(),
        words: Vec::new(),
        values: BTreeMap::new(),
        every: Vec::new(),
    };
    reader.read()?;
    Ok(Parsed { path, words: reader.words, values: reader.values, every: reader.every })
}

/// The flags that may stand on the line of a command.
#[derive(Clone, Copy)]
struct Known {
    command: &'static Command,
    everywhere: &'static [Flag],
}

impl Known {
    fn all(self) -> impl Iterator<Item = &'static Flag> {
        self.command.flags.iter().chain(self.everywhere)
    }

    fn long(self, name: &str) -> Option<&'static Flag> {
        self.all().find(|flag| flag.long == name)
    }

    fn short(self, letter: char) -> Option<&'static Flag> {
        self.all().find(|flag| flag.short == Some(letter))
    }

    /// Where the first word is that is neither a flag nor the value of one. A flag that nobody
    /// knows is taken to have a value, as calicoctl takes it.
    fn first_word(self, arguments: &[String]) -> Option<usize> {
        let takes_value = |flag: Option<&Flag>| flag.is_none_or(|flag| flag.takes != Takes::Bool);
        let mut index = 0;
        while let Some(argument) = arguments.get(index) {
            if argument == "--" {
                return None;
            } else if let Some(name) = argument.strip_prefix("--") {
                if !name.contains('=') && takes_value(self.long(name)) {
                    index += 1;
                }
            } else if let Some(letters) = argument.strip_prefix('-') {
                let mut letters = letters.chars();
                if let (Some(letter), None) = (letters.next(), letters.next())
                    && takes_value(self.short(letter))
                {
                    index += 1;
                }
            } else if !argument.is_empty() {
                return Some(index);
            }
            index += 1;
        }
        None
    }
}

struct Reader {
    known: Known,
    rest: std::vec::IntoIter<String>,
    words: Vec<String>,
    values: BTreeMap<&'static str, String>,
    every: Vec<(&'static str, String)>,
}

impl Reader {
    fn read(&mut self) -> Result<(), String> {
        while let Some(argument) = self.rest.next() {
            if argument == "--" {
                self.words.extend(self.rest.by_ref());
            } else if let Some(flag) = argument.strip_prefix("--") {
                self.long(flag, &argument)?;
            } else if let Some(letters) = argument.strip_prefix('-').filter(|text| !text.is_empty())
            {
                self.letters(letters)?;
            } else {
                self.words.push(argument);
            }
        }
        Ok(())
    }

    fn long(&mut self, text: &str, argument: &str) -> Result<(), String> {
        if text.starts_with('-') || text.starts_with('=') {
            return Err(format!("bad flag syntax: {argument}"));
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let flag = self.known.long(name).ok_or_else(|| format!("unknown flag: --{name}"))?;
        let value = match value {
            Some(value) => value,
            None if flag.takes == Takes::Bool => "true".to_owned(),
            None => self.rest.next().ok_or_else(|| format!("flag needs an argument: --{name}"))?,
        };
        self.set(flag, value)
    }

    fn letters(&mut self, letters: &str) -> Result<(), String> {
        let mut rest = letters;
        while let Some(letter) = rest.chars().next() {
            let after = &rest[letter.len_utf8()..];
            let Some(flag) = self.known.short(letter) else {
                return Err(format!("unknown shorthand flag: '{letter}' in -{rest}"));
            };
            if let Some(value) = after.strip_prefix('=').filter(|value| !value.is_empty()) {
                return self.set(flag, value.to_owned());
            }
            if flag.takes == Takes::Bool {
                self.set(flag, "true".to_owned())?;
                rest = after;
                continue;
            }
            let value = match after {
                "" => self
                    .rest
                    .next()
                    .ok_or_else(|| format!("flag needs an argument: '{letter}' in -{rest}"))?,
                value => value.to_owned(),
            };
            return self.set(flag, value);
        }
        Ok(())
    }

    fn set(&mut self, flag: &'static Flag, value: String) -> Result<(), String> {
        let checked = match flag.takes {
            Takes::Text => Ok(value.clone()),
            Takes::Bool => parse_bool(&value).map(|value| value.to_string()).ok_or_else(|| {
                format!("strconv.ParseBool: parsing {}: invalid syntax", quoted(&value))
            }),
            Takes::Int => parse_int(&value).map(|value| value.to_string()).map_err(|reason| {
                format!("strconv.ParseInt: parsing {}: {reason}", quoted(&value))
            }),
        };
        let checked = checked.map_err(|reason| {
            let name = match flag.short {
                Some(letter) => format!("-{letter}, --{}", flag.long),
                None => format!("--{}", flag.long),
            };
            format!("invalid argument {} for \"{name}\" flag: {reason}", quoted(&value))
        })?;
        self.every.push((flag.long, checked.clone()));
        self.values.insert(flag.long, checked);
        Ok(())
    }
}

/// A text in double quotes.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_debug())
}

/// The spellings of true and false that flags take.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

fn parse_int(text: &str) -> Result<i64, &'static str> {
    text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
            "value out of range"
        }
        _ => "invalid syntax",
    })
}

#[cfg(test)]
mod tests {
    use super::super::commands::{EVERYWHERE, PROGRAM};
    use super::*;

    fn read(line: &[&str]) -> Result<Parsed, String> {
        parse(&PROGRAM, EVERYWHERE, line.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn flags_stand_anywhere() {
        let parsed = read(&["-l", "debug", "get", "-o=yaml", "np", "-Rn", "prod", "x"]).unwrap();
        assert_eq!(parsed.command().name, "get");
        assert_eq!(parsed.words, ["np", "x"]);
        assert_eq!(parsed.text("output"), Some("yaml"));
        assert_eq!(parsed.text("namespace"), Some("prod"));
        assert!(parsed.is_set("recursive"));
    }

    #[test]
    fn the_last_of_two_equal_flags_wins() {
        let parsed = read(&["create", "-fa", "--filename", "b", "--skip-exists=false"]).unwrap();
        assert_eq!(parsed.text("filename"), Some("b"));
        assert!(!parsed.is_set("skip-exists"));
    }

    #[test]
    fn wrong_flags_are_named_as_calicoctl_names_them() {
        for (line, words) in [
            (&["get", "x", "--nope"][..], "unknown flag: --nope"),
            (&["get", "x", "-ARx"], "unknown shorthand flag: 'x' in -x"),
            (&["get", "x", "-o"], "flag needs an argument: 'o' in -o"),
            (&["ipam", "show", "--ip"], "flag needs an argument: --ip"),
            (&["get", "---x"], "bad flag syntax: ---x"),
            (
                &["get", "--export=maybe"],
                "invalid argument \"maybe\" for \"--export\" flag: strconv.ParseBool: parsing \
                 \"maybe\": invalid syntax",
            ),
            (
                &["ipam", "configure", "--ip-cooldown-seconds=x"],
                "invalid argument \"x\" for \"--ip-cooldown-seconds\" flag: strconv.ParseInt: \
                 parsing \"x\": invalid syntax",
            ),
        ] {
            assert_eq!(read(line).unwrap_err(), words);
        }
    }

    #[test]
    fn an_unknown_flag_before_the_command_swallows_a_word() {
        assert_eq!(read(&["--nope", "get"]).unwrap_err(), "unknown flag: --nope");
        let parsed = read(&["gett", "nodes"]).unwrap();
        assert_eq!(parsed.command().name, "calicoctl");
    }

    #[test]
    fn after_two_dashes_everything_is_a_word() {
        let parsed = read(&["label", "nodes", "n", "--", "--odd=1"]).unwrap();
        assert_eq!(parsed.words, ["nodes", "n", "--odd=1"]);
    }
}
