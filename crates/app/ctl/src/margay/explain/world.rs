//! Everything that policy depends on, read from the datastore as agents read it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use intent::{Inputs, Read, filter_settings, resolve};
use model::felix::Host;
use model::resource::Resource;
use net::Cidr;
use policy::guards::Guards;
use policy::input::{Change, Key};
use policy::intent::Intent;
use policy::render::{Settings, Surroundings};
use policy::scan::{SetDefinition, scan_policy, scan_profile};
use policy::{Cluster, SetId};
use store::Store;
use store::realised::Realised;
use store::resources::Name;

use super::super::failure::Failure;
use super::super::session::Session;
use super::interfaces::Networks;

/// What the datastore says about policy.
#[derive(Default)]
pub(crate) struct World {
    /// Everything that was read, in the order of keys: what each node makes of it differs.
    read: Vec<(String, Read)>,
    pub(crate) cluster: Cluster,
    /// What people call the workloads: namespace and pod.
    pub(crate) pods: BTreeMap<Key, (String, String)>,
    /// The nodes with their addresses.
    pub(crate) nodes: BTreeMap<String, Vec<IpAddr>>,
    /// The networks of pods.
    pools: Vec<Cidr>,
    /// Objects that are not in force as they are, by key, and what is wrong with them.
    pub(crate) aside: BTreeMap<String, String>,
    /// The revision of the last change to policy, as nodes count it.
    pub(crate) revision: i64,
    /// What the sets of all rules stand for.
    pub(crate) sets: BTreeMap<SetId, SetDefinition>,
    /// How far the nodes have come that told.
    pub(super) told: BTreeMap<String, Realised>,
}

/// A node, as its agent sees it.
pub(crate) struct Node {
    inputs: Inputs,
    /// Its settings, as far as the datastore has them.
    pub(super) settings: Settings,
    around: Surroundings,
    /// Its interfaces; none if it did not tell.
    pub(super) networks: Option<Networks>,
}

impl World {
    /// Reads it.
    pub(crate) fn read(session: &Session) -> Result<Self, Failure> {
        Self::of(&session.store)
    }

    fn of(store: &Store) -> Result<Self, Failure> {
        let told = Realised::all(store).unwrap_or_default();
        let mut world = Self { told, ..Self::default() };
        let [resources, ..] = Inputs::prefixes();
        for entry in store.list(resources)?.entries {
            if store::realised::counts(&entry.key) {
                world.revision = world.revision.max(entry.mod_revision);
            }
            if let Some(read) = Read::new(&entry.key, &entry.value) {
                world.take(&entry.key, &read);
                world.read.push((entry.key, read));
            }
        }
        for policy in world.cluster.policies.values() {
            world.sets.extend(scan_policy(policy).sets);
        }
        for profile in world.cluster.profiles.values() {
            world.sets.extend(scan_profile(profile).sets);
        }
        Ok(world)
    }

    fn take(&mut self, key: &str, read: &Read) {
        if let Some(problems) = read.problems() {
            self.aside.insert(key.to_owned(), problems.join("; "));
        }
        if let Some((name, addresses)) = read.node() {
            self.nodes.insert(name.to_owned(), addresses);
        }
        match read.resource() {
            Some((_, Resource::IpPool(pool))) => self.pools.push(pool.spec.cidr),
            Some((key, Resource::WorkloadEndpoint(it))) => {
                let spec = &it.spec;
                let pod = [&spec.pod, &spec.workload, &spec.container_id, &key.name];
                let pod = pod.into_iter().find(|it| !it.is_empty()).cloned().unwrap_or_default();
                if let Some(Change::Workload(at, _)) = read.change() {
                    self.pods.insert(at.clone(), (key.namespace.clone(), pod));
                }
            }
            _ => {}
        }
        if let Some(change) = read.change() {
            self.cluster.absorb(change.clone());
        }
    }

    /// Whether an address belongs to pods.
    pub(crate) fn is_of_pods(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|pool| pool.contains(address))
    }

    /// Whether somebody wrote a profile.
    pub(crate) fn has_profile(&self, name: &str) -> bool {
        self.cluster.profiles.contains_key(name)
    }

    /// What is not in force as it is, in the words of people.
    pub(crate) fn spoken_aside(&self) -> Vec<String> {
        self.aside.keys().map(|key| spoken(key)).collect()
    }

    /// Whether there is an object with a key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.at(key).is_some()
    }

    fn at(&self, key: &str) -> Option<&Read> {
        let at = self.read.binary_search_by(|(it, _)| it.as_str().cmp(key)).ok()?;
        self.read.get(at).map(|(_, read)| read)
    }

    /// What is wrong with the object that has a key.
    pub(crate) fn problems(&self, key: &str) -> &[String] {
        self.at(key).and_then(Read::problems).unwrap_or_default()
    }

    /// Objects of which nodes may have an earlier revision in force, in the words of people: what
    /// they do with it cannot be known from here.
    pub(crate) fn spoken_lacking(&self) -> Vec<String> {
        let lacking = self.read.iter().filter(|(_, read)| read.is_lacking());
        lacking.map(|(key, _)| spoken(key)).collect()
    }

    /// The refusal to explain an object that is stored and cannot be used, if there is one that is
    /// meant.
    pub(crate) fn unusable(&self, is_meant: impl Fn(&Name) -> bool) -> Option<Failure> {
        let mut named = self.aside.keys().filter_map(|key| Some((key, Name::at_key(key)?)));
        let (key, name) = named.find(|(_, name)| is_meant(name))?;
        let namespace = match name.namespace.as_str() {
            "" => String::new(),
            namespace => format!(" -n {}", text::words::shell(namespace)),
        };
        let (kind, typed) = (name.kind.plural(), text::words::shell(&name.name));
        let problems = self.problems(key).join("; ");
        let known = match self.at(key).is_some_and(Read::is_lacking) {
            true => "; nodes that have read an earlier revision keep that in force",
            false => "",
        };
        let what = format!("{} is stored but cannot be used", name.spoken());
        let help = format!("margay get {kind} {typed}{namespace} -o yaml shows it");
        Some(Failure::new(format!("{what}: {problems}{known}")).help(help))
    }

    /// A node, as its agent sees it.
    pub(crate) fn node(&self, name: &str) -> Node {
        let mut inputs = Inputs::new(name);
        for (key, read) in &self.read {
            inputs.take(key, read.clone());
        }
        inputs.flush_policy();
        let host = Host { name, exists: &|_| false, find_executable: &|_| None };
        let (config, _) = resolve(&inputs.settings(), &host);
        let (settings, around) = (filter_settings(&config), inputs.surroundings());
        let networks = self.told.get(name).and_then(|told| told.interfaces.clone());
        Node { inputs, settings, around, networks }
    }

    /// What a node has to carry out.
    pub(crate) fn intent(&self, node: &str) -> Intent {
        self.node(node).intent().clone()
    }
}

/// An object in the words of people.
pub(crate) fn spoken(key: &str) -> String {
    Name::at_key(key).map_or_else(|| key.to_owned(), |name| name.spoken())
}

impl Node {
    /// What it has to carry out.
    pub(crate) fn intent(&self) -> &Intent {
        self.inputs.policy()
    }

    /// What it does beside its policies.
    pub(crate) fn guards(&self) -> Guards<'_> {
        Guards { settings: &self.settings, around: &self.around }
    }
}

#[cfg(test)]
mod tests {
    use policy::reference;
    use serde_json::{Value, json};
    use store::{Op, Txn, sqlite};

    use super::*;

    fn object(kind: &str, name: &str, spec: Value) -> Value {
        let metadata = json!({ "name": name, "namespace": "shop", "labels": { "app": name } });
        json!({
            "apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": metadata, "spec": spec,
        })
    }

    fn endpoint(node: &str, pod: &str, address: &str) -> (String, Value) {
        let name = format!("{node}-k8s-{pod}-eth0");
        let spec = json!({
            "node": node, "orchestrator": "k8s", "pod": pod, "endpoint": "eth0",
            "interfaceName": format!("cali{pod}"), "ipNetworks": [address],
            "profiles": ["kns.shop", "projectcalico-default-allow"],
        });
        let mut object = object("WorkloadEndpoint", &name, spec);
        object["metadata"]["labels"]["app"] = pod.into();
        (format!("workloadendpoints/shop/{name}"), object)
    }

    fn cluster() -> Vec<(String, Value)> {
        let bad = json!({
            "selector": "app == 'db'",
            "ingress": [
                { "action": "Allow", "source": { "nets": ["10.0.0.0/33"] } },
                { "action": "Deny", "protocol": "nonsense" },
            ],
        });
        let policy = |name: &str, spec: &Value| {
            (format!("networkpolicies/shop/{name}"), object("NetworkPolicy", name, spec.clone()))
        };
        let host = json!({
            "node": "n2", "interfaceName": "eth0", "expectedIPs": ["", "172.30.0.12"],
        });
        let settings = json!({ "nodeSelector": "app == 'n1'", "vxlanPort": 4790 });
        let node = |name: &str, address: &str| {
            let spec = json!({ "bgp": { "ipv4Address": address, "asNumber": "x" } });
            (format!("nodes/{name}"), object("Node", name, spec))
        };
        vec![
            endpoint("n1", "web", "10.65.0.1/32"),
            endpoint("n2", "db", "10.65.0.2/32"),
            endpoint("n2", "lost", "10.65.0.300/32"),
            policy("bad", &bad),
            policy("gone", &json!({ "selector": "app == ", "ingress": [{ "action": "Deny" }] })),
            policy("good", &json!({ "ingress": [{ "action": "Allow" }] })),
            ("hostendpoints/h".to_owned(), object("HostEndpoint", "h", host)),
            ("felixconfigurations/some".to_owned(), object("FelixConfiguration", "some", settings)),
            ("nodes/n1".to_owned(), object("Node", "n1", json!({}))),
            node("n2", "172.30.0.12/24"),
        ]
    }

    /// What is wrong with objects, and what is left of them, is the same to who asks and to agents.
    #[test]
    fn a_node_is_seen_as_its_agent_sees_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Sqlite(sqlite::Store::open(folder.path().join("s")).unwrap());
        let mut agents = ["n1", "n2"].map(Inputs::new);
        for (path, object) in cluster() {
            let key = format!("/calico/resources/v3/projectcalico.org/{path}");
            let value = object.to_string().into_bytes();
            for inputs in &mut agents {
                inputs.absorb(&key, Some(&value));
            }
            store.commit(Txn { compares: Vec::new(), ops: vec![Op::Put { key, value }] }).unwrap();
        }
        let world = World::of(&store).expect("it can be read");
        for mut agent in agents {
            agent.flush_policy();
            let name = if agent.settings().is_empty() { "n2" } else { "n1" };
            let node = world.node(name);
            assert_eq!(node.intent(), agent.policy());
            assert_eq!(node.intent(), &reference::intent(&world.cluster, name));
            assert_eq!(node.around, agent.surroundings());
            let quarantined = agent.quarantined().iter();
            let quarantined = quarantined.map(|(key, it)| (key.clone(), it.join("; ")));
            assert_eq!(world.aside, quarantined.collect());
            assert_eq!(node.settings.vxlan_port, if name == "n1" { 4790 } else { 4789 });
        }
        assert_eq!(world.aside.len(), 5);
        assert_eq!(world.nodes["n2"], [IpAddr::from([172, 30, 0, 12])]);
        let policies: Vec<&str> =
            world.cluster.policies.keys().map(|id| id.name.as_str()).collect();
        assert_eq!(policies, ["bad", "good"]);
        assert_eq!((world.cluster.workloads.len(), world.cluster.hosts.len()), (2, 1));
    }
}
