//! Which table belongs to which kind.

use super::{
    Object, bgp, bgp_filter, controllers, endpoint, felix, kubernetes, node, policy, pool,
};
use crate::Kind;

/// The table of a whole resource: kind, version, metadata, spec and, where there is one, status.
pub fn object_for(kind: Kind) -> &'static Object {
    match kind {
        Kind::BgpConfiguration => &bgp::BGP_CONFIGURATION,
        Kind::BgpFilter => &bgp_filter::BGP_FILTER,
        Kind::BgpPeer => &bgp::BGP_PEER,
        Kind::BlockAffinity => &pool::BLOCK_AFFINITY,
        Kind::CalicoNodeStatus => &node::CALICO_NODE_STATUS,
        Kind::ClusterInformation => &node::CLUSTER_INFORMATION,
        Kind::FelixConfiguration => &felix::FELIX_CONFIGURATION,
        Kind::GlobalNetworkPolicy => &policy::GLOBAL_NETWORK_POLICY,
        Kind::GlobalNetworkSet => &endpoint::GLOBAL_NETWORK_SET,
        Kind::HostEndpoint => &endpoint::HOST_ENDPOINT,
        Kind::IpamConfiguration => &pool::IPAM_CONFIGURATION,
        Kind::IpPool => &pool::IP_POOL,
        Kind::IpReservation => &pool::IP_RESERVATION,
        Kind::KubeControllersConfiguration => &controllers::KUBE_CONTROLLERS_CONFIGURATION,
        Kind::LiveMigration => &endpoint::LIVE_MIGRATION,
        Kind::NetworkPolicy => &policy::NETWORK_POLICY,
        Kind::NetworkSet => &endpoint::NETWORK_SET,
        Kind::Node => &node::NODE,
        Kind::Profile => &policy::PROFILE,
        Kind::StagedGlobalNetworkPolicy => &policy::STAGED_GLOBAL_NETWORK_POLICY,
        Kind::StagedKubernetesNetworkPolicy => &kubernetes::STAGED_KUBERNETES_NETWORK_POLICY,
        Kind::StagedNetworkPolicy => &policy::STAGED_NETWORK_POLICY,
        Kind::Tier => &policy::TIER,
        Kind::WorkloadEndpoint => &endpoint::WORKLOAD_ENDPOINT,
    }
}

/// Whether Calico has a CRD for the kind, and with it a schema with defaults and limits.
pub fn has_crd(kind: Kind) -> bool {
    !matches!(kind, Kind::LiveMigration | Kind::Node | Kind::Profile | Kind::WorkloadEndpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(
        object: &'static Object,
        depth: usize,
        look: &mut impl FnMut(&Object, &super::super::Field),
    ) {
        for field in object.fields {
            look(object, field);
            if let Some(inner) = field.shape.object().filter(|_| depth > 0) {
                visit(inner, depth - 1, look);
            }
        }
    }

    #[test]
    fn every_kind_has_its_own_table() {
        for kind in Kind::all() {
            assert_eq!(object_for(kind).name, kind.name());
        }
    }

    #[test]
    fn every_field_has_a_short_help_and_a_readable_default() {
        for kind in Kind::all() {
            visit(object_for(kind), 12, &mut |object, field| {
                let place = format!("{}.{}", object.name, field.name);
                assert!((1..=100).contains(&field.help.len()), "{place}: help");
                if let Some(json) = field.default {
                    assert!(serde_json::from_str::<serde_json::Value>(json).is_ok(), "{place}");
                }
            });
        }
    }
}
