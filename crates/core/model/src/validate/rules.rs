//! The rules that look at more than one field of an object.
//!
//! A rule is a function on a place in an object. Rules belong to Calico's types (`Rule`,
//! `BGPPeerSpec`…), so a walk along the schema finds every place where one applies. There are
//! two layers, in the order in which Calico asks them: the rules of its own validator
//! ([`check_rules`]), then the rules that its CRDs carry ([`check_schema_rules`]).
//! [`check_update_rules`] compares an object with the version it replaces.

use api::Problem;
use api::schema::{Object, Shape};
use serde_json::Value;

mod bgp;
mod endpoint;
mod felix;
mod ipam;
mod kubernetes_policy;
mod metadata;
mod place;
mod policy;
mod policy_rule;
mod scalar;
mod tier;

pub(crate) use metadata::is_label;
pub(crate) use place::{Faults, Place};

type Rule = fn(&Place<'_>, &mut Faults);

/// How deep a walk goes; far beyond what any schema nests.
const MAX_DEPTH: usize = 32;

/// Lists of objects that Calico's validator never looks into. What it stores today has to stay
/// storable, so neither do we.
const UNSEEN: &[&str] = &["failsafeInboundHostPorts", "failsafeOutboundHostPorts"];

/// The rules of Calico's validator, per type.
fn validator_rules(type_name: &str) -> &'static [Rule] {
    match type_name {
        "ObjectMeta" => {
            &[metadata::name, metadata::namespace, metadata::labels, metadata::annotations]
        }
        "RuleMetadata" | "Template" => &[metadata::annotations],
        "Tier" => &[tier::name],
        "NetworkPolicy" | "StagedNetworkPolicy" => &[policy::network_policy],
        "GlobalNetworkPolicy" | "StagedGlobalNetworkPolicy" => &[policy::global_network_policy],
        "StagedKubernetesNetworkPolicy" => &[kubernetes_policy::staged],
        "NetworkSet" | "GlobalNetworkSet" => &[metadata::no_namespace_label],
        "Rule" => &[policy_rule::ports_need_protocol, policy_rule::nets_agree],
        "EntityRule" => &[policy_rule::global_stands_alone],
        "HTTPMatch" => &[policy_rule::http_methods, policy_rule::http_paths],
        "BGPConfigurationSpec" => &[bgp::communities, bgp::prefix_advertisements],
        "BGPPeerSpec" => &[bgp::gateway_family],
        "FelixConfigurationSpec" => &[
            felix::node_port_ranges,
            felix::external_nodes,
            felix::openstack_region,
            felix::addresses,
            felix::table_count,
        ],
        "RouteTableRange" => &[felix::old_table_range],
        "RouteTableIDRange" => &[felix::table_range],
        "HealthTimeoutOverride" => &[felix::health_timeout],
        "ProtoPort" => &[felix::failsafe_protocol],
        "IPPoolSpec" => &[ipam::pool_cidr, ipam::pool_uses],
        "IPAMConfigurationSpec" => &[ipam::blocks_per_host],
        "BlockAffinitySpec" => &[ipam::affinity_not_deleted],
        "NodeSpec" => &[endpoint::node_bgp],
        "WorkloadEndpointSpec" => {
            &[endpoint::networks, endpoint::gateways, endpoint::nats_in_networks]
        }
        "IPNAT" => &[endpoint::nat_families],
        "EndpointPort" => &[endpoint::host_port_protocol],
        "WorkloadEndpointPort" => &[endpoint::workload_port],
        _ => &[],
    }
}

/// The rules of the CRDs, per type.
fn schema_rules(type_name: &str) -> &'static [Rule] {
    match type_name {
        "Tier" => &[tier::well_known],
        "NetworkPolicySpec" | "StagedNetworkPolicySpec" => &[policy::selectors_without_global],
        "GlobalNetworkPolicySpec" | "StagedGlobalNetworkPolicySpec" => {
            &[policy::selectors_without_global, policy::untracked_and_pre_dnat]
        }
        "Rule" => &[
            policy_rule::http_needs,
            policy_rule::services_without_ports,
            policy_rule::icmp_protocol,
            policy_rule::icmp_version,
        ],
        "EntityRule" => &[policy_rule::selector_without_global, policy_rule::services_alone],
        "ICMPFields" => &[policy_rule::icmp_code_needs_type],
        "BGPConfigurationSpec" => &[bgp::node_mesh, bgp::communities_used],
        "BGPPeerSpec" => {
            &[bgp::peer_exclusions, bgp::workload_peers, bgp::gateway_needs_peer, bgp::next_hop]
        }
        "BGPFilterRuleV4" | "BGPFilterRuleV6" => &[bgp::filter_rule],
        "FelixConfiguration" => &[felix::selector_only_on_groups],
        "FelixConfigurationSpec" => &[felix::one_table_setting, felix::address_families],
        "RouteTableRange" => &[felix::old_table_range_schema],
        "RouteTableIDRange" => &[felix::table_range_schema],
        "HostEndpointSpec" => &[endpoint::host_endpoint],
        "IPPoolSpec" => &[
            ipam::encapsulation,
            ipam::load_balancer_pool,
            ipam::pool_selectors,
            ipam::pool_range,
            ipam::pool_block_size,
        ],
        _ => &[],
    }
}

/// Breaches of the rules of Calico's validator in a decoded object or part of one.
pub fn check_rules(object: &'static Object, value: &Value) -> Vec<Problem> {
    Walk { rules: validator_rules, scalars: true }.problems(object, value)
}

/// Breaches of the rules of the CRDs in a decoded object whose defaults are filled in.
pub fn check_schema_rules(object: &'static Object, value: &Value) -> Vec<Problem> {
    Walk { rules: schema_rules, scalars: false }.problems(object, value)
}

/// Breaches of the rules about what an update may not change.
pub fn check_update_rules(kind: api::Kind, old: &Value, new: &Value) -> Vec<Problem> {
    let mut faults = Faults::default();
    if kind == api::Kind::IpPool {
        ipam::pool_is_immovable(old, &Place::root(kind.name(), new), &mut faults);
    }
    faults.into_problems()
}

struct Walk {
    rules: fn(&str) -> &'static [Rule],
    /// Whether ports and protocols are looked at too.
    scalars: bool,
}

impl Walk {
    /// Nearly every object is good, and then nobody wants to know where anything stands: paths
    /// are put together only in a second walk over an object with a fault.
    fn problems(&self, object: &Object, value: &Value) -> Vec<Problem> {
        let mut faults = Faults::default();
        self.object(object, &Place::untold(object.name, value), &mut faults, 0);
        if faults.is_empty() {
            return Vec::new();
        }
        let mut faults = Faults::default();
        self.object(object, &Place::root(object.name, value), &mut faults, 0);
        faults.into_problems()
    }

    fn object(&self, object: &Object, place: &Place<'_>, faults: &mut Faults, depth: usize) {
        if depth > MAX_DEPTH || !place.value.is_object() {
            return;
        }
        for field in object.fields {
            if !self.looks_into(&field.shape) || self.scalars && UNSEEN.contains(&field.name) {
                continue;
            }
            if let Some(inner) = place.at(field.name) {
                self.shape(&field.shape, &inner, faults, depth + 1);
            }
        }
        for rule in (self.rules)(object.name) {
            rule(place, faults);
        }
    }

    fn looks_into(&self, shape: &Shape) -> bool {
        match shape {
            Shape::Object(_) => true,
            Shape::List(item) | Shape::Map(item) => self.looks_into(item),
            Shape::Port | Shape::Protocol => self.scalars,
            _ => false,
        }
    }

    fn shape(&self, shape: &Shape, place: &Place<'_>, faults: &mut Faults, depth: usize) {
        match shape {
            Shape::Object(object) => self.object(object, place, faults, depth),
            Shape::List(item) => {
                for inner in place.items() {
                    self.shape(item, &inner, faults, depth + 1);
                }
            }
            Shape::Map(item) => {
                for inner in place.entries() {
                    self.shape(item, &inner, faults, depth + 1);
                }
            }
            Shape::Port if self.scalars => scalar::port(place, faults),
            Shape::Protocol if self.scalars => scalar::protocol(place, faults),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
