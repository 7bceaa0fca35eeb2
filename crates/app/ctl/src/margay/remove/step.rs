//! One thing that goes away.

use std::fs;
use std::io;
use std::path::PathBuf;

use kernel::nft::{Batch, Nft, TableId};
use kernel::{Errno, LinkIndex, Netlink, Operation, Route};
use serde_json::{Value, json};

use super::super::setup::item::{Item, remove_empty};
use super::super::setup::layout::Root;
use super::sandboxes::Disconnection;

/// One thing, and how it goes away.
pub(super) struct Step {
    /// What sort of thing it is, for programs.
    pub(super) kind: &'static str,
    /// What it is called.
    pub(super) name: String,
    /// What people want to know of it beside the name.
    pub(super) detail: String,
    pub(super) act: Act,
}

pub(super) enum Act {
    /// Something that setting up made; what was put aside for it comes back.
    Item(Item, Root),
    /// A file, or a folder with everything in it.
    Path(PathBuf),
    /// A folder, if it is empty by then.
    Folder(PathBuf),
    /// A container's network.
    Sandbox(Box<Disconnection>),
    Link(LinkIndex),
    Route(Box<Route>),
    Table(TableId),
}

impl Step {
    pub(super) fn new(kind: &'static str, name: String, detail: &str, act: Act) -> Self {
        Self { kind, name, detail: detail.to_owned(), act }
    }

    /// For people.
    pub(super) fn spoken(&self) -> String {
        match self.act {
            Act::Item(..) | Act::Path(_) | Act::Folder(_) => self.name.clone(),
            _ => format!("{} {}", self.kind, self.name),
        }
    }

    /// Whether a look finds it for as long as it is there.
    pub(super) fn is_seen(&self) -> bool {
        !matches!(self.act, Act::Sandbox(_))
    }

    /// The path that will be free afterwards.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match &self.act {
            Act::Item(item, root) => self.detail.is_empty().then(|| root.join(item.path())),
            Act::Path(path) | Act::Folder(path) => Some(path.clone()),
            _ => None,
        }
    }

    /// As a line of a plan.
    pub(super) fn row(&self, is_done: bool) -> (&str, &str, &str) {
        let word = match (&self.act, is_done) {
            (Act::Item(..), true) if !self.detail.is_empty() => "restored",
            (Act::Item(..), false) if !self.detail.is_empty() => "restore",
            (_, true) => "removed",
            (_, false) => "remove",
        };
        (word, &self.name, &self.detail)
    }

    /// For programs.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "action": self.row(false).0,
            "kind": self.kind,
            "name": self.name,
            "detail": self.detail,
        })
    }

    /// Does it. What is gone meanwhile is as good.
    pub(super) fn perform(&self) -> Result<(), String> {
        match &self.act {
            Act::Item(item, root) => item.remove(root).map_err(|failure| failure.what().to_owned()),
            Act::Path(path) => remove_all(path).map_err(|error| text::plain_reason(&error)),
            Act::Folder(path) => remove_empty(path).map_err(|error| match error.kind() {
                io::ErrorKind::ResourceBusy => {
                    format!("it is a mount point; umount {} first", path.display())
                }
                _ => text::plain_reason(&error),
            }),
            Act::Sandbox(sandbox) => sandbox.perform(),
            Act::Link(link) => apply(&Operation::DeleteLink(*link)),
            Act::Route(route) => apply(&Operation::DeleteRoute((**route).clone())),
            Act::Table(table) => {
                let mut batch = Batch::new();
                batch.delete_table(table);
                let deleted = Nft::open().and_then(|mut nft| nft.commit(&batch));
                gone(deleted)
            }
        }
    }
}

fn apply(operation: &Operation) -> Result<(), String> {
    gone(Netlink::open().and_then(|mut netlink| netlink.apply(operation)))
}

fn gone(result: kernel::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if !matches!(error.errno(), Some(Errno::NODEV | Errno::SRCH | Errno::NOENT)) => {
            Err(error.to_string())
        }
        _ => Ok(()),
    }
}

fn remove_all(path: &PathBuf) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    match found.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}
