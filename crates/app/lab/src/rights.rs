//! What this process may do, said exactly where it is not enough.

use std::fs;

use kernel::sysctl::{self, Sysctl};
use kernel::{Errno, Family, Netns};

use crate::failure::Failure;

/// The capabilities that a lab needs, with their numbers.
const NEEDED: [(&str, u32); 3] =
    [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_SYS_ADMIN", 21)];

/// Makes a namespace and changes a setting in it, as a trial.
pub(crate) fn check() -> Result<(), Failure> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = missing(&status);
    if !missing.is_empty() {
        return Err(Failure::new("a lab needs the rights of root")
            .why(format!("this process is root without {}", missing.join(", ")))
            .help("in a container: start it with --privileged; or run the command as an ordinary user"));
    }
    let netns = Netns::create().map_err(|error| {
        let failure = Failure::new("this kernel gives out no network namespace").why(&error);
        match error.errno() {
            Some(Errno::NOSPC) => failure.help("sysctl -w user.max_net_namespaces=15000"),
            _ => failure,
        }
    })?;
    sysctl::write(&netns, &Sysctl::of_family(Family::V4, "ip_forward"), "1").map_err(|error| {
        let failure = Failure::new("settings below /proc/sys/net cannot be changed").why(&error);
        match error.errno() {
            Some(Errno::ROFS) => failure.help("mount -o remount,rw /proc/sys, or --privileged"),
            _ => failure,
        }
    })
}

/// The needed capabilities that are not in effect.
fn missing(status: &str) -> Vec<&'static str> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    let Some(effective) = effective else { return Vec::new() };
    let is_missing = |number: u32| effective & (1 << number) == 0;
    NEEDED.iter().filter(|(_, number)| is_missing(*number)).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        assert!(missing("Name:\tx\nCapEff:\t000001ffffffffff\n").is_empty());
        assert_eq!(missing("CapEff:\t00000000a80425fb\n"), ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
        assert!(missing("what a strange kernel").is_empty());
    }
}
