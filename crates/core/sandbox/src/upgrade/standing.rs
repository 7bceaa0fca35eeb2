//! How the records stand to what is to be claimed, and the claims themselves.

use api::keys::ipam::Attribute;
use ipam::{AssignIp, Error, Planned, Planner, reserve_handle};
use net::Cidr;

use super::{Claim, Journal, Problem};
use crate::claim::{lock_key, says_ready};

/// How an address stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody holds it; it lies in this block.
    Free(Cidr),
    /// It is held as it should be.
    Held,
    /// An earlier run claimed it, and it was let go since: its container is gone.
    LetGo,
    /// It cannot be claimed.
    Refused(Problem),
    /// An address of the node itself that is not to be claimed.
    Passed,
}

/// What the records say of themselves: whose they are, and whether they may be changed. A cluster
/// that was never set up has no name, and no lock either.
pub fn cluster(planner: &Planner<'_>) -> Planned<(String, bool)> {
    let Some(bytes) = planner.get(&lock_key())? else { return Ok((String::new(), true)) };
    let object = text::json::parse(&bytes).unwrap_or_default();
    let guid = object["spec"]["clusterGUID"].as_str().unwrap_or_default().to_owned();
    Ok((guid, says_ready(&bytes) == Some(true)))
}

/// Says that the records may be changed, if they say otherwise; whether they did.
pub fn unlock(planner: &mut Planner<'_>) -> Planned<bool> {
    let key = lock_key();
    let bytes = planner.get(&key)?.filter(|bytes| says_ready(bytes) != Some(true));
    let Some(Ok(mut object)) = bytes.map(|bytes| text::json::parse(&bytes)) else {
        return Ok(false);
    };
    match object.get_mut("spec").and_then(|spec| spec.as_object_mut()) {
        Some(spec) => drop(spec.insert("datastoreReady".to_owned(), true.into())),
        None => return Ok(false),
    }
    planner.put(&key, text::json::to_string(&object).into_bytes())?;
    Ok(true)
}

/// How all the addresses stand.
pub fn survey(
    planner: &mut Planner<'_>,
    node: &str,
    journal: &Journal,
    claims: &[Claim],
) -> Planned<Vec<Standing>> {
    claims.iter().map(|claim| standing(planner, node, journal, claim)).collect()
}

/// Claims what is free of these, for one transaction; none if the records are locked by now.
pub fn claim(
    planner: &mut Planner<'_>,
    node: &str,
    journal: &Journal,
    claims: &[Claim],
) -> Planned<Option<Vec<Standing>>> {
    planner.depend(&lock_key())?;
    if !cluster(planner)?.1 {
        return Ok(None);
    }
    let mut all = Vec::new();
    for claim in claims {
        all.push(match standing(planner, node, journal, claim)? {
            Standing::Free(_) => take(planner, node, claim)?,
            other => other,
        });
    }
    Ok(Some(all))
}

fn take(planner: &mut Planner<'_>, node: &str, claim: &Claim) -> Planned<Standing> {
    let before = planner.savepoint();
    let is_in_reserve = holder(planner, claim)?.is_ok_and(|it| it.handle == own_reserve(node));
    let taken = match is_in_reserve {
        true => {
            let holder = Attribute::new(Some(claim.handle.clone()), claim.attributes.clone());
            planner.take_reserve(node, claim.address, &holder)?.map(drop)
        }
        false => planner.assign_ip(&AssignIp {
            node: node.to_owned(),
            address: claim.address,
            handle: Some(claim.handle.clone()),
            attributes: claim.attributes.clone(),
            purpose: String::new(),
            max_per_handle: 0,
            reserved: None,
        })?,
    };
    Ok(match taken {
        Ok(()) => Standing::Held,
        Err(error) => {
            planner.roll_back(before);
            refused(claim, error.explain(), remedy(claim, &error))
        }
    })
}

fn own_reserve(node: &str) -> Option<String> {
    Some(reserve_handle(node))
}

fn holder(planner: &mut Planner<'_>, claim: &Claim) -> Planned<Result<Attribute, Error>> {
    planner.get_attributes(claim.address)
}

fn standing(
    planner: &mut Planner<'_>,
    node: &str,
    journal: &Journal,
    claim: &Claim,
) -> Planned<Standing> {
    let address = claim.address;
    let block = planner.within_block(address)?.map(Cidr::masked);
    let Some(block) = block else {
        let error = Error::NotInPool { address };
        return Ok(refused(claim, error.explain(), remedy(claim, &error)));
    };
    // Whoever let it go since knew that the container is gone; whoever has it now is another one.
    let was_let_go = journal.has(claim) && !claim.is_confirmed;
    Ok(match holder(planner, claim)? {
        Ok(held) if held.handle.as_ref() == Some(&claim.handle) => Standing::Held,
        _ if was_let_go => Standing::LetGo,
        Ok(held) if held.handle == own_reserve(node) => Standing::Free(block),
        Ok(held) => {
            let error = Error::AlreadyAssigned { address, handle: held.handle };
            refused(claim, error.explain(), remedy(claim, &error))
        }
        Err(Error::NoSuchBlock { .. } | Error::Unassigned { .. }) => Standing::Free(block),
        Err(error) => refused(claim, error.explain(), remedy(claim, &error)),
    })
}

/// An address of the node itself is looked after by whoever makes its tunnels: nothing is asked of
/// anybody for it here.
fn refused(claim: &Claim, what: String, fix: String) -> Standing {
    match &claim.file {
        Some(file) => Standing::Refused(Problem { file: file.clone(), what, fix }),
        None => Standing::Passed,
    }
}

fn remedy(claim: &Claim, error: &Error) -> String {
    let (address, file) = (claim.address, claim.file.as_deref().unwrap_or_default());
    let container = claim.handle.rsplit('.').next().unwrap_or_default();
    let short: String = container.chars().take(12).collect();
    match error {
        Error::NotInPool { .. } => format!(
            "margay apply -f FILE      # with an IPPool that {address} lies in; or, if container \
             {short} is gone, rm {file}"
        ),
        Error::AlreadyAssigned { .. } => format!(
            "delete the pod of container {short}: it shares its address; or, if it is gone, \
             rm {file}"
        ),
        Error::InCooldown { .. } => "run it again when the cool-down is over".to_owned(),
        Error::ForeignBlock { .. } | Error::NoAffinity { .. } => {
            "margay ipam configure --strictaffinity=false, until this is done".to_owned()
        }
        _ => "margay ipam check      # and margay ipam repair".to_owned(),
    }
}
