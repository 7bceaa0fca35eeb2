//! The commands `ipam show` and `ipam configure`; the others are below.

mod check;
mod release;

use std::io::{self, Write as _};
use std::net::IpAddr;

use api::keys::ipam::IpamConfig;
use ipam::PoolUsage;
use net::Cidr;
use store::resources::{Error, Resources};

use super::arguments::parse_bool;
use super::session::{Session, warn};
use super::stop::Stop;
use crate::table::{Boxed, Side};

pub(crate) use check::run as check;
pub(crate) use release::{run as release, split};

/// `ipam show`.
pub(crate) fn show(session: &mut Session<'_>) -> Result<(), Stop> {
    session.check_version()?;
    let parsed = session.parsed;
    let client = session.datastore.open()?;
    if let Some(ip) = parsed.text("ip") {
        let words = format!("Error executing command: invalid IP address specified: {ip}");
        let ip = net::parse_ip(ip).ok_or(Stop::Said(words))?;
        return show_address(client, ip, session.out);
    }
    let table = if parsed.is_set("show-blocks") {
        usage_table(client, true)?
    } else if parsed.is_set("show-borrowed") {
        return show_borrowed(client, session.out);
    } else if parsed.is_set("show-configuration") {
        settings_table(client.ipam_settings().map_err(failed)?)
    } else {
        usage_table(client, false)?
    };
    Ok(table.write(session.out)?)
}

/// Says on standard error that a stored value does not count, because it cannot be used.
fn left_out(key: &str, why: &str) -> io::Result<()> {
    writeln!(io::stderr(), "warning: {key} is left out: {why}")
}

fn words(error: Error) -> Stop {
    Stop::Error(error.calico())
}

fn show_address(client: &Resources, ip: IpAddr, out: &mut dyn std::io::Write) -> Result<(), Stop> {
    let holder = client.ipam_holder(ip).map_err(words)?;
    let Some(holder) = holder else {
        writeln!(out, "{ip} is not assigned")?;
        return Ok(());
    };
    writeln!(out, "IP {ip} is in use")?;
    writeln!(out, "Handle ID: {}", holder.handle.as_deref().unwrap_or("<none>"))?;
    if holder.active_owner.is_empty() {
        writeln!(out, "No Active Owner attributes defined")?;
    }
    for (title, attributes) in [
        ("Active Owner Attributes", &holder.active_owner),
        ("Alternate Owner Attributes", &holder.alternate_owner),
    ] {
        if !attributes.is_empty() {
            writeln!(out, "{title}:")?;
        }
        for (name, value) in attributes {
            writeln!(out, "  {name}: {value}")?;
        }
    }
    Ok(())
}

fn show_borrowed(client: &Resources, out: &mut dyn std::io::Write) -> Result<(), Stop> {
    let (found, unclassified) = client.ipam_borrowed().map_err(words)?;
    let headings = ["IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "TYPE", "ALLOCATED-TO"];
    let mut table = Boxed::new(&headings.map(|heading| (heading, Side::Left)));
    for one in found {
        let (address, block) = (one.address.to_string(), one.block.to_string());
        table.row(vec![address, one.node, block, one.owner, one.kind, one.allocated_to]);
    }
    table.write(out)?;
    if unclassified > 0 {
        writeln!(
            out,
            "\nNote: found {unclassified} IP allocations without an explicit node association. \
             Unable to determine if they are borrowed."
        )?;
    }
    Ok(())
}

fn usage_table(client: &Resources, with_blocks: bool) -> Result<Boxed, Stop> {
    let usage = client.ipam_usage().map_err(words)?;
    usage.quarantined.iter().try_for_each(warn)?;
    let mut table = Boxed::new(&[
        ("GROUPING", Side::Left),
        ("CIDR", Side::Left),
        ("IPS TOTAL", Side::Right),
        ("IPS IN USE", Side::Right),
        ("IPS RESERVED", Side::Right),
        ("IPS FREE", Side::Right),
    ]);
    for pool in usage.pools {
        let PoolUsage { capacity, in_use, reserved, free, .. } = pool;
        if let Some(cidr) = pool.cidr.filter(|cidr| cidr.prefix_len() > 0) {
            let numbers = [capacity, in_use, reserved, free];
            table.row(usage_row("IP Pool", cidr, numbers));
        }
        if with_blocks {
            for block in pool.blocks {
                let numbers = [block.capacity, block.in_use, block.reserved, block.free];
                table.row(usage_row("Block", block.cidr, numbers));
            }
        }
    }
    Ok(table)
}

fn usage_row(grouping: &str, cidr: Cidr, numbers: [u64; 4]) -> Vec<String> {
    let [capacity, parts @ ..] = numbers;
    let mut row = vec![grouping.to_owned(), cidr.to_string(), five_digits(capacity)];
    #[expect(clippy::cast_precision_loss, reason = "a percentage without decimals")]
    let percent = |part: u64| 100.0 * part as f64 / capacity as f64;
    row.extend(parts.map(|part| format!("{} ({:.0}%)", five_digits(part), percent(part))));
    row
}

/// A number with at most five digits, and an exponent when it is larger: `65536`, `1.3107e+05`.
fn five_digits(number: u64) -> String {
    if number < 100_000 {
        return number.to_string();
    }
    #[expect(clippy::cast_precision_loss, reason = "five digits are asked for")]
    let text = format!("{:.4e}", number as f64);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{}e+{exponent:0>2}", digits.trim_end_matches('0').trim_end_matches('.'))
}

fn settings_table(settings: IpamConfig) -> Boxed {
    let mut table = Boxed::new(&[("PROPERTY", Side::Left), ("VALUE", Side::Left)]);
    let persistence = settings.kubevirt_address_persistence.unwrap_or_else(|| "-".to_owned());
    for (property, value) in [
        ("StrictAffinity", settings.strict_affinity.to_string()),
        ("AutoAllocateBlocks", settings.auto_allocate_blocks.to_string()),
        ("MaxBlocksPerHost", settings.max_blocks_per_host.to_string()),
        ("KubeVirtVMAddressPersistence", persistence),
        ("IPCooldownSeconds", settings.cooldown_seconds.to_string()),
    ] {
        table.row(vec![property.to_owned(), value]);
    }
    table
}

/// The changes that a command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    strict_affinity: Option<bool>,
    max_blocks: Option<i64>,
    persistence: Option<String>,
    cooldown: Option<i64>,
}

impl Changes {
    fn make(&self, settings: &mut IpamConfig) {
        let Self { strict_affinity, max_blocks, persistence, cooldown } = self;
        settings.strict_affinity = strict_affinity.unwrap_or(settings.strict_affinity);
        settings.max_blocks_per_host = max_blocks.unwrap_or(settings.max_blocks_per_host);
        settings.cooldown_seconds = cooldown.unwrap_or(settings.cooldown_seconds);
        if let Some(persistence) = persistence {
            settings.kubevirt_address_persistence = Some(persistence.clone());
        }
    }
}

fn failed(error: Error) -> Stop {
    Stop::Error(format!("error: {}", error.calico()))
}

/// `ipam configure`.
pub(crate) fn configure(session: &mut Session<'_>) -> Result<(), Stop> {
    session.check_version()?;
    let client = session.datastore.open()?;
    let changes = changes(session)?;
    if changes == Changes::default() {
        let words = "at least one configuration option must be specified";
        return Err(Stop::Error(words.to_owned()));
    }
    client.change_ipam_settings(|settings| changes.make(settings)).map_err(failed)?;
    let Changes { strict_affinity, max_blocks, persistence, cooldown } = changes;
    for (name, value) in [
        ("StrictAffinity", strict_affinity.map(|value| value.to_string())),
        ("MaxBlocksPerHost", max_blocks.map(|value| value.to_string())),
        ("KubeVirtVMAddressPersistence", persistence),
        ("IPCooldownSeconds", cooldown.map(|value| value.to_string())),
    ] {
        if let Some(value) = value {
            writeln!(session.out, "Successfully set {name} to: {value}")?;
        }
    }
    Ok(())
}

fn changes(session: &Session<'_>) -> Result<Changes, Stop> {
    let parsed = session.parsed;
    let refused = |words: &str| Stop::Error(words.to_owned());
    let mut changes = Changes::default();
    if let Some(text) = parsed.text("strictaffinity") {
        let value = parse_bool(text)
            .ok_or_else(|| refused("invalid value. Use true or false to set strictaffinity"))?;
        changes.strict_affinity = Some(value);
    }
    if let Some(text) = parsed.text("max-blocks-per-host") {
        let value = text
            .parse()
            .map_err(|_| refused("invalid value for maxblockhost. Use a valid number"))?;
        changes.max_blocks = Some(value);
    }
    if let Some(text) = parsed.text("kubevirt-ip-persistence") {
        if !matches!(text, "Enabled" | "Disabled") {
            let words = "invalid value for --kubevirt-ip-persistence. Use Enabled or Disabled";
            return Err(refused(words));
        }
        changes.persistence = Some(text.to_owned());
    }
    changes.cooldown = parsed.int("ip-cooldown-seconds").filter(|&seconds| seconds >= 0);
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_have_five_digits() {
        assert_eq!(five_digits(8), "8");
        assert_eq!(five_digits(65536), "65536");
        assert_eq!(five_digits(100_000), "1e+05");
        assert_eq!(five_digits(131_072), "1.3107e+05");
        assert_eq!(five_digits(i64::MAX as u64), "9.2234e+18");
    }

    #[test]
    fn half_percents_go_to_the_even_side() {
        let cidr = "10.0.0.0/29".parse().unwrap();
        let row = usage_row("Block", cidr, [8, 7, 1, 0]);
        assert_eq!(row, ["Block", "10.0.0.0/29", "8", "7 (88%)", "1 (12%)", "0 (0%)"]);
    }
}
