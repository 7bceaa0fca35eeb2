//! How far each node has come with carrying out policy: one small object of our own a node.
//!
//! It names the newest revision of any object of policy that the node's kernel has, so that a
//! policy is carried out everywhere when every node's number has reached the policy's own. Changes
//! of endpoints do not count: they would have every node write for every pod.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use net::Cidr;
use serde_json::{Value, json};

use crate::{Error, Event, Op, Store, Txn, Watch};

/// What the keys begin with.
const PREFIX: &str = "/calico/margay/v1/realised/";

/// The kinds of objects whose revisions count.
const KINDS: [&str; 9] = [
    "felixconfigurations",
    "globalnetworkpolicies",
    "globalnetworksets",
    "hostendpoints",
    "ippools",
    "networkpolicies",
    "networksets",
    "profiles",
    "tiers",
];

/// How far a node has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Realised {
    /// Everything up to here is in its kernel.
    pub revision: i64,
    /// What is not, by the key of the object, and why.
    pub refused: BTreeMap<String, String>,
    /// The keys of those among them that the node acts as if they were not there; of the others
    /// an earlier value may be in force.
    pub absent: BTreeSet<String>,
    /// The interfaces of a node that has host endpoints, with their addresses and networks, and
    /// with all addresses where a default route leads: which endpoint a packet meets depends on
    /// them, and only the node knows. None if it did not tell.
    pub interfaces: Option<BTreeMap<String, BTreeSet<Cidr>>>,
}

/// Whether the revision of an object counts.
pub fn counts(key: &str) -> bool {
    let rest = key.strip_prefix("/calico/resources/v3/projectcalico.org/");
    let kind = rest.and_then(|rest| rest.split('/').next());
    kind.is_some_and(|kind| KINDS.contains(&kind))
}

impl Realised {
    /// Whether the object with a key has reached this node's kernel as of its revision.
    pub fn has(&self, key: &str, revision: i64) -> bool {
        self.revision >= revision && !self.refused.contains_key(key)
    }

    /// Tells all others how far a node has come.
    pub fn publish(&self, store: &Store, node: &str) -> Result<(), Error> {
        let Self { revision, refused, absent, interfaces } = self;
        let mut value = json!({ "revision": revision, "refused": refused, "absent": absent });
        if let Some(interfaces) = interfaces {
            let texts = |nets: &BTreeSet<Cidr>| nets.iter().map(Cidr::to_string).collect();
            let told = interfaces.iter().map(|(name, nets)| (name.clone(), texts(nets)));
            value["interfaces"] = Value::Object(told.collect());
        }
        let value = text::json::to_string(&value).into_bytes();
        let put = Op::Put { key: key(node), value };
        store.commit(Txn { compares: Vec::new(), ops: vec![put] }).map(drop)
    }

    /// How far every node has come that told.
    pub fn all(store: &Store) -> Result<BTreeMap<String, Self>, Error> {
        let entries = store.list(PREFIX)?.entries.into_iter();
        let told = entries.filter_map(|entry| {
            let node = entry.key.strip_prefix(PREFIX)?.to_owned();
            Some((node, Self::read(&entry.value)?))
        });
        Ok(told.collect())
    }

    /// None for what is not ours to understand: the node counts as one that did not tell.
    fn read(bytes: &[u8]) -> Option<Self> {
        let value = text::json::parse(bytes).ok()?;
        let revision = value["revision"].as_i64()?;
        let refused = value["refused"].as_object().into_iter().flatten();
        let text = |(key, why): (&String, &Value)| Some((key.clone(), why.as_str()?.to_owned()));
        let absent = value["absent"].as_array().into_iter().flatten();
        let absent = absent.filter_map(|key| Some(key.as_str()?.to_owned())).collect();
        let refused = refused.filter_map(text).collect();
        Some(Self { revision, refused, absent, interfaces: interfaces(&value) })
    }
}

/// The interfaces that a node told of; none if it did not, or somebody else spoilt it.
fn interfaces(value: &Value) -> Option<BTreeMap<String, BTreeSet<Cidr>>> {
    let nets = |told: &Value| -> Option<BTreeSet<Cidr>> {
        told.as_array()?.iter().map(|net| net.as_str()?.parse().ok()).collect()
    };
    let told = value["interfaces"].as_object()?;
    told.iter().map(|(name, told)| Some((name.clone(), nets(told)?))).collect()
}

/// How far the nodes have come, from now on.
#[derive(Debug)]
pub struct Following {
    watch: Watch,
    nodes: BTreeMap<String, Realised>,
    is_in_sync: bool,
    outage: Option<String>,
}

impl Following {
    /// Begins to follow what the nodes tell.
    pub fn start(store: &Store) -> Self {
        let watch = store.watch(PREFIX);
        Self { watch, nodes: BTreeMap::new(), is_in_sync: false, outage: None }
    }

    /// Waits for news; false if there are none within the time.
    pub fn next(&mut self, timeout: Duration) -> bool {
        match self.watch.next(timeout) {
            Some(Event::Put(entry)) => self.put(&entry.key, Realised::read(&entry.value)),
            Some(Event::Delete { key, .. }) => self.put(&key, None),
            Some(Event::InSync(_)) => (self.is_in_sync, self.outage) = (true, None),
            Some(Event::Disconnected { endpoint, error, .. }) => {
                self.outage = Some(format!("{endpoint} does not answer: {error}"));
            }
            None => return false,
        }
        true
    }

    /// How far every node has come that told; none before all that was told has been read.
    pub fn nodes(&self) -> Option<&BTreeMap<String, Realised>> {
        self.is_in_sync.then_some(&self.nodes)
    }

    /// Why there are no news, while the datastore does not answer.
    pub fn outage(&self) -> Option<&str> {
        self.outage.as_deref()
    }

    fn put(&mut self, key: &str, told: Option<Realised>) {
        let Some(node) = key.strip_prefix(PREFIX) else { return };
        match told {
            Some(told) => self.nodes.insert(node.to_owned(), told),
            None => self.nodes.remove(node),
        };
    }
}

/// Where a node tells how far it has come.
pub fn key(node: &str) -> String {
    format!("{PREFIX}{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_and_bad_values_are_as_if_untold() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Sqlite(crate::sqlite::Store::open(folder.path().join("s")).unwrap());
        let refused = BTreeMap::from([("/k".to_owned(), "too long".to_owned())]);
        let absent = BTreeSet::from(["/k".to_owned()]);
        let nets = ["172.30.0.11/24", "fe80::1/64"].map(|net| net.parse().unwrap());
        let interfaces = [("eth0".to_owned(), nets.into()), ("late0".to_owned(), [].into())];
        let interfaces = Some(interfaces.into());
        let told = Realised { revision: 7, refused, absent, interfaces };
        told.publish(&store, "n1").unwrap();
        let bad = Op::Put { key: key("n2"), value: b"{\"revision\":\"x\"}".to_vec() };
        store.commit(Txn { compares: Vec::new(), ops: vec![bad] }).unwrap();
        let all = Realised::all(&store).unwrap();
        assert_eq!(all, BTreeMap::from([("n1".to_owned(), told.clone())]));
        let spoilt = br#"{"revision":7,"interfaces":{"eth0":["172.30.0.300/24"]}}"#;
        assert_eq!(Realised::read(spoilt).unwrap().interfaces, None);
        assert!(told.has("/other", 7) && !told.has("/other", 8) && !told.has("/k", 7));
    }

    #[test]
    fn whoever_follows_knows_what_is_told_and_what_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Sqlite(crate::sqlite::Store::open(folder.path().join("s")).unwrap());
        let told = |revision| Realised { revision, ..Realised::default() };
        told(7).publish(&store, "n1").unwrap();
        let mut following = Following::start(&store);
        assert_eq!(following.nodes(), None);
        let mut until = |wanted: BTreeMap<String, Realised>| {
            while following.nodes() != Some(&wanted) {
                assert!(following.next(Duration::from_secs(60)), "{following:?}");
            }
        };
        until(BTreeMap::from([("n1".to_owned(), told(7))]));
        told(8).publish(&store, "n1").unwrap();
        until(BTreeMap::from([("n1".to_owned(), told(8))]));
        let gone = Op::Delete { key: key("n1") };
        store.commit(Txn { compares: Vec::new(), ops: vec![gone] }).unwrap();
        until(BTreeMap::new());
    }

    #[test]
    fn endpoints_do_not_count() {
        let key = |kind: &str| format!("/calico/resources/v3/projectcalico.org/{kind}/a/b");
        assert!(counts(&key("networkpolicies")));
        assert!(!counts(&key("workloadendpoints")));
        assert!(!counts("/calico/ipam/v2/config"));
    }
}
