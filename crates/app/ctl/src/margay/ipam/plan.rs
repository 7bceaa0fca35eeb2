//! `margay ipam plan`: how much room there is, how it is cut up, and how long it lasts.

use std::collections::BTreeMap;
use std::path::Path;

use host::events::{self, Event, Wanted};
use ipam::check::HeldAddress;
use serde_json::{Value, json};

use super::super::arguments::PlanArguments;
use super::super::failure::Failure;
use super::super::session::Session;
use super::super::{structured, table};
use super::check;

const DAY: i64 = 86_400;
/// A shorter time says nothing about a rate.
const SPAN_MIN: i64 = 600;

/// What a node holds.
#[derive(Default)]
struct Share {
    blocks: usize,
    addresses: usize,
    borrowed: usize,
    room: usize,
}

/// The command.
pub(crate) fn run(session: &Session, arguments: &PlanArguments) -> Result<bool, Failure> {
    let usage = session.resources.ipam_usage().map_err(Failure::from)?;
    let taken = check::take(session, &arguments.witnesses)?;
    let rate = rate(&arguments.witnesses.state_dir);
    let shares = shares(&taken.inventory);
    let pools: Vec<Value> = usage
        .pools
        .iter()
        .filter(|pool| pool.cidr.is_some())
        .map(|pool| {
            let sparse = pool.blocks.iter().filter(|it| it.in_use * 4 < it.capacity).count();
            let in_blocks: u64 = pool.blocks.iter().map(|it| it.free).sum();
            let lasts = rate.filter(|it| it.per_day > 0.0).map(|it| {
                #[expect(clippy::cast_precision_loss, reason = "an estimate in whole days")]
                let days = pool.exact.free as f64 / it.per_day;
                days.floor()
            });
            json!({
                "pool": pool.name, "cidr": pool.cidr.map(|it| it.to_string()),
                "total": pool.exact.capacity.to_string(), "inUse": pool.in_use,
                "free": pool.exact.free.to_string(), "freeInBlocks": in_blocks,
                "blocks": pool.blocks.len(), "sparseBlocks": sparse, "daysLeft": lasts,
            })
        })
        .collect();
    if let Some(format) = arguments.format.output {
        let nodes: Vec<Value> = shares
            .iter()
            .map(|(node, share)| {
                json!({
                    "node": node, "blocks": share.blocks, "addresses": share.addresses,
                    "borrowed": share.borrowed, "free": share.room,
                })
            })
            .collect();
        let answer = json!({
            "pools": pools, "nodes": nodes, "perDay": rate.map(|it| it.per_day),
        });
        session.terminal.page(&structured(format, &answer))?;
        return Ok(true);
    }
    show(session, &pools, &shares, rate)?;
    Ok(true)
}

fn show(
    session: &Session,
    pools: &[Value],
    shares: &BTreeMap<String, Share>,
    rate: Option<Rate>,
) -> Result<(), Failure> {
    let cell = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> = pools
        .iter()
        .map(|pool| {
            let fields = ["pool", "cidr", "total", "inUse", "free", "blocks", "sparseBlocks"];
            let mut row: Vec<String> = fields.iter().map(|name| cell(&pool[*name])).collect();
            row.push(match pool["daysLeft"].as_f64() {
                Some(days) => format!("{days:.0} d"),
                None => "-".to_owned(),
            });
            row
        })
        .collect();
    let headings = ["POOL", "CIDR", "TOTAL", "IN USE", "FREE", "BLOCKS", "NEARLY EMPTY", "LASTS"];
    table::show(session.terminal, &headings, &rows)?;
    let rows: Vec<Vec<String>> = shares
        .iter()
        .map(|(node, share)| {
            let numbers = [share.blocks, share.addresses, share.borrowed, share.room];
            std::iter::once(node.clone()).chain(numbers.map(|it| it.to_string())).collect()
        })
        .collect();
    let headings = ["NODE", "BLOCKS", "ADDRESSES", "BORROWED", "FREE IN BLOCKS"];
    table::show(session.terminal, &headings, &rows)?;
    let note = match rate {
        Some(rate) if rate.per_day > 0.0 => format!(
            "note: this node took {:.1} addresses a day more than it gave back, over {}\n",
            rate.per_day,
            text::words::age(rate.seconds.unsigned_abs())
        ),
        Some(_) => "note: this node gives back as many addresses as it takes\n".to_owned(),
        None => {
            "note: how long it lasts is told where an agent's events tell the rate\n".to_owned()
        }
    };
    Ok(session.terminal.page(&note)?)
}

fn shares(inventory: &ipam::check::Inventory) -> BTreeMap<String, Share> {
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    for (node, free) in inventory.owned() {
        let share = shares.entry(node.unwrap_or("(nobody)").to_owned()).or_default();
        share.blocks += 1;
        share.room += free;
    }
    for HeldAddress { node, owner, .. } in inventory.held() {
        let share = shares.entry(node.unwrap_or("(unknown)").to_owned()).or_default();
        share.addresses += 1;
        share.borrowed += usize::from(node.is_some() && node != owner);
    }
    shares
}

/// How fast a node takes addresses.
#[derive(Clone, Copy)]
struct Rate {
    per_day: f64,
    seconds: i64,
}

/// From the events of the last day: added less removed.
fn rate(state_dir: &Path) -> Option<Rate> {
    let path = state_dir.join("events.jsonl");
    let now = jiff::Timestamp::now();
    let since = api::schema::utc(now.as_second() - DAY);
    let wanted = Wanted { since: Some(since), ..Wanted::default() };
    let events = events::read(&path, &wanted);
    let seconds = now.as_second() - second(events.first()?)?;
    let count = |sort: &str| -> i64 {
        i64::try_from(events.iter().filter(|it| it.sort == sort).count()).unwrap_or(i64::MAX)
    };
    let net = count("added") - count("removed");
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let per_day = net as f64 * DAY as f64 / seconds.max(1) as f64;
    (seconds >= SPAN_MIN).then_some(Rate { per_day, seconds })
}

fn second(event: &Event) -> Option<i64> {
    event.time.parse::<jiff::Timestamp>().ok().map(|time| time.as_second())
}
