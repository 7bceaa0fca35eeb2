//! Contradictions and troubles that the agent sees, each with a stable code, its cause in the
//! user's words and a remedy that can be pasted.

use std::collections::BTreeMap;

use api::Kind;
use intent::{
    Contradiction, Dispute, Hop, Impostor, Inputs, LocalEndpoint, Obstacle, Twin, Unroutable,
};
use net::Cidr;
use policy::input::PolicyId;
use policy::render::Refused;
use serde::{Deserialize, Serialize};
use store::resources::Name;

/// Below this lie all resources, by the plurals of their kinds.
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Something works less well than it should.
    Degraded,
    /// Something does not work.
    Broken,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// Its stable code.
    pub(crate) code: String,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// The part of the status that it belongs to.
    pub(crate) cause: String,
    /// What is wrong, in one line.
    pub(crate) problem: String,
    /// What to type; empty if nothing helps but waiting.
    pub(crate) fix: String,
}

impl Finding {
    pub(crate) fn new(
        code: &str,
        severity: Severity,
        cause: &str,
        problem: String,
        fix: String,
    ) -> Self {
        Self { code: code.to_owned(), severity, cause: cause.to_owned(), problem, fix }
    }

    /// An endpoint has no interface to route to: that of a sandbox was removed, or there is no such
    /// sandbox.
    pub(crate) fn interface_missing(
        destination: Cidr,
        interface: &str,
        endpoint: Option<LocalEndpoint>,
    ) -> Self {
        let problem = format!("{destination} has no route: its interface {interface} is missing");
        match endpoint {
            Some(LocalEndpoint { namespace, name, is_live: false }) => {
                let problem =
                    format!("{problem}, and no sandbox is known to endpoint {namespace}/{name}");
                let fix = "margay reconcile      # removes it, with the addresses of its container";
                let fix = fix.to_owned();
                Self::new("MG-ROUTE-001", Severity::Broken, "ROUTES", problem, fix)
            }
            _ => {
                let fix = "delete the pod; its runtime makes it anew".to_owned();
                Self::new("MG-ROUTE-001", Severity::Broken, "ROUTES", problem, fix)
            }
        }
    }

    /// The way to other nodes has no carrier.
    pub(crate) fn unplugged(interface: &str) -> Self {
        let problem = format!("{interface}, which leads to other nodes, has no carrier");
        let fix = format!("ip link show {interface}      # is the cable in, and the other end up?");
        Self::new("MG-LINK-001", Severity::Broken, "ROUTES", problem, fix)
    }

    /// Somebody else has a route to the same place.
    pub(crate) fn foreign_route(destination: Cidr) -> Self {
        let problem = format!("{destination} is routed by another program; its route was left");
        let fix = format!("ip route show {destination}      # remove it if it is not wanted");
        Self::new("MG-ROUTE-002", Severity::Broken, "ROUTES", problem, fix)
    }

    /// A node cannot be a next hop.
    pub(crate) fn gateway_unreachable(destination: Cidr, hop: &Hop, error: &kernel::Error) -> Self {
        let via = match hop {
            Hop::Node(address) => address.to_string(),
            _ => String::new(),
        };
        let problem =
            format!("{destination} has no route: {via} is on no connected subnet ({error})");
        let fix = "margay get nodes -o wide      # is that node's address right?".to_owned();
        Self::new("MG-ROUTE-003", Severity::Broken, "ROUTES", problem, fix)
    }

    /// The kernel did not take a route.
    pub(crate) fn route_refused(destination: Cidr, error: &kernel::Error) -> Self {
        let problem = format!("{destination} has no route: {error}");
        Self::new("MG-ROUTE-004", Severity::Broken, "ROUTES", problem, String::new())
    }

    /// A block or address gets no route.
    pub(crate) fn unroutable(unroutable: &Unroutable) -> Self {
        let destination = unroutable.destination;
        let (code, why, fix) = match &unroutable.why {
            Obstacle::NoAddress(node) => {
                let fix = format!("margay get node {node} -o yaml      # spec.bgp");
                ("MG-ROUTE-005", format!("node {node} has no address"), fix)
            }
            Obstacle::HoldsNode(node) => {
                let why = format!("it holds the address of node {node}, which would be cut off");
                let fix = "margay get wep -A -o wide; margay ipam show --show-blocks      # delete \
                           what has this address";
                ("MG-ROUTE-006", why, fix.to_owned())
            }
            Obstacle::NotUnicast => {
                let fix = "margay get wep -A -o wide      # delete what has this address";
                ("MG-ROUTE-007", "no sandbox can have such an address".to_owned(), fix.to_owned())
            }
        };
        let problem = format!("{destination} has no route: {why}");
        Self::new(code, Severity::Broken, "ROUTES", problem, fix)
    }

    /// An endpoint names an interface that is not its own.
    pub(crate) fn impostor(impostor: &Impostor) -> Self {
        let Impostor { interface, endpoint, ours } = impostor;
        let problem = format!("endpoint {endpoint} is not used: {interface} is that of {ours}");
        let fix = format!("margay get wep -A -o wide      # delete {endpoint}");
        Self::new("MG-DATA-002", Severity::Degraded, "DATAPLANE", problem, fix)
    }

    /// The endpoint of a live sandbox says what is not so.
    pub(crate) fn contradicted(contradiction: &Contradiction) -> Self {
        let Contradiction { endpoint, node, interface, ours } = contradiction;
        let problem = format!(
            "endpoint {endpoint} is not used: it says {interface} on {node}, its sandbox lives \
             here on {ours} and goes on as the journal has it"
        );
        let fix = format!("margay delete wep {endpoint}      # the agent writes it anew");
        Self::new("MG-DATA-003", Severity::Degraded, "DATAPLANE", problem, fix)
    }

    /// An interface like those of sandboxes is nobody's.
    pub(crate) fn nobodys(interface: &str, why: &str) -> Self {
        let problem = format!("interface {interface} is nobody's: {why}");
        let fix = "margay reconcile --plan      # what can be done about it".to_owned();
        Self::new("MG-LINK-002", Severity::Degraded, "DATAPLANE", problem, fix)
    }

    /// Several endpoints of the host are for one interface, the first of which is in force.
    pub(crate) fn rival_claims(interface: &str, endpoints: &[&String]) -> Self {
        let names: Vec<&str> = endpoints.iter().map(|it| it.as_str()).collect();
        let (first, others) = names.split_first().unwrap_or((&"none", &[]));
        let others = others.join(", ");
        let problem = format!(
            "interface {interface} has {} host endpoints: {first} is in force, {others} not",
            names.len()
        );
        let fix = format!("margay get hep -o wide      # delete or change {others}, or {first}");
        Self::new("MG-HOST-002", Severity::Degraded, "FILTER", problem, fix)
    }

    /// The packet filter cannot hold something: it stands as before, or is closed.
    pub(crate) fn refused((object, why): (&String, &String)) -> Self {
        let problem = format!("{object}: {why}; what was in force before stays");
        let fix = "margay explain policy      # what selects whom".to_owned();
        Self::new("MG-POLICY-001", Severity::Broken, "FILTER", problem, fix)
    }

    /// Policies because of which endpoints stand as before, one finding each.
    pub(crate) fn refused_policies(
        causes: &BTreeMap<Refused, PolicyId>,
        refused: &BTreeMap<Refused, String>,
    ) -> Vec<Self> {
        let mut by_policy: BTreeMap<&PolicyId, Vec<&Refused>> = BTreeMap::new();
        for (endpoint, policy) in causes {
            by_policy.entry(policy).or_default().push(endpoint);
        }
        let finding = |(policy, endpoints): (&PolicyId, Vec<&Refused>)| {
            let first = endpoints.first()?;
            let who = match endpoints.len() {
                1 => format!("{first} stands as before"),
                2 => format!("{first} and another one stand as before"),
                n => format!("{first} and {} others stand as before", n - 1),
            };
            let problem = format!("{}; {who}", refused.get(*first)?);
            let fix = format!("margay explain policy {policy}      # what it says, and to whom");
            Some(Self::new("MG-POLICY-001", Severity::Broken, "FILTER", problem, fix))
        };
        by_policy.into_iter().filter_map(finding).collect()
    }

    /// An object in the datastore cannot be used, or not as it is.
    pub(crate) fn quarantined(key: &str, problems: &[String], inputs: &Inputs) -> Self {
        let (kind, object) = (kind_at(key), spoken(key));
        let is_setting = kind == Some(Kind::FelixConfiguration);
        let (is, severity) = match (inputs.kept(key), inputs.is_salvaged(key)) {
            (Some(revision), _) => (kept(key, revision), Severity::Degraded),
            (None, true) if is_setting => {
                let is = "is in force without what cannot be read, as if that were not given";
                (is.to_owned(), Severity::Degraded)
            }
            (None, true) => {
                ("is in force only as far as it can be used".to_owned(), Severity::Degraded)
            }
            (None, false) if kind.is_some_and(is_enforced) => (
                "is not in force, and no readable revision of it is known".to_owned(),
                Severity::Broken,
            ),
            (None, false) => ("is not used".to_owned(), Severity::Degraded),
        };
        let instead = match inputs.is_vouched(key) {
            true => "; its sandbox goes on as the journal has it",
            false => "",
        };
        let problem = format!("{object} {is}: {}{instead}", problems.join("; "));
        let (code, cause) = match is_setting {
            true => ("MG-CONF-001", "SETTINGS"),
            false => ("MG-DATA-001", "DATAPLANE"),
        };
        Self::new(code, severity, cause, problem, mending(key))
    }

    /// An address of a live sandbox has another holder.
    pub(crate) fn disputed(dispute: &Dispute) -> Self {
        let Dispute { address, interface, ours, theirs } = dispute;
        let problem =
            format!("{address} of {ours} is held by {theirs}; the interface {interface} is closed");
        let fix = format!("delete the pod behind {interface}; its runtime makes it anew");
        Self::new("MG-IPAM-001", Severity::Broken, "IPAM", problem, fix)
    }

    /// Two endpoints have one address.
    pub(crate) fn full(is_ipv4: bool, pools: &[String]) -> Self {
        let family = if is_ipv4 { 4 } else { 6 };
        let problem =
            format!("no IPv{family} address is free in {}: the next ADD fails", pools.join(", "));
        let fix = "margay ipam plan      # who holds what; more room is another IPPool".to_owned();
        Self::new("MG-IPAM-003", Severity::Degraded, "IPAM", problem, fix)
    }

    pub(crate) fn twin(twin: &Twin) -> Self {
        let Twin { address, ours, theirs, node } = twin;
        let problem = format!("{address} of endpoint {ours} is also that of {theirs} on {node}");
        let fix = format!("margay get wep -A -o wide      # delete {theirs} if no such pod runs");
        Self::new("MG-IPAM-002", Severity::Degraded, "IPAM", problem, fix)
    }
}

/// An object in the words of people.
pub(crate) fn spoken(key: &str) -> String {
    Name::at_key(key).map_or_else(|| key.to_owned(), |name| name.spoken())
}

/// What is in force of an object whose stored value cannot be used.
pub(crate) fn kept(key: &str, revision: i64) -> String {
    let is_setting = kind_at(key) == Some(Kind::FelixConfiguration);
    match (is_setting, revision) {
        (true, 0) => "is in force, where it cannot be read as it was before".to_owned(),
        (true, _) => format!("is in force, where it cannot be read as of revision {revision}"),
        (false, 0) => {
            "cannot be used as stored, its last readable version stays in force".to_owned()
        }
        (false, _) => {
            format!(
                "cannot be used as stored, its last readable revision {revision} stays in force"
            )
        }
    }
}

/// The kind below which a key lies.
fn kind_at(key: &str) -> Option<Kind> {
    let plural = key.strip_prefix(RESOURCES)?.split('/').next()?;
    Kind::all().find(|kind| kind.plural() == plural)
}

/// Whether something may be open that should be closed without an object of a kind.
fn is_enforced(kind: Kind) -> bool {
    let enforced = [
        Kind::FelixConfiguration,
        Kind::GlobalNetworkPolicy,
        Kind::HostEndpoint,
        Kind::NetworkPolicy,
        Kind::Tier,
    ];
    enforced.contains(&kind)
}

/// How to see a bad object, and to be rid of it.
fn mending(key: &str) -> String {
    if key.starts_with("/calico/ipam/") {
        return "margay ipam repair --plan      # what would mend it".to_owned();
    }
    match (Name::at_key(key), kind_at(key)) {
        (Some(Name { kind, namespace, name }), _) => {
            let (kind, name) = (kind.plural(), text::words::shell(&name));
            let namespace = match namespace.as_str() {
                "" => String::new(),
                namespace => format!(" -n {}", text::words::shell(namespace)),
            };
            format!("margay get {kind} {name}{namespace} -o yaml      # put it right, or delete it")
        }
        (None, Some(kind)) => {
            format!("margay get {} -A      # names it; only its key can be deleted", kind.plural())
        }
        (None, None) => "delete the key, or put its value right".to_owned(),
    }
}
