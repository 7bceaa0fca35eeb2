//! Deletions that were asked for while no agent served: a file each, beside the agent's socket.
//!
//! A runtime that is told that a DEL failed tries again for hours, or forgets the container. So the
//! plugin leaves the call here and says that it went well; the agent carries it out when it is
//! back, and before anything else that concerns the same sandbox. Like the journal, tickets must
//! outlive the processes, not the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sandbox::identity::Identity;

use crate::file;
use crate::journal::{self, Unreadable};
use crate::protocol::Question;

/// The most that is kept of one call.
const SIZE_MAX: u64 = 8 << 20;

/// The tickets of one agent.
#[derive(Debug)]
pub struct Tickets {
    folder: PathBuf,
    /// Held while one is carried out: a deletion that is carried out twice could meet a sandbox
    /// that was added in between.
    turn: Mutex<()>,
}

impl Tickets {
    /// The tickets for the agent that listens at this socket.
    pub fn beside(socket: &Path) -> Self {
        let folder = socket.parent().unwrap_or_else(|| Path::new("."));
        Self { folder: folder.join("tickets"), turn: Mutex::new(()) }
    }

    /// Where they lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves a ticket.
    pub fn leave(&self, identity: &Identity, question: &Question) -> io::Result<()> {
        file::make_folder(&self.folder, 0o700)?;
        let body = serde_json::to_vec(question).map_err(io::Error::other)?;
        let path = self.path(identity);
        // Two plugins may be told to delete the same sandbox.
        let fresh = path.with_extension(format!("new.{}", std::process::id()));
        file::replace(&path, &fresh, &body)
    }

    /// Whether one waits for this sandbox.
    pub fn has(&self, identity: &Identity) -> bool {
        self.path(identity).exists()
    }

    /// Carries out the ticket for one sandbox, if there is one. One that cannot be read is put
    /// aside, and named.
    pub fn settle(
        &self,
        identity: &Identity,
        carry_out: impl FnOnce(&Question),
    ) -> Option<Unreadable> {
        self.settle_file(&self.path(identity), carry_out)
    }

    /// Carries out all tickets.
    pub fn settle_all(&self, mut carry_out: impl FnMut(&Question)) -> Vec<Unreadable> {
        let Ok(files) = fs::read_dir(&self.folder) else { return Vec::new() };
        let paths = files.filter_map(|file| Some(file.ok()?.path()));
        let tickets = paths.filter(|path| path.extension().is_some_and(|it| it == "json"));
        tickets.filter_map(|path| self.settle_file(&path, &mut carry_out)).collect()
    }

    fn settle_file(&self, path: &Path, carry_out: impl FnOnce(&Question)) -> Option<Unreadable> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let read = file::read(path, SIZE_MAX);
        let question = match read {
            // Somebody else has carried it out meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Err(error.to_string()),
            Ok(bytes) => {
                serde_json::from_slice::<Question>(&bytes).map_err(|error| error.to_string())
            }
        };
        match question {
            Ok(question) => {
                carry_out(&question);
                let _ = fs::remove_file(path);
                None
            }
            Err(why) => Some(Unreadable { path: file::put_aside(path), why }),
        }
    }

    fn path(&self, identity: &Identity) -> PathBuf {
        self.folder.join(journal::file_name(identity))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn identity(container: &str) -> Identity {
        Identity { container: container.to_owned(), interface: "eth0".to_owned() }
    }

    fn question(input: &str) -> Question {
        let (plugin, input) = ("calico".to_owned(), input.to_owned());
        Question { plugin, environment: BTreeMap::new(), input, delegated: None }
    }

    #[test]
    fn a_ticket_is_carried_out_once() {
        let folder = tempfile::tempdir().unwrap();
        let tickets = Tickets::beside(&folder.path().join("agent.sock"));
        assert!(tickets.settle_all(|_| panic!("there is none")).is_empty());
        tickets.leave(&identity("a"), &question("1")).unwrap();
        tickets.leave(&identity("a"), &question("2")).unwrap();
        tickets.leave(&identity("b"), &question("3")).unwrap();
        assert!(tickets.has(&identity("a")));
        let mut seen = Vec::new();
        assert!(tickets.settle(&identity("a"), |it| seen.push(it.input.clone())).is_none());
        assert!(!tickets.has(&identity("a")));
        assert!(tickets.settle_all(|it| seen.push(it.input.clone())).is_empty());
        assert_eq!(seen, ["2", "3"]);
    }

    #[test]
    fn what_is_no_ticket_is_put_aside_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let tickets = Tickets::beside(&folder.path().join("agent.sock"));
        tickets.leave(&identity("a"), &question("1")).unwrap();
        fs::write(tickets.path(&identity("a")), "{").unwrap();
        let unreadable = tickets.settle_all(|_| panic!("it cannot be read"));
        assert_eq!(unreadable.len(), 1);
        assert!(unreadable[0].path.exists() && !tickets.has(&identity("a")));
    }
}
