//! What happened on this node and what was done about it: a bounded file, a line each.
//!
//! A storm leaves a bounded number of lines: each sort has a budget that refills slowly, and the
//! next event that fits says how many were left out. What cannot be written now is kept in memory
//! until it can.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::file;

/// The file is started anew at this size; the one before is kept.
const SIZE_MAX: u64 = 1 << 20;
/// The longest text; what is longer is cut.
const TEXT_MAX: usize = 1000;
/// More than the longest event, however it is escaped.
const TAIL: u64 = 32 << 10;
/// How many events of one sort may come at once.
const BURST: f64 = 200.0;
/// How many of them a second, in the long run.
const RATE: f64 = 2.0;
/// The most events of one answer: the newest.
const ANSWER_MAX: usize = 2000;
/// So many are kept until they can be written: the newest.
const WAITING_MAX: usize = 500;
/// The most that is read of a file: others that write to it may go beyond its size.
const FILE_MAX: u64 = 16 * SIZE_MAX;

/// The events of a node.
#[derive(Debug)]
pub struct Events {
    path: PathBuf,
    writing: Mutex<Writing>,
}

#[derive(Debug, Default)]
struct Writing {
    /// The number of the last event; none before the file was looked at.
    last: Option<u64>,
    budgets: BTreeMap<String, Budget>,
    counts: BTreeMap<String, u64>,
    /// What could not be written yet, the oldest first.
    waiting: VecDeque<Event>,
    /// A part of a line may be at the end of the file.
    is_torn: bool,
}

#[derive(Debug)]
struct Budget {
    left: f64,
    since: Instant,
    left_out: u64,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up from the first event of the node.
    #[serde(default)]
    pub number: u64,
    /// When, in RFC 3339.
    pub time: String,
    /// What sort: `repaired`, `ignored`, `quarantine`, `started`…
    pub sort: String,
    /// What happened, in one line.
    pub text: String,
}

/// Which events somebody wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// Only those with a greater number.
    pub after: u64,
    /// Only those at or after this time, in RFC 3339 in UTC.
    pub since: Option<String>,
    /// Only those whose sort is this, or whose text names it.
    pub about: Option<String>,
}

impl Events {
    /// The events in this file, which need not exist.
    pub fn open(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), writing: Mutex::default() }
    }

    /// Writes an event. One that cannot be written waits: nothing may fail because of it.
    pub fn note(&self, sort: &str, text: &str) {
        let mut writing = self.writing();
        *writing.counts.entry(sort.to_owned()).or_default() += 1;
        let Some(left_out) = writing.spend(sort, Instant::now()) else { return };
        let mut text: String = text.chars().take(TEXT_MAX).collect();
        if left_out > 0 {
            text.push_str(&format!("   ({left_out} more of this sort were left out before)"));
        }
        let last = *writing.last.get_or_insert_with(|| newest(&self.path));
        let event = Event { number: last + 1, time: now(), sort: sort.to_owned(), text };
        writing.last = Some(event.number);
        writing.waiting.push_back(event);
        if writing.waiting.len() > WAITING_MAX {
            writing.waiting.pop_front();
        }
        let _ = writing.catch_up(&self.path);
    }

    /// Writes what could not be written before; why it still cannot be.
    pub fn catch_up(&self) -> io::Result<()> {
        self.writing().catch_up(&self.path)
    }

    /// The wanted events, those included that could not be written yet.
    pub fn read(&self, wanted: &Wanted) -> Vec<Event> {
        let mut events = read(&self.path, wanted);
        let writing = self.writing();
        events.extend(writing.waiting.iter().filter(|event| wanted.covers(event)).cloned());
        events
    }

    /// How many of each sort happened since the process started, those left out included.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.writing().counts.clone()
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writing {
    fn catch_up(&mut self, path: &Path) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut lines = if self.is_torn { vec![b'\n'] } else { Vec::new() };
        for event in &self.waiting {
            serde_json::to_writer(&mut lines, event).map_err(io::Error::other)?;
            lines.push(b'\n');
        }
        if fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > SIZE_MAX) {
            let _ = fs::rename(path, older(path));
        }
        let mut file = file::append(path)?;
        self.is_torn = true;
        file.write_all(&lines)?;
        self.is_torn = false;
        self.waiting.clear();
        Ok(())
    }

    /// Takes one event from the budget of its sort. Some if it fits, with how many were left out
    /// before it.
    fn spend(&mut self, sort: &str, now: Instant) -> Option<u64> {
        let fresh = Budget { left: BURST, since: now, left_out: 0 };
        let budget = self.budgets.entry(sort.to_owned()).or_insert(fresh);
        let refilled = now.saturating_duration_since(budget.since).as_secs_f64() * RATE;
        budget.left = (budget.left + refilled).min(BURST);
        budget.since = now;
        if budget.left < 1.0 {
            budget.left_out += 1;
            return None;
        }
        budget.left -= 1.0;
        Some(std::mem::take(&mut budget.left_out))
    }
}

impl Wanted {
    fn covers(&self, event: &Event) -> bool {
        let is_late = self.since.as_ref().is_none_or(|since| event.time >= *since);
        let is_about = |about: &String| event.sort == *about || event.text.contains(about);
        event.number > self.after && is_late && self.about.as_ref().is_none_or(is_about)
    }
}

/// The wanted events in a file and in the one before it, oldest first; of very many the newest.
/// What is no event is passed over.
pub fn read(path: &Path, wanted: &Wanted) -> Vec<Event> {
    let mut events: Vec<Event> = [older(path), path.to_owned()]
        .iter()
        .filter_map(|path| file::read(path, FILE_MAX).ok())
        .flat_map(|bytes| {
            let lines = bytes.split(|byte| *byte == b'\n');
            lines.filter_map(|line| serde_json::from_slice(line).ok()).collect::<Vec<_>>()
        })
        .filter(|event| wanted.covers(event))
        .collect();
    events.split_off(events.len().saturating_sub(ANSWER_MAX))
}

/// The number of the last event: a plugin that acts alone asks at every call, so only the end of
/// the file is read.
fn newest(path: &Path) -> u64 {
    [path.to_owned(), older(path)].iter().find_map(|path| last_number(path)).unwrap_or(0)
}

fn last_number(path: &Path) -> Option<u64> {
    let mut file = file::open_own(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut end = Vec::new();
    file.take(TAIL).read_to_end(&mut end).ok()?;
    let mut lines = end.rsplit(|byte| *byte == b'\n');
    lines.find_map(|line| serde_json::from_slice::<Event>(line).ok()).map(|event| event.number)
}

/// The present time, in RFC 3339.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    api::schema::utc(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("1.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_after_a_restart_and_broken_lines_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        Events::open(&path).note("started", "one");
        let mut file = file::append(&path).unwrap();
        file.write_all(b"\xff half a li\n").unwrap();
        let again = Events::open(&path);
        again.note("repaired", "route 10.0.0.1/32");
        let all = read(&path, &Wanted::default());
        assert_eq!(all.iter().map(|event| event.number).collect::<Vec<_>>(), [1, 2]);
        let wanted = |after, about: &str| Wanted { after, about: Some(about.into()), since: None };
        assert_eq!(read(&path, &wanted(0, "10.0.0.1")).len(), 1);
        assert_eq!(read(&path, &wanted(0, "started")).len(), 1);
        assert_eq!(read(&path, &wanted(1, "started")).len(), 0);
        let later = Wanted { since: Some("9999-01-01T00:00:00Z".into()), ..Wanted::default() };
        assert_eq!(read(&path, &later), []);
    }

    #[test]
    fn what_cannot_be_written_waits_and_is_read_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let events = Events::open(&path);
        events.note("started", "one");
        fs::rename(&path, folder.path().join("kept")).unwrap();
        fs::create_dir(&path).unwrap();
        (2..WAITING_MAX + 10).for_each(|n| events.note(&format!("sort {n}"), "more"));
        let told = events.catch_up().unwrap_err().to_string();
        assert!(told.contains("a folder stands there"), "{told}");
        assert_eq!(events.read(&Wanted::default()).len(), WAITING_MAX);
        fs::remove_dir(&path).unwrap();
        fs::rename(folder.path().join("kept"), &path).unwrap();
        events.catch_up().unwrap();
        let numbers: Vec<u64> =
            read(&path, &Wanted::default()).iter().map(|it| it.number).collect();
        let last = u64::try_from(WAITING_MAX).unwrap() + 9;
        assert_eq!(numbers.len(), WAITING_MAX + 1);
        assert_eq!((numbers[0], numbers[1], numbers.last()), (1, 10, Some(&last)));
    }

    #[test]
    fn a_storm_leaves_a_bounded_number_of_lines_and_says_so() {
        let mut writing = Writing::default();
        let start = Instant::now();
        let fit = (0..1000).filter(|_| writing.spend("failed", start).is_some()).count();
        assert_eq!(fit, 200);
        assert_eq!(writing.spend("started", start), Some(0), "other sorts have their own budget");
        let later = start + std::time::Duration::from_secs(1);
        assert_eq!(writing.spend("failed", later), Some(800));
        assert_eq!(writing.spend("failed", later), Some(0));
        assert_eq!(writing.spend("failed", later), None);
    }
}
