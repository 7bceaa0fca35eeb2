//! Who may talk to whom: what the graph of policies is told of this node's endpoints, and what it
//! makes of them.
//!
//! Endpoints of other nodes and all other objects go to the graph as they are stored. For this node
//! the journal has a say: a sandbox that lives here is known to the graph whatever the datastore
//! says of it, and one whose address has another holder is not, so that it stays closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::keys::Key;
use model::resource::{IpPool, Resource, TunnelMode};
use policy::convert::{convert, place};
use policy::input::{Change, Workload};
use policy::intent::{Dirty, Intent};
use policy::render::{Surroundings, Tunnels};

use crate::Inputs;

impl Inputs {
    /// What this node has to carry out, as of the last [`Self::flush_policy`].
    pub fn policy(&self) -> &Intent {
        self.graph.intent()
    }

    /// Takes in what changed since the last time, and tells what is different.
    pub fn flush_policy(&mut self) -> Dirty {
        if std::mem::take(&mut self.has_local_news) {
            self.present();
        }
        self.graph.flush()
    }

    /// What is around the endpoints; the interfaces of the host are not known here.
    pub fn surroundings(&self) -> Surroundings {
        let pools = self.pools.values();
        let hosts = self.nodes.values().flat_map(|it| it.v4.into_iter().chain(it.v6));
        Surroundings {
            pools: pools.clone().map(|pool| pool.cidr).collect(),
            nat_outgoing: pools.filter(|pool| pool.nat_outgoing).map(|pool| pool.cidr).collect(),
            tunnels: self.tunnels(),
            host_addresses: hosts.collect(),
            service_networks: self.services.values().flatten().copied().collect(),
            interfaces: BTreeMap::new(),
        }
    }

    /// How nodes send each other the packets of workloads, as the pools have it.
    fn tunnels(&self) -> Tunnels {
        let any = |is_meant: &dyn Fn(&IpPool) -> bool| self.pools.values().any(is_meant);
        let is_vxlan = |pool: &IpPool| pool.vxlan_mode != TunnelMode::Never;
        Tunnels {
            ipip: any(&|pool| pool.ipip_mode != TunnelMode::Never),
            vxlan_v4: any(&|pool| is_vxlan(pool) && pool.cidr.is_ipv4()),
            vxlan_v6: any(&|pool| is_vxlan(pool) && !pool.cidr.is_ipv4()),
        }
    }

    /// Tells the graph of the endpoints that this node has by now.
    fn present(&mut self) {
        let mut wanted: BTreeMap<String, Arc<Workload>> = BTreeMap::new();
        for (path, endpoint) in self.local_endpoints() {
            let Some(Key::Resource(key)) = Key::parse(path) else { continue };
            let resource = Resource::WorkloadEndpoint(endpoint.clone());
            // What cannot be used was put aside when it was absorbed.
            if let Ok(Some(Change::Workload(_, Some(mut workload)))) =
                convert(&key, Some(&resource))
            {
                Arc::make_mut(&mut workload).node.clone_from(&self.node);
                wanted.insert(path.clone(), workload);
            }
        }
        let gone: Vec<String> =
            self.presented.keys().filter(|path| !wanted.contains_key(*path)).cloned().collect();
        for path in gone {
            let elsewhere = self.elsewhere.get(path.as_str());
            let elsewhere = elsewhere.and_then(|it| it.workload.clone());
            self.tell(&path, elsewhere);
        }
        for (path, workload) in &wanted {
            if self.presented.get(path) != Some(workload) {
                self.tell(path, Some(Arc::clone(workload)));
            }
        }
        self.presented = wanted;
    }

    /// An endpoint that is stored as another node's is new, or different, or gone.
    pub(crate) fn present_elsewhere(&mut self, path: &str, workload: Option<Arc<Workload>>) {
        if self.presented.contains_key(path) || self.vouched.contains_key(path) {
            self.has_local_news = true;
            return;
        }
        self.tell(path, workload);
    }

    fn tell(&mut self, path: &str, workload: Option<Arc<Workload>>) {
        if let Some(Key::Resource(key)) = Key::parse(path) {
            self.graph.absorb(Change::Workload(place(&key), workload));
        }
    }
}
