//! Sandboxes that come while the datastore is gone: addresses of the node's reserve, on the
//! strength of what the node knows; and what the datastore is told when it is back.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::keys::ipam::Attribute;
use ipam::{AssignIp, Planned, Planner, Release};
use net::Cidr;

use crate::claim::{
    self, CALICO_IPAM, Fresh, Order, attributes, endpoint, ensure_profile, record_endpoint, resolve,
};
use crate::failure::{Code, Failure};
use crate::identity::Held;
use crate::life::{Owed, Record};

/// Why a sandbox could not be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// Something passing, such as records that are locked.
    Later(Failure),
    /// An address of it is somebody else's by now. Whoever watches the blocks sees that too, and
    /// closes its interface.
    Contested,
}

/// Gives a sandbox addresses out of those that are `free` in the reserve. Planned on what the node
/// knows: what must be read first is not known, and then there is no answer.
pub fn take(
    planner: &mut Planner<'_>,
    order: &Order,
    free: &BTreeSet<IpAddr>,
) -> Planned<Result<Record, Failure>> {
    if let Err(failure) = claim::ready(planner)? {
        return Ok(Err(failure));
    }
    let mut record = order.record.clone();
    if record.ipam == CALICO_IPAM {
        match choose(planner, order, free)? {
            Ok(networks) => {
                record.wiring.addresses = networks.iter().map(|it| it.address()).collect();
                let held = networks.into_iter().map(|network| Held { network, sequence: None });
                record.addresses = held.collect();
            }
            Err(failure) => return Ok(Err(failure)),
        }
    }
    if record.addresses.is_empty() {
        return Ok(Err(Failure::plugin("IPAM plugin returned no IP addresses in result")));
    }
    record.owed = Some(Owed {
        endpoint_uid: order.fresh.endpoint_uid.clone(),
        profile_uid: order.fresh.profile_uid.clone(),
        ..Owed::default()
    });
    if has_profile(&record)
        && let Err(failure) =
            ensure_profile(planner, &record.network, &record.workload, &order.fresh)?
    {
        return Ok(Err(failure));
    }
    if let Err(failure) = endpoint(&record) {
        return Ok(Err(failure));
    }
    Ok(Ok(record))
}

fn choose(
    planner: &mut Planner<'_>,
    order: &Order,
    free: &BTreeSet<IpAddr>,
) -> Planned<Result<Vec<Cidr>, Failure>> {
    let wish = &order.wish;
    let mut networks = Vec::new();
    let families = [(wish.ipv4, &wish.pools4, true), (wish.ipv6, &wish.pools6, false)];
    for (is_wanted, names, is_ipv4) in families {
        let is_wanted = match wish.address {
            Some(address) => address.is_ipv4() == is_ipv4,
            None => is_wanted,
        };
        if !is_wanted {
            continue;
        }
        let pools = match resolve(planner, names, is_ipv4)? {
            Ok(pools) => pools,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut found = None;
        for address in free.iter().filter(|address| address.is_ipv4() == is_ipv4) {
            let is_asked_for = wish.address.is_none_or(|wanted| wanted == *address);
            let is_in_pool = pools.is_empty() || pools.iter().any(|it| it.contains(*address));
            if is_asked_for && is_in_pool && !wish.avoid.contains(address) {
                found = planner.within_block(*address)?;
            }
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(network) => networks.push(network),
            None => return Ok(Err(exhausted(order, is_ipv4))),
        }
    }
    Ok(Ok(networks))
}

fn exhausted(order: &Order, is_ipv4: bool) -> Failure {
    let family = if is_ipv4 { 4 } else { 6 };
    let message = match order.wish.address {
        Some(address) => format!("the reserve of this node does not hold {address}"),
        None => format!("the reserve of this node holds no such IPv{family} address"),
    };
    Failure::new(Code::TryAgainLater, message)
}

fn has_profile(record: &Record) -> bool {
    record.profiles().contains(&record.network)
}

/// The endpoint of a sandbox that is owed to the datastore, as it will be written.
pub fn endpoint_value(record: &Record) -> Option<Vec<u8>> {
    let object = endpoint(record).ok()?;
    Some(text::json::to_string(&object).into_bytes())
}

/// Tells the datastore of a sandbox: all of it, or nothing. `others` are addresses under the same
/// handle that other interfaces of the container hold; `is_current` is false if a later sandbox of
/// the same pod has the endpoint's name.
pub fn settle(
    planner: &mut Planner<'_>,
    record: &Record,
    others: &BTreeSet<IpAddr>,
    is_current: bool,
) -> Planned<Result<Record, Unsettled>> {
    let before = planner.savepoint();
    let settled = settle_all(planner, record, others, is_current)?;
    if settled.is_err() {
        planner.roll_back(before);
    }
    Ok(settled)
}

fn settle_all(
    planner: &mut Planner<'_>,
    record: &Record,
    others: &BTreeSet<IpAddr>,
    is_current: bool,
) -> Planned<Result<Record, Unsettled>> {
    let mut record = record.clone();
    let Some(owed) = record.owed.take() else { return Ok(Ok(record)) };
    if let Err(failure) = claim::ready(planner)? {
        return Ok(Err(Unsettled::Later(failure)));
    }
    if record.ipam == CALICO_IPAM {
        let handle = record.handle();
        let attributes = attributes(planner.now(), &record.node, &record.workload);
        let holder = Attribute::new(Some(handle.clone()), attributes);
        for held in &mut record.addresses {
            let address = held.network.address();
            if let Err(unsettled) = hold(planner, &record.node, address, &holder)? {
                return Ok(Err(unsettled));
            }
            held.sequence = planner.sequence_of(address)?;
        }
        let own = record.addresses.iter().map(|held| held.network.address()).collect();
        release_rest(planner, &handle, &own, others)?;
    }
    let fresh = Fresh { endpoint_uid: owed.endpoint_uid, profile_uid: owed.profile_uid };
    if is_current && let Err(failure) = record_endpoint(planner, &record, &fresh)? {
        return Ok(Err(Unsettled::Later(failure)));
    }
    if has_profile(&record)
        && let Err(failure) = ensure_profile(planner, &record.network, &record.workload, &fresh)?
    {
        return Ok(Err(Unsettled::Later(failure)));
    }
    Ok(Ok(record))
}

/// Makes a sandbox the holder of an address of the reserve, or of one that nobody holds.
fn hold(
    planner: &mut Planner<'_>,
    node: &str,
    address: IpAddr,
    holder: &Attribute,
) -> Planned<Result<(), Unsettled>> {
    if planner.take_reserve(node, address, holder)?.is_ok() {
        return Ok(Ok(()));
    }
    if let Ok(found) = planner.get_attributes(address)? {
        let is_own = found.handle == holder.handle;
        return Ok(if is_own { Ok(()) } else { Err(Unsettled::Contested) });
    }
    let assigned = planner.assign_ip(&AssignIp {
        node: node.to_owned(),
        address,
        handle: holder.handle.clone(),
        attributes: holder.active_owner.clone(),
        purpose: String::new(),
        max_per_handle: 0,
        reserved: None,
    })?;
    Ok(assigned.map_err(|error| Unsettled::Later(Failure::plugin(error.to_string()))))
}

/// What an earlier attempt may have claimed, whose answer was lost.
fn release_rest(
    planner: &mut Planner<'_>,
    handle: &str,
    own: &BTreeSet<IpAddr>,
    others: &BTreeSet<IpAddr>,
) -> Planned<()> {
    let Ok(all) = planner.ips_by_handle(handle)? else { return Ok(()) };
    let rest = all.into_iter().filter(|it| !own.contains(it) && !others.contains(it));
    let release =
        |it: IpAddr| Release { address: it.to_string(), handle: handle.to_owned(), sequence: None };
    let releases: Vec<Release> = rest.map(release).collect();
    if !releases.is_empty() {
        planner.release_ips(&releases)?;
    }
    Ok(())
}

/// Takes back what a sandbox that is owed to the datastore may own there. An address that is in the
/// reserve stays in it.
pub fn release(
    planner: &mut Planner<'_>,
    record: &Record,
    others: &BTreeSet<IpAddr>,
) -> Planned<Result<(), ipam::Error>> {
    // What is under its own handle is known by the handle only.
    let unknown = Record { addresses: Vec::new(), ..record.clone() };
    claim::release(planner, &unknown, others)
}
