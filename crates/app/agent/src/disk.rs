//! What the node keeps on disk: whether it can be written, and what was found that cannot be used.
//!
//! A call that cannot write the journal is refused, so the folder is looked at before one comes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use host::{file, room};
use text::plain_reason;

use crate::finding::{Finding, Severity};
use crate::node::Node;

/// Why something cannot be written.
#[derive(Clone, Debug)]
pub(crate) struct Unwritable {
    path: PathBuf,
    what: What,
    kind: io::ErrorKind,
    why: String,
    since: SystemTime,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Without it no sandbox can come.
    Journal,
    /// What happens meanwhile is told all the same.
    Events,
}

impl Node {
    /// Looks whether records and events can be written. What was waiting for room is written.
    pub(crate) fn look_at_disk(&self) {
        let folder = self.journal.folder();
        let is_doubted = self.journal.take_failed() | self.health.vitals().unwritable.is_some();
        let mut journal = room::look(folder, is_doubted);
        if journal.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            journal = self.journal.write_anew();
            if journal.is_ok() {
                let text = format!(
                    "{}: somebody removed this folder; its records are written anew",
                    folder.display()
                );
                self.events.note("repaired", &text);
            }
        }
        let events = self.events.catch_up();
        let failed = |what: What, path: &Path, result: io::Result<()>| {
            let error = result.err()?;
            let (kind, why) = (error.kind(), plain_reason(&error));
            Some(Unwritable { path: path.to_owned(), what, kind, why, since: SystemTime::now() })
        };
        let trouble = failed(What::Journal, folder, journal)
            .or_else(|| failed(What::Events, self.events.path(), events));
        self.health.written(&self.events, trouble);
    }

    /// Files that could not be read and were put aside.
    pub(crate) fn aside_findings(&self) -> Vec<Finding> {
        let journal = Some(self.journal.folder().to_owned());
        let tickets = self.tickets.as_ref().map(|tickets| tickets.folder().to_owned());
        let state = self.memory_file.parent().map(Path::to_owned);
        let places = [
            (state, "what was known of the datastore"),
            (journal, "the record of a sandbox, which is made anew where one lives,"),
            (tickets, "a DEL that waited for the agent"),
        ];
        let mut findings = Vec::new();
        for (folder, what) in places {
            for aside in folder.into_iter().flat_map(|folder| file::put_aside_in(&folder)) {
                let place = aside.display();
                let problem = format!("{place}: {what} could not be read, and was put aside");
                let path = text::words::shell(&aside.display().to_string());
                let fix = format!("rm -r {path}      # once you have looked at it");
                let code = "MG-STATE-001";
                findings.push(Finding::new(code, Severity::Degraded, "AGENT", problem, fix));
            }
        }
        findings
    }
}

impl Unwritable {
    /// The same trouble, which is older than that.
    pub(crate) fn since(self, earlier: &Self) -> Self {
        Self { since: earlier.since, ..self }
    }

    /// Whether no sandbox can come because of it.
    pub(crate) fn refuses_adds(&self) -> bool {
        self.what == What::Journal
    }

    /// In one line.
    pub(crate) fn spoken(&self) -> String {
        format!("{} cannot be written to: {}", self.path.display(), self.why)
    }

    /// What it means, and what to do about it.
    pub(crate) fn finding(&self) -> Finding {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let age = text::words::age(self.since.elapsed().unwrap_or_default().as_secs());
        let (severity, means) = match self.what {
            What::Journal => (Severity::Broken, "no ADD can be served"),
            What::Events => (Severity::Degraded, "events are kept in memory only"),
        };
        let problem = format!("{}, since {age}; {means}", self.spoken());
        let path = text::words::shell(&self.path.display().to_string());
        let fix = match self.kind {
            StorageFull => format!("df -h {path}; df -i {path}      # make room"),
            QuotaExceeded => format!("df -h {path}; quota -v      # make room, or raise the quota"),
            ReadOnlyFilesystem => format!(
                "mount -o remount,rw $(findmnt -n -o TARGET -T {path})      # dmesg says why it is \
                 read-only"
            ),
            PermissionDenied => format!("ls -ld {path}; lsattr -d {path}"),
            _ => format!("ls -ld {path}"),
        };
        Finding::new("MG-STATE-002", severity, "DISK", problem, fix)
    }
}
