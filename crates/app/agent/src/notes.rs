//! Notes what happens to sandboxes as events.

use std::sync::Arc;

use host::journal::Unreadable;
use sandbox::call::{Call, Command};
use sandbox::failure::Failure;
use sandbox::identity::{Identity, Workload};
use sandbox::life::{Phase, Record};

use crate::node::Node;

/// The agent serves.
pub(crate) fn started(node: &Node) {
    node.health.serving();
    let sandboxes = match node.journal.all().len() {
        1 => "1 sandbox".to_owned(),
        n => format!("{n} sandboxes"),
    };
    let version = env!("CARGO_PKG_VERSION");
    node.events.note("started", &format!("agent {version} of {}, {sandboxes}", node.name));
}

/// Serves a call of a runtime, and notes what came of it.
pub(crate) fn around<T>(
    node: &Node,
    call: &Call,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let changes = matches!(call.command, Command::Add | Command::Del | Command::Gc);
    if !changes {
        return act();
    }
    let identity = Identity::of(call);
    let records = || match call.command {
        Command::Gc => node.journal.all(),
        _ => node.journal.get(&identity).into_iter().collect(),
    };
    let before = records();
    let result = act();
    let after = records();
    let is_in = |record: &Record, all: &[Record]| {
        all.iter().any(|it| it.identity == record.identity && it.phase == record.phase)
    };
    let was_leaving = |record: &Record| {
        before.iter().any(|it| it.identity == record.identity && it.phase.is_leaving())
    };
    for record in after.iter().filter(|record| !is_in(record, &before)) {
        match record.phase {
            Phase::Ready => node.events.note("added", &spoken(record)),
            _ if record.phase.is_leaving() && !was_leaving(record) => waiting(node, record),
            _ => {}
        }
    }
    let is_left = |record: &Record| after.iter().any(|it| it.identity == record.identity);
    for record in before.iter().filter(|record| !is_left(record)) {
        node.events.note("removed", &spoken(record));
    }
    if let Err(failure) = &result {
        let who = whole(&identity);
        node.events.note("failed", &format!("{} of {who}: {failure}", call.command.name()));
    }
    result
}

/// Notes what has become of sandboxes that nobody asked for.
pub(crate) fn left(node: &Node, before: &[Record]) {
    for record in before {
        match node.journal.get(&record.identity) {
            None => node.events.note("removed", &spoken(record)),
            Some(now) if now.phase.is_leaving() && !record.phase.is_leaving() => {
                waiting(node, &now);
            }
            Some(_) => {}
        }
    }
}

fn waiting(node: &Node, record: &Record) {
    let text = format!("{}: gone, still to be released", spoken(record));
    node.events.note("waiting", &text);
}

/// A file that was put aside, because it says nothing that can be used.
pub(crate) fn unreadable(node: &Node, what: &str, file: &Unreadable) {
    let place = file.path.display();
    node.events.note("quarantine", &format!("{what} put aside: {place}: {}", file.why));
}

/// Interfaces of sandboxes that somebody else has removed. A call that is under way may be the one
/// that removes its own: it is waited for.
pub(crate) fn lost_interfaces(node: &Arc<Node>, events: &[kernel::Event]) {
    let gone = events.iter().filter_map(|event| match event {
        kernel::Event::LinkGone(link) => Some(link.name.as_str()),
        _ => None,
    });
    for interface in gone {
        let has_it = |record: &Record| {
            record.phase == Phase::Ready && record.wiring.host_interface == interface
        };
        let Some(record) = node.journal.all().into_iter().find(has_it) else { continue };
        let node = Arc::clone(node);
        let look = move || {
            let turn = node.turns.of(&record.workload, &record.identity);
            let _turn = turn.take();
            if node.journal.get(&record.identity).as_ref() == Some(&record) {
                let text = format!("{}: its interface is gone, by another's hand", spoken(&record));
                node.events.note("lost", &text);
            }
        };
        // One that cannot be noted is missed by the next CHECK as well.
        let _ = std::thread::Builder::new().name("lost".into()).spawn(look);
    }
}

/// A sandbox with its whole identifier, so that it can be searched for.
fn whole(identity: &Identity) -> String {
    format!("{} {}", identity.container, identity.interface)
}

/// The endpoint with a key, by namespace and name.
pub(crate) fn endpoint(key: &str) -> String {
    let mut words = key.rsplit('/');
    let (name, namespace) = (words.next().unwrap_or(key), words.next().unwrap_or_default());
    format!("{namespace}/{name}")
}

/// A sandbox in the words of people.
pub(crate) fn spoken(record: &Record) -> String {
    let who = match &record.workload {
        Workload::Plain => format!("container {}", whole(&record.identity)),
        Workload::Pod { namespace, name } => {
            format!("pod {namespace}/{name} ({})", whole(&record.identity))
        }
    };
    let addresses: Vec<String> =
        record.addresses.iter().map(|held| held.network.address().to_string()).collect();
    let interface = &record.wiring.host_interface;
    let addresses = match addresses.is_empty() {
        true => "no address".to_owned(),
        false => addresses.join(", "),
    };
    format!("{who}, {addresses} on {interface}, network {}", record.network)
}
