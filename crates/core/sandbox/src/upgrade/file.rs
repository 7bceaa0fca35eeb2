//! The files of host-local: one for each address, named by it, with the container in its first
//! line (and, since some version, the interface in the second). Total: whatever is no such file is
//! named with what to do about it.

use std::net::IpAddr;

use super::Problem;
use crate::call::is_network_name;

/// An address that host-local has given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The path of its file.
    pub file: String,
    /// The address.
    pub address: IpAddr,
    /// The container that has it.
    pub container: String,
}

impl Given {
    /// As much of the container's id as people read.
    pub(super) fn short(&self) -> String {
        self.container.chars().take(12).collect()
    }
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An address in use.
    Given(Given),
    /// Where host-local goes on searching; of no use to anybody else.
    Mark,
    /// What host-local locks while it works.
    Lock,
}

/// Whether this is the name of a network, and of one folder for that reason.
pub fn is_network(name: &str) -> bool {
    is_network_name(name)
}

/// Reads a file of a folder. `contents` is not asked for where the name says enough.
pub fn read(
    folder: &str,
    name: &str,
    contents: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Result<Found, Problem> {
    match name {
        "lock" => return Ok(Found::Lock),
        _ if name.starts_with("last_reserved_ip") => return Ok(Found::Mark),
        _ => {}
    }
    let file = format!("{folder}/{name}");
    let problem = |what: String, fix: String| Problem { file: file.clone(), what, fix };
    let Some(address) = net::parse_ip(name) else {
        let what = "the name is not an IP address: it is no file of host-local".to_owned();
        return Err(problem(what, format!("mv {file} /root/      # out of the folder")));
    };
    let unused = || format!("rm {file}      # if nothing uses {address}");
    let bytes = contents().map_err(|why| problem(format!("cannot be read: {why}"), unused()))?;
    let text = String::from_utf8_lossy(&bytes);
    let container = text.lines().next().unwrap_or_default().trim();
    if container.is_empty() {
        let what = "names no container: host-local was interrupted".to_owned();
        return Err(problem(what, unused()));
    }
    // More than an id has: such a handle could not be stored either.
    if !is_network_name(container) || container.len() > CONTAINER_MAX {
        let start: String = container.chars().take(20).collect();
        return Err(problem(format!("{start:?} is not the id of a container"), unused()));
    }
    Ok(Found::Given(Given { container: container.to_owned(), file, address }))
}

const CONTAINER_MAX: usize = 255;
