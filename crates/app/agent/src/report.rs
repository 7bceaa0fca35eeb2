//! What the agent says when it is asked: the status, the sandboxes, the events.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use host::protocol::{Inquiry, Reply};
use host::report::{self, Applied, Sandbox, Sandboxes, Status};
use serde::Serialize;

use crate::finding::{Finding, Severity};
use crate::health::Vitals;
use crate::node::{Node, Recalled};
use crate::{drops, features, foreign};

/// Answers somebody who wants to know something.
pub(crate) fn answer(node: &Node, inquiry: &Inquiry) -> Reply {
    match inquiry {
        Inquiry::Status => reply(&status(node)),
        Inquiry::Sandboxes => reply(&sandboxes(node)),
        Inquiry::Events(wanted) => {
            let events = node.events.read(wanted);
            reply(&report::Events { node: node.name.clone(), events })
        }
        Inquiry::Drops(wanted) => {
            let log = node.drops.log();
            let (drops, lost) = (log.read(wanted), log.lost());
            drop(log);
            let unrecorded =
                if wanted.counts { drops::unrecorded(&drops) } else { BTreeMap::new() };
            let epoch = node.health.started.duration_since(UNIX_EPOCH).unwrap_or_default();
            let epoch = u64::try_from(epoch.as_millis()).unwrap_or_default();
            let (node, is_off) = (node.name.clone(), !node.filter_options.has_drops);
            reply(&report::Drops { node, epoch, drops, is_off, lost, unrecorded })
        }
        Inquiry::Strangers => {
            reply(&report::Strangers { addresses: node.addresses_of_strangers() })
        }
        Inquiry::Reconcile(wanted) => match node.reconcile(wanted) {
            Ok(done) => reply(&done),
            Err(why) => Reply { output: why, status: 1 },
        },
    }
}

fn reply(report: &impl Serialize) -> Reply {
    match serde_json::to_string(report) {
        Ok(output) => Reply { output, status: 0 },
        Err(error) => Reply { output: error.to_string(), status: 1 },
    }
}

/// How the node is.
pub(crate) fn status(node: &Node) -> Status {
    let vitals = node.health.vitals();
    let records = node.journal.all();
    let place = node.store().describe();
    let mut findings = node.findings();
    findings.extend(vitals.findings(&place));
    findings.extend(node.aside_findings());
    findings.extend(node.stock_finding(&records));
    let n_leaving = records.iter().filter(|record| record.phase.is_leaving()).count();
    if !vitals.is_connected && n_leaving > 0 {
        findings.push(Finding::release_waits(n_leaving));
    }
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.cmp(b)));
    let mut dataplane = node.dataplane();
    let dataplane = &mut *dataplane;
    let is_read = dataplane.is_complete();
    let census = match &dataplane.recalled {
        Some(recalled) => recalled.inputs.census(),
        None => dataplane.inputs.census(),
    };
    let is_current = vitals.n_syncs > 0 && vitals.kernel_problem.is_none();
    let has_all_routes = !findings.iter().any(|finding| finding.cause == "ROUTES");
    Status {
        status: findings.iter().map(|finding| severity(finding.severity)).max().unwrap_or_default(),
        node: node.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        since: time(node.health.started),
        sandboxes: report::by_phase(&records),
        store: report::Store {
            place,
            is_connected: vitals.is_connected,
            since: time(vitals.connection_since),
            problem: vitals.store_problem.clone(),
            revision: vitals.revision,
        },
        as_of: as_of(&vitals, dataplane.recalled.as_ref()),
        ipam: report::Ipam {
            blocks: is_read.then_some(census.blocks),
            addresses: is_read.then_some(census.addresses),
            used: is_read.then_some(census.addresses_used),
            pools: census.pools,
            reserve: node.n_in_stock(),
        },
        routes: Applied {
            is_applied: is_current && !dataplane.changed.routes && has_all_routes,
            count: dataplane.routes.count(),
            repaired: vitals.routes_repaired,
        },
        filter: Applied {
            is_applied: is_current && !dataplane.changed.filter,
            count: dataplane.filter.count(),
            repaired: vitals.filter_repaired,
        },
        kernel: features::release(),
        policy_revision: node.progress.realised().revision,
        findings: findings.into_iter().map(published).collect(),
        notes: foreign::notes(),
    }
}

/// When the datastore last said what is said of it, unless it answers.
fn as_of(vitals: &Vitals, recalled: Option<&Recalled>) -> Option<String> {
    match (vitals.is_connected, recalled) {
        (true, _) => None,
        (false, Some(recalled)) => Some(recalled.as_of.map(time).unwrap_or_default()),
        (false, None) if vitals.n_syncs == 0 => Some(String::new()),
        (false, None) => Some(time(vitals.connection_since)),
    }
}

fn severity(severity: Severity) -> report::Severity {
    match severity {
        Severity::Degraded => report::Severity::Degraded,
        Severity::Broken => report::Severity::Broken,
    }
}

fn published(finding: Finding) -> report::Finding {
    report::Finding {
        severity: severity(finding.severity),
        code: finding.code,
        cause: finding.cause,
        problem: finding.problem,
        fix: finding.fix,
    }
}

fn sandboxes(node: &Node) -> Sandboxes {
    let sandboxes = node.journal.all().into_iter().map(Sandbox::from).collect();
    Sandboxes { node: node.name.clone(), sandboxes }
}

fn time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    api::schema::utc(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
