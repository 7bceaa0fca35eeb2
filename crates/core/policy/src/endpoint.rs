//! Endpoints of a cluster by name and by address.

use std::net::IpAddr;

use model::resource::Direction;
use model::selector::Selector;

use crate::cluster::Cluster;
use crate::explain::{self, Layer, Walk};
use crate::input::{Key, Labels, Policy, Stage};
use crate::intent::Intent;
use crate::labels::Labelled;
use crate::packet::Packet;

/// The label with the name of a workload's namespace.
const NAMESPACE: &str = "projectcalico.org/namespace";

/// Which endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// An interface of a workload.
    Workload(Key),
    /// An interface of a host.
    Host(Key),
}

impl Cluster {
    /// All endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        let workloads = self.workloads.keys().cloned().map(Endpoint::Workload);
        workloads.chain(self.hosts.keys().cloned().map(Endpoint::Host))
    }

    /// The endpoints that have an address, workloads first.
    pub fn endpoints_at(&self, address: IpAddr) -> Vec<Endpoint> {
        let workloads = self.workloads.iter().filter(|(_, it)| {
            // The address of a workload is one address, whatever the length of its network.
            it.addresses.iter().any(|net| net.address() == address)
        });
        let hosts = self.hosts.iter().filter(|(_, it)| it.addresses.contains(&address));
        let workloads = workloads.map(|(key, _)| Endpoint::Workload(key.clone()));
        workloads.chain(hosts.map(|(key, _)| Endpoint::Host(key.clone()))).collect()
    }

    /// The node that an endpoint is on; none if there is no such endpoint.
    pub fn node_of(&self, endpoint: &Endpoint) -> Option<&str> {
        match endpoint {
            Endpoint::Workload(key) => self.workloads.get(key).map(|it| it.node.as_str()),
            Endpoint::Host(key) => self.hosts.get(key).map(|it| it.node.as_str()),
        }
    }

    /// The namespace of a workload; none for others.
    pub fn namespace_of(&self, endpoint: &Endpoint) -> Option<&str> {
        match endpoint {
            Endpoint::Workload(key) => {
                self.workloads.get(key)?.labels.get(NAMESPACE).map(String::as_str)
            }
            Endpoint::Host(_) => None,
        }
    }

    /// The labels of an endpoint, those of its profiles among them.
    pub fn labels_of(&self, endpoint: &Endpoint) -> Option<Labels> {
        let Labelled { own, profiles } = self.labelled(endpoint)?;
        let mut labels = Labels::new();
        // What is named first counts, and its own labels most of all.
        for profile in profiles.iter().rev().filter_map(|name| self.profiles.get(name)) {
            labels.extend(profile.labels.clone());
        }
        labels.extend(own.clone());
        Some(labels)
    }

    /// Whether a selector is for an endpoint.
    pub fn is_selected(&self, endpoint: &Endpoint, selector: &Selector) -> bool {
        self.labelled(endpoint).is_some_and(|it| it.is_selected(selector, &self.profiles))
    }

    fn labelled(&self, endpoint: &Endpoint) -> Option<Labelled<'_>> {
        Some(match endpoint {
            Endpoint::Workload(key) => {
                let it = self.workloads.get(key)?;
                Labelled { own: &it.labels, profiles: &it.profiles }
            }
            Endpoint::Host(key) => {
                let it = self.hosts.get(key)?;
                Labelled { own: &it.labels, profiles: &it.profiles }
            }
        })
    }

    /// Whether policies of a tier decide about traffic of an endpoint in a direction.
    pub(crate) fn has_tier(
        &self,
        endpoint: &Endpoint,
        tier: &str,
        direction: Direction,
        layer: Layer,
    ) -> bool {
        let is_there = |policy: &Policy| match layer {
            Layer::Normal => policy.stage == Stage::Normal,
            Layer::Forward => policy.stage == Stage::Normal && policy.is_for_forward,
            Layer::PreDnat => policy.stage == Stage::PreDnat,
            Layer::Untracked => policy.stage == Stage::Untracked,
        };
        self.policies.iter().any(|(id, policy)| {
            let is_for = match direction {
                Direction::Ingress => policy.is_for_ingress,
                Direction::Egress => policy.is_for_egress,
            };
            let is_in_force = !id.kind.is_staged() && policy.tier == tier && is_there(policy);
            is_in_force && is_for && self.is_selected(endpoint, &policy.selector)
        })
    }
}

impl Intent {
    /// The way of a packet through the policies of an endpoint; none if it is not of this node.
    pub fn explain(
        &self,
        endpoint: &Endpoint,
        direction: Direction,
        packet: &Packet,
    ) -> Option<Walk> {
        Some(match endpoint {
            Endpoint::Workload(key) => {
                explain::workload(self, self.workloads.get(key)?, direction, packet)
            }
            Endpoint::Host(key) => explain::host(self, self.hosts.get(key)?, direction, packet),
        })
    }
}
