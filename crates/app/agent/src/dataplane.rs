//! The dataplane process: the only client of the datastore on this node, and the only one that
//! changes its kernel.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::nft::{Nft, RulesetEvent, RulesetMonitor, Subject, TableId};
use kernel::{Monitor, Topic};
use store::Event;

use crate::arguments::Arguments;
use crate::filter::TABLE;
use crate::foreign::Changes;
use crate::interfaces::Watched;
use crate::join::Looks;
use crate::node::{self, Node, Settings};
use crate::supervisor::{self, become_only, say};
use crate::{
    drops, endpoint_status, http, keeper, notes, reads, realised, register, serve, server, trial,
    upkeep,
};

/// How long the kernel must be quiet before its routes are compared again.
const SETTLE: Duration = Duration::from_millis(20);

/// A kernel that is never quiet is looked at after this long.
const SETTLE_MAX: Duration = Duration::from_millis(500);

/// How often our tables are read back, if others have changed the ruleset.
const AUDIT: Duration = Duration::from_secs(60);

const HOUR: Duration = Duration::from_secs(3600);

/// An engine that was built anew so often in a row is left alone for a while each time.
const REBUILT_MAX: u32 = 32;
const REBUILD_PAUSE: Duration = Duration::from_secs(5);

/// So many changes of the datastore are taken before the kernel is brought up to date.
const BATCH_MAX: usize = 4096;

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Another agent serves this node.
    #[error("another agent runs here: it holds {}", .0.display())]
    AlreadyRunning(PathBuf),
    /// Calico's agent serves this node.
    #[error("Calico's {0} runs here: two agents would undo each other's work; stop it first")]
    Rival(host::rivals::Rival),
    /// The folder for sockets and locks cannot be used.
    #[error("the folder {}: {why}; choose another one with --run-dir", .folder.display())]
    RunFolder {
        /// Which one it is.
        folder: PathBuf,
        /// Why not.
        why: io::Error,
    },
    /// The settings do not say which datastore.
    #[error("{0}")]
    Settings(String),
    /// A file or socket.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The node.
    #[error("{0}")]
    Node(#[from] node::Error),
    /// The datastore.
    #[error("{0}")]
    Store(#[from] store::Error),
    /// The kernel.
    #[error("{0}")]
    Kernel(#[from] kernel::Error),
}

/// Runs until the process is ended.
pub(crate) fn run(arguments: &Arguments, parent_expected: i32) -> Result<(), Error> {
    // A node has one dataplane: with the supervisor gone, the next one starts another.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(io::Error::from)?;
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    if parent.is_none_or(|parent| parent.get() != parent_expected) {
        return Err(Error::Settings("the supervisor is gone".to_owned()));
    }
    let _only = become_only(&arguments.run_dir, "dataplane")?;
    let name = arguments.node_name();
    let store = register::open_store()?;
    let settings = Settings {
        name,
        state: arguments.state_dir.clone(),
        agent_socket: Some(supervisor::socket(&arguments.run_dir)),
        reserve: arguments.reserve,
        filter: arguments.filter(),
    };
    let node = Arc::new(Node::open(&settings, store)?);
    let known = node.known();
    node.begin_trials(&known);
    ask_kernel(&node)?;
    if let Some(address) = arguments.http {
        http::start(&node, address)?;
    }
    follow_links(&node)?;
    audit_filter(&node)?;
    if settings.filter.has_drops {
        drops::start(&node)?;
    }
    let follower = Arc::clone(&node);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("watch".into())
        .spawn(move || follow_store(&follower, tell))?;
    // Nothing is removed from the kernel before everything was read. Without the datastore, what
    // was known before has to do.
    match told.recv() {
        Ok(Told::InSync) => keeper::introduce(&node, &arguments.address),
        Ok(Told::Lost) | Err(_) => node.recall(&known),
    }
    // From now on: to tell of every chain and set of a whole table costs the kernel a good part of
    // making it.
    follow_filter(&node)?;
    upkeep::start(&node)?;
    realised::start(&node)?;
    trial::start(&node)?;
    endpoint_status::start(&node)?;
    let before = node.journal.all();
    for failure in node.recover() {
        say(&format!("to be tried again: {failure}"));
        // That the datastore is lost was noted already.
        if node.outage().is_none() {
            node.events.note("failed", &format!("{failure}; to be tried again"));
        }
    }
    notes::left(&node, &before);
    serve::settle_tickets(&node);
    keeper::start(&node, &arguments.address, Looks::new(arguments.join_every))?;
    let listener = server::inherited()?;
    register::ready();
    notes::started(&node);
    say(&serving(arguments, &node));
    server::serve(&node, &listener)
}

/// Finds out what the kernel lacks while the datastore is read: each question takes it a while.
fn ask_kernel(node: &Arc<Node>) -> Result<(), Error> {
    let mut nft = Nft::in_netns(&node.here)?;
    let node = Arc::clone(node);
    std::thread::Builder::new().name("kernel".into()).spawn(move || {
        for lack in node.kernel.ask(&mut nft) {
            say(&format!("{}: {}; {}", lack.code, lack.problem, lack.fix));
        }
    })?;
    Ok(())
}

/// Who serves what, and where: the first thing to know about a log.
fn serving(arguments: &Arguments, node: &Node) -> String {
    let addresses: Vec<String> = arguments.address.iter().map(ToString::to_string).collect();
    let addresses = match addresses.is_empty() {
        true => "as the datastore has it".to_owned(),
        false => addresses.join(" "),
    };
    format!(
        "margay {} serves node {}: address {addresses}, store {}, socket {}",
        env!("CARGO_PKG_VERSION"),
        node.name,
        node.store().describe(),
        supervisor::socket(&arguments.run_dir).display()
    )
}

/// What the first word of the datastore was.
enum Told {
    /// Everything was read.
    InSync,
    /// It does not answer.
    Lost,
}

fn follow_store(node: &Node, tell: std::sync::mpsc::Sender<Told>) {
    let mut watch = node.store().watch("/calico/");
    let (mut is_in_sync, mut is_first) = (false, true);
    let (mut said, mut n_rebuilt) = (String::new(), 0);
    loop {
        if node.is_broken() {
            n_rebuilt += 1;
            if n_rebuilt > REBUILT_MAX {
                std::thread::sleep(REBUILD_PAUSE);
            }
            node.start_anew();
            watch = node.store().watch("/calico/");
            is_in_sync = false;
        }
        let mut next = watch.next(Duration::from_secs(1));
        let mut has_news = false;
        let mut newest = 0;
        let mut n_events = 0;
        while let Some(first) = next.take() {
            let (events, is_more) = reads::gather(&mut watch, first);
            n_events += events.len();
            for (event, read) in events {
                match event {
                    Event::Put(entry) => {
                        node.observe(&entry.key, Some(&entry.value), entry.mod_revision, read);
                        newest = newest.max(entry.mod_revision);
                        has_news = true;
                    }
                    Event::Delete { key, mod_revision } => {
                        node.observe(&key, None, mod_revision, None);
                        newest = newest.max(mod_revision);
                        has_news = true;
                    }
                    Event::InSync(revision) => {
                        node.health.connected(&node.events, revision);
                        newest = newest.max(revision);
                        is_in_sync = true;
                        has_news = true;
                        said.clear();
                    }
                    Event::Disconnected { endpoint, error, .. } => {
                        node.health.disconnected(&node.events, &endpoint, &error);
                        // It is tried again every few seconds, for hours.
                        let line = format!("the datastore at {endpoint} does not answer: {error}");
                        if line != said {
                            say(&line);
                            said = line;
                        }
                        let _ = tell.send(Told::Lost);
                    }
                }
            }
            // A datastore that is never quiet must not keep the kernel waiting.
            if is_more && n_events < BATCH_MAX {
                next = watch.next(Duration::ZERO);
            }
        }
        if is_in_sync && has_news && catch_up(node, newest, &mut is_first) {
            n_rebuilt = 0;
            let _ = tell.send(Told::InSync);
        }
    }
}

/// Brings the kernel up to date with everything up to a revision. False if the engine came to grief
/// over it, and everything has to be read again.
fn catch_up(node: &Node, revision: i64, is_first: &mut bool) -> bool {
    if !node.is_broken() {
        node.in_sync(revision, *is_first);
    }
    if node.is_broken() {
        return false;
    }
    node.health.seen(revision);
    if std::mem::take(is_first) {
        // Before the kernel is changed: whoever lives here without a record keeps its way.
        node.adopt_all();
    }
    if let Err(error) = node.flush_now() {
        say(&format!("the kernel could not be brought up to date: {error}"));
    }
    node.remember_kept();
    !node.is_broken()
}

/// Compares our routes again when links or routes change, and the filter when interfaces of the
/// host do, whoever changes them.
fn follow_links(node: &Arc<Node>) -> Result<(), Error> {
    let mut monitor = Monitor::open(None, &[Topic::Links, Topic::Addresses, Topic::Routes])?;
    let node = Arc::clone(node);
    std::thread::Builder::new().name("links".into()).spawn(move || {
        let mut watched = Watched::default();
        loop {
            let mut next = match monitor.next(HOUR) {
                Ok(None) => continue,
                Ok(Some(event)) => Some(event),
                Err(_) => Some(kernel::Event::Lost),
            };
            let (began, mut events, mut n_moves) = (Instant::now(), Vec::new(), 0);
            while let Some(event) = next {
                let is_move = watched.concerns_hosts(&event);
                n_moves += usize::from(is_move);
                // An address that an endpoint of the host expects is open until the filter knows
                // its interface: the first is not kept waiting for what comes after it.
                if is_move && n_moves == 1 && node.doubts_interfaces() {
                    node.flush_or_say();
                }
                events.push(event);
                let is_over = began.elapsed() >= SETTLE_MAX;
                next = if is_over { None } else { monitor.next(SETTLE).ok().flatten() };
            }
            notes::lost_interfaces(&node, &events);
            node.endpoint_status.moved(&events);
            let has_moved = n_moves > 1 && node.doubts_interfaces();
            if node.doubts_routes(&events) || has_moved {
                node.flush_or_say();
            }
        }
    })?;
    Ok(())
}

/// Installs our tables anew when somebody else touches them, and looks at what others drop.
fn follow_filter(node: &Arc<Node>) -> Result<(), Error> {
    let mut monitor = RulesetMonitor::open(None)?;
    let mut nft = Nft::in_netns(&node.here)?;
    let node = Arc::clone(node);
    std::thread::Builder::new().name("filter".into()).spawn(move || {
        // The first change of ours in the transaction that is being told of.
        let mut touched: Option<String> = None;
        let mut changes = Changes::default();
        node.look_at_foreign(&mut nft, None);
        // Somebody may have come between the first transaction and the first event.
        if nft.generation().is_ok_and(|it| !node.dataplane().filter.is_own(it)) {
            node.audit_filter(&mut nft);
        }
        loop {
            let event = monitor.next(changes.wait(Instant::now()).unwrap_or(AUDIT));
            let is_quiet = matches!(event, Ok(None));
            match event {
                // Pods and ways out come and go without an event of the ruleset.
                Ok(None) if changes.is_empty() => {
                    node.look_at_foreign(&mut nft, Some(&BTreeSet::new()));
                }
                Ok(None) => {}
                Ok(Some(RulesetEvent::Changed { table, subject, name, is_deletion }))
                    if table.name == TABLE =>
                {
                    touched.get_or_insert_with(|| damage(&table, subject, &name, is_deletion));
                }
                Ok(Some(RulesetEvent::Changed { table, .. })) => {
                    changes.note(table, Instant::now());
                }
                Ok(Some(RulesetEvent::Committed { generation, program, .. })) => {
                    if let Some(what) = touched.take()
                        && !node.dataplane().filter.is_own(generation)
                    {
                        node.doubt_filter(Some(format!("{what} by {program}")));
                        node.flush_or_say();
                    }
                }
                Ok(Some(RulesetEvent::Lost)) | Err(_) => {
                    node.doubt_filter(None);
                    node.flush_or_say();
                    changes.note_loss(Instant::now());
                }
            }
            if let Some(tables) = changes.due(is_quiet, Instant::now()) {
                node.look_at_foreign(&mut nft, tables.as_ref());
            }
        }
    })?;
    Ok(())
}

/// What was done to our tables, in words.
fn damage(table: &TableId, subject: Subject, name: &str, is_deletion: bool) -> String {
    let done = if is_deletion { "deleted" } else { "added or changed" };
    match subject {
        Subject::Table => format!("{table} {done}"),
        _ => format!("{subject} {name} of {table} {done}"),
    }
}

/// Finds changes of our tables that no event told of.
fn audit_filter(node: &Arc<Node>) -> Result<(), Error> {
    let mut nft = Nft::in_netns(&node.here)?;
    let node = Arc::clone(node);
    std::thread::Builder::new().name("audit".into()).spawn(move || {
        loop {
            std::thread::sleep(AUDIT);
            node.audit_filter(&mut nft);
        }
    })?;
    Ok(())
}
