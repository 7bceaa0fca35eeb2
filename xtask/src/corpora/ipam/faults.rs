//! Faults of Calico's that we do not imitate, as predicates on a recorded scenario.

use std::collections::{BTreeMap, BTreeSet};

use api::keys::Key;
use api::keys::ipam::{Block, Handle};
use api::keys::value::{self, Stored};
use serde_json::{Value, json};

use super::answer::Answer;

/// Handles count other addresses than they have.
pub(super) const HANDLES: &str = "handle-count";

/// The class of the difference at a step, if it is one of these.
pub(super) fn class(row: &Value, step: &Value) -> Option<&'static str> {
    let steps = row["steps"].as_array()?;
    let index = steps.iter().position(|it| it == step)?;
    if steps[..=index].iter().any(has_damaged_block) {
        return Some("damaged-block");
    }
    if steps[..=index].iter().any(has_wrong_handle) {
        return Some(HANDLES);
    }
    if steps[..=index].iter().any(is_half_given) {
        return Some("half-of-two-families");
    }
    let is_done_yet_failed = step["op"] == "remove_ipam_host" && step["error"] == "missing etcd KV";
    is_done_yet_failed.then_some("error-after-success")
}

/// What is stored of address management before and after a step of ours.
pub(super) struct Records<'a> {
    pub(super) before: &'a [Value],
    pub(super) after: &'a [Value],
}

/// What is wrong with what we did instead: a class says what is not good of Calico's way.
pub(super) fn wrong(
    class: &str,
    step: &Value,
    ours: &Answer,
    records: &Records<'_>,
) -> Option<String> {
    let (before, after) = (held(records.before), held(records.after));
    let given = ours.addresses();
    let distinct: BTreeSet<&String> = given.iter().collect();
    if distinct.len() != given.len() || given.iter().any(|it| before.contains_key(it)) {
        return Some(format!("gave {given:?}, of which some were in use"));
    }
    if ours.error().is_some() && !before.iter().all(|(it, who)| after.get(it) == Some(who)) {
        return Some("an operation that failed has freed something".to_owned());
    }
    let changed: Vec<Value> =
        records.after.iter().filter(|it| !records.before.contains(it)).cloned().collect();
    let is_sound = match class {
        "half-of-two-families" => {
            step["error"].as_str() == ours.error() && before == after && given.is_empty()
        }
        "error-after-success" => ours.error().is_none(),
        "damaged-block" => gives_out_free_places_only(&changed),
        // A handle that was touched counts what it has in the blocks that there are.
        HANDLES => {
            let is_handle = |it: &Value| it[0].as_str().is_some_and(|it| it.contains("/handle/"));
            let blocks = records.after.iter().filter(|it| !is_handle(it));
            let touched = changed.iter().filter(|it| is_handle(it));
            let state: Vec<Value> = blocks.chain(touched).cloned().collect();
            !has_wrong_handle(&json!({ "state": state }))
        }
        _ => true,
    };
    (!is_sound).then(|| format!("differs as {class}, but what we left is not right either"))
}

/// What a block that was written lists as free is free, and is listed once.
fn gives_out_free_places_only(written: &[Value]) -> bool {
    let state = json!({ "state": written });
    let blocks = entries(&state).filter(|(key, _)| matches!(key, Key::Block { .. }));
    let mut blocks = blocks.filter_map(|(_, value)| Block::decode(&value?).ok());
    blocks.all(|block| {
        let mut seen = BTreeSet::new();
        block.unallocated.iter().all(|place| {
            let held = usize::try_from(*place).ok().and_then(|it| block.allocations.get(it));
            held == Some(&None) && seen.insert(*place)
        })
    })
}

/// Addresses that are held, with their handles.
fn held(records: &[Value]) -> BTreeMap<String, Option<String>> {
    let state = json!({ "state": records });
    let blocks = entries(&state).filter(|(key, _)| matches!(key, Key::Block { .. }));
    let blocks: Vec<Block> = blocks.filter_map(|(_, value)| Block::decode(&value?).ok()).collect();
    let holders = blocks.iter().flat_map(ipam::holders);
    let live = holders.filter(|(_, holder)| holder.released_at.is_none());
    live.map(|(address, holder)| (address.to_string(), holder.handle.clone())).collect()
}

fn entries(step: &Value) -> impl Iterator<Item = (Key, Option<Value>)> {
    let entries = step["state"].as_array().into_iter().flatten();
    entries.filter_map(|entry| {
        let key = Key::parse(entry[0].as_str()?)?;
        let stored = value::parse(&key, entry[1].as_str()?.as_bytes());
        Some((
            key,
            stored.ok().and_then(|it| match it {
                Stored::Json(json) => Some(json),
                _ => None,
            }),
        ))
    })
}

/// A block whose value cannot be read, or does not fit together.
fn has_damaged_block(step: &Value) -> bool {
    entries(step).any(|(key, value)| {
        let block = value.and_then(|value| Block::decode(&value).ok());
        matches!(key, Key::Block { .. }) && block.is_none_or(|block| !block.check().is_empty())
    })
}

/// A handle that counts other addresses than its blocks hold.
fn has_wrong_handle(step: &Value) -> bool {
    let mut blocks = BTreeMap::new();
    let mut handles = Vec::new();
    for (key, value) in entries(step) {
        let Some(value) = value else { continue };
        match key {
            Key::Block { cidr } => drop(blocks.insert(cidr.to_string(), Block::decode(&value))),
            Key::IpamHandle { id } => handles.push((id, Handle::decode(&value))),
            _ => {}
        }
    }
    handles.into_iter().any(|(id, handle)| {
        let counts = handle.map(|handle| handle.blocks).unwrap_or_default();
        counts.into_iter().any(|(cidr, count)| {
            let block = blocks.get(&cidr).and_then(|block| block.as_ref().ok());
            let held = block.map_or(0, |block| {
                let holders = (0..block.allocations.len()).filter_map(|it| block.attribute(it));
                let handles = holders.filter_map(|holder| holder.handle.as_deref());
                handles.filter(|it| it.split('\r').next() == Some(&id)).count()
            });
            i64::try_from(held) != Ok(count)
        })
    })
}

/// Both families were asked for, the second failed, and the first was kept.
fn is_half_given(step: &Value) -> bool {
    let asked = |field: &str| step["args"][field].as_i64().unwrap_or_default() != 0;
    let given = step["result"]["v4"]["ips"].as_array().is_some_and(|ips| !ips.is_empty());
    asked("num4") && asked("num6") && !step["error"].is_null() && given
}
