//! Taking back what somebody else removed from the datastore of a sandbox that lives.

use std::fmt;
use std::net::IpAddr;

use ipam::{Lost, Planned, Planner, Reclaim};

use crate::claim::{self, CALICO_IPAM, Fresh};
use crate::life::Record;

/// What became of the records of a live sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// The sandbox, with the sequence numbers under which it holds its addresses.
    pub record: Record,
    /// What was missing and was written again, in words.
    pub restored: Vec<String>,
}

/// Why nothing was taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Somebody else has an address of the sandbox.
    Disputed {
        /// The address.
        address: IpAddr,
        /// The handle that holds it.
        holder: String,
    },
    /// The records may not be changed now, or cannot be read.
    Waiting(String),
}

impl fmt::Display for Kept {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disputed { address, holder } => write!(to, "{address} is held by {holder}"),
            Self::Waiting(why) => to.write_str(why),
        }
    }
}

/// Writes again what is missing of a live sandbox: its addresses with their handle and the claim
/// on their block, and its endpoint. All of it, or nothing.
pub fn reclaim(
    planner: &mut Planner<'_>,
    record: &Record,
    fresh: &Fresh,
) -> Planned<Result<Reclaimed, Kept>> {
    let before = planner.savepoint();
    let reclaimed = reclaim_all(planner, record, fresh)?;
    if reclaimed.is_err() {
        planner.roll_back(before);
    }
    Ok(reclaimed)
}

fn reclaim_all(
    planner: &mut Planner<'_>,
    record: &Record,
    fresh: &Fresh,
) -> Planned<Result<Reclaimed, Kept>> {
    if let Err(failure) = claim::locked(planner)? {
        return Ok(Err(Kept::Waiting(failure.message)));
    }
    let mut reclaimed = Reclaimed { record: record.clone(), restored: Vec::new() };
    if record.ipam == CALICO_IPAM {
        let attributes = claim::attributes(planner.now(), &record.node, &record.workload);
        for held in &mut reclaimed.record.addresses {
            let (node, handle) = (record.node.clone(), record.handle());
            let attributes = attributes.clone();
            let request = Reclaim { node, network: held.network, handle, attributes };
            match planner.reclaim(&request)? {
                Ok(kept) => {
                    held.sequence = kept.sequence;
                    reclaimed.restored.extend(kept.lost.iter().map(spoken));
                }
                Err(ipam::Error::AlreadyAssigned { address, handle }) => {
                    let holder = handle.unwrap_or_else(|| "somebody without a handle".to_owned());
                    return Ok(Err(Kept::Disputed { address, holder }));
                }
                Err(error) => return Ok(Err(Kept::Waiting(error.explain()))),
            }
        }
    }
    // An endpoint that is there stays as it is: it may be a later sandbox's of the same pod, and
    // one that cannot be read is somebody's to look at.
    if planner.get(&claim::endpoint_key(record))?.is_none() {
        if let Err(failure) = claim::record_endpoint(planner, record, fresh)? {
            return Ok(Err(Kept::Waiting(failure.message)));
        }
        reclaimed.restored.push(format!("the endpoint {}", record.endpoint));
    }
    Ok(Ok(reclaimed))
}

fn spoken(lost: &Lost) -> String {
    match lost {
        Lost::Block(cidr) => format!("the block {cidr}"),
        Lost::Address(network) => format!("the allocation of {}", network.address()),
        Lost::Handle(handle) => format!("the handle {handle}"),
        Lost::Affinity(cidr) => format!("the claim of this node on {cidr}"),
    }
}
