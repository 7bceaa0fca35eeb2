//! Faults of Calico's that we do not imitate, as predicates on a recorded scenario.

use std::collections::BTreeMap;

use api::keys::Key;
use api::keys::ipam::{Block, Handle};
use api::keys::value::{self, Stored};
use serde_json::Value;

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
