//! `margay reconcile`: the agent's own join, when a person asks for it and reads along.
//!
//! Whoever asks looks first, and asks then to settle what was seen: every matter that goes was seen
//! twice, as in the agent's own rounds.

use std::collections::BTreeSet;

use host::protocol::Reconcile;
use host::report::{self, MatterState, Reconciliation};

use crate::join::Matter;
use crate::node::Node;
use crate::notes;

/// What a matter is in words.
struct Told {
    state: MatterState,
    problem: String,
    evidence: String,
    action: String,
    fix: String,
}

impl Node {
    /// Looks, and settles what it is told to; why not, if a witness cannot be heard.
    pub(crate) fn reconcile(&self, wanted: &Reconcile) -> Result<Reconciliation, String> {
        let unheard = |why: String| format!("nothing is decided: {why}");
        let matters = self.matters().map_err(unheard)?;
        let node = self.name.clone();
        if wanted.settle.is_empty() {
            let matters = matters.iter().map(|matter| published(matter, told(matter))).collect();
            return Ok(Reconciliation { node, matters, findings: self.n_findings() });
        }
        // Whatever the kernel has lost meanwhile without a word is put back with the rest.
        self.doubt_filter(None);
        self.doubt_routes();
        let wanted: BTreeSet<&str> = wanted.settle.iter().map(String::as_str).collect();
        let wanted = matters.iter().filter(|matter| wanted.contains(matter.name().as_str()));
        let settled = wanted.map(|matter| {
            let mut told = told(matter);
            if told.state == MatterState::Open {
                (told.state, told.action) = match self.settle_matter(matter) {
                    Ok(Some(done)) => (MatterState::Done, done),
                    Ok(None) => (MatterState::Gone, "settled meanwhile".to_owned()),
                    Err(failure) => (MatterState::Failed, failure.to_string()),
                };
            }
            published(matter, told)
        });
        let matters = settled.collect();
        self.flush_or_say();
        Ok(Reconciliation { node, matters, findings: self.n_findings() })
    }

    fn n_findings(&self) -> usize {
        crate::report::status(self).findings.len()
    }
}

fn published(matter: &Matter, told: Told) -> report::Matter {
    let Told { state, problem, evidence, action, fix } = told;
    report::Matter { name: matter.name(), state, problem, evidence, action, fix }
}

fn told(matter: &Matter) -> Told {
    match matter {
        Matter::Dead(record) => open(
            format!("{} is dead and was never deleted", notes::spoken(record)),
            "its interface and its network namespace are gone",
            "take it down",
        ),
        Matter::Ghost { key, interface, .. } => open(
            format!("endpoint {} has no sandbox", notes::endpoint(key)),
            &format!("its interface {interface} is not there, and no journal has it"),
            "remove it, with the addresses that its container holds",
        ),
        Matter::Unrecorded { record, evidence, .. } => open(
            format!("{} is in no journal", notes::spoken(record)),
            evidence,
            "take it into the journal; its interface goes on as it is",
        ),
        Matter::Lacking(record) => open(
            format!("{} lacks records in the datastore", notes::spoken(record)),
            &format!("its interface {} stands and bears its name", record.wiring.host_interface),
            "write them back from the journal",
        ),
        Matter::Nobodys { stranger, why, is_claimed } => {
            let name = &stranger.interface;
            let problem = format!("interface {name} is nobody's");
            let fix = match &stranger.inside {
                Some(inside) => format!("ip link show {name}      # it leads to {}", inside.path),
                None => format!("ip link del {name}      # if no container has it"),
            };
            match stranger.is_abandoned() && !is_claimed {
                true => open(problem, &format!("{why}; no process is in there"), "remove it"),
                false => left(problem, why, fix),
            }
        }
        Matter::Unused { handle, addresses, is_surplus } => {
            let addresses: Vec<String> = addresses.keys().map(ToString::to_string).collect();
            let problem =
                format!("{} of {handle} has no endpoint, interface or route", addresses.join(", "));
            if *is_surplus {
                return open(
                    problem,
                    "the sandbox of this handle is up and has others",
                    "let it go",
                );
            }
            left(
                problem,
                "under another plugin it may be in use all the same: its runtime's GC decides",
                "margay ipam check      # who else knows of it".to_owned(),
            )
        }
        Matter::Disputed(dispute) => left(
            format!("{} of {} is held by {}", dispute.address, dispute.ours, dispute.theirs),
            &format!("the interface {} is closed until one of them is gone", dispute.interface),
            format!("delete the pod behind {}; its runtime makes it anew", dispute.interface),
        ),
    }
}

fn open(problem: String, evidence: &str, action: &str) -> Told {
    let (evidence, action) = (evidence.to_owned(), action.to_owned());
    Told { state: MatterState::Open, problem, evidence, action, fix: String::new() }
}

fn left(problem: String, evidence: &str, fix: String) -> Told {
    let (evidence, action) = (evidence.to_owned(), "nothing: a person must decide".to_owned());
    Told { state: MatterState::Left, problem, evidence, action, fix }
}
