//! `margay ipam`: how full the pools are, who holds an address, the settings; below, whether the
//! records fit together, and putting them right.

mod check;
mod live;
mod plan;
mod release;
mod repair;
pub(super) mod upgrade;
mod who_had;

use std::io::{self, Write as _};

use serde_json::{Value, json};

use super::arguments::{Format, Ipam};
use super::failure::{DIFFERENT, Failure};
use super::session::Session;
use super::terminal::Mark;
use super::{structured, table};

pub(super) use check::grouped;

/// Runs a command of address management; the exit code.
pub(crate) fn run(session: &Session, ipam: &Ipam) -> Result<u8, Failure> {
    let is_fine = match ipam {
        Ipam::Check(arguments) => return check::run(session, arguments),
        Ipam::Repair(arguments) => return repair::run(session, arguments),
        Ipam::Release(arguments) => release::run(session, arguments),
        Ipam::Split(arguments) => release::split(session, arguments),
        Ipam::Plan(arguments) => plan::run(session, arguments),
        Ipam::WhoHad(arguments) => who_had::run(session, arguments),
        Ipam::Show { ip: Some(ip), format, .. } => show_address(session, ip, *format),
        Ipam::Show { show_borrowed: true, format, .. } => show_borrowed(session, *format),
        Ipam::Show { show_configuration: true, format, .. } => show_settings(session, *format),
        Ipam::Show { show_blocks, format, .. } => show_usage(session, *show_blocks, *format),
        Ipam::Configure { .. } => configure(session, ipam),
        Ipam::Upgrade(_) => unreachable!("it may find nothing to do: it runs before a session"),
    };
    Ok(if is_fine? { 0 } else { DIFFERENT })
}

/// Prints rows as a table, or as a list of objects under the headings in lower case.
fn print(
    session: &Session,
    headings: &[&str],
    rows: &[Vec<String>],
    format: Format,
) -> Result<bool, Failure> {
    match format.output {
        Some(format) => {
            let object = |row: &Vec<String>| -> Value {
                let fields = headings.iter().zip(row);
                fields.map(|(name, cell)| (camel(name), json!(cell))).collect()
            };
            let text = structured(format, &rows.iter().map(object).collect());
            session.terminal.page(&text)?;
        }
        None => table::show(session.terminal, headings, rows)?,
    }
    Ok(true)
}

/// `IN USE` → `inUse`.
fn camel(heading: &str) -> String {
    let mut words = heading.split(' ').map(str::to_ascii_lowercase);
    let first = words.next().unwrap_or_default();
    words.fold(first, |name, word| name + &word[..1].to_ascii_uppercase() + &word[1..])
}

fn show_usage(session: &Session, blocks: bool, format: Format) -> Result<bool, Failure> {
    let usage = session.resources.ipam_usage().map_err(Failure::from)?;
    let mut rows = Vec::new();
    // What nodes hold for hard times is in use by nobody. Most clusters have nothing of the sort.
    let has_reserve = usage.pools.iter().any(|pool| pool.in_reserve > 0);
    let shows_reserve = has_reserve || format.output.is_some();
    let row = |name: String, cidr: String, numbers: [u128; 5]| {
        let numbers = numbers.map(|number| match format.output {
            Some(_) => number.to_string(),
            None => readable(number),
        });
        let [capacity, in_use, in_reserve, reserved, free] = numbers;
        let mut row = vec![name, cidr, capacity, in_use, reserved, free];
        row.extend(Some(in_reserve).filter(|_| shows_reserve));
        row
    };
    for pool in &usage.pools {
        let exact = pool.exact;
        let used = u128::from(pool.in_use.saturating_sub(pool.in_reserve));
        let in_reserve = u128::from(pool.in_reserve);
        let numbers = [exact.capacity, used, in_reserve, exact.reserved, exact.free];
        let cidr = pool.cidr.map(|cidr| cidr.to_string()).unwrap_or_default();
        if pool.cidr.is_none() && pool.blocks.is_empty() {
            continue;
        }
        let name = pool.name.clone().unwrap_or_else(|| "(in no pool)".to_owned());
        rows.push(row(name, cidr, numbers));
        for block in pool.blocks.iter().filter(|_| blocks) {
            let used = block.in_use.saturating_sub(block.in_reserve);
            let numbers = [block.capacity, used, block.in_reserve, block.reserved, block.free];
            let numbers = numbers.map(u128::from);
            rows.push(row("  block".to_owned(), block.cidr.to_string(), numbers));
        }
    }
    if rows.is_empty() && format.output.is_none() && usage.quarantined.is_empty() {
        super::get::complain("no pools; margay help field IPPool.spec says how to write one")?;
        return Ok(true);
    }
    let mut headings = vec!["POOL", "CIDR", "TOTAL", "IN USE", "RESERVED", "FREE"];
    headings.extend(Some("OFFLINE RESERVE").filter(|_| shows_reserve));
    let mut fine = print(session, &headings, &rows, format)?;
    for bad in &usage.quarantined {
        let mark = session.terminal.mark(Mark::Broken);
        super::get::complain(&format!("{mark} not counted: {bad}"))?;
        fine = false;
    }
    Ok(fine)
}

/// A number of addresses for people: nobody counts the digits of those in an IPv6 prefix.
fn readable(number: u128) -> String {
    const DIGITS_MAX: usize = 15;
    let digits = number.to_string();
    match digits.len() <= DIGITS_MAX {
        true => digits,
        // Cut, not rounded: no more is shown than there is.
        false => format!("{}.{}e{}", &digits[..1], &digits[1..2], digits.len() - 1),
    }
}

fn show_address(session: &Session, ip: &str, format: Format) -> Result<bool, Failure> {
    let address = net::parse_ip(ip).ok_or_else(|| {
        Failure::new(format!("\"{ip}\" is not an IP address, --ip"))
            .help("margay ipam show --ip 10.65.0.7")
    })?;
    let Some(holder) = session.resources.ipam_holder(address).map_err(Failure::from)? else {
        let answer = json!({"address": ip, "inUse": false});
        return say(session, format, &answer, &format!("{ip} is not assigned\n"));
    };
    let handle = holder.handle.clone().unwrap_or_default();
    let in_reserve = ipam::node_of_reserve(&handle);
    let mut text = match in_reserve {
        Some(node) => format!(
            "{ip} is held by node {node} for times without the datastore, handle {handle}\n"
        ),
        None => format!("{ip} is in use, handle {handle}\n"),
    };
    for (name, value) in holder.active_owner.iter().chain(&holder.alternate_owner) {
        text += &format!("  {name}: {value}\n");
    }
    let answer = json!({
        "address": ip,
        "inUse": in_reserve.is_none(),
        "inReserveOf": in_reserve,
        "handle": handle,
        "owner": holder.active_owner,
        "alternateOwner": holder.alternate_owner,
    });
    say(session, format, &answer, &text)
}

fn say(session: &Session, format: Format, answer: &Value, text: &str) -> Result<bool, Failure> {
    let shown = format.output.map(|format| structured(format, answer));
    session.terminal.page(shown.as_deref().unwrap_or(text))?;
    Ok(true)
}

fn show_borrowed(session: &Session, format: Format) -> Result<bool, Failure> {
    let (found, _) = session.resources.ipam_borrowed().map_err(Failure::from)?;
    let rows = found.into_iter().map(|one| {
        let (address, block) = (one.address.to_string(), one.block.to_string());
        vec![address, one.node, block, one.owner, one.kind, one.allocated_to]
    });
    let headings = ["ADDRESS", "NODE", "BLOCK", "OWNER", "TYPE", "ALLOCATED TO"];
    print(session, &headings, &rows.collect::<Vec<_>>(), format)
}

fn show_settings(session: &Session, format: Format) -> Result<bool, Failure> {
    let settings = session.resources.ipam_settings().map_err(Failure::from)?;
    let persistence = settings.kubevirt_address_persistence.unwrap_or_default();
    let rows = [
        ("strict affinity", settings.strict_affinity.to_string()),
        ("automatic blocks", settings.auto_allocate_blocks.to_string()),
        (
            "blocks per node",
            match settings.max_blocks_per_host {
                0 => "20 (default)".to_owned(),
                most => most.to_string(),
            },
        ),
        ("virtual machines keep addresses", persistence),
        ("cool-down of released addresses", format!("{} s", settings.cooldown_seconds)),
    ];
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    print(session, &["SETTING", "VALUE"], &rows, format)
}

fn configure(session: &Session, ipam: &Ipam) -> Result<bool, Failure> {
    let Ipam::Configure {
        strictaffinity,
        max_blocks_per_host,
        kubevirt_ip_persistence,
        ip_cooldown_seconds,
    } = ipam
    else {
        return Ok(true);
    };
    if strictaffinity.is_none()
        && max_blocks_per_host.is_none()
        && kubevirt_ip_persistence.is_none()
        && ip_cooldown_seconds.is_none()
    {
        return Err(Failure::new("nothing to set").help("margay ipam configure --help"));
    }
    let changed = session.resources.change_ipam_settings(|settings| {
        settings.strict_affinity = strictaffinity.unwrap_or(settings.strict_affinity);
        if let Some(most) = max_blocks_per_host {
            settings.max_blocks_per_host = i64::from(*most);
        }
        if let Some(persistence) = kubevirt_ip_persistence {
            settings.kubevirt_address_persistence = Some(persistence.name().to_owned());
        }
        if let Some(seconds) = ip_cooldown_seconds {
            settings.cooldown_seconds = i64::from(*seconds);
        }
    });
    changed.map_err(|error| super::write::failed(session, error))?;
    let recorded = session.record_changes();
    let shown = show_settings(session, Format::default()).and_then(|fine| {
        io::stdout().lock().write_all(recorded.line(&session.history).as_bytes())?;
        Ok(fine)
    });
    shown.map_err(|failure| match recorded.number() {
        Some(_) => failure.after_the_write("IPAM settings").undo(&recorded.line(&session.history)),
        None => failure,
    })
}
