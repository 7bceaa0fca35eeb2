//! What can be typed after `margay lab`.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use serde::{Deserialize, Serialize};

use crate::complete;

/// A cluster in a box: nodes and pods out of network namespaces, with real agents.
#[derive(Debug, Parser)]
#[command(
    name = "margay lab",
    bin_name = "margay lab",
    after_help = "Examples:\n  margay lab up                              three nodes, two pods each\n  \
                  margay lab up --nodes 10 --ipv6 --name big  another one beside it\n  \
                  margay lab exec n1-web -- ping -c1 n2-db    a command in a pod\n  \
                  margay lab break agent-killed n2            then: margay lab status\n  \
                  margay lab heal                             put right what break broke\n  \
                  margay lab down                             leave nothing behind"
)]
pub(crate) struct Arguments {
    /// Which lab; several can run side by side
    #[arg(long, global = true, default_value = "default")]
    #[arg(add = ArgValueCompleter::new(complete::labs))]
    pub(crate) name: String,
    #[command(subcommand)]
    pub(crate) command: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Build a lab, and show who reaches whom
    Up(Up),
    /// Run a command in a pod or on a node; names of pods and nodes resolve inside
    #[command(after_help = "Examples:\n  margay lab exec n1-web -- ping -c1 n2-db\n  \
                      margay lab exec n1 -- margay get nodes\n  margay lab exec n2-db -- sh")]
    Exec(Exec),
    /// Add or remove a pod
    #[command(subcommand)]
    Pod(PodVerb),
    /// Show nodes, agents, pods and what is broken
    Status {
        #[command(flatten)]
        format: Format,
    },
    /// Show the labs of this user
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Try every pair of pods: ICMP, TCP and UDP, IPv4 and IPv6
    #[command(
        after_help = "Examples:\n  margay lab test\n  margay lab test n1-web n2-db      one pair"
    )]
    Test(Test),
    /// Break something, to see what the product says and does about it
    Break(Break),
    /// Put right what `break` broke, and start what does not run or answer
    Heal {
        #[command(flatten)]
        format: Format,
    },
    /// Remove the lab with everything in it
    Down {
        /// All labs of this user
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Up {
    /// Number of nodes [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub(crate) nodes: Option<u16>,
    /// Pods on each node [default: 2]
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=60))]
    pub(crate) pods: Option<u16>,
    /// Where the resources live [default: sqlite]
    #[arg(long)]
    pub(crate) datastore: Option<DatastoreKind>,
    /// IPv6 beside IPv4
    #[arg(long)]
    pub(crate) ipv6: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

impl Up {
    /// How many nodes a new lab gets.
    pub(crate) fn n_nodes(&self) -> u16 {
        self.nodes.unwrap_or(3)
    }

    /// How many pods each of them gets.
    pub(crate) fn n_pods(&self) -> usize {
        usize::from(self.pods.unwrap_or(2))
    }

    /// What keeps the resources of a new lab.
    pub(crate) fn datastore(&self) -> DatastoreKind {
        self.datastore.unwrap_or(DatastoreKind::Sqlite)
    }
}

/// The datastore of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DatastoreKind {
    /// The embedded store: one file
    Sqlite,
    /// A real etcd, taken from PATH
    Etcd,
}

impl DatastoreKind {
    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Etcd => "etcd",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Exec {
    /// A pod (n1-web) or a node (n1)
    #[arg(add = ArgValueCompleter::new(complete::pods_and_nodes))]
    pub(crate) target: String,
    /// The command
    #[arg(required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PodVerb {
    /// Add a pod to a node
    Add(PodAdd),
    /// Remove a pod
    Rm {
        /// The pod (n1-web)
        #[arg(add = ArgValueCompleter::new(complete::pods))]
        pod: String,
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Args, Debug)]
pub(crate) struct PodAdd {
    /// The node
    #[arg(add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) node: String,
    /// The last part of its name: `cache` makes n1-cache [default: the next free one]
    pub(crate) role: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Only from this pod
    #[arg(add = ArgValueCompleter::new(complete::pods))]
    pub(crate) from: Option<String>,
    /// Only to this pod
    #[arg(add = ArgValueCompleter::new(complete::pods))]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Args, Debug)]
pub(crate) struct Break {
    /// What to break
    pub(crate) scenario: Scenario,
    /// The node or pod to break it on [default: the second node, or its first pod]
    #[arg(add = ArgValueCompleter::new(complete::targets))]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// What can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// The agent of a node is killed
    AgentKilled,
    /// The cable of a node is pulled
    LinkDown,
    /// Routes to other nodes' pods are deleted on a node
    RouteDeleted,
    /// The node's side of a pod's interface is deleted
    InterfaceDeleted,
    /// The packet filter of a node is flushed, as by `nft flush ruleset`
    TableFlushed,
    /// A pod's record is deleted from the datastore
    EndpointDeleted,
    /// The datastore holds a record of a pod that does not exist
    GhostEndpoint,
    /// The datastore holds a record of another pod with a pod's address
    DuplicateAddress,
}

/// How an answer is printed.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Format {
    /// json or yaml instead of text
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Structured>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Structured {
    Json,
    Yaml,
}
