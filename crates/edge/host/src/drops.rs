//! The packets that were denied lately: the last two thousand sorts of them, counted.
//!
//! Whoever is denied tries again: packets alike within ten seconds are one entry with a count. An
//! entry that counts one more becomes the newest, so that a reader who asks for what came after
//! an entry hears of it again.

use std::collections::VecDeque;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// How many entries are kept.
const ENTRIES_MAX: usize = 2000;
/// How long packets alike are one entry, in seconds.
pub const SPAN: u64 = 10;

/// A packet that was denied, or several alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drop {
    /// Counts up with every packet.
    pub number: u64,
    /// When the first one was denied, in seconds since 1970.
    pub first: u64,
    /// When the last one was.
    pub last: u64,
    /// How many they are.
    pub count: u64,
    /// What they are.
    #[serde(flatten)]
    pub packet: Denied,
    /// What was known of them then.
    #[serde(flatten)]
    pub told: Told,
}

/// What the node knew of a packet when it was denied: policies and pods come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Told {
    /// What decided, in words.
    pub decided: Option<String>,
    /// The endpoint of this node whose policies did: where it is stored.
    pub endpoint: Option<String>,
    /// Whether the endpoint spoke from an address that is not its own.
    pub is_masked: bool,
}

/// What was denied, and by what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Denied {
    /// What decided, as the kernel's rule has it.
    pub rule: String,
    /// Where it came from.
    pub source: IpAddr,
    /// Where it was going.
    pub destination: IpAddr,
    /// The number of its protocol.
    pub protocol: u8,
    /// The port it was going to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    /// Type and code of an ICMP message.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub icmp: Option<(u8, u8)>,
    /// The interface it came by: a packet may lie about its source, but not about this.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub input: Option<String>,
    /// The interface it was to leave by, where that was known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<String>,
}

impl Denied {
    /// Whether a rule that somebody wrote denied it, or that none allows it; not what guards
    /// endpoints whatever policy says.
    pub fn is_by_policy(&self) -> bool {
        !matches!(self.rule.split(':').nth(1), Some("guard" | "none") | None)
    }
}

/// Which entries somebody wants to hear.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heard {
    /// Those with a higher number than this.
    pub after: u64,
    /// Also how many packets the rules denied without telling of them.
    pub counts: bool,
}

/// The entries, oldest first.
#[derive(Debug, Default)]
pub struct DropLog {
    entries: VecDeque<Drop>,
    number: u64,
    lost: u64,
}

impl DropLog {
    /// Where the entry for a packet that is denied now stands, if there is one.
    fn position(&self, packet: &Denied, now: u64) -> Option<usize> {
        let is_alike = |it: &Drop| it.packet == *packet && now.saturating_sub(it.first) < SPAN;
        // What is alike was denied lately, and so stands near the end.
        self.entries.iter().rposition(is_alike)
    }

    /// Whether a packet that is denied now is the first of its sort.
    pub fn is_first(&self, packet: &Denied, now: u64) -> bool {
        self.position(packet, now).is_none()
    }

    /// Takes a packet that was denied at a time; what is told of the first of a sort counts.
    pub fn note(&mut self, packet: Denied, now: u64, told: Told) {
        self.number += 1;
        let at = self.position(&packet, now);
        let entry = match at.and_then(|at| self.entries.remove(at)) {
            Some(entry) => Drop { number: self.number, last: now, count: entry.count + 1, ..entry },
            None => Drop { number: self.number, first: now, last: now, count: 1, packet, told },
        };
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Takes that the kernel dropped entries on the way.
    pub fn note_loss(&mut self) {
        self.lost += 1;
    }

    /// What somebody wants to hear, oldest first.
    pub fn read(&self, wanted: &Heard) -> Vec<Drop> {
        self.entries.iter().filter(|it| it.number > wanted.after).cloned().collect()
    }

    /// How often entries were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(port: u16) -> Denied {
        Denied {
            rule: "i:end:default".to_owned(),
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: 6,
            port: Some(port),
            icmp: None,
            input: None,
            output: None,
        }
    }

    #[test]
    fn packets_alike_are_counted_for_a_while_and_heard_again() {
        let mut log = DropLog::default();
        log.note(denied(80), 100, Told::default());
        log.note(denied(81), 101, Told::default());
        log.note(denied(80), 109, Told::default());
        let shape = |wanted: u64| {
            let read = log.read(&Heard { after: wanted, ..Heard::default() });
            read.iter().map(|it| (it.packet.port, it.count, it.first, it.last)).collect::<Vec<_>>()
        };
        assert_eq!(shape(0), [(Some(81), 1, 101, 101), (Some(80), 2, 100, 109)]);
        assert_eq!(shape(2), [(Some(80), 2, 100, 109)]);
        assert_eq!(shape(3), []);
        log.note(denied(80), 110, Told::default());
        let read = log.read(&Heard { after: 3, ..Heard::default() });
        assert_eq!((read.len(), read[0].count, read[0].first), (1, 1, 110));
    }

    #[test]
    fn a_storm_leaves_a_bounded_number() {
        let mut log = DropLog::default();
        for port in 0..3000 {
            log.note(denied(port), 5, Told::default());
        }
        let read = log.read(&Heard::default());
        assert_eq!((read.len(), read[0].packet.port), (ENTRIES_MAX, Some(1000)));
    }
}
