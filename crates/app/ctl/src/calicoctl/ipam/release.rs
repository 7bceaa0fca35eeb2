//! The commands `ipam release` and `ipam split`, in calicoctl's words.

use std::collections::BTreeMap;
use std::path::Path;

use api::Kind;
use host::bounded;
use ipam::{Release, View};
use net::Cidr;
use serde_json::Value;
use store::ipam::Driver;
use store::resources::{Name, Resources};
use store::{Committed, Compare, Op, Store, Txn};

use super::super::session::Session;
use super::super::stop::Stop;
use super::words;
use api::EMULATED_CALICO_VERSION;

/// The report of a large cluster has every address in it.
const REPORT_BYTES_MAX: u64 = 1 << 30;

/// What a report names as leaked.
struct Leaked {
    addresses: BTreeMap<String, Release>,
    /// Handles, with the revision that each had.
    handles: BTreeMap<String, String>,
}

/// `ipam release`.
pub(crate) fn run(session: &mut Session<'_>) -> Result<(), Stop> {
    session.check_version()?;
    let parsed = session.parsed;
    let client = session.datastore.open()?;
    let reports = parsed.all("from-report");
    if !reports.is_empty() {
        from_reports(session, &reports)?;
        writeln!(session.out, "You may now unlock the data store.")?;
        return Ok(());
    }
    let Some(ip) = parsed.text("ip") else { return Ok(()) };
    let refused = format!("Error executing command: invalid IP address specified: {ip}");
    let address = net::parse_ip(ip).ok_or(Stop::Said(refused))?;
    let driver = Driver::new(client.store().clone());
    let released = driver.release_ips(&mut View::default(), &[Release::address(address)]);
    let released = released.map_err(|error| Stop::Error(format!("error: {error}")))?;
    if let Some(error) = released.error {
        return Err(Stop::Error(format!("error: {error}")));
    }
    if !released.unallocated.is_empty() {
        return Err(Stop::Error(format!("IP address {address} is not assigned")));
    }
    writeln!(session.out, "Successfully released IP address {address}")?;
    Ok(())
}

fn from_reports(session: &mut Session<'_>, files: &[&str]) -> Result<(), Stop> {
    let client = session.datastore.open()?;
    let cluster = Name::cluster(Kind::ClusterInformation, "default");
    let cluster = client.get(&cluster).map_err(words)?;
    let (spec, revision) = (&cluster.object["spec"], cluster.revision.to_string());
    let is_forced = session.parsed.is_set("force");
    let mut reports = Vec::new();
    let mut is_current = false;
    for file in files {
        let report = read_report(file)?;
        if spec["clusterGUID"] != report["clusterGUID"] {
            return Err(Stop::Error(format!(
                "cluster does not match the provided report ({file}): mismatched cluster GUID. \
                 Refusing to release"
            )));
        }
        let version = report["version"].as_str().unwrap_or_default();
        if version != EMULATED_CALICO_VERSION && !is_forced {
            return Err(Stop::Error(format!(
                "the provided report ({file}) was produced using a different version ({version}) \
                 of calicoctl. Refusing to release"
            )));
        }
        if version != EMULATED_CALICO_VERSION {
            writeln!(
                session.out,
                "WARNING: Report was produced using a different version of calicoctl. Ignoring \
                 due to --force option"
            )?;
        }
        is_current |= report["clusterInformationRevision"] == revision.as_str();
        reports.push(report);
    }
    if !is_current {
        return Err(Stop::Error(
            "the provided reports are all stale - at least one should be up-to-date. Please \
             generate a new report while the data store is locked and try again"
                .to_owned(),
        ));
    }
    if spec["datastoreReady"] != false {
        if !is_forced {
            return Err(Stop::Error(
                "data store is not locked. Either lock the data store, or re-run with --force"
                    .to_owned(),
            ));
        }
        let words = "WARNING: Data store is not locked. Ignoring due to --force option";
        writeln!(session.out, "{words}")?;
    }
    let Leaked { addresses, handles } = merged(&reports);
    release_addresses(session, addresses)?;
    release_handles(session, &handles)
}

fn read_report(file: &str) -> Result<Value, Stop> {
    let bytes = match bounded::read_file(Path::new(file), REPORT_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Stop::Error(format!("open {file}: no such file or directory")));
        }
        Err(error) => return Err(Stop::Error(format!("open {file}: {error}"))),
    };
    text::json::parse(&bytes).map_err(|error| Stop::Error(format!("{file}: {error}")))
}

/// What all reports agree on.
fn merged(reports: &[Value]) -> Leaked {
    let mut merged: Option<Leaked> = None;
    for report in reports {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let mut addresses = BTreeMap::new();
        let all = report["allocations"].as_object().into_iter().flatten();
        for allocation in all.filter_map(|(_, all)| all.as_array()).flatten() {
            let address = text(allocation, "ip");
            let is_known = merged.as_ref().is_none_or(|it| it.addresses.contains_key(&address));
            if allocation["inUse"] == true || allocation["coolingDown"] == true || !is_known {
                continue;
            }
            let (handle, sequence) = (text(allocation, "handle"), &allocation["sequenceNumber"]);
            let release = Release { address: address.clone(), handle, sequence: sequence.as_u64() };
            addresses.insert(address, release);
        }
        let leaked = report["leakedHandles"].as_array().into_iter().flatten();
        let leaked = leaked.map(|it| (text(it, "ID"), text(it, "Revision")));
        let is_same = |id: &String, revision: &String| {
            merged.as_ref().is_none_or(|it| it.handles.get(id) == Some(revision))
        };
        let handles = leaked.filter(|(id, revision)| is_same(id, revision)).collect();
        merged = Some(Leaked { addresses, handles });
    }
    merged.unwrap_or(Leaked { addresses: BTreeMap::new(), handles: BTreeMap::new() })
}

fn release_addresses(
    session: &mut Session<'_>,
    addresses: BTreeMap<String, Release>,
) -> Result<(), Stop> {
    if addresses.is_empty() {
        writeln!(session.out, "Report didn't contain any leaked IPs to clean up.")?;
        return Ok(());
    }
    let client = session.datastore.open()?;
    let releases: Vec<Release> = addresses.into_values().collect();
    writeln!(session.out, "Releasing {} old IPs...", releases.len())?;
    let driver = Driver::new(client.store().clone());
    let (error, n_free) = match driver.release_ips(&mut View::default(), &releases) {
        Ok(released) => (released.error.map(|error| error.to_string()), released.unallocated.len()),
        Err(error) => (Some(error.to_string()), 0),
    };
    match error {
        Some(error) => writeln!(
            session.out,
            "An error occurred while releasing some IPs: {error}.  Problems are often caused by \
             an out-of-date IPAM report.  Try regenerating the IPAM report and retry."
        )?,
        None => writeln!(session.out, "Released {} IPs successfully", releases.len() - n_free)?,
    }
    if n_free > 0 {
        writeln!(
            session.out,
            "{n_free} addresses marked as leaked in the report had already been cleaned up."
        )?;
    }
    Ok(())
}

fn release_handles(
    session: &mut Session<'_>,
    handles: &BTreeMap<String, String>,
) -> Result<(), Stop> {
    if handles.is_empty() {
        writeln!(session.out, "Report didn't contain any handles to clean up.")?;
        return Ok(());
    }
    let client = session.datastore.open()?;
    writeln!(session.out, "Deleting {} handles...", handles.len())?;
    writeln!(session.out, "Key: '.' = Deleted OK; 'x' = skip, handle missing/changed.")?;
    let (mut n_released, mut n_skipped, mut n_errors) = (0, 0, 0);
    for (id, revision) in handles {
        match delete_handle(client.store(), id, revision) {
            Ok(true) => {
                n_released += 1;
                write!(session.out, ".")?;
            }
            Ok(false) => {
                n_skipped += 1;
                write!(session.out, "x")?;
            }
            Err(error) => {
                n_errors += 1;
                writeln!(session.out, "\nDeleting handle {id} failed: {error}.")?;
            }
        }
    }
    writeln!(session.out)?;
    let summary = format!("{n_skipped} skipped; {n_errors} errors.");
    writeln!(session.out, "Released {n_released} handles; {summary}")?;
    Ok(())
}

/// False if it is not what the report saw.
fn delete_handle(store: &Store, id: &str, revision: &str) -> Result<bool, store::Error> {
    let key = format!("/calico/ipam/v2/handle/{id}");
    let Ok(revision) = revision.parse() else { return Ok(false) };
    let txn = Txn {
        compares: vec![Compare::ModRevision(key.clone(), revision)],
        ops: vec![Op::Delete { key }],
    };
    Ok(matches!(store.commit(txn)?, Committed::Applied { .. }))
}

/// `ipam split`.
pub(crate) fn split(session: &mut Session<'_>) -> Result<(), Stop> {
    session.check_version()?;
    let parsed = session.parsed;
    let word = parsed.words.first().map(String::as_str).unwrap_or_default();
    let parts: i64 = word.parse().map_err(|_| {
        let why = format!("strconv.Atoi: parsing \"{word}\": invalid syntax");
        Stop::Error(format!(
            "error reading number to split IP pools into. {word} is not a valid number: {why}"
        ))
    })?;
    let (name, cidr) = (parsed.text("name"), parsed.text("cidr"));
    if name.is_none() && cidr.is_none() {
        let words =
            "no name or CIDR provided. Provide a name or CIDR to denote the IP pool to split";
        return Err(Stop::Error(words.to_owned()));
    }
    let client = session.datastore.open()?;
    check_locked(client)?;
    let pool = find_pool(client, name, cidr)?;
    let (name, cidr) = pool;
    let failed = |why: String| {
        Stop::Error(format!("error splitting the CIDR {cidr} into {parts} CIDRs: {why}"))
    };
    let cidrs = pieces(&cidr, parts).map_err(failed)?;
    let made = client.split_pool(&name, &cidrs).map_err(|(cidr, error)| match cidr {
        Some(cidr) => Stop::Error(format!(
            "error using unsafe create to make split pool with cidr {cidr}: {}",
            error.calico()
        )),
        None => words(error),
    })?;
    write!(session.out, "IP Pool {name} was successfully split into {parts} smaller pools.")?;
    for (name, cidr) in made {
        writeln!(session.out, "Created {name} with CIDR {cidr}.")?;
    }
    write!(session.out, "Please refer to the documentation for final steps.")?;
    Ok(())
}

fn check_locked(client: &Resources) -> Result<(), Stop> {
    let cluster = Name::cluster(Kind::ClusterInformation, "default");
    let cluster = client.get(&cluster).map_err(|error| {
        let why = format!("error retrieving ClusterInformation: {}", error.calico());
        Stop::Error(format!("error while checking if datastore was locked: {why}"))
    })?;
    match cluster.object["spec"]["datastoreReady"] == false {
        true => Ok(()),
        false => Err(Stop::Error(
            "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order \
             split the IP pools"
                .to_owned(),
        )),
    }
}

/// The name of a pool, and its network.
fn find_pool(
    client: &Resources,
    name: Option<&str>,
    cidr: Option<&str>,
) -> Result<(String, String), Stop> {
    let cidr_of = |object: &Value| object["spec"]["cidr"].as_str().unwrap_or_default().to_owned();
    if let Some(name) = name {
        let pool = client.get(&Name::cluster(Kind::IpPool, name)).map_err(|error| {
            let why = error.calico();
            Stop::Error(format!("unable to find IP pool with name {name}: {why}"))
        })?;
        return Ok((name.to_owned(), cidr_of(&pool.object)));
    }
    let cidr = cidr.unwrap_or_default();
    let pools = client.list(Kind::IpPool, None).map_err(words)?.objects;
    let found = pools.into_iter().rev().find(|pool| cidr_of(&pool.object) == cidr);
    let found = found.map(|pool| (pool.name.name, cidr.to_owned()));
    let missing = format!("unable to find IP pool  covering the specified CIDR {cidr}");
    found.ok_or(Stop::Error(missing))
}

/// The networks that a network falls into.
fn pieces(cidr: &str, parts: i64) -> Result<Vec<Cidr>, String> {
    let wanted = u128::try_from(parts).ok().filter(|it| it.is_power_of_two() && *it > 1);
    let wanted = wanted
        .ok_or_else(|| format!("number to split CIDR into is not a valid power of 2: {parts}"))?;
    let whole: Cidr = cidr
        .parse()
        .map_err(|_| format!("error reading CIDR {cidr} before attempting to split it"))?;
    let too_small =
        || format!("the CIDR {cidr} is not large enough to be split into {parts} parts");
    let bits = u8::try_from(wanted.trailing_zeros()).map_err(|_| too_small())?;
    let length = whole.prefix_len().checked_add(bits).ok_or_else(too_small)?;
    let pieces: Option<Vec<Cidr>> = Cidr::new(whole.network(), length).map(|first| {
        (0..wanted).map_while(|index| ipam::nth_block(first, length, index)).collect()
    });
    pieces.filter(|all| all.len() as u128 == wanted).ok_or_else(too_small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_falls_into_equal_pieces() {
        let texts = |cidr: &str, parts| {
            pieces(cidr, parts).map(|all| all.iter().map(Cidr::to_string).collect::<Vec<_>>())
        };
        assert_eq!(texts("10.0.0.0/30", 2).unwrap(), ["10.0.0.0/31", "10.0.0.2/31"]);
        assert_eq!(texts("fd00::/64", 2).unwrap(), ["fd00::/65", "fd00::8000:0:0:0/65"]);
        assert!(texts("10.0.0.0/30", 8).unwrap_err().contains("not large enough"));
        for parts in [-2, 0, 1, 3] {
            assert!(texts("10.0.0.0/8", parts).unwrap_err().contains("not a valid power of 2"));
        }
    }
}
