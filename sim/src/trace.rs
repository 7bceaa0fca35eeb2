//! What happened, as a person reads it: who did what to which sandbox and address.
//!
//! Words cost more than what they tell of, so a run keeps none; one that breaks a law is run once
//! more, with words.

use std::net::IpAddr;

use ipam::Plan;
use sandbox::identity::Identity;
use sandbox::life::Record;

use crate::store::Moved;

/// How much of the past of what is wrong is told with it.
const HISTORY_LINES: usize = 12;

/// The lines; none if nobody reads them.
#[derive(Debug)]
pub(crate) struct Trace(Option<Vec<String>>);

impl Trace {
    pub(crate) fn new(is_read: bool) -> Self {
        Self(is_read.then(Vec::new))
    }

    pub(crate) fn is_read(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn tell(&mut self, step: usize, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(format!("{step:>5}  {}", what()));
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.0.unwrap_or_default()
    }
}

/// The last lines that name one of these.
pub(crate) fn history(lines: &[String], about: &[String]) -> Vec<String> {
    let concerns = |line: &&String| about.iter().any(|word| names(line, word));
    let mut found: Vec<String> =
        lines.iter().rev().filter(concerns).take(HISTORY_LINES).cloned().collect();
    found.reverse();
    found
}

/// Whether a line has a word as such: 10.0.0.1 is not in 10.0.0.12.
fn names(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == ':';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(|c| is_part(c) && c != ':')
    })
}

/// A sandbox, in words.
pub(crate) fn who(identity: &Identity) -> String {
    format!("{}/{}", identity.container, identity.interface)
}

/// A record, in words.
pub(crate) fn spoken(record: &Record) -> String {
    let owed = if record.owed.is_some() { ", owed to the datastore" } else { "" };
    let phase = format!("{:?}", record.phase).to_lowercase();
    format!("{phase}{}{owed}", addresses(&record.wiring.addresses))
}

/// Addresses after something else.
pub(crate) fn addresses<'a>(addresses: impl IntoIterator<Item = &'a IpAddr>) -> String {
    addresses.into_iter().map(|it| format!(" {it}")).collect()
}

/// A key without what all of them begin with.
pub(crate) fn short(key: &str) -> &str {
    let rest = key
        .strip_prefix("/calico/ipam/v2/")
        .or_else(|| key.strip_prefix("/calico/resources/v3/projectcalico.org/"));
    rest.unwrap_or(key)
}

/// Who holds what after a transaction.
pub(crate) fn moves(moved: &[Moved]) -> String {
    let name = |it: &Option<String>| it.clone().unwrap_or_else(|| "nobody".to_owned());
    let one = |it: &Moved| format!(" {}: {} -> {};", it.address, name(&it.from), name(&it.to));
    moved.iter().map(one).collect()
}

/// What a transaction changes beside blocks, which tell of themselves by who holds what.
pub(crate) fn changes(plan: &Plan) -> String {
    let one = |change: &ipam::Change| {
        let sign = if change.value.is_some() { '+' } else { '-' };
        format!(" {sign}{}", short(&change.key))
    };
    plan.changes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_of_an_address_is_not_that_of_a_longer_one() {
        let lines = ["  1  10.0.0.1: nobody -> net.c0001;", "  2  10.0.0.12 is taken"];
        let lines = lines.map(str::to_owned);
        let about = |word: &str| history(&lines, &[word.to_owned()]).len();
        assert_eq!((about("10.0.0.1"), about("10.0.0.12"), about("c0001")), (1, 1, 1));
        assert_eq!((about("0.0.12"), about("c000")), (1, 0));
    }
}
