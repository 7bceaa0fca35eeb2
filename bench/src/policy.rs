//! Policy through the shipped agent: from its start to its enforcement, from a change to the
//! kernel, and what packets cost on the way through it.

mod changes;
mod cluster;
mod grid;
mod packets;
mod scenario;
mod scene;
mod trace;
mod traffic;

use crate::Options;
use crate::report::Sheet;

/// The agent: the scenario that the real one was measured with, and clusters of other sizes.
pub(crate) fn measure(options: &Options) -> anyhow::Result<Vec<Sheet>> {
    let Some((margay, folder)) = crate::node::prepare(options)? else { return Ok(Vec::new()) };
    let mut sheets = scenario::measure(options, &margay, folder.path())?;
    sheets.push(grid::measure(options, &margay, folder.path())?);
    Ok(sheets)
}

/// Packets between two pods of a node.
pub(crate) fn measure_packets(options: &Options) -> anyhow::Result<Vec<Sheet>> {
    let Some((margay, folder)) = crate::node::prepare(options)? else { return Ok(Vec::new()) };
    packets::measure(options, &margay, folder.path())
}
