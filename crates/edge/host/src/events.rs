//! What happened on this node and what was done about it: a bounded file, a line each.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The file is started anew at this size; the one before is kept.
const SIZE_MAX: u64 = 1 << 20;

/// The events of a node.
#[derive(Debug)]
pub struct Events {
    path: PathBuf,
    writing: Mutex<()>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in RFC 3339.
    pub time: String,
    /// What sort: `repaired`, `ignored`, `quarantine`, `started`…
    pub sort: String,
    /// What happened, in one line.
    pub text: String,
}

impl Events {
    /// The events in this file, which need not exist.
    pub fn open(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), writing: Mutex::new(()) }
    }

    /// Writes an event. One that cannot be written is lost: nothing may fail because of it.
    pub fn note(&self, sort: &str, text: &str) {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let time = now();
        let event = Event { time, sort: sort.to_owned(), text: text.to_owned() };
        let Ok(mut line) = serde_json::to_vec(&event) else { return };
        line.push(b'\n');
        if fs::metadata(&self.path).is_ok_and(|file| file.len() > SIZE_MAX) {
            let _ = fs::rename(&self.path, older(&self.path));
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path);
        if let Ok(mut file) = file {
            let _ = file.write_all(&line);
        }
    }
}

/// The events in a file and in the one before it, oldest first. What is no event is passed over.
pub fn read(path: &Path) -> Vec<Event> {
    [older(path), path.to_owned()]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|text| {
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<_>>()
        })
        .collect()
}

/// The present time, in RFC 3339.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    api::schema::utc(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("1.jsonl")
}
