//! What can be typed after `margay`, with examples; help and completion derive from it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;

use super::agent::Agent;
use super::complete;
use super::confirm::Confirmation;
use super::drops::DropsArguments;
use super::events::EventsArguments;
use super::explain::ExplainArguments;
use super::explain::suggest::SuggestArguments;
use super::reconcile::ReconcileArguments;
use super::remove::RemoveArguments;
use super::sandboxes::SandboxesArguments;
use super::setup::SetupArguments;
use super::status::StatusArguments;
use super::wait::WaitArguments;

/// A network for Kubernetes clusters and plain Linux hosts.
#[derive(Debug, Parser)]
#[command(
    name = "margay",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = false,
    after_help = "Examples:\n  margay apply -f policies/         write every document of a folder\n  \
                  margay get np -A                  network policies of all namespaces\n  \
                  margay diff -f policies/          what apply would change\n  \
                  margay undo                       take the last write back\n  \
                  margay status                     how this node is\n  \
                  margay help field IPPool.spec     what may stand in a document"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Option<Verb>,
}

/// Which datastore to talk to.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Place {
    /// Connection settings, in Calico's format [default: /etc/calico/calicoctl.cfg]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Use the embedded store in this file
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "config")]
    pub(crate) store: Option<PathBuf>,
    /// Context of the kubeconfig; only the Kubernetes datastore has contexts
    #[arg(long, global = true, hide = true)]
    pub(crate) context: Option<String>,
    /// Write even though the cluster runs another version of Calico
    #[arg(long, global = true, hide = true)]
    pub(crate) allow_version_mismatch: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show resources
    #[command(after_help = "Examples:\n  margay get nodes\n  margay get np -A -o wide\n  \
        margay get ippool default-ipv4-ippool -o yaml\n  margay get gnp -w\n  \
        margay get nodes -l zone=a\n  \
        margay get wep -A -o custom-columns=NAME,NODE\n  \
        margay get np -o go-template='{{range .}}{{range .Items}}{{.ObjectMeta.Name}}{{\"\\n\"}}{{end}}{{end}}'")]
    Get(Get),
    /// Make resources that are not there yet
    #[command(
        after_help = "Examples:\n  margay create -f pool.yaml\n  cat all.yaml | margay create -f -"
    )]
    Create(Create),
    /// Make or change resources, so that they are as the documents say
    #[command(
        after_help = "Examples:\n  margay apply -f policies/ -R\n  margay apply -f policy.yaml --dry-run\n  \
        margay apply -f policy.yaml && margay undo\n  \
        margay apply -f host-policy.yaml --confirm-within 60s     taken back unless confirmed"
    )]
    Apply(Write),
    /// Change resources that are there already
    #[command(after_help = "Examples:\n  margay replace -f pool.yaml")]
    Replace(Write),
    /// Change some fields of one resource
    #[command(
        after_help = "Examples:\n  margay patch node n1 -p '{\"spec\":{\"bgp\":{\"asNumber\":64513}}}'\n  \
        margay patch ippool p -t json -p '[{\"op\":\"replace\",\"path\":\"/spec/natOutgoing\",\"value\":true}]'"
    )]
    Patch(Patch),
    /// Change one resource in $EDITOR
    #[command(
        after_help = "Examples:\n  margay edit ippool default-ipv4-ippool\n  EDITOR=nano margay edit np web -n shop"
    )]
    Edit(One),
    /// Remove resources
    #[command(
        after_help = "Examples:\n  margay delete np allow-web -n shop\n  margay delete -f policies/ --yes"
    )]
    Delete(Delete),
    /// Set or remove a label of one resource
    #[command(
        after_help = "Examples:\n  margay label node n1 zone=a\n  margay label node n1 zone=b --overwrite\n  \
        margay label node n1 zone-"
    )]
    Label(Label),
    /// Check documents without a datastore
    #[command(after_help = "Examples:\n  margay validate -f policies/ -R")]
    Validate(Files),
    /// Show what apply would change; exit code 1 if anything
    #[command(after_help = "Examples:\n  margay diff -f policies/")]
    Diff(Files),
    /// Take back a write made by margay
    #[command(
        after_help = "Examples:\n  margay undo        the last write\n  margay undo 27     that one"
    )]
    Undo {
        /// The number that the write or `margay history` printed [default: the last]
        #[arg(add = ArgValueCompleter::new(complete::undo_numbers))]
        number: Option<u64>,
    },
    /// Keep a write made with --confirm-within
    #[command(
        after_help = "Examples:\n  margay apply -f host-policy.yaml --confirm-within 60s\n  \
        margay confirm        the last one\n  margay confirm 27     that one"
    )]
    Confirm {
        /// The number that the write or `margay history` printed [default: the last]
        #[arg(add = ArgValueCompleter::new(complete::unconfirmed_numbers))]
        number: Option<u64>,
        #[command(flatten)]
        format: Format,
    },
    /// Watches over a write made with --confirm-within
    #[command(hide = true)]
    UndoUnlessConfirmed {
        number: u64,
        #[arg(value_parser = super::wait::span)]
        within: std::time::Duration,
    },
    /// Show the writes that can be taken back
    History {
        #[command(flatten)]
        format: Format,
    },
    #[command(hide = true, disable_help_flag = true)]
    Describe(Other),
    /// Show why traffic is let through or denied, and what a policy does; exit code 1 if denied
    /// or not yet in the kernels
    #[command(after_help = "Examples:\n  \
        margay explain shop/web-1 shop/db-0 --port 5432\n  \
        margay explain shop/web-1 192.0.2.7 --port 53 --protocol udp\n  \
        margay explain 192.0.2.7 n1 --port 22          to a node\n  \
        margay explain shop/web-1 shop/db-0 --protocol icmp -o json\n  \
        margay explain policy shop/db-in               whom it selects, which rules never match")]
    Explain(ExplainArguments),
    /// Show packets that policies denied on this node, with who and which rule
    #[command(after_help = "Examples:\n  margay drops\n  margay drops -f\n  \
        margay drops shop/db-0      what names this pod\n\n\
        Of each rule and source, 20 packets are recorded at once and 5 a second: ×20+ is at least\n\
        so many, and a last line counts what the rule denied beside them")]
    Drops(DropsArguments),
    /// About policies
    #[command(subcommand)]
    Policy(Policy),
    /// Wait until policies are in the kernels of all nodes; exit code 1 if they are not in time
    #[command(after_help = "Examples:\n  \
        margay wait --for=realised policy/db -n shop --timeout 5s\n  \
        margay wait gnp/baseline networkset/shop/partners\n  \
        margay wait                                    for all policies")]
    Wait(WaitArguments),
    /// IP address management
    #[command(subcommand)]
    Ipam(Ipam),
    /// Show how this node is, what is wrong, and what to type; exit code 1 degraded, 2 broken
    #[command(after_help = "Examples:\n  margay status\n  margay status -o json\n  \
        margay lab exec n1 -- margay status      of a node of the lab")]
    Status(StatusArguments),
    /// About this node
    #[command(subcommand)]
    Node(Node),
    /// Show the sandboxes that this node's agent has connected
    #[command(after_help = "Examples:\n  margay sandboxes\n  margay sandboxes -o wide")]
    Sandboxes(SandboxesArguments),
    /// Settle what datastore, kernel, journal and containers of this node do not agree about
    #[command(
        after_help = "Examples:\n  margay reconcile --plan     what would be done, and why\n  \
        margay reconcile"
    )]
    Reconcile(ReconcileArguments),
    /// Show what happened on this node, and what its agent did about it
    #[command(after_help = "Examples:\n  margay events --since 1h\n  margay events -f\n  \
        margay events shop/web-1      what names this pod\n  margay events repaired        a sort")]
    Events(EventsArguments),
    /// Make this host one whose containers margay connects: podman, containerd and others
    #[command(
        after_help = "Examples:\n  margay setup --plan                     what would be done\n  \
        margay setup                            with an agent, as a systemd unit\n  \
        margay setup --no-agent                 without a daemon\n  \
        margay setup --pool 10.9.0.0/16 --pool fd09::/64 --open\n  \
        margay setup --root /mnt/image --node web1"
    )]
    Setup(SetupArguments),
    /// Take away everything that setup, agent and plugin made on this host
    #[command(
        after_help = "Examples:\n  margay remove --plan             what would be removed\n  \
        margay remove --yes              the datastore stays\n  \
        margay remove --yes --purge      the datastore goes too\n  \
        margay remove --yes --force      although containers run; they lose their network"
    )]
    Remove(RemoveArguments),
    /// A cluster in a box: nodes and pods out of network namespaces, on this machine
    #[command(after_help = "Examples:\n  margay lab up\n  margay lab --help     its commands")]
    Lab(Other),
    /// Run this node's network: the agent
    Agent(Other),
    /// The CNI plugin, as container runtimes call it under the name calico
    Cni(Other),
    /// The same commands as calicoctl has them
    Calicoctl(Other),
    /// Show versions of this program and of the cluster
    Version {
        /// Only of this program
        #[arg(long)]
        client: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Explain commands, fields of resources, and codes of findings
    #[command(
        after_help = "Examples:\n  margay help field HostEndpoint.spec.expectedIPs\n  margay help field np.spec\n  \
        margay help apply\n  margay help MG-FILTER-003      what a code of margay status means\n  \
        margay help codes"
    )]
    Help {
        /// A command, `field KIND.path`, `codes`, or a code
        #[arg(add = ArgValueCompleter::new(complete::help_words))]
        words: Vec<String>,
    },
    /// Print the completion script of a shell
    #[command(
        after_help = "Examples:\n  source <(margay completion bash)\n  margay completion fish | source"
    )]
    Completion {
        /// The shell
        shell: Shell,
    },
}

/// The words of a command that other programs have.
#[derive(Args, Debug)]
pub(crate) struct Other {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Elvish,
    Fish,
    Zsh,
}

/// How an answer is printed that is not a table of resources.
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

/// Documents to read.
#[derive(Args, Clone, Debug)]
pub(crate) struct Files {
    /// The same as FILE; may be given several times
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) filename: Vec<PathBuf>,
    /// A file, a folder, or - for standard input
    #[arg(value_name = "FILE", required_unless_present = "filename")]
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    pub(crate) bare: Vec<PathBuf>,
    /// Read folders with everything below them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// A file or folder without documents is no error
    #[arg(long)]
    pub(crate) skip_empty: bool,
    /// The namespace of documents that name none
    #[arg(short, long, add = ArgValueCompleter::new(complete::namespaces))]
    pub(crate) namespace: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Write {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Say what would be done, and do nothing; diff shows it in full
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, hide_possible_values = true)]
    #[arg(default_missing_value = "client")]
    pub(crate) dry_run: Option<DryRun>,
    /// Do not wait, a second at most, until the nodes' kernels have it
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Both modes of kubectl mean the same here: the documents are judged against the datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    Client,
    Server,
    None,
}

impl Write {
    /// Whether nothing is to be written.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry_run.is_some_and(|mode| mode != DryRun::None)
    }
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) write: Write,
    /// Leave alone what exists already
    #[arg(long)]
    pub(crate) skip_exists: bool,
}

/// Objects by kind and name, or by documents.
#[derive(Args, Debug)]
pub(crate) struct Meant {
    /// A kind, its plural or a short name (np, gnp, ippool…)
    #[arg(required_unless_present = "filename", add = ArgValueCompleter::new(complete::kinds))]
    pub(crate) kind: Option<String>,
    /// Those with these names
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) names: Vec<String>,
    /// Those that these documents name
    #[arg(short, long, value_name = "FILE", conflicts_with = "kind")]
    pub(crate) filename: Vec<PathBuf>,
    /// Read folders with everything below them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// The namespace
    #[arg(short, long, add = ArgValueCompleter::new(complete::namespaces))]
    pub(crate) namespace: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) meant: Meant,
    /// Only those with these labels: app == "web" && has(tier), or app=web,tier
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    #[arg(conflicts_with_all = ["names", "filename"])]
    pub(crate) selector: Option<String>,
    /// ps, wide, yaml, json, custom-columns=A,B, go-template=…, go-template-file=…
    #[arg(short, long, default_value = "ps", add = ArgValueCompleter::new(complete::formats))]
    pub(crate) output: String,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Leave out what only this cluster knows (uid, revision, times)
    #[arg(long)]
    pub(crate) export: bool,
    /// Go on, and show every change; with -o json as one line each: {"type":"put","object":{…}},
    /// "removed" (kind, name and namespace only), "unusable" (with its "problems"), and "synced"
    /// when everything up to "revision" has been shown
    #[arg(short, long, conflicts_with = "filename")]
    pub(crate) watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct One {
    /// A kind, its plural or a short name
    #[arg(add = ArgValueCompleter::new(complete::kinds))]
    pub(crate) kind: String,
    /// Its name
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) name: String,
    /// Its namespace
    #[arg(short, long, add = ArgValueCompleter::new(complete::namespaces))]
    pub(crate) namespace: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Patch {
    #[command(flatten)]
    pub(crate) one: One,
    /// The patch, in JSON or YAML
    #[arg(short, long)]
    pub(crate) patch: String,
    /// How to read the patch
    #[arg(short = 't', long = "type", default_value = "strategic")]
    pub(crate) kind_of_patch: PatchType,
    /// Do not wait, a second at most, until the nodes' kernels have it
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PatchType {
    Strategic,
    Merge,
    Json,
}

#[derive(Args, Debug)]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) meant: Meant,
    /// What is not there is no error
    #[arg(short, long)]
    pub(crate) skip_not_exists: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Do not wait, a second at most, until the nodes' kernels have it
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
}

#[derive(Args, Debug)]
pub(crate) struct Label {
    #[command(flatten)]
    pub(crate) one: One,
    /// key=value; key- removes it, as does key with --remove
    pub(crate) label: String,
    /// Change the label if it is there with another value
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Remove the label
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) remove: bool,
    /// Do not wait, a second at most, until the nodes' kernels have it
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// The same as margay status
    #[command(after_help = "Examples:\n  margay node status")]
    Status(StatusArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Write the smallest policy that would let traffic through
    #[command(after_help = "Examples:\n  \
        margay policy suggest shop/web-1 shop/db-0 --port 5432\n  \
        margay policy suggest shop/web-1 shop/db-0 --port 5432 | margay apply -f -")]
    Suggest(SuggestArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Ipam {
    /// Show pools and how full they are
    #[command(
        after_help = "Examples:\n  margay ipam show --show-blocks\n  margay ipam show --ip 10.65.0.7"
    )]
    Show {
        /// Whether this address is in use, and by whom
        #[arg(long)]
        ip: Option<String>,
        /// Blocks as well as pools
        #[arg(long)]
        show_blocks: bool,
        /// Addresses taken from other nodes' blocks
        #[arg(long)]
        show_borrowed: bool,
        /// The settings of address management
        #[arg(long)]
        show_configuration: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Look for contradictions among blocks, handles, claims and endpoints; exit code 1 if there
    /// are any, 2 if an address may get two users because of one
    #[command(after_help = "Examples:\n  margay ipam check\n  \
        margay ipam check --show-problem-ips\n  margay ipam check -o report.json")]
    Check(CheckArguments),
    /// Put the records of addresses right, after showing how
    #[command(after_help = "Examples:\n  margay ipam repair --plan     what would be done\n  \
        margay ipam repair --yes\n  margay ipam repair --undo     put back what it overwrote")]
    Repair(RepairArguments),
    /// Let addresses go that nothing uses
    #[command(after_help = "Examples:\n  margay ipam release --ip 10.65.0.7\n  \
        margay ipam check -o report.json && margay ipam release --from-report report.json")]
    Release(ReleaseArguments),
    /// Cut a pool into smaller ones of equal size; blocks and addresses stay
    #[command(after_help = "Examples:\n  margay ipam split 4 default-ipv4-ippool")]
    Split(SplitArguments),
    /// Show how much room there is, who holds it, and how long it lasts
    #[command(after_help = "Examples:\n  margay ipam plan\n  margay ipam plan -o json")]
    Plan(PlanArguments),
    /// Show who used an address, and when, from the events of this node's agent
    #[command(after_help = "Examples:\n  margay ipam who-had 10.65.0.7\n  \
        margay ipam who-had 10.65.0.7 --at 2026-11-16T07:00:00Z")]
    WhoHad(WhoHadArguments),
    /// Move this node's addresses from the plugin host-local to calico-ipam
    ///
    /// Each address that host-local has given out is claimed for its container. Pods keep running,
    /// new ones may come meanwhile, and nothing waits for it. It may end at any moment: the next
    /// run goes on. Files of host-local go when everything is claimed and read back.
    #[command(after_help = "Examples:\n  margay ipam upgrade --plan     what would be done\n  \
        margay ipam upgrade --node n1\n  \
        calico-ipam -upgrade           the same, as Calico's init container calls it")]
    Upgrade(UpgradeArguments),
    /// Change the settings of address management
    #[command(after_help = "Examples:\n  margay ipam configure --strictaffinity=true")]
    Configure {
        /// Nodes take addresses only from their own blocks: true or false
        #[arg(long)]
        strictaffinity: Option<bool>,
        /// How many blocks a node may have; 0 is the default of 20
        #[arg(long)]
        max_blocks_per_host: Option<u32>,
        /// Whether virtual machines keep their addresses when they move
        #[arg(long, ignore_case = true)]
        kubevirt_ip_persistence: Option<Persistence>,
        /// How long a released address is not given out again
        #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1200))]
        ip_cooldown_seconds: Option<u32>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Persistence {
    Enabled,
    Disabled,
}

impl Persistence {
    /// Calico's word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Enabled => "Enabled",
            Self::Disabled => "Disabled",
        }
    }
}

/// Whose word counts about what lives.
#[derive(Args, Clone, Debug)]
pub(crate) struct Witnesses {
    /// Take endpoints alone for what lives on nodes that cannot be asked from here
    #[arg(long)]
    pub(crate) all_nodes: bool,
    #[command(flatten)]
    pub(crate) agent: Agent,
    /// The agent's folder, with the journal of this node's sandboxes
    #[arg(long, env = "MARGAY_STATE_DIR", default_value = STATE_DIR, value_name = "DIR")]
    #[arg(hide_env_values = true, value_hint = clap::ValueHint::DirPath)]
    pub(crate) state_dir: PathBuf,
}

const STATE_DIR: &str = "/var/lib/margay";

impl Default for Witnesses {
    fn default() -> Self {
        let named = std::env::var_os("MARGAY_STATE_DIR").filter(|folder| !folder.is_empty());
        let state_dir = named.map_or_else(|| STATE_DIR.into(), PathBuf::from);
        Self { all_nodes: false, agent: Agent::usual(), state_dir }
    }
}

#[derive(Args, Debug)]
pub(crate) struct UpgradeArguments {
    /// Show what would be done, and change nothing; exit code 1 if there is something to do
    #[arg(long)]
    pub(crate) plan: bool,
    /// Unlock the datastore first (datastoreReady), if Calico's own upgrade was killed and left it
    /// locked
    #[arg(long, conflicts_with = "plan")]
    pub(crate) unlock: bool,
    /// This node's name [default: KUBERNETES_NODE_NAME, NODENAME, /var/lib/calico/nodename, or the
    /// host's name]
    #[arg(long)]
    pub(crate) node: Option<String>,
    /// The network whose addresses move
    #[arg(long, default_value = sandbox::upgrade::USUAL_NETWORK, value_name = "NAME")]
    pub(crate) network: String,
    /// Where host-local keeps its files, a folder for each network
    #[arg(long, env = host::host_local::PLACE_VARIABLE, value_name = "DIR")]
    #[arg(default_value = host::host_local::USUAL_PLACE, hide_env_values = true)]
    #[arg(value_hint = clap::ValueHint::DirPath)]
    pub(crate) networks_dir: PathBuf,
    /// Where network configurations are [default: /host/etc/cni/net.d or /etc/cni/net.d]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) conf_dir: Option<PathBuf>,
    /// Where Calico's upgrade removes programs from
    #[arg(long, hide = true, default_value = "/host/opt/cni/bin", value_name = "DIR")]
    pub(crate) bin_dir: PathBuf,
    /// How long each step may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArguments {
    /// Every address that is held
    #[arg(long)]
    pub(crate) show_all_ips: bool,
    /// Every problem, not only the first of each sort
    #[arg(long)]
    pub(crate) show_problem_ips: bool,
    /// json or yaml instead of text, or a file for the report
    #[arg(short, long, value_name = "FORMAT|FILE")]
    pub(crate) output: Option<String>,
    #[command(flatten)]
    pub(crate) witnesses: Witnesses,
}

#[derive(Args, Debug)]
pub(crate) struct RepairArguments {
    /// Show what would be done, and change nothing; exit code 1 if there is something to do
    #[arg(long, conflicts_with_all = ["undo", "yes"])]
    pub(crate) plan: bool,
    /// Put back what the last repair overwrote, if nothing of it changed since
    #[arg(long)]
    pub(crate) undo: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) witnesses: Witnesses,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Args, Debug)]
pub(crate) struct ReleaseArguments {
    /// The address
    #[arg(long, conflicts_with = "from_report")]
    pub(crate) ip: Option<String>,
    /// A report of ipam check: what it calls leaked, and still is, is let go
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) from_report: Option<PathBuf>,
    /// Although it is in use, or only endpoints say that it is not
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) witnesses: Witnesses,
}

#[derive(Args, Debug)]
pub(crate) struct SplitArguments {
    /// How many pools it becomes: 2, 4, 8, …
    pub(crate) parts: u32,
    /// The pool
    pub(crate) pool: String,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(crate) witnesses: Witnesses,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Args, Debug)]
pub(crate) struct WhoHadArguments {
    /// The address
    pub(crate) ip: String,
    /// Only who had it at this time, in RFC 3339
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    #[command(flatten)]
    pub(crate) agent: Agent,
    /// The agent's folder, in which the events are read when it does not answer
    #[arg(long, env = "MARGAY_STATE_DIR", default_value = STATE_DIR, value_name = "DIR")]
    #[arg(hide_env_values = true, value_hint = clap::ValueHint::DirPath)]
    pub(crate) state_dir: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}
