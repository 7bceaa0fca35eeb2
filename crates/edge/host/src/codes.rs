//! The codes of findings: what each means, why it happens, and what to do. They stay.
//!
//! A finding says what is wrong at one place and time; this is for whoever looks its code up
//! (`margay help MG-FILTER-003`).

/// A code and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// The code.
    pub code: &'static str,
    /// What it says.
    pub means: &'static str,
    /// How it comes to that, and what holds meanwhile; empty where that is plain.
    pub because: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

/// The meaning of a code, in capitals or not.
pub fn find(code: &str) -> Option<&'static Code> {
    CODES.iter().find(|it| it.code.eq_ignore_ascii_case(code))
}

const fn code(
    code: &'static str,
    means: &'static str,
    because: &'static str,
    remedy: &'static str,
) -> Code {
    Code { code, means, because, remedy }
}

/// All codes, in order.
pub const CODES: &[Code] = &[
    code(
        "MG-AGENT-001",
        "no agent answers on this host",
        "It is not started, was ended, or runs with another --run-dir. What the kernel was told \
         stays in force, and the plugin does the work of each call by itself.",
        "margay status says how this host was set up and what starts the agent",
    ),
    code(
        "MG-CONF-001",
        "a setting of the agent cannot be used",
        "A field of the FelixConfiguration or a FELIX_ variable is unknown, unreadable or without \
         effect in this version. The others count all the same; in its place is what it said \
         before, if that is known, else the default, or what the rest says.",
        "put it right or take it away: margay get felixconfig default -o yaml",
    ),
    code(
        "MG-DATA-001",
        "an object in the datastore cannot be used, or not as a whole",
        "A field holds what no version of it may hold; somebody wrote past the rules. What can be \
         read of a policy goes on, and what cannot allows nothing; where that does not do, its \
         last readable revision stays in force. It is broken if none is known.",
        "margay get KIND NAME -o yaml shows it with its problems; put it right, or delete it",
    ),
    code(
        "MG-DATA-002",
        "an endpoint names an interface that belongs to another sandbox",
        "Two records claim one interface. The one whose sandbox lives here is believed, the other \
         is not used.",
        "margay get wep -A -o wide, then delete the one that no pod stands behind",
    ),
    code(
        "MG-DATA-003",
        "the endpoint of a live sandbox contradicts what runs here",
        "It names another node or interface than the sandbox has. The sandbox goes on as its \
         journal has it.",
        "margay delete wep NAME: the agent writes it anew",
    ),
    code(
        "MG-FILTER-001",
        "a sandbox is not in the packet filter",
        "Its interface is closed, or its rules are not those that it should have.",
        "margay status names the sandbox; margay agent, once started, puts it back",
    ),
    code(
        "MG-FILTER-002",
        "another program drops what policy allows",
        "A chain of another table, such as those of Docker or firewalld, drops forwarded packets; \
         such a drop is final, whatever our tables say.",
        "the finding has the line that lets pods through there",
    ),
    code(
        "MG-FILTER-003",
        "another program keeps changing our packet filter",
        "It was changed or removed several times in a minute. It is restored each time within \
         milliseconds, but until then packets may pass that policy forbids.",
        "nft monitor shows who does it; take our table out of its reach",
    ),
    code(
        "MG-HOST-001",
        "a policy is held because it cuts this node off from etcd",
        "With it etcd could not be reached, twice, and without it it could. The values of before \
         are in force until the object changes.",
        "change the object so that the node reaches etcd, or delete it; margay events says when it \
         was tried",
    ),
    code(
        "MG-HOST-002",
        "several host endpoints are for one interface",
        "They name it, or expect one of its addresses. The first of them by name is in force, and \
         the others do nothing there.",
        "margay get hep -o wide, then change or delete all but one",
    ),
    code(
        "MG-HTTP-001",
        "the address for health and metrics is taken",
        "Another program listens on what --http names. The agent tries again, and works without.",
        "ss -ltnp shows who has it; or choose another with margay agent --http ADDRESS:PORT",
    ),
    code(
        "MG-IPAM-001",
        "an address of a live sandbox has another holder",
        "The records gave it to somebody else. The interface here is closed, so that no two answer \
         to one address.",
        "delete the pod behind the interface; its runtime makes it anew",
    ),
    code(
        "MG-IPAM-002",
        "two endpoints have one address",
        "One of them is mostly a ghost of a pod that is gone.",
        "margay get wep -A -o wide, then delete the one that no pod stands behind",
    ),
    code(
        "MG-IPAM-003",
        "no address is free in the pools",
        "The next ADD on this node fails.",
        "margay ipam plan shows who holds what; margay ipam check finds leaks; more room is \
         another IPPool",
    ),
    code(
        "MG-IPAM-101",
        "one address has two holders",
        "Two endpoints, or an endpoint and a block, say that it is theirs.",
        "margay ipam check --show-problem-ips, then margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-102",
        "an address is in use and not allocated",
        "An endpoint has it, and its block says that it is free: it may be given out again.",
        "margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-103",
        "a record of addresses cannot be read",
        "What cannot be read counts as in use.",
        "margay ipam repair --plan shows what can be done about it",
    ),
    code(
        "MG-IPAM-104",
        "a block names a holder that it does not have",
        "An entry points past the block's list of holders.",
        "margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-105",
        "an address is allocated and listed as free",
        "It may be given out a second time.",
        "margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-106",
        "endpoint and block disagree about who holds an address",
        "",
        "margay ipam check --show-problem-ips, then margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-107",
        "a handle is missing, or counts other addresses than the blocks",
        "A release by that handle would free too few or too many.",
        "margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-108",
        "an address is allocated, and its owner is gone",
        "It costs room and nothing else.",
        "margay ipam repair --plan",
    ),
    code("MG-IPAM-109", "a handle holds no address", "", "margay ipam repair --plan"),
    code(
        "MG-IPAM-110",
        "a node that does not exist owns blocks or addresses",
        "Its Node was deleted while it held them.",
        "margay ipam repair --plan, with --all-nodes if nobody else can be asked",
    ),
    code(
        "MG-IPAM-111",
        "a block that no node has claimed",
        "Its addresses are given out to nobody first.",
        "margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-112",
        "a claim on a block that is not there, or is another's",
        "",
        "margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-113",
        "a claim says something else than its block",
        "",
        "margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-114",
        "a block or an address is in no pool",
        "The pool was deleted or changed while addresses of it were in use.",
        "margay get ippools -o wide; give them a pool again, or let what uses them go",
    ),
    code(
        "MG-IPAM-115",
        "a block lists a holder that holds nothing",
        "",
        "margay ipam repair --plan",
    ),
    code(
        "MG-IPAM-116",
        "a field of a record contradicts its key or its other fields",
        "",
        "margay ipam repair --plan",
    ),
    code(
        "MG-KERNEL-001",
        "the kernel is not up to date",
        "The agent could not carry out what it should; it tries again.",
        "the finding has the kernel's own words; margay events says since when",
    ),
    code(
        "MG-KERNEL-002",
        "the kernel lacks something that the packet filter needs",
        "It is older than 5.7, or was built without an option.",
        "run a kernel that has what the finding names",
    ),
    code(
        "MG-LINK-001",
        "the interface that leads to other nodes has no carrier",
        "",
        "ip link show INTERFACE: is the cable in, and the other end up?",
    ),
    code(
        "MG-LINK-002",
        "an interface like those of sandboxes is nobody's",
        "No journal, endpoint or container is known to it. It is closed.",
        "margay reconcile --plan",
    ),
    code(
        "MG-NODE-001",
        "the node is not in the datastore",
        "Others do not route to it until it is.",
        "margay get nodes; the agent tries again by itself",
    ),
    code(
        "MG-POLICY-001",
        "the kernel refuses something of policy",
        "The object that is named stands as before, or is closed if it is new; everything else is \
         in force.",
        "margay explain policy NAME; margay wait says on which nodes it is not realised",
    ),
    code(
        "MG-ROUTE-001",
        "the interface of an endpoint is missing",
        "Somebody removed it, or the sandbox is gone and its record is not.",
        "margay reconcile, or delete the pod; its runtime makes it anew",
    ),
    code(
        "MG-ROUTE-002",
        "another program has a route to a sandbox or block",
        "It was left as it is; packets go where it leads.",
        "ip route show ADDRESS, and remove it if it is not wanted",
    ),
    code(
        "MG-ROUTE-003",
        "another node is on no connected subnet",
        "Its pods cannot be reached from here: this version has no tunnels.",
        "margay get nodes -o wide: is that node's address right?",
    ),
    code(
        "MG-ROUTE-004",
        "the kernel did not take a route",
        "",
        "the finding has the kernel's own words; the agent tries again by itself",
    ),
    code(
        "MG-ROUTE-005",
        "a node has no address",
        "Its pods get no routes here.",
        "margay get node NAME -o yaml: spec.bgp",
    ),
    code(
        "MG-ROUTE-006",
        "a sandbox has the address of a node",
        "A route to it would cut that node off, so there is none.",
        "margay get wep -A -o wide; delete what has this address",
    ),
    code(
        "MG-ROUTE-007",
        "an endpoint has an address that no sandbox can have",
        "",
        "margay get wep -A -o wide; delete what has this address",
    ),
    code(
        "MG-ROUTE-008",
        "no route leads to a sandbox",
        "",
        "start the agent, which puts it back; or delete the pod",
    ),
    code(
        "MG-SETUP-001",
        "something of this host's set-up is missing",
        "A file, link or table that margay setup made is gone.",
        "margay setup --plan shows what, margay setup puts it back",
    ),
    code(
        "MG-STATE-001",
        "a file of the agent could not be read, and was put aside",
        "It was cut short or written by something else. What it told is made anew where that can \
         be.",
        "look at NAME.unreadable, then remove it",
    ),
    code(
        "MG-STATE-002",
        "journal or events cannot be written",
        "The disk is full or read-only, or the folder may not be written to. Without the journal \
         no ADD can be served.",
        "the finding has the line that shows why; make room",
    ),
    code(
        "MG-STORE-001",
        "the datastore does not answer",
        "What runs goes on; new pods get addresses of the reserve.",
        "margay version: does it answer to you? The agent tries again by itself",
    ),
    code(
        "MG-STORE-002",
        "sandboxes left while the datastore did not answer",
        "Their addresses are freed when it is back.",
        "nothing is to be done",
    ),
    code(
        "MG-STORE-003",
        "sandboxes came while the datastore did not answer",
        "They have addresses of the reserve. Other nodes let them in when the datastore has heard.",
        "wait until it is back; if it is and does not take them, the agent's log says why",
    ),
];
