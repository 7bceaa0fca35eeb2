//! The numbers of the agent in the text form of Prometheus: under Felix's names where Felix has
//! the same number, under ours elsewhere.

use std::fmt::{Display, Write as _};
use std::time::UNIX_EPOCH;

use host::report::{Severity, Status};
use intent::Census;
use policy::render::Sizes;

use crate::health::Vitals;
use crate::node::Node;
use crate::report;

/// What Felix says of a datastore: waited for, being read, in sync.
const RESYNC_WAITING: u8 = 1;
const RESYNC_IN_SYNC: u8 = 3;

/// All of them.
pub(crate) fn text(node: &Node) -> String {
    let status = report::status(node);
    let vitals = node.health.vitals();
    let (census, active, n_held) = {
        let dataplane = node.dataplane();
        let policy = dataplane.inputs.policy();
        let active = Active {
            policies: policy.policies.len(),
            sets: policy.sets.len(),
            sizes: dataplane.filter.sizes(),
            n_transactions: dataplane.filter.n_transactions(),
        };
        (dataplane.inputs.census(), active, dataplane.trials.n_held())
    };
    let started = node.health.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut page = Page::default();
    felix(&mut page, &status, &vitals, &census, &active);
    ours(&mut page, &status, &vitals);
    let help = "Objects that are not in force: they cut the node off from its datastore.";
    page.one("margay_held_objects", "gauge", help, wide(n_held));
    let help = "Policies of the cluster that are staged, and so never in force.";
    page.one("margay_staged_policies", "gauge", help, wide(census.staged));
    page.head("margay_events_total", "counter", "What the agent noted since it started.");
    for (sort, n) in node.events.counts() {
        page.row("margay_events_total", &[("sort", &sort)], n);
    }
    page.one("process_start_time_seconds", "gauge", "When the agent started.", started.as_secs());
    page.0
}

/// What of policy concerns this node.
struct Active {
    policies: usize,
    sets: usize,
    sizes: Sizes,
    /// Those of the kernel that were committed, and those that were not.
    n_transactions: (u64, u64),
}

fn felix(page: &mut Page, status: &Status, vitals: &Vitals, census: &Census, active: &Active) {
    page.head("felix_host", "gauge", "The node's name, as a label.");
    page.row("felix_host", &[("host", &status.node)], 1);
    let resync = if vitals.is_connected { RESYNC_IN_SYNC } else { RESYNC_WAITING };
    let gauges: [(&str, &str, u64); 11] = [
        ("felix_active_local_endpoints", "Endpoints of this node.", wide(census.local_endpoints)),
        ("felix_active_local_policies", "Policies that select any of them.", wide(active.policies)),
        ("felix_active_local_selectors", "Selectors that their rules name.", wide(active.sets)),
        ("felix_ipsets_calico", "Sets of addresses that their rules name.", wide(active.sets)),
        ("felix_cluster_num_policies", "Policies of the cluster.", wide(census.policies)),
        ("felix_cluster_num_tiers", "Tiers of the cluster.", wide(census.tiers)),
        (
            "felix_cluster_num_host_endpoints",
            "Host endpoints of the cluster.",
            wide(census.host_endpoints),
        ),
        (
            "felix_cluster_num_workload_endpoints",
            "Endpoints of the cluster.",
            wide(census.endpoints),
        ),
        ("felix_cluster_num_hosts", "Nodes of the cluster.", wide(census.nodes)),
        ("felix_cluster_num_profiles", "Profiles of the cluster.", wide(census.profiles)),
        (
            "felix_resync_state",
            "The datastore: 1 waited for, 2 being read, 3 in sync.",
            u64::from(resync),
        ),
    ];
    for (name, help, value) in gauges {
        page.one(name, "gauge", help, value);
    }
    let help = "How often everything was read from the datastore.";
    page.one("felix_resyncs_started", "counter", help, vitals.n_syncs);
    let help = "Changes of the kernel that failed and are tried again.";
    page.one("felix_int_dataplane_failures", "counter", help, vitals.n_failures);
    nft(page, active);
    let help = "Routes of ours in the kernel.";
    page.one("felix_route_table_num_routes", "gauge", help, status.routes.count);
    let name = "felix_int_dataplane_apply_time_seconds";
    page.head(name, "summary", "How long changes of the kernel took.");
    page.row(&format!("{name}_sum"), &[], vitals.flush_time.as_secs_f64());
    page.row(&format!("{name}_count"), &[], vitals.n_flushes);
}

/// What Felix counts where it works with nftables.
fn nft(page: &mut Page, active: &Active) {
    let Sizes { chains, rules, sets, maps } = active.sizes;
    page.one("felix_nft_chains", "gauge", "Chains of ours in the kernel.", chains);
    page.one("felix_nft_rules", "gauge", "Rules in them.", rules);
    page.one("felix_nft_sets", "gauge", "Sets of ours in the kernel.", sets);
    page.one("felix_nft_maps", "gauge", "Maps of ours in the kernel.", maps);
    let (committed, failed) = active.n_transactions;
    let help = "Transactions of nftables, whatever came of them.";
    page.one("felix_nft_calls", "counter", help, committed + failed);
    let help = "Transactions of nftables that the kernel did not carry out.";
    page.one("felix_nft_errors", "counter", help, failed);
}

fn ours(page: &mut Page, status: &Status, vitals: &Vitals) {
    page.head("margay_build_info", "gauge", "The version, as a label.");
    page.row("margay_build_info", &[("version", &status.version)], 1);
    page.head("margay_sandboxes", "gauge", "Sandboxes of this node, by phase.");
    for (phase, n) in &status.sandboxes {
        page.row("margay_sandboxes", &[("phase", phase)], n);
    }
    page.head("margay_findings", "gauge", "What is wrong: margay status says it in words.");
    let mut codes = std::collections::BTreeMap::new();
    for finding in &status.findings {
        *codes.entry((&finding.code, finding.severity)).or_insert(0_usize) += 1;
    }
    for ((code, severity), n) in codes {
        let severity = if severity == Severity::Broken { "broken" } else { "degraded" };
        page.row("margay_findings", &[("code", code), ("severity", severity)], n);
    }
    let applied = |part: &host::report::Applied| u64::from(part.is_applied);
    let gauges: [(&str, &str, u64); 9] = [
        (
            "margay_store_connected",
            "Whether changes of the datastore arrive.",
            u64::from(vitals.is_connected),
        ),
        (
            "margay_store_revision",
            "The revision of the datastore that was seen last.",
            u64::try_from(vitals.revision).unwrap_or_default(),
        ),
        ("margay_routes", "Routes of ours in the kernel.", wide(status.routes.count)),
        ("margay_routes_applied", "Whether all routes stand.", applied(&status.routes)),
        ("margay_filter_interfaces", "Interfaces that are filtered.", wide(status.filter.count)),
        ("margay_filter_applied", "Whether the packet filter stands.", applied(&status.filter)),
        (
            "margay_addresses",
            "Addresses in blocks of this node.",
            status.ipam.addresses.unwrap_or(0),
        ),
        ("margay_addresses_used", "Those of them that are in use.", status.ipam.used.unwrap_or(0)),
        (
            "margay_quarantined_objects",
            "Objects of the datastore that cannot be used.",
            wide(vitals.n_quarantined()),
        ),
    ];
    for (name, help, value) in gauges {
        page.one(name, "gauge", help, value);
    }
    page.head("margay_repairs_total", "counter", "What others removed and the agent put back.");
    page.row("margay_repairs_total", &[("what", "route")], vitals.routes_repaired);
    page.row("margay_repairs_total", &[("what", "filter")], vitals.filter_repaired);
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.row(name, &[], value);
    }

    fn row(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let quoted = |(label, value): &(&str, &str)| format!("{label}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.iter().map(quoted).collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.0, "{name} {value}"),
            false => writeln!(self.0, "{name}{{{}}} {value}", labels.join(",")),
        };
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_the_page() {
        let mut page = Page::default();
        page.head("a", "gauge", "Help.");
        page.row("a", &[("b", "c\"d\\e\nf")], 1);
        page.row("a", &[], 2.5);
        let wanted = "# HELP a Help.\n# TYPE a gauge\na{b=\"c\\\"d\\\\e\\nf\"} 1\na 2.5\n";
        assert_eq!(page.0, wanted);
    }
}
