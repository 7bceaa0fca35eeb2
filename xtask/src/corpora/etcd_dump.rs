//! Whole stores written by real programs.
//!
//! Every key and every value of every store is read in its stored form and written again: both
//! must come back byte for byte, policies included.

use std::path::Path;

use anyhow::Context;
use api::keys::ipam::{Affinity, Block, Handle, IpamConfig};
use api::keys::{Key, value};
use serde_json::Value;

use super::{Outcome, Row, expect, rows};

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let mut outcomes = Vec::new();
    for folder in ["objects", "full", "policies", "singletons", "init-only", "ipam"] {
        for row in rows(&dir.join(folder).join("dump.jsonl"))? {
            outcomes.push(round_trip(folder, &row)?);
        }
    }
    for (index, row) in rows(&dir.join("startup").join("startup.jsonl"))?.iter().enumerate() {
        for entry in row["dump"].as_array().into_iter().flatten() {
            outcomes.push(round_trip(&format!("startup:{}", index + 1), entry)?);
        }
    }
    Ok(outcomes)
}

fn round_trip(store: &str, entry: &Value) -> anyhow::Result<Row> {
    let path = entry["key"].as_str().context("entry without key")?;
    let raw = entry["value"].as_str().context("entry without value")?;
    let name = format!("{store}{path}");
    let outcome = match Key::parse(path) {
        None => Outcome::Failed("the key is not read".to_owned()),
        Some(key) if key.path().as_deref() != Ok(path) => {
            Outcome::Failed(format!("the key comes back as {:?}", key.path()))
        }
        Some(key) => match value::parse(&key, raw.as_bytes()) {
            Err(error) => Outcome::Failed(error.to_string()),
            Ok(stored) => {
                let written = value::write(&through_types(&key, stored));
                expect("value", &String::from_utf8(written)?.as_str(), &raw)
            }
        },
    };
    Ok(Row { name, outcome })
}

/// Address management has types of its own, which must not lose anything either,
/// and finds no fault with blocks that Calico wrote.
fn through_types(key: &Key, stored: value::Stored) -> value::Stored {
    let value::Stored::Json(json) = &stored else { return stored };
    let again = match key {
        Key::Block { .. } => Block::decode(json).and_then(|block| match block.check() {
            faults if faults.is_empty() => Ok(block.encode()),
            faults => Err(faults),
        }),
        Key::IpamHandle { .. } => Handle::decode(json).map(|handle| handle.encode()),
        Key::BlockAffinity(_) => Affinity::decode(json).map(|affinity| affinity.encode()),
        Key::IpamConfig => IpamConfig::decode(json).map(|config| config.encode()),
        _ => return stored,
    };
    again.map_or_else(|problems| value::Stored::Text(format!("{problems:?}")), value::Stored::Json)
}
