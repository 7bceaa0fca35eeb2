//! The kinds of resources: names, scope, plurals and the aliases people type.

use std::fmt;
use std::str::FromStr;

/// A kind of `projectcalico.org/v3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the resource of that name")]
pub enum Kind {
    BgpConfiguration,
    BgpFilter,
    BgpPeer,
    BlockAffinity,
    CalicoNodeStatus,
    ClusterInformation,
    FelixConfiguration,
    GlobalNetworkPolicy,
    GlobalNetworkSet,
    HostEndpoint,
    IpamConfiguration,
    IpPool,
    IpReservation,
    KubeControllersConfiguration,
    LiveMigration,
    NetworkPolicy,
    NetworkSet,
    Node,
    Profile,
    StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy,
    StagedNetworkPolicy,
    Tier,
    WorkloadEndpoint,
}

struct Row {
    kind: Kind,
    name: &'static str,
    plural: &'static str,
    namespaced: bool,
    aliases: &'static [&'static str],
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { kind: Kind::BgpConfiguration, name: "BGPConfiguration", plural: "bgpconfigurations", namespaced: false, aliases: &["bgpconfig", "bgpconfigs"] },
    Row { kind: Kind::BgpFilter, name: "BGPFilter", plural: "bgpfilters", namespaced: false, aliases: &["bgpf", "bgpfs", "bf", "bfs"] },
    Row { kind: Kind::BgpPeer, name: "BGPPeer", plural: "bgppeers", namespaced: false, aliases: &["bgpp", "bgpps", "bp", "bps"] },
    Row { kind: Kind::BlockAffinity, name: "BlockAffinity", plural: "blockaffinities", namespaced: false, aliases: &[] },
    Row { kind: Kind::CalicoNodeStatus, name: "CalicoNodeStatus", plural: "caliconodestatuses", namespaced: false, aliases: &["nodestatus", "nodestatuses"] },
    Row { kind: Kind::ClusterInformation, name: "ClusterInformation", plural: "clusterinformations", namespaced: false, aliases: &["clusterinfo", "clusterinfos"] },
    Row { kind: Kind::FelixConfiguration, name: "FelixConfiguration", plural: "felixconfigurations", namespaced: false, aliases: &["felixconfig", "felixconfigs"] },
    Row { kind: Kind::GlobalNetworkPolicy, name: "GlobalNetworkPolicy", plural: "globalnetworkpolicies", namespaced: false, aliases: &["gnp", "gnps"] },
    Row { kind: Kind::GlobalNetworkSet, name: "GlobalNetworkSet", plural: "globalnetworksets", namespaced: false, aliases: &["gnetsets"] },
    Row { kind: Kind::HostEndpoint, name: "HostEndpoint", plural: "hostendpoints", namespaced: false, aliases: &["hep", "heps"] },
    Row { kind: Kind::IpamConfiguration, name: "IPAMConfiguration", plural: "ipamconfigurations", namespaced: false, aliases: &["ipamconfig", "ipamconfigs"] },
    Row { kind: Kind::IpPool, name: "IPPool", plural: "ippools", namespaced: false, aliases: &["ipp", "ipps", "pool", "pools"] },
    Row { kind: Kind::IpReservation, name: "IPReservation", plural: "ipreservations", namespaced: false, aliases: &["reservation", "reservations"] },
    Row { kind: Kind::KubeControllersConfiguration, name: "KubeControllersConfiguration", plural: "kubecontrollersconfigurations", namespaced: false, aliases: &["kubecontrollersconfig", "kubecontrollersconfigs"] },
    Row { kind: Kind::LiveMigration, name: "LiveMigration", plural: "livemigrations", namespaced: true, aliases: &[] },
    Row { kind: Kind::NetworkPolicy, name: "NetworkPolicy", plural: "networkpolicies", namespaced: true, aliases: &["policy", "np", "policies", "pol", "pols"] },
    Row { kind: Kind::NetworkSet, name: "NetworkSet", plural: "networksets", namespaced: true, aliases: &["netsets"] },
    Row { kind: Kind::Node, name: "Node", plural: "nodes", namespaced: false, aliases: &["no", "nos"] },
    Row { kind: Kind::Profile, name: "Profile", plural: "profiles", namespaced: false, aliases: &["pro", "pros"] },
    Row { kind: Kind::StagedGlobalNetworkPolicy, name: "StagedGlobalNetworkPolicy", plural: "stagedglobalnetworkpolicies", namespaced: false, aliases: &["sgnp", "sgnps"] },
    Row { kind: Kind::StagedKubernetesNetworkPolicy, name: "StagedKubernetesNetworkPolicy", plural: "stagedkubernetesnetworkpolicies", namespaced: true, aliases: &["stagedkubernetespolicy", "sknp", "stagedkubernetespolicies", "skpol", "skpols"] },
    Row { kind: Kind::StagedNetworkPolicy, name: "StagedNetworkPolicy", plural: "stagednetworkpolicies", namespaced: true, aliases: &["stagedpolicy", "snp", "stagedpolicies", "spol", "spols"] },
    Row { kind: Kind::Tier, name: "Tier", plural: "tiers", namespaced: false, aliases: &[] },
    Row { kind: Kind::WorkloadEndpoint, name: "WorkloadEndpoint", plural: "workloadendpoints", namespaced: true, aliases: &["wep", "weps"] },
];

impl Kind {
    /// Every kind, in alphabetical order.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.kind)
    }

    fn row(self) -> &'static Row {
        let row = &ROWS[self as usize];
        debug_assert_eq!(row.kind, self, "rows stand in the order of the variants");
        row
    }

    /// The name in documents (`IPPool`).
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The plural in datastore keys (`ippools`).
    pub fn plural(self) -> &'static str {
        self.row().plural
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(self) -> bool {
        self.row().namespaced
    }

    /// What people may type for it beside name and plural.
    pub fn aliases(self) -> &'static [&'static str] {
        self.row().aliases
    }

    /// The kind of a list of its objects (`IPPoolList`).
    pub fn list_name(self) -> String {
        format!("{}List", self.name())
    }

    /// Reads what people type: name, plural or alias, in any letter case.
    pub fn from_alias(text: &str) -> Option<Self> {
        let typed = text.to_ascii_lowercase();
        ROWS.iter()
            .find(|row| {
                row.name.eq_ignore_ascii_case(&typed)
                    || row.plural == typed
                    || row.aliases.contains(&typed.as_str())
            })
            .map(|row| row.kind)
    }
}

/// No kind has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind(pub String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "there is no kind \"{}\"", self.0)
    }
}

impl std::error::Error for UnknownKind {}

/// Reads the exact name in documents.
impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let row = ROWS.iter().find(|row| row.name == text);
        row.map(|row| row.kind).ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_variants() {
        for (index, row) in ROWS.iter().enumerate() {
            assert_eq!(row.kind as usize, index, "{}", row.name);
        }
    }

    #[test]
    fn every_alias_names_one_kind() {
        for row in ROWS {
            for alias in row.aliases {
                assert_eq!(Kind::from_alias(alias), Some(row.kind), "{alias}");
            }
        }
    }
}
