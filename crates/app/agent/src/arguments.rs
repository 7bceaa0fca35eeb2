//! The command line of the agent.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use net::Cidr;
use policy::render::Counters;

use crate::filter::settings::Options;

/// What the rules of policies count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Counting {
    None,
    Denials,
    All,
}

/// Runs this node's network: pod interfaces, addresses, routes and the packet filter.
///
/// The agent is the only one that changes this node's kernel; the CNI plugin asks it. It may be
/// restarted at any moment: pods keep their network, and calls that come meanwhile wait.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "margay agent",
    after_help = "Examples:
  margay agent --node n1 --address 192.168.0.11/24
  DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS=http://10.0.0.1:2379 margay agent"
)]
pub(crate) struct Arguments {
    /// The node's name in the datastore [default: the host's name]
    #[arg(long, env = "NODENAME")]
    pub(crate) node: Option<String>,
    /// An address by which other nodes reach this one, with its subnet; one for each family
    #[arg(long, value_name = "CIDR", value_parser = with_length)]
    pub(crate) address: Vec<Cidr>,
    /// The folder for what survives a reboot
    #[arg(long, env = "MARGAY_STATE_DIR", default_value = "/var/lib/margay")]
    pub(crate) state_dir: PathBuf,
    /// The folder for the socket
    #[arg(long, env = "MARGAY_RUN_DIR", default_value = "/run/margay")]
    pub(crate) run_dir: PathBuf,
    /// Where to serve /liveness, /readiness and /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) http: Option<SocketAddr>,
    /// How many addresses of each family to hold for ADDs while a remote datastore does not answer;
    /// 0 for none
    #[arg(long, value_name = "N", env = "MARGAY_RESERVE", default_value_t = 4)]
    pub(crate) reserve: usize,
    /// How many seconds apart to look for sandboxes whose container is gone and for endpoints
    /// without a sandbox; they go when two looks have found them. 0 for never
    #[arg(long, value_name = "SECONDS", env = "MARGAY_JOIN_EVERY", default_value_t = 60)]
    pub(crate) join_every: u64,
    /// What the rules of policies count: nothing, what they deny, or everything
    #[arg(long, value_name = "WHAT", env = "MARGAY_COUNTERS", default_value = "denials")]
    pub(crate) counters: Counting,
    /// Records no denied packets: `margay drops` has nothing to tell then
    #[arg(long, env = "MARGAY_NO_DROPS")]
    pub(crate) no_drops: bool,
    /// Lets other programs change and remove the tables of the packet filter, which are put right
    /// then; otherwise nobody but the agent can while it runs, on Linux 6.9 and later
    #[arg(long, env = "MARGAY_SHARED_TABLES")]
    pub(crate) shared_tables: bool,
    /// Serves the socket on standard input, for the supervisor of this process number
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) dataplane: Option<i32>,
}

impl Arguments {
    /// How the packet filter is made.
    pub(crate) fn filter(&self) -> Options {
        let counters = match self.counters {
            Counting::None => Counters::None,
            Counting::Denials => Counters::Denials,
            Counting::All => Counters::All,
        };
        Options { counters, has_drops: !self.no_drops, is_owned: !self.shared_tables }
    }

    /// The node's name in the datastore.
    pub(crate) fn node_name(&self) -> String {
        self.node.clone().unwrap_or_else(|| {
            rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase()
        })
    }
}

/// An address with its subnet. Without a length it would be taken for a subnet of its own, which
/// is hardly ever meant and hard to notice.
fn with_length(text: &str) -> Result<Cidr, String> {
    let parsed: Cidr = text.parse().map_err(|_| "such as 192.168.0.11/24".to_owned())?;
    match text.contains('/') {
        true => Ok(parsed),
        false => {
            let length = if parsed.is_ipv4() { 24 } else { 64 };
            Err(format!("{text} has no subnet length; write {text}/{length}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_subnet() {
        assert!(with_length("10.9.9.9/24").is_ok());
        assert!(with_length("10.9.9.9/32").is_ok());
        let refused = with_length("10.9.9.9").unwrap_err();
        assert_eq!(refused, "10.9.9.9 has no subnet length; write 10.9.9.9/24");
        assert!(with_length("fd00::1").unwrap_err().ends_with("write fd00::1/64"));
        assert!(with_length("nonsense").is_err());
    }
}
