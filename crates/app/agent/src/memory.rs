//! The values of the datastore that this node keeps in mind as they are: what an ADD needs to know,
//! and the endpoints of its own sandboxes. They are written down for a start without the datastore.
//!
//! Of an object of policy whose stored value cannot be used, the last one that could be is kept,
//! too: it stays in force.

use std::collections::{BTreeMap, BTreeSet};

use api::names::WorkloadEndpointParts;
use host::known::{BYTES_MAX, Earlier, Known};
use intent::{Changed, Inputs, Read};
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

/// From here on they protect something: earlier values are kept of these.
const FIRST_PROTECTING: usize = 3;

/// Values by key.
#[derive(Debug)]
pub(crate) struct Memory {
    node: String,
    values: BTreeMap<String, Value>,
    /// The last values that could be used, of objects whose stored value cannot be, or of which
    /// that is not known yet.
    earlier: BTreeMap<String, Value>,
    /// Those of them that are in force, as of the last time that somebody asked.
    kept: BTreeMap<String, i64>,
    is_changed: bool,
}

/// A value, as of a revision; of 0 where that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    bytes: Vec<u8>,
    revision: i64,
}

impl Memory {
    /// Nothing yet, for the node of this name.
    pub(crate) fn new(node: &str) -> Self {
        let (values, earlier, kept) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { node: node.to_owned(), values, earlier, kept, is_changed: false }
    }

    /// What was written down.
    pub(crate) fn recall(node: &str, known: &Known) -> Self {
        let mut memory = Self::new(node);
        for (key, value) in &known.objects {
            let revision = known.revisions.get(key).copied().unwrap_or_default();
            memory.take(key, Some(value.as_bytes()), revision, true);
        }
        memory.learn(known);
        memory
    }

    /// Takes up what an earlier run knew of objects that may not be usable by now.
    pub(crate) fn learn(&mut self, known: &Known) {
        let value = |value: &str, revision| Value { bytes: value.as_bytes().to_vec(), revision };
        for (key, text) in known.objects.iter().filter(|(key, _)| protects(key)) {
            let revision = known.revisions.get(key).copied().unwrap_or_default();
            self.earlier.insert(key.clone(), value(text, revision));
        }
        for (key, Earlier { value: text, revision }) in &known.earlier {
            self.earlier.insert(key.clone(), value(text, *revision));
        }
    }

    /// Takes a key's new value, or its removal, if it is one that matters; whether the one before
    /// is known to be usable.
    pub(crate) fn take(
        &mut self,
        key: &str,
        value: Option<&[u8]>,
        revision: i64,
        was_usable: bool,
    ) {
        if value.is_none() {
            self.earlier.remove(key);
        }
        if !self.keeps(key) || self.get(key) == value {
            return;
        }
        self.is_changed = true;
        let value = value.map(|value| Value { bytes: value.to_vec(), revision });
        let is_gone = value.is_none();
        let before = match value {
            Some(value) => self.values.insert(key.to_owned(), value),
            None => self.values.remove(key),
        };
        let Some(before) = before.filter(|_| !is_gone && protects(key)) else { return };
        if was_usable || !self.earlier.contains_key(key) {
            self.earlier.insert(key.to_owned(), before);
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(|it| it.bytes.as_slice())
    }

    /// Has a node's inputs take a value, which may have been read already; where it cannot be used
    /// and an earlier one could, that one stays in force.
    pub(crate) fn tell(
        &self,
        inputs: &mut Inputs,
        key: &str,
        value: Option<&[u8]>,
        read: Option<Read>,
    ) -> Changed {
        let read = read.or_else(|| Read::new(key, value?));
        let Some(read) = read else { return inputs.absorb(key, value) };
        let earlier = self.earlier.get(key).filter(|_| read.is_lacking());
        let earlier = earlier.and_then(|it| Some((Read::new(key, &it.bytes)?, it.revision)));
        match earlier.and_then(|(it, revision)| Some((read.instead(it)?, revision))) {
            Some((instead, revision)) => {
                let problems = read.problems().unwrap_or_default().to_vec();
                inputs.keep(key, instead, revision, problems)
            }
            None => inputs.take(key, read),
        }
    }

    /// Has a node's inputs put a value aside that must not be touched, or take an earlier one.
    pub(crate) fn tell_aside(
        &self,
        inputs: &mut Inputs,
        key: &str,
        value: &[u8],
        why: &str,
    ) -> Changed {
        let earlier = self.earlier.get(key).filter(|it| it.bytes != value);
        let read = earlier.and_then(|it| Some((Read::new(key, &it.bytes)?, it.revision)));
        match read.filter(|(read, _)| read.is_whole()) {
            Some((read, revision)) => inputs.keep(key, read, revision, vec![why.to_owned()]),
            None => inputs.put_aside(key, why),
        }
    }

    /// An earlier value cannot be borne either.
    pub(crate) fn forget_earlier(&mut self, key: &str) {
        self.earlier.remove(key);
    }

    /// The kernel has what was told: earlier values matter only of what cannot be used as it is.
    pub(crate) fn settle(&mut self, inputs: &Inputs) {
        let n_before = self.earlier.len();
        self.earlier.retain(|key, _| inputs.quarantined().contains_key(key));
        self.is_changed |= self.earlier.len() != n_before;
    }

    /// Whether anything changed since the last time.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Whether other earlier values are in force than the last time.
    pub(crate) fn take_kept(&mut self, inputs: &Inputs) -> bool {
        let is_other = self.kept != *inputs.all_kept();
        if is_other {
            self.kept.clone_from(inputs.all_kept());
        }
        is_other
    }

    /// It could not be written down.
    pub(crate) fn doubt(&mut self) {
        self.is_changed = true;
    }

    /// The inputs of a node that knows nothing else.
    pub(crate) fn inputs(&self, node: &str) -> Inputs {
        let mut inputs = Inputs::new(node);
        for (key, value) in &self.values {
            self.tell(&mut inputs, key, Some(&value.bytes), None);
        }
        inputs
    }

    /// What an address can be planned with: a key that is not in here is not known, unless it is
    /// that of a pool.
    pub(crate) fn view(&self) -> View {
        let mut view = View::default();
        for (key, value) in self.values.iter().filter(|(key, _)| !key.starts_with(ENDPOINTS)) {
            view.observe(key, Some((value.bytes.clone(), 1)), 1);
        }
        view.complete(KEPT[1], 1);
        view
    }

    /// What is written down, as much as fits, the profiles of `used` names before others; `amend`
    /// may put other values in the place of some.
    pub(crate) fn write(
        &self,
        used: &BTreeSet<String>,
        known: &mut Known,
        amend: impl FnOnce(&mut BTreeMap<String, String>),
    ) {
        (known.objects, known.is_whole) = self.objects(used);
        amend(&mut known.objects);
        let revision = |(key, text): (&String, &String)| {
            let value = self.values.get(key).filter(|it| it.bytes == text.as_bytes())?;
            Some((key.clone(), value.revision))
        };
        known.revisions = known.objects.iter().filter_map(revision).collect();
        let earlier = |(key, it): (&String, &Value)| {
            let value = std::str::from_utf8(&it.bytes).ok()?.to_owned();
            Some((key.clone(), Earlier { value, revision: it.revision }))
        };
        known.earlier = self.earlier.iter().filter_map(earlier).collect();
    }

    /// As much as fits, and whether that is all.
    fn objects(&self, used: &BTreeSet<String>) -> (BTreeMap<String, String>, bool) {
        let rank = |key: &str| {
            let kind = KEPT.iter().position(|prefix| key.starts_with(prefix));
            let is_used = key.strip_prefix(PROFILES).is_some_and(|name| used.contains(name));
            (kind, !is_used)
        };
        let mut all: Vec<(&String, &Value)> = self.values.iter().collect();
        all.sort_by_key(|(key, _)| rank(key));
        let mut room = BYTES_MAX;
        let mut objects = BTreeMap::new();
        for (key, value) in all {
            // A value that is no text is no object either.
            let Ok(text) = std::str::from_utf8(&value.bytes) else { continue };
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

fn protects(key: &str) -> bool {
    KEPT[FIRST_PROTECTING..].iter().any(|prefix| key.starts_with(prefix))
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
            memory.take(key, Some(b"{}"), 1, true);
        }
        assert!(memory.take_changed());
        let kept: Vec<String> = memory.objects(&BTreeSet::new()).0.into_keys().collect();
        assert_eq!(kept, [all[3].clone(), all[0].clone()]);
        memory.take(&all[3], Some(b"{}"), 2, true);
        memory.take(&all[4], None, 2, true);
        assert!(!memory.take_changed());
        memory.take(&all[3], None, 2, true);
        assert!(memory.take_changed() && memory.get(&all[3]).is_none());
    }

    const POLICY: &str = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/p";

    fn policy(selector: &str) -> String {
        let rules = r#"[{"action":"Deny"}]"#;
        let spec = format!(r#"{{"selector":"{selector}","ingress":{rules}}}"#);
        format!(r#"{{"metadata":{{"name":"p"}},"spec":{spec}}}"#)
    }

    /// The policies of a node that has taken these values of one, each as of its place; and the
    /// revision that is kept.
    fn taken(memory: &mut Memory, selectors: &[&str], is_settled: bool) -> (usize, Option<i64>) {
        let mut inputs = Inputs::new("n1");
        for (revision, selector) in (1..).zip(selectors) {
            let value = policy(selector);
            let was_usable = !inputs.quarantined().contains_key(POLICY);
            memory.take(POLICY, Some(value.as_bytes()), revision, was_usable);
            memory.tell(&mut inputs, POLICY, Some(value.as_bytes()), None);
            if is_settled {
                memory.settle(&inputs);
            }
        }
        (inputs.census().policies, inputs.kept(POLICY))
    }

    #[test]
    fn the_last_value_that_can_be_read_stays_in_force() {
        let (good, bad) = ("all()", "a ==");
        for is_settled in [true, false] {
            for (values, wanted) in [
                (&[good, bad][..], (1, Some(1))),
                (&[good, "has(a)", bad], (1, Some(2))),
                (&[good, bad, "b =="], (1, Some(1))),
                (&[good, bad, "has(a)", "b =="], (1, Some(3))),
                (&[good, bad, good], (1, None)),
                (&[bad], (0, None)),
                (&[bad, "b =="], (0, None)),
            ] {
                let found = taken(&mut Memory::new("n1"), values, is_settled);
                assert_eq!(found, wanted, "{values:?}");
            }
        }
    }

    #[test]
    fn the_next_run_knows_it_too_and_a_removal_ends_it() {
        let mut memory = Memory::new("n1");
        taken(&mut memory, &["all()", "a =="], true);
        let mut known = Known::new("n1", "etcd");
        memory.write(&BTreeSet::new(), &mut known, |_| ());
        for known in [known.clone(), {
            // It went bad while no agent ran.
            let mut before = Known::new("n1", "etcd");
            let mut memory = Memory::new("n1");
            memory.take(POLICY, Some(policy("all()").as_bytes()), 1, true);
            memory.write(&BTreeSet::new(), &mut before, |_| ());
            before
        }] {
            let mut memory = Memory::new("n1");
            memory.learn(&known);
            let (mut inputs, bad) = (Inputs::new("n1"), policy("b =="));
            memory.take(POLICY, Some(bad.as_bytes()), 9, false);
            memory.tell(&mut inputs, POLICY, Some(bad.as_bytes()), None);
            assert_eq!(inputs.kept(POLICY), Some(1));
            memory.tell_aside(&mut inputs, POLICY, bad.as_bytes(), "it does harm");
            assert_eq!((inputs.census().policies, inputs.kept(POLICY)), (1, Some(1)));
            assert_eq!(inputs.quarantined()[POLICY], ["it does harm"]);
            memory.tell_aside(&mut inputs, POLICY, policy("all()").as_bytes(), "it does harm");
            assert_eq!((inputs.census().policies, inputs.kept(POLICY)), (0, None));
            memory.take(POLICY, None, 10, false);
            memory.tell(&mut inputs, POLICY, None, None);
            memory.take(POLICY, Some(bad.as_bytes()), 11, true);
            memory.tell(&mut inputs, POLICY, Some(bad.as_bytes()), None);
            assert_eq!((inputs.census().policies, inputs.kept(POLICY)), (0, None));
        }
        let recalled = Memory::recall("n1", &known).inputs("n1");
        assert_eq!(recalled.kept(POLICY), Some(1));
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_used_profiles_go_first() {
        let mut memory = Memory::new("n1");
        let large = vec![b' '; BYTES_MAX / 3];
        for name in ["a", "b", "c", "d"] {
            memory.take(&format!("{PROFILES}{name}"), Some(&large), 1, true);
        }
        let used = BTreeSet::from(["d".to_owned()]);
        let (kept, is_whole) = memory.objects(&used);
        assert!(!is_whole);
        let kept: Vec<String> = kept.into_keys().collect();
        assert_eq!(kept, [format!("{PROFILES}a"), format!("{PROFILES}d")]);
    }
}
