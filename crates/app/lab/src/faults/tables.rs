//! Packet filters that somebody flushes behind the agent's back.

use std::time::{Duration, Instant};

use kernel::Errno;
use kernel::nft::{Batch, Nft, Table};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::lab::Lab;
use crate::screen::count;

/// How long the agent gets to restore them.
const AGENT_WAIT: Duration = Duration::from_secs(3);

/// Deletes every table of a node, as `nft flush ruleset` does.
pub(super) fn flush(lab: &Lab, node: &str) -> Result<Value, Failure> {
    let mut nft = Nft::in_netns(&lab.netns(node)?)?;
    let tables = nft.tables()?;
    // All at once, as `nft flush ruleset` does; one by one where some of them cannot be deleted.
    let mut deleted = delete(&mut nft, &tables)?;
    if deleted.is_empty() {
        for table in tables {
            deleted.extend(delete(&mut nft, std::slice::from_ref(&table))?);
        }
    }
    if deleted.is_empty() {
        return Err(Failure::new(format!("{node} has no table that can be flushed")));
    }
    Ok(json!(deleted))
}

/// Deletes tables in one transaction; none of them if one has an owner, whose alone it is.
fn delete(nft: &mut Nft, tables: &[Table]) -> Result<Vec<String>, Failure> {
    let mut batch = Batch::new();
    tables.iter().for_each(|table| batch.delete_table(&table.id));
    match nft.commit(&batch) {
        Ok(()) => Ok(tables.iter().map(|table| table.id.name.clone()).collect()),
        Err(error) if error.errno() == Some(Errno::PERM) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Sees whether the agent has restored the tables; nobody else can.
pub(super) fn restored(lab: &Lab, node: &str, saved: &Value) -> Result<String, Failure> {
    let mut nft = Nft::in_netns(&lab.netns(node)?)?;
    let began = Instant::now();
    loop {
        let missing = missing(&mut nft, saved)?;
        if missing.is_empty() {
            let tables = count(saved.as_array().map_or(0, Vec::len), "table");
            return Ok(format!("{tables} of {node}: restored by the agent"));
        }
        if began.elapsed() > AGENT_WAIT {
            return Err(Failure::new("the agent did not restore its tables").why(missing.join(" ")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the tables are there again.
pub(super) fn are_back(lab: &Lab, node: &str, saved: &Value) -> Result<bool, Failure> {
    let mut nft = Nft::in_netns(&lab.netns(node)?)?;
    Ok(missing(&mut nft, saved)?.is_empty())
}

/// Those of the flushed tables that are not there.
fn missing<'a>(nft: &mut Nft, saved: &'a Value) -> Result<Vec<&'a str>, Failure> {
    let there = nft.tables()?;
    let is_there = |name: &str| there.iter().any(|table| table.id.name == name);
    let flushed = saved.as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(flushed.filter(|name| !is_there(name)).collect())
}
