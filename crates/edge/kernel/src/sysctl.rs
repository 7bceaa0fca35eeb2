//! Kernel settings below `/proc/sys/net`, which differ from namespace to namespace.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::link::LinkName;
use crate::netns::Netns;
use crate::route::Family;

const ROOT: &str = "/proc/sys/net";

/// The name of a setting. Interface names may contain dots, so it is never written with dots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sysctl(String);

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net/{}", self.0)
    }
}

impl Sysctl {
    /// A setting of an address family, such as `ip_forward`.
    pub fn of_family(family: Family, setting: &str) -> Self {
        Self(format!("{}/{setting}", folder(family)))
    }

    /// A setting of an interface, such as `proxy_arp` or `accept_ra`.
    pub fn of_link(family: Family, link: &LinkName, setting: &str) -> Self {
        Self(format!("{}/conf/{link}/{setting}", folder(family)))
    }

    /// A setting of the neighbours of an interface, such as `proxy_delay`.
    pub fn of_neighbours(family: Family, link: &LinkName, setting: &str) -> Self {
        Self(format!("{}/neigh/{link}/{setting}", folder(family)))
    }

    /// A setting for `all` interfaces.
    pub fn of_all(family: Family, setting: &str) -> Self {
        Self(format!("{}/conf/all/{setting}", folder(family)))
    }

    /// The setting that new interfaces start with.
    pub fn of_default(family: Family, setting: &str) -> Self {
        Self(format!("{}/conf/default/{setting}", folder(family)))
    }

    fn path(&self) -> Result<PathBuf> {
        if self.0.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(Error::Invalid(format!("{self} is not the name of a setting")));
        }
        Ok(Path::new(ROOT).join(&self.0))
    }

    /// The setting in the namespace of this thread.
    fn read_here(&self) -> Result<String> {
        let text = fs::read_to_string(self.path()?);
        let text = text.map_err(|error| self.explained(&format!("read {self}"), error))?;
        Ok(text.trim_end().to_owned())
    }

    fn write_here(&self, value: &str) -> Result<()> {
        let attempt = format!("set {self} to {value:?}");
        fs::write(self.path()?, value).map_err(|error| self.explained(&attempt, error))
    }

    fn explained(&self, attempt: &str, source: io::Error) -> Error {
        let is_absent = source.kind() == io::ErrorKind::NotFound
            && self.0.starts_with(folder(Family::V6))
            && !Path::new(ROOT).join(folder(Family::V6)).exists();
        if is_absent {
            return Error::NoIpv6 { attempt: attempt.to_owned() };
        }
        Error::system(attempt, source)
    }
}

fn folder(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

/// Reads a setting in `netns`.
pub fn read(netns: &Netns, sysctl: &Sysctl) -> Result<String> {
    netns.enter(|| sysctl.read_here())?
}

/// Writes settings in `netns` in order, with a result each; one that fails stops none of the
/// others.
pub fn write_all(netns: &Netns, settings: &[(Sysctl, &str)]) -> Result<Vec<Result<()>>> {
    netns.enter(|| settings.iter().map(|(sysctl, value)| sysctl.write_here(value)).collect())
}

/// Writes one setting in `netns`.
pub fn write(netns: &Netns, sysctl: &Sysctl, value: &str) -> Result<()> {
    netns.enter(|| sysctl.write_here(value))?
}
