//! What the agent sees to by itself, again and again: that the datastore is asked whether it
//! answers, knows the node, hears of what happened without it, and is remembered; and that nothing
//! is left over.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use net::Cidr;

use crate::dataplane::Error;
use crate::health::Registration;
use crate::join::Looks;
use crate::node::Node;
use crate::supervisor::say;
use crate::{notes, register, serve};

/// How often.
const PAUSE: Duration = Duration::from_secs(2);

/// How long a datastore that is back is left alone: a request that it had not answered before may
/// still be carried out, and what was done about it must come after that.
const REST: Duration = Duration::from_secs(2);

/// Starts to see to it.
pub(crate) fn start(node: &Arc<Node>, addresses: &[Cidr], mut looks: Looks) -> io::Result<()> {
    let (node, addresses) = (Arc::clone(node), addresses.to_vec());
    std::thread::Builder::new().name("keeper".into()).spawn(move || {
        loop {
            std::thread::sleep(PAUSE);
            node.ask_again();
            if node.health.vitals().registration != Registration::Done {
                introduce(&node, &addresses);
            }
            serve::settle_tickets(&node);
            node.keep_forwarding();
            node.keep_settings();
            node.catch_up();
            node.look_at_disk();
            if node.is_steady(REST) {
                let before = node.journal.matching(|record| record.phase.is_leaving());
                for failure in node.retry() {
                    say(&format!("to be tried again: {failure}"));
                }
                notes::left(&node, &before);
                node.settle_all();
                node.keep_stock();
                node.join(&mut looks);
            }
            node.remember();
        }
    })?;
    Ok(())
}

/// Tells the datastore about the node.
pub(crate) fn introduce(node: &Node, addresses: &[Cidr]) {
    if node.outage().is_some() {
        return;
    }
    let registration = match register::register(node.store(), &node.name, addresses) {
        Ok(()) => Registration::Done,
        Err(Error::Store(error)) if node.judge(&error) => Registration::Waiting,
        Err(error) => Registration::Refused(error.to_string()),
    };
    node.health.registered(&node.events, registration);
}
