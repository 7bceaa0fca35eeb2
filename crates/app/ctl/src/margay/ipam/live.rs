//! What this host itself says of the addresses in use on it: the agent's journal, and the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use host::protocol::Inquiry;
use host::report::{Status, Strangers};
use ipam::check::{Live, Sandbox};
use kernel::{Netlink, RouteFilter};
use sandbox::identity::{HOST_INTERFACE_PREFIX, Workload};
use sandbox::life::Record;

use super::super::agent::Agent;

/// What this host says; none if it is no node.
pub(super) fn witness(agent: &Agent, state_dir: &Path) -> Option<Live> {
    let folder = state_dir.join("sandboxes");
    let records = host::journal::read(&folder);
    let answered = agent.ask::<Status>(&Inquiry::Status).ok().map(|status| status.node);
    let journaled = records.first().map(|record| record.node.clone());
    let node = answered.or(journaled)?;
    let mut incomplete = unread(&folder, records.len());
    let mut in_kernel = match kernel_addresses() {
        Ok(addresses) => addresses,
        Err(error) => {
            incomplete = incomplete.or(Some(format!("the kernel does not answer: {error}")));
            BTreeSet::new()
        }
    };
    // What others made lives too: the agent looks inside.
    match agent.ask::<Strangers>(&Inquiry::Strangers) {
        Ok(strangers) => in_kernel.extend(strangers.addresses),
        Err(silence) => incomplete = incomplete.or(Some(silence.what)),
    }
    let mine = records.iter().filter(|record| record.node == node);
    Some(Live { sandboxes: mine.map(sandbox).collect(), in_kernel, incomplete, node })
}

fn unread(folder: &Path, n_read: usize) -> Option<String> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return Some(format!("the journal cannot be read: {error}")),
    };
    let is_record =
        |path: &Path| path.extension().is_some_and(|it| it == "json" || it == "unreadable");
    let n = entries.flatten().filter(|entry| is_record(&entry.path())).count();
    (n > n_read).then(|| format!("{} records of the journal cannot be read", n - n_read))
}

fn sandbox(record: &Record) -> Sandbox {
    let mut attributes = BTreeMap::from([("node".to_owned(), record.node.clone())]);
    let short: String = record.identity.container.chars().take(12).collect();
    let name = match &record.workload {
        Workload::Plain => short,
        Workload::Pod { namespace, name } => {
            attributes.insert("namespace".to_owned(), namespace.clone());
            attributes.insert("pod".to_owned(), name.clone());
            format!("{namespace}/{name} ({short})")
        }
    };
    Sandbox {
        container: record.identity.container.to_ascii_lowercase(),
        name,
        handle: record.handle(),
        attributes,
        addresses: record
            .addresses
            .iter()
            .map(|held| (held.network.address(), held.sequence))
            .collect(),
    }
}

/// Addresses that lead to interfaces of workloads, and those of the host itself.
fn kernel_addresses() -> Result<BTreeSet<IpAddr>, kernel::Error> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    let of_workloads: BTreeSet<_> = links
        .iter()
        .filter(|link| link.name.as_str().starts_with(HOST_INTERFACE_PREFIX))
        .map(|link| link.index)
        .collect();
    let mut addresses: BTreeSet<IpAddr> =
        netlink.addresses(None)?.into_iter().map(|it| it.address.addr()).collect();
    for route in netlink.routes(&RouteFilter::default())? {
        let mut hops = route.next_hops.iter().filter_map(|hop| hop.link);
        let is_host = route.destination.prefix_len() == route.destination.max_prefix_len();
        if is_host && hops.any(|link| of_workloads.contains(&link)) {
            addresses.insert(route.destination.addr());
        }
    }
    Ok(addresses)
}
