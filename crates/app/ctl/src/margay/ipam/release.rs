//! `margay ipam release` and `margay ipam split`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use ipam::check::{Class, Problem};
use ipam::{Release, View};
use net::Cidr;
use store::inventory::Taken;
use store::ipam::Driver;

use super::super::arguments::{ReleaseArguments, SplitArguments};
use super::super::failure::Failure;
use super::super::session::Session;
use super::super::terminal::Mark;
use super::super::write;
use super::check;

/// Lets one address go, or those that a report of `ipam check` calls leaked and that still are.
pub(crate) fn run(session: &Session, arguments: &ReleaseArguments) -> Result<bool, Failure> {
    let releases = match (&arguments.ip, &arguments.from_report) {
        (Some(ip), _) => vec![single(session, ip, arguments)?],
        (None, Some(file)) => match reported(session, arguments, file)? {
            Reported { releases, kept: Some(kept) } if releases.is_empty() => {
                let mark = session.terminal.mark(Mark::Degraded);
                session.terminal.page(&format!("{mark} {kept}\n"))?;
                return Ok(false);
            }
            reported => reported.releases,
        },
        (None, None) => {
            return Err(Failure::new("which address?").help("margay ipam release --ip 10.65.0.7"));
        }
    };
    if releases.is_empty() {
        let fine = session.terminal.mark(Mark::Fine);
        session.terminal.page(&format!("{fine} nothing of the report is leaked any more\n"))?;
        return Ok(true);
    }
    if !arguments.yes {
        let lines: Vec<String> =
            releases.iter().map(|it| format!("{} of {}", it.address, it.handle)).collect();
        write::ask(&lines)?;
    }
    let driver = Driver::new(session.store.clone());
    let released = driver.release_ips(&mut View::default(), &releases);
    let released = released.map_err(|error| Failure::new(error.to_string()))?;
    if let Some(error) = released.error {
        return Err(Failure::new(error.to_string()).help("margay ipam check"));
    }
    let n = released.done.len() - released.unallocated.len();
    let fine = session.terminal.mark(Mark::Fine);
    session.terminal.page(&format!("{fine} {} let go\n", text::words::count(n, "address")))?;
    Ok(true)
}

/// An address that nothing uses, or that is meant all the same.
fn single(session: &Session, ip: &str, arguments: &ReleaseArguments) -> Result<Release, Failure> {
    let address = net::parse_ip(ip).ok_or_else(|| {
        Failure::new(format!("\"{ip}\" is not an IP address, --ip"))
            .help("margay ipam release --ip 10.65.0.7")
    })?;
    let holder = session.resources.ipam_holder(address).map_err(Failure::from)?;
    let Some(holder) = holder else {
        return Err(Failure::new(format!("{address} is not assigned")).help("margay ipam show"));
    };
    let taken = check::take(session, &arguments.witnesses)?;
    let help = "--force lets it go all the same; somebody else may get it then";
    if let Some(user) = taken.inventory.user_of(address).filter(|_| !arguments.force) {
        let what = format!("{address} is in use by {user}; it was not let go");
        return Err(Failure::new(what).help(help));
    }
    if let Some(why) = kept(&taken, arguments, address).filter(|_| !arguments.force) {
        let what = format!("{address} was not let go: {why}");
        return Err(Failure::new(what).help(help));
    }
    let handle = holder.handle.unwrap_or_default();
    Ok(Release { handle, ..Release::address(address) })
}

/// Why an address that nobody is known to use is not let go all the same.
fn kept(taken: &Taken, arguments: &ReleaseArguments, address: IpAddr) -> Option<String> {
    let problems = taken.inventory.check(check::reach(&arguments.witnesses)).problems;
    let of_it = |it: &&Problem| it.address == Some(address) && it.class == Class::Leak;
    match problems.iter().find(of_it) {
        // That nobody is named is why somebody has to name the address.
        Some(leak) => leak.kept.clone().filter(|why| !why.starts_with("nobody is named")),
        None => Some("nothing says that it is unused".to_owned()),
    }
}

/// What of a report is to be let go.
struct Reported {
    releases: Vec<Release>,
    /// What is still held and stays, in words.
    kept: Option<String>,
}

/// The leaks of a report that are leaks now.
fn reported(
    session: &Session,
    arguments: &ReleaseArguments,
    file: &Path,
) -> Result<Reported, Failure> {
    let unreadable = |why: String| {
        Failure::new(format!("the report cannot be read, {}", file.display())).why(why)
    };
    let bytes = host::bounded::read_file(file, 1 << 30);
    let bytes = bytes.map_err(|error| unreadable(error.to_string()))?;
    let report = text::json::parse(&bytes).map_err(|error| unreadable(error.to_string()))?;
    let problems = report["problems"].as_array().ok_or_else(|| {
        unreadable("it has no problems".to_owned()).help("margay ipam check -o FILE writes one")
    })?;
    let taken = check::take(session, &arguments.witnesses)?;
    let mut reach = check::reach(&arguments.witnesses);
    reach.all_nodes |= arguments.force;
    let now = taken.inventory.leaks(reach);
    let named = problems.iter().filter(|it| it["class"] == "leak");
    let named: BTreeSet<IpAddr> =
        named.filter_map(|it| net::parse_ip(it["address"].as_str()?)).collect();
    let held = taken.inventory.held().map(|it| it.address);
    let stays: Vec<IpAddr> =
        held.filter(|it| named.contains(it) && !now.contains_key(it)).collect();
    let kept = stays.first().map(|first| {
        let why = kept(&taken, arguments, *first).unwrap_or_else(|| "it is in use".to_owned());
        let n = text::words::count(stays.len(), "address");
        format!("{n} of the report still held and not let go; {first}: {why}")
    });
    let releases = named.iter().filter_map(|address| now.get(address)).cloned().collect();
    Ok(Reported { releases, kept })
}

/// Cuts a pool into equal pieces.
pub(crate) fn split(session: &Session, arguments: &SplitArguments) -> Result<bool, Failure> {
    let pool = store::resources::Name::cluster(api::Kind::IpPool, &arguments.pool);
    let stored = session.resources.get(&pool).map_err(Failure::from)?;
    let text = stored.object["spec"]["cidr"].as_str().unwrap_or_default();
    let whole: Cidr =
        text.parse().map_err(|_| Failure::new(format!("{text:?} is no network, {}", pool.name)))?;
    let parts = arguments.parts;
    let bits = u8::try_from(parts.trailing_zeros()).unwrap_or(u8::MAX);
    let length = whole.prefix_len().saturating_add(bits);
    let pieces: Vec<Cidr> =
        (0..u128::from(parts)).map_while(|index| ipam::nth_block(whole, length, index)).collect();
    if !parts.is_power_of_two() || parts < 2 || pieces.len() != parts as usize {
        return Err(Failure::new(format!("{whole} does not fall into {parts} equal pools"))
            .help("2, 4, 8, …"));
    }
    if !arguments.yes {
        write::ask(&[format!("IPPool {} ({whole}), for {parts} smaller ones", pool.name)])?;
    }
    let made = session.resources.split_pool(&pool.name, &pieces);
    let made = made.map_err(|(_, error)| write::failed(session, error))?;
    let recorded = session.record_changes();
    let fine = session.terminal.mark(Mark::Fine);
    let mut text = format!("{fine} IPPool {} is split; its blocks stay\n", pool.name);
    text += &made.iter().map(|(name, cidr)| format!("  {name}  {cidr}\n")).collect::<String>();
    session.terminal.page(&(text + &recorded.line(&session.history)))?;
    Ok(true)
}
