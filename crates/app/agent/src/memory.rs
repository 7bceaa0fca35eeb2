//! The values of the datastore that this node keeps in mind as they are: what an ADD needs to know,
//! and the endpoints of its own sandboxes. They are written down for a start without the datastore.

use std::collections::{BTreeMap, BTreeSet};

use api::names::WorkloadEndpointParts;
use host::known::BYTES_MAX;
use intent::Inputs;
use ipam::View;

/// What is kept, the most important first: what comes last is left out when there is too much.
const KEPT: [&str; 11] = [
    "/calico/resources/v3/projectcalico.org/clusterinformations/",
    "/calico/resources/v3/projectcalico.org/ippools/",
    ENDPOINTS,
    PROFILES,
    "/calico/resources/v3/projectcalico.org/felixconfigurations/",
    "/calico/resources/v3/projectcalico.org/tiers/",
    "/calico/resources/v3/projectcalico.org/hostendpoints/",
    "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/",
    "/calico/resources/v3/projectcalico.org/networkpolicies/",
    "/calico/resources/v3/projectcalico.org/globalnetworksets/",
    "/calico/resources/v3/projectcalico.org/networksets/",
];
const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";
const PROFILES: &str = "/calico/resources/v3/projectcalico.org/profiles/";

/// Values by key.
#[derive(Debug)]
pub(crate) struct Memory {
    node: String,
    values: BTreeMap<String, Vec<u8>>,
    is_changed: bool,
}

impl Memory {
    /// Nothing yet, for the node of this name.
    pub(crate) fn new(node: &str) -> Self {
        Self { node: node.to_owned(), values: BTreeMap::new(), is_changed: false }
    }

    /// What was written down.
    pub(crate) fn recall(node: &str, objects: &BTreeMap<String, String>) -> Self {
        let mut memory = Self::new(node);
        for (key, value) in objects {
            memory.take(key, Some(value.as_bytes()));
        }
        memory
    }

    /// Takes a key's new value, or its removal, if it is one that matters.
    pub(crate) fn take(&mut self, key: &str, value: Option<&[u8]>) {
        if !self.keeps(key) || self.values.get(key).map(Vec::as_slice) == value {
            return;
        }
        self.is_changed = true;
        match value {
            Some(value) => self.values.insert(key.to_owned(), value.to_vec()),
            None => self.values.remove(key),
        };
    }

    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Whether anything changed since the last time.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// It could not be written down.
    pub(crate) fn doubt(&mut self) {
        self.is_changed = true;
    }

    /// The inputs of a node that knows nothing else.
    pub(crate) fn inputs(&self, node: &str) -> Inputs {
        let mut inputs = Inputs::new(node);
        for (key, value) in &self.values {
            inputs.absorb(key, Some(value));
        }
        inputs
    }

    /// What an address can be planned with: a key that is not in here is not known, unless it is
    /// that of a pool.
    pub(crate) fn view(&self) -> View {
        let mut view = View::default();
        for (key, value) in self.values.iter().filter(|(key, _)| !key.starts_with(ENDPOINTS)) {
            view.observe(key, Some((value.clone(), 1)), 1);
        }
        view.complete(KEPT[1], 1);
        view
    }

    /// What is written down: as much as fits, the profiles of `used` names before others. Whether
    /// that is all.
    pub(crate) fn objects(&self, used: &BTreeSet<String>) -> (BTreeMap<String, String>, bool) {
        let rank = |key: &str| {
            let kind = KEPT.iter().position(|prefix| key.starts_with(prefix));
            let is_used = key.strip_prefix(PROFILES).is_some_and(|name| used.contains(name));
            (kind, !is_used)
        };
        let mut all: Vec<(&String, &Vec<u8>)> = self.values.iter().collect();
        all.sort_by_key(|(key, _)| rank(key));
        let mut room = BYTES_MAX;
        let mut objects = BTreeMap::new();
        for (key, value) in all {
            // A value that is no text is no object either.
            let Ok(text) = std::str::from_utf8(value) else { continue };
            let Some(left) = room.checked_sub(key.len() + text.len()) else {
                return (objects, false);
            };
            room = left;
            objects.insert(key.clone(), text.to_owned());
        }
        (objects, true)
    }

    fn keeps(&self, key: &str) -> bool {
        match is_of_node(key, &self.node) {
            Some(is_ours) => is_ours,
            None => KEPT.iter().any(|prefix| key.starts_with(prefix)),
        }
    }
}

/// Whether an endpoint is one of a node's, by its name; none if the key is that of something else.
pub(crate) fn is_of_node(key: &str, node: &str) -> Option<bool> {
    let (_, name) = key.strip_prefix(ENDPOINTS)?.split_once('/')?;
    // Most are of others, and begin otherwise: a dash inside the name of a node is doubled.
    let mut own =
        node.bytes().flat_map(|byte| std::iter::repeat_n(byte, 1 + usize::from(byte == b'-')));
    let mut bytes = name.bytes();
    if !own.all(|byte| bytes.next() == Some(byte)) {
        return Some(false);
    }
    Some(WorkloadEndpointParts::parse(name).is_ok_and(|parts| parts.node == node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_to_this_node_is_kept() {
        let mut memory = Memory::new("n-1");
        let all = [
            format!("{ENDPOINTS}default/n--1-k8s-web-eth0"),
            format!("{ENDPOINTS}default/n--2-k8s-web-eth0"),
            format!("{ENDPOINTS}default/n-1-web"),
            format!("{}default-pool", KEPT[1]),
            "/calico/resources/v3/projectcalico.org/nodes/n-1".to_owned(),
        ];
        for key in &all {
            memory.take(key, Some(b"{}"));
        }
        assert!(memory.take_changed());
        let kept: Vec<String> = memory.objects(&BTreeSet::new()).0.into_keys().collect();
        assert_eq!(kept, [all[3].clone(), all[0].clone()]);
        memory.take(&all[3], Some(b"{}"));
        memory.take(&all[4], None);
        assert!(!memory.take_changed());
        memory.take(&all[3], None);
        assert!(memory.take_changed() && memory.get(&all[3]).is_none());
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_used_profiles_go_first() {
        let mut memory = Memory::new("n1");
        let large = vec![b' '; BYTES_MAX / 3];
        for name in ["a", "b", "c", "d"] {
            memory.take(&format!("{PROFILES}{name}"), Some(&large));
        }
        let used = BTreeSet::from(["d".to_owned()]);
        let (kept, is_whole) = memory.objects(&used);
        assert!(!is_whole);
        let kept: Vec<String> = kept.into_keys().collect();
        assert_eq!(kept, [format!("{PROFILES}a"), format!("{PROFILES}d")]);
    }
}
