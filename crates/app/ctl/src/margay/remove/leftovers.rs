//! Files: what setting up made, and what agent and plugin wrote since.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::super::failure::Failure;
use super::super::setup::item::Item;
use super::super::setup::layout::{Layout, RECEIPT, Root, wanted_by};
use super::step::{Act, Step};

/// What agent and plugin keep in a state folder that others may use as well.
const STATE_FILES: [&str; 9] = [
    "sandboxes",
    "events.jsonl",
    "events.1.jsonl",
    "lock",
    "known.json",
    "known.unreadable",
    "poison.json",
    "held.json",
    "held.unreadable",
];
/// What the agent keeps in its run folder; labs have a folder of their own there.
const RUN_FILES: [&str; 4] = ["agent.sock", "supervisor.lock", "dataplane.lock", "tickets"];
/// What belongs to the writes of the datastore, and stays with it.
const HISTORY: &str = "history";

/// The files that go away, and those that stay.
pub(super) struct Leftovers {
    /// What makes runtimes and plugins act: it goes before anything else.
    pub(super) first: Vec<Step>,
    /// The rest.
    pub(super) last: Vec<Step>,
    /// What stays, and why.
    pub(super) kept: Vec<(String, String)>,
}

/// Looks at every place where something of ours may be.
pub(super) fn look(root: &Root, layout: &Layout, purges: bool) -> Result<Leftovers, Failure> {
    let mut first = Vec::new();
    let mut last = Vec::new();
    for item in layout.bare_items() {
        let path = item.path();
        let is_switch = path == layout.conflist
            || Some(path) == layout.unit.as_deref()
            || path == layout.agent_note();
        let list = if is_switch { &mut first } else { &mut last };
        list.extend(removal(item, root)?);
    }
    let link = layout.unit.as_deref().and_then(wanted_by);
    first.extend(link.map(|link| root.join(&link)).and_then(path_step));
    let run_dir = root.join(&layout.run_dir);
    first.extend(RUN_FILES.iter().map(|name| run_dir.join(name)).filter_map(path_step));
    let state_dir = root.join(&layout.state_dir);
    let mut kept = Vec::new();
    for path in state_files(&state_dir, layout.agent_note().file_name()) {
        let is_store = layout.store.as_ref().is_some_and(|it| is_of_store(&path, &root.join(it)));
        let is_history = path.file_name().is_some_and(|name| name == HISTORY);
        if !is_store && !is_history {
            last.extend(path_step(path));
        }
    }
    let store = layout.store.as_ref().map(|store| root.join(store));
    let mut with_store: Vec<PathBuf> = store.iter().flat_map(|store| store_files(store)).collect();
    with_store.extend(Some(state_dir.join(HISTORY)).filter(|history| history.exists()));
    match (purges, &store) {
        (true, Some(_)) => last.extend(with_store.into_iter().filter_map(path_step)),
        (false, Some(store)) if store.exists() => {
            kept.push((store.display().to_string(), "the datastore; --purge removes it".into()));
        }
        (_, None) => kept.push((
            format!("Node {}", layout.node),
            format!("in the shared datastore; margay delete node {} removes it", layout.node),
        )),
        _ => {}
    }
    let receipt = Item::Text { path: RECEIPT.into(), text: String::new(), what: "" };
    last.extend(removal(receipt, root)?);
    let steps: Vec<&Step> = first.iter().chain(&last).collect();
    let folders = folders(root, layout, &steps);
    last.extend(folders);
    Ok(Leftovers { first, last, kept })
}

fn removal(item: Item, root: &Root) -> Result<Option<Step>, Failure> {
    let Some(change) = item.clone().removal(root)? else { return Ok(None) };
    Ok(Some(Step::new(change.kind, change.name, &change.detail, Act::Item(item, root.clone()))))
}

fn path_step(path: PathBuf) -> Option<Step> {
    let found = fs::symlink_metadata(&path).ok()?;
    let kind = if found.is_dir() { "folder" } else { "file" };
    Some(Step::new(kind, path.display().to_string(), "", Act::Path(path)))
}

/// What is ours in the state folder: everything if the folder is, by its name, ours alone.
fn state_files(folder: &Path, note: Option<&std::ffi::OsStr>) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_ours = |name: &std::ffi::OsStr| {
        is_ours_alone(folder) || STATE_FILES.iter().any(|known| name == *known)
    };
    let names = entries.map(|entry| entry.file_name());
    let ours: BTreeSet<_> =
        names.filter(|name| is_ours(name) && Some(name.as_os_str()) != note).collect();
    ours.into_iter().map(|name| folder.join(name)).collect()
}

fn is_of_store(path: &Path, store: &Path) -> bool {
    let (path, store) = (path.to_string_lossy(), store.to_string_lossy());
    path == store || path.strip_prefix(&*store).is_some_and(|rest| rest.starts_with('-'))
}

/// The store's file, and those that SQLite and we keep beside it.
fn store_files(store: &Path) -> Vec<PathBuf> {
    let folder = store.parent().unwrap_or(Path::new("/"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| is_of_store(path, store)).collect()
}

/// Folders that are ours and will be empty, the innermost first.
fn folders(root: &Root, layout: &Layout, steps: &[&Step]) -> Vec<Step> {
    let mut going: BTreeSet<PathBuf> = steps.iter().filter_map(|step| step.path()).collect();
    let mut all = layout.made_folders.clone();
    all.insert(layout.run_dir.clone());
    if is_ours_alone(&layout.state_dir) {
        all.insert(layout.state_dir.clone());
    }
    let mut found = Vec::new();
    for folder in all.iter().rev().map(|folder| root.join(folder)) {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        if entries.flatten().all(|entry| going.contains(&entry.path())) {
            let name = folder.display().to_string();
            going.insert(folder.clone());
            found.push(Step::new("folder", name, "folder", Act::Folder(folder)));
        }
    }
    found
}

fn is_ours_alone(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == "margay")
}
