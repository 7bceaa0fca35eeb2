//! The columns of each kind's tables, and how the cells are printed.

use api::Kind;
use serde_json::Value;

/// The longest list of ranges in a cell.
const LONGEST: usize = 80;

/// A column: its heading, and what its cells show.
#[derive(Debug)]
pub struct Column {
    /// The heading.
    pub heading: &'static str,
    cell: Cell,
}

/// What a cell shows of an object; the texts are JSON pointers.
#[derive(Debug)]
enum Cell {
    /// A text; empty when it is not set.
    Text(&'static str),
    /// A value that may be missing: `<nil>` then.
    Maybe(&'static str),
    /// A fraction that may be missing: `<nil>` then.
    Fraction(&'static str),
    /// A value that may be missing: this text then.
    Or(&'static str, &'static str),
    /// The length of a list.
    Count(&'static str),
    /// The items of a list, or the pairs of a map.
    Join(&'static str),
    /// The same, cut when it gets long.
    Cut(&'static str),
    /// The node or nodes of a BGP peer.
    PeerNode,
    /// The workload of an endpoint, or its pod.
    Workload,
    /// The AS number of a node; in parentheses when it is the cluster's.
    NodeAsNumber,
    /// The address translations of an endpoint.
    Nats,
    /// A label selector of Kubernetes.
    LabelSelector(&'static str),
}

const NAME: Column = Column { heading: "NAME", cell: Cell::Text("/metadata/name") };
const NAMESPACE: Column = Column { heading: "NAMESPACE", cell: Cell::Text("/metadata/namespace") };

/// All columns of a kind, in the order of Calico's reference.
// tidy: a flat table, one kind after the other.
pub fn all(kind: Kind) -> &'static [Column] {
    use Cell::{Count, Cut, Fraction, Join, LabelSelector, Maybe, Or, Text};
    macro_rules! columns {
        ($($first:ident)*; $($heading:literal => $cell:expr),* $(,)?) => {
            &[$($first,)* $(Column { heading: $heading, cell: $cell },)*]
        };
    }
    match kind {
        Kind::BgpConfiguration => columns![NAME;
            "LOGSEVERITY" => Text("/spec/logSeverityScreen"),
            "MESHENABLED" => Or("/spec/nodeToNodeMeshEnabled", "-"),
            "ASNUMBER" => Or("/spec/asNumber", "-"),
        ],
        Kind::BgpFilter => columns![NAME;
            "NUMEXPORTV4" => Count("/spec/exportV4"),
            "NUMIMPORTV4" => Count("/spec/importV4"),
            "NUMEXPORTV6" => Count("/spec/exportV6"),
            "NUMIMPORTV6" => Count("/spec/importV6"),
        ],
        Kind::BgpPeer => columns![NAME;
            "PEERIP" => Text("/spec/peerIP"),
            "NODE" => Cell::PeerNode,
            "ASN" => Or("/spec/asNumber", "0"),
        ],
        Kind::ClusterInformation => columns![NAME;
            "CLUSTERGUID" => Text("/spec/clusterGUID"),
            "CLUSTERTYPE" => Text("/spec/clusterType"),
            "CALICOVERSION" => Text("/spec/calicoVersion"),
            "DATASTOREREADY" => Maybe("/spec/datastoreReady"),
        ],
        Kind::GlobalNetworkPolicy | Kind::StagedGlobalNetworkPolicy => columns![NAME;
            "ORDER" => Fraction("/spec/order"),
            "SELECTOR" => Text("/spec/selector"),
            "TIER" => Text("/spec/tier"),
        ],
        Kind::NetworkPolicy | Kind::StagedNetworkPolicy => columns![NAME NAMESPACE;
            "ORDER" => Fraction("/spec/order"),
            "SELECTOR" => Text("/spec/selector"),
            "TIER" => Text("/spec/tier"),
        ],
        Kind::StagedKubernetesNetworkPolicy => columns![NAME NAMESPACE;
            "PODSELECTOR" => LabelSelector("/spec/podSelector"),
        ],
        Kind::GlobalNetworkSet => columns![NAME; "NETS" => Cut("/spec/nets")],
        Kind::NetworkSet => columns![NAME NAMESPACE; "NETS" => Cut("/spec/nets")],
        Kind::HostEndpoint => columns![NAME;
            "NODE" => Text("/spec/node"),
            "INTERFACE" => Text("/spec/interfaceName"),
            "IPS" => Join("/spec/expectedIPs"),
            "PROFILES" => Join("/spec/profiles"),
        ],
        Kind::IpamConfiguration => columns![NAME;
            "STRICTAFFINITY" => Or("/spec/strictAffinity", "false"),
            "AUTOALLOCATEBLOCKS" => Or("/spec/autoAllocateBlocks", "false"),
            "MAXBLOCKSPERHOST" => Or("/spec/maxBlocksPerHost", "0"),
        ],
        Kind::IpPool => columns![NAME;
            "CIDR" => Text("/spec/cidr"),
            "NAT" => Or("/spec/natOutgoing", "false"),
            "IPIPMODE" => Or("/spec/ipipMode", "Never"),
            "VXLANMODE" => Or("/spec/vxlanMode", "Never"),
            "DISABLED" => Or("/spec/disabled", "false"),
            "DISABLEBGPEXPORT" => Or("/spec/disableBGPExport", "false"),
            "SELECTOR" => Text("/spec/nodeSelector"),
            "ASSIGNMENTMODE" => Maybe("/spec/assignmentMode"),
        ],
        Kind::IpReservation => columns![NAME; "CIDRS" => Cut("/spec/reservedCIDRs")],
        Kind::Node => columns![NAME;
            "ASN" => Cell::NodeAsNumber,
            "IPV4" => Text("/spec/bgp/ipv4Address"),
            "IPV6" => Text("/spec/bgp/ipv6Address"),
        ],
        Kind::CalicoNodeStatus => columns![NAME;
            "NODE" => Text("/spec/node"),
            "CLASSES" => Join("/spec/classes"),
        ],
        Kind::Profile => columns![NAME; "LABELS" => Join("/spec/labelsToApply")],
        Kind::Tier => columns![NAME; "ORDER" => Fraction("/spec/order")],
        Kind::WorkloadEndpoint => columns![NAME NAMESPACE;
            "NODE" => Text("/spec/node"),
            "ORCHESTRATOR" => Text("/spec/orchestrator"),
            "WORKLOAD" => Cell::Workload,
            "NETWORKS" => Join("/spec/ipNetworks"),
            "NATS" => Cell::Nats,
            "PROFILES" => Join("/spec/profiles"),
            "INTERFACE" => Text("/spec/interfaceName"),
        ],
        Kind::LiveMigration => columns![NAME NAMESPACE;],
        Kind::BlockAffinity | Kind::FelixConfiguration | Kind::KubeControllersConfiguration => {
            columns![NAME;]
        }
    }
}

/// The headings that tables of a kind have.
pub fn default_headings(kind: Kind, wide: bool) -> &'static [&'static str] {
    match (kind, wide) {
        (
            Kind::GlobalNetworkPolicy
            | Kind::NetworkPolicy
            | Kind::StagedGlobalNetworkPolicy
            | Kind::StagedNetworkPolicy,
            wide,
        ) => match wide {
            true => &["NAME", "TIER", "ORDER", "SELECTOR"],
            false => &["NAME", "TIER"],
        },
        (Kind::GlobalNetworkSet | Kind::NetworkSet, true) => &["NAME", "NETS"],
        (Kind::GlobalNetworkSet | Kind::NetworkSet, false) => &["NAME"],
        (Kind::StagedKubernetesNetworkPolicy, true) => &["NAME", "PODSELECTOR"],
        (Kind::StagedKubernetesNetworkPolicy, false) => &["NAME"],
        (Kind::WorkloadEndpoint, true) => {
            &["NAME", "WORKLOAD", "NODE", "NETWORKS", "INTERFACE", "PROFILES", "NATS"]
        }
        (Kind::WorkloadEndpoint, false) => &["WORKLOAD", "NODE", "NETWORKS", "INTERFACE"],
        (Kind::HostEndpoint, false) | (Kind::CalicoNodeStatus, false) => &["NAME", "NODE"],
        (Kind::IpamConfiguration, false) => &["NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS"],
        (Kind::IpPool, false) => &["NAME", "CIDR", "SELECTOR"],
        (Kind::IpReservation | Kind::Node | Kind::Profile, false) => &["NAME"],
        (kind, _) => every_heading(kind),
    }
}

/// The headings of the kinds whose tables show all there is.
fn every_heading(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::BgpConfiguration => &["NAME", "LOGSEVERITY", "MESHENABLED", "ASNUMBER"],
        Kind::BgpFilter => &["NAME", "NUMEXPORTV4", "NUMIMPORTV4", "NUMEXPORTV6", "NUMIMPORTV6"],
        Kind::BgpPeer => &["NAME", "PEERIP", "NODE", "ASN"],
        Kind::ClusterInformation => {
            &["NAME", "CLUSTERGUID", "CLUSTERTYPE", "CALICOVERSION", "DATASTOREREADY"]
        }
        Kind::HostEndpoint => &["NAME", "NODE", "INTERFACE", "IPS", "PROFILES"],
        Kind::IpamConfiguration => {
            &["NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS", "MAXBLOCKSPERHOST"]
        }
        Kind::IpPool => &[
            "NAME",
            "CIDR",
            "NAT",
            "IPIPMODE",
            "VXLANMODE",
            "DISABLED",
            "DISABLEBGPEXPORT",
            "SELECTOR",
            "ASSIGNMENTMODE",
        ],
        Kind::IpReservation => &["NAME", "CIDRS"],
        Kind::Node => &["NAME", "ASN", "IPV4", "IPV6"],
        Kind::CalicoNodeStatus => &["NAME", "NODE", "CLASSES"],
        Kind::Profile => &["NAME", "LABELS"],
        Kind::Tier => &["NAME", "ORDER"],
        _ => &["NAME"],
    }
}

/// There is no such column; the text names those there are.
#[derive(Debug)]
pub struct UnknownHeading(pub String);

/// The columns under these headings, with the namespace in front where that is wanted.
pub fn choose(
    kind: Kind,
    headings: &[&str],
    with_namespace: bool,
) -> Result<Vec<&'static Column>, UnknownHeading> {
    let all = all(kind);
    let find = |heading: &str| {
        all.iter().find(|column| column.heading == heading).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|column| column.heading).collect();
            let known = known.join(", ");
            UnknownHeading(format!("unknown heading {heading}, valid values are: {known}"))
        })
    };
    let namespace = with_namespace && kind.is_namespaced();
    let first = namespace.then_some("NAMESPACE");
    first.into_iter().chain(headings.iter().copied()).map(find).collect()
}

impl Column {
    /// The fields of the spec that the cells are made of.
    pub fn spec_fields(&self) -> Vec<&'static str> {
        match self.cell {
            Cell::Text(pointer)
            | Cell::Maybe(pointer)
            | Cell::Fraction(pointer)
            | Cell::Or(pointer, _)
            | Cell::Count(pointer)
            | Cell::Join(pointer)
            | Cell::Cut(pointer)
            | Cell::LabelSelector(pointer) => {
                let below = pointer.strip_prefix("/spec/");
                below.and_then(|below| below.split('/').next()).into_iter().collect()
            }
            Cell::PeerNode => vec!["node", "nodeSelector"],
            Cell::Workload => vec!["workload", "pod"],
            Cell::NodeAsNumber => vec!["bgp"],
            Cell::Nats => vec!["ipNATs"],
        }
    }

    /// What the cell of an object shows. `as_number` gives the cluster's AS number; it is asked
    /// for only when it is needed.
    pub fn cell(&self, object: &Value, as_number: &mut dyn FnMut() -> String) -> String {
        let text = |pointer: &str| at(object, pointer).map(plain).unwrap_or_default();
        match self.cell {
            Cell::Text(pointer) => text(pointer),
            Cell::Maybe(pointer) => given(object, pointer).map_or("<nil>".to_owned(), plain),
            Cell::Fraction(pointer) => given(object, pointer)
                .and_then(Value::as_f64)
                .map_or("<nil>".to_owned(), text::number::general),
            Cell::Or(pointer, other) => match given(object, pointer) {
                None => other.to_owned(),
                Some(value) if value == "" => other.to_owned(),
                Some(value) => plain(value),
            },
            Cell::Count(pointer) => {
                at(object, pointer).and_then(Value::as_array).map_or(0, Vec::len).to_string()
            }
            Cell::Join(pointer) => joined(at(object, pointer), None),
            Cell::Cut(pointer) => joined(at(object, pointer), Some(LONGEST)),
            Cell::PeerNode => match (text("/spec/node"), text("/spec/nodeSelector")) {
                (node, selector) if node.is_empty() && selector.is_empty() => "(global)".to_owned(),
                (node, selector) if node.is_empty() => selector,
                (node, _) => node,
            },
            Cell::Workload => match text("/spec/workload") {
                workload if workload.is_empty() => text("/spec/pod"),
                workload => workload,
            },
            Cell::NodeAsNumber => match given(object, "/spec/bgp") {
                None => String::new(),
                Some(_) => given(object, "/spec/bgp/asNumber")
                    .map_or_else(|| format!("({})", as_number()), plain),
            },
            Cell::Nats => {
                let nats = at(object, "/spec/ipNATs").and_then(Value::as_array);
                let side = |nat: &Value, field: &str| nat.get(field).map(plain).unwrap_or_default();
                let pair = |nat: &Value| {
                    format!("{{{} {}}}", side(nat, "internalIP"), side(nat, "externalIP"))
                };
                nats.map(|nats| nats.iter().map(pair).collect::<Vec<_>>().join(","))
                    .unwrap_or_default()
            }
            Cell::LabelSelector(pointer) => label_selector(at(object, pointer)),
        }
    }
}

/// The value at a JSON pointer without escapes and indexes; the general way is many times slower.
fn at<'v>(object: &'v Value, pointer: &str) -> Option<&'v Value> {
    pointer.split('/').skip(1).try_fold(object, |value, name| value.get(name))
}

fn given<'v>(object: &'v Value, pointer: &str) -> Option<&'v Value> {
    at(object, pointer).filter(|value| !value.is_null())
}

/// A value as Go prints it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) if number.is_f64() => {
            text::number::general(number.as_f64().unwrap_or_default())
        }
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" "))
        }
        Value::Object(fields) => {
            let mut pairs: Vec<(&String, String)> =
                fields.iter().map(|(key, value)| (key, plain(value))).collect();
            pairs.sort();
            let pairs: Vec<String> =
                pairs.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("map[{}]", pairs.join(" "))
        }
    }
}

/// The items of a list, or the pairs of a map in order, with commas; cut at `longest` bytes.
fn joined(value: Option<&Value>, longest: Option<usize>) -> String {
    let items: Vec<String> = match value {
        None | Some(Value::Null) => return String::new(),
        Some(Value::Object(fields)) => {
            let mut pairs: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
            pairs.sort();
            pairs
        }
        Some(Value::Array(items)) => items.iter().map(plain).collect(),
        Some(other) => vec![plain(other)],
    };
    let text = items.join(",");
    match longest {
        Some(longest) if text.len() > longest => {
            let end = text.floor_char_boundary(longest.saturating_sub(3));
            format!("{}...", &text[..end])
        }
        _ => text,
    }
}

/// A label selector as Go prints the structure: its map, and its list of expressions.
fn label_selector(selector: Option<&Value>) -> String {
    let field = |name: &str| selector.and_then(|selector| selector.get(name));
    let labels = field("matchLabels").filter(|labels| labels.is_object());
    let labels = labels.map_or("map[]".to_owned(), plain);
    let expression = |expression: &Value| {
        let part = |name: &str| expression.get(name).map(plain).unwrap_or_default();
        let values = match expression.get("values") {
            Some(values @ Value::Array(_)) => plain(values),
            _ => "[]".to_owned(),
        };
        format!("{{{} {} {values}}}", part("key"), part("operator"))
    };
    let expressions = field("matchExpressions").and_then(Value::as_array);
    let expressions: Vec<String> = expressions.into_iter().flatten().map(expression).collect();
    format!("{{{labels} [{}]}}", expressions.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(kind: Kind, heading: &str, object: &Value) -> String {
        let column = all(kind).iter().find(|column| column.heading == heading).unwrap();
        column.cell(object, &mut || "64512".to_owned())
    }

    #[test]
    fn every_default_heading_is_a_column() {
        for kind in Kind::all() {
            for wide in [false, true] {
                assert!(choose(kind, default_headings(kind, wide), true).is_ok(), "{kind}");
            }
        }
    }

    #[test]
    fn orders_are_printed_as_go_prints_them() {
        let order = |order: Value| json!({"spec": {"order": order}});
        assert_eq!(cell(Kind::Tier, "ORDER", &json!({})), "<nil>");
        assert_eq!(cell(Kind::Tier, "ORDER", &order(json!(1000000))), "1e+06");
        assert_eq!(cell(Kind::Tier, "ORDER", &order(json!(0.1))), "0.1");
    }

    #[test]
    fn nodes_show_whose_as_number_they_have() {
        assert_eq!(cell(Kind::Node, "ASN", &json!({})), "");
        assert_eq!(cell(Kind::Node, "ASN", &json!({"spec": {"bgp": {}}})), "(64512)");
        let own = json!({"spec": {"bgp": {"asNumber": 65001}}});
        assert_eq!(cell(Kind::Node, "ASN", &own), "65001");
    }

    #[test]
    fn long_lists_are_cut() {
        let nets: Vec<String> = (0..9).map(|n| format!("10.{n}.0.0/16")).collect();
        let cut = cell(Kind::GlobalNetworkSet, "NETS", &json!({"spec": {"nets": nets}}));
        assert_eq!(cut.len(), 80);
        assert!(cut.ends_with("10.6...."), "{cut}");
    }

    #[test]
    fn selectors_of_kubernetes_are_printed_as_go_prints_them() {
        let object = json!({"spec": {"podSelector": {
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}],
        }}});
        let kind = Kind::StagedKubernetesNetworkPolicy;
        assert_eq!(cell(kind, "PODSELECTOR", &object), "{map[a:1 b:2] [{k In [x y]}]}");
        assert_eq!(cell(kind, "PODSELECTOR", &json!({})), "{map[] []}");
    }
}
