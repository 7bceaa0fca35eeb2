//! The next state of the table, drawn over the one that stands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nft::wire::Writer;
use nft::{Chain, Element, Key, Rule, Set, TableFamily, TableId, Verdict};

use crate::intent::{Dirty, Intent};
use crate::set::SetId;

use super::name;
use super::plan::{ChainPlan, Fill, In, Plan, SetPlan};
use super::settings::Settings;
use super::state::{Body, Object, Origin, SetUse, State};

/// A change in the making.
pub(super) struct Draft<'a> {
    pub(super) settings: &'a Settings,
    pub(super) intent: &'a Intent,
    pub(super) dirty: &'a Dirty,
    pub(super) base: &'a State,
    pub(super) plan: Plan,
    /// What differs from `base`; none where something is gone.
    pub(super) objects: BTreeMap<String, Option<Object>>,
    pub(super) users: BTreeMap<String, usize>,
    pub(super) wide: BTreeMap<SetUse, usize>,
    /// IP sets whose last change the kernel refused.
    pub(super) stale: BTreeSet<SetId>,
    /// What nobody uses any more, or not yet.
    idle: BTreeSet<String>,
}

/// What the rules of a chain name.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) uses: BTreeSet<String>,
    pub(super) sets: BTreeSet<SetUse>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        intent: &'a Intent,
        dirty: &'a Dirty,
        base: &'a State,
    ) -> Self {
        Self {
            settings,
            intent,
            dirty,
            base,
            plan: Plan::default(),
            objects: BTreeMap::new(),
            users: BTreeMap::new(),
            wide: BTreeMap::new(),
            stale: BTreeSet::new(),
            idle: BTreeSet::new(),
        }
    }

    pub(super) fn object(&self, name: &str) -> Option<&Object> {
        match self.objects.get(name) {
            Some(changed) => changed.as_ref(),
            None => self.base.objects.get(name),
        }
    }

    pub(super) fn n_users(&self, name: &str) -> usize {
        let n = self.users.get(name).or_else(|| self.base.users.get(name));
        n.copied().unwrap_or(0)
    }

    pub(super) fn retain(&mut self, name: &str) {
        let n_users = self.n_users(name) + 1;
        self.users.insert(name.to_owned(), n_users);
    }

    pub(super) fn release(&mut self, name: &str) {
        let n_users = self.n_users(name).saturating_sub(1);
        self.users.insert(name.to_owned(), n_users);
        if n_users == 0 {
            self.idle.insert(name.to_owned());
        }
    }

    /// Lets a chain go that stood by itself.
    pub(super) fn unpin(&mut self, name: &str) {
        if self.object(name).is_some() {
            self.release(name);
        }
    }

    /// Makes a chain have these rules, whether it is there or not.
    pub(super) fn put_chain(
        &mut self,
        chain: Chain,
        rules: Vec<Rule>,
        scope: Scope,
        origin: Option<Arc<Origin>>,
    ) {
        let name = chain.name.clone();
        let digest = digest(&rules);
        let uses: Vec<String> = scope.uses.into_iter().collect();
        let before = self.object(&name);
        let is_same = matches!(
            before.map(|it| &it.body), Some(Body::Chain { digest: it, .. }) if *it == digest
        );
        if is_same {
            return;
        }
        let stood = self.base.objects.contains_key(&name);
        let released = before.map(|it| it.uses.clone()).unwrap_or_default();
        uses.iter().for_each(|it| self.retain(it));
        released.iter().for_each(|it| self.release(it));
        let sets = scope.sets.into_iter().collect();
        let object = Object { uses, body: Body::Chain { digest, origin, sets } };
        self.put(&name, object);
        self.plan.chains.insert((In::Inet, name), ChainPlan { chain, is_new: !stood, rules });
    }

    /// A set that holds these keys for good, shared by all that ask for the same.
    pub(super) fn fixed_set(&mut self, prefix: &str, set: Set, keys: Vec<Key>) -> String {
        let text = format!("{:?}{}{keys:?}", set.key, set.has_ranges);
        let name = format!("{prefix}-{}", name::digest([text.as_str()]));
        if self.object(&name).is_none() {
            let set = Set { name: name.clone(), ..set };
            let added = keys.into_iter().map(Element::member).collect();
            let fill = Fill::By { removed: Vec::new(), added };
            self.put_set(&set, Body::Fixed(set.clone()), Vec::new(), fill);
        }
        name
    }

    /// A map with these entries.
    pub(super) fn put_map(&mut self, set: Set, entries: BTreeMap<Key, Verdict>) {
        let before = self.object(&set.name);
        if matches!(before.map(|it| &it.body), Some(Body::Map(_, it)) if *it == entries) {
            return;
        }
        let released = before.map(|it| it.uses.clone()).unwrap_or_default();
        let mut uses: Vec<String> = entries.values().filter_map(target).collect();
        uses.sort();
        uses.dedup();
        uses.iter().for_each(|it| self.retain(it));
        released.iter().for_each(|it| self.release(it));
        let none = BTreeMap::new();
        let stands = match self.base.objects.get(&set.name).map(|it| &it.body) {
            Some(Body::Map(_, entries)) => entries,
            _ => &none,
        };
        let removed = missing(stands, &entries);
        let added = missing(&entries, stands);
        let fill = Fill::By { removed, added };
        self.put_set(&set, Body::Map(set.clone(), entries), uses, fill);
    }

    /// The name of the kernel's set for an IP set, which is made if it is not there.
    pub(super) fn ip_set(&mut self, using: &SetUse) -> String {
        let set = using.set(self.n_wide(using) > 0);
        if self.object(&set.name).is_none() {
            let body = Body::Members(using.clone(), set.clone());
            self.put_set(&set, body, Vec::new(), Fill::All(using.clone()));
        }
        set.name
    }

    /// How many members of an IP set are more than one address.
    pub(super) fn n_wide(&mut self, using: &SetUse) -> usize {
        if let Some(known) = self.wide.get(using) {
            return *known;
        }
        let stood = self.base.wide.get(using).filter(|_| !self.stale.contains(&using.id));
        let n_wide = match (stood, self.dirty.sets.get(&using.id)) {
            (Some(stood), None) => *stood,
            (Some(stood), Some(change)) => {
                (*stood + using.n_wide(&change.added)).saturating_sub(using.n_wide(&change.removed))
            }
            (None, _) => {
                let set = self.intent.sets.get(&using.id);
                set.map_or(0, |set| using.n_wide(&set.members))
            }
        };
        self.wide.insert(using.clone(), n_wide);
        n_wide
    }

    fn put_set(&mut self, set: &Set, body: Body, uses: Vec<String>, fill: Fill) {
        let is_new = !self.base.objects.contains_key(&set.name);
        let has_entries = matches!(body, Body::Map(..));
        self.put(&set.name, Object { uses, body });
        // What was given up a moment ago still stands; changes of its members come last.
        if !is_new && !has_entries {
            return;
        }
        let plan = SetPlan { set: set.clone(), is_new, fill };
        self.plan.sets.insert((In::Inet, set.name.clone()), plan);
    }

    fn put(&mut self, name: &str, object: Object) {
        self.plan.gone_chains.remove(name);
        self.plan.gone_sets.remove(name);
        self.objects.insert(name.to_owned(), Some(object));
        if self.n_users(name) == 0 {
            self.idle.insert(name.to_owned());
        }
    }

    /// Removes what nobody uses.
    pub(super) fn sweep(&mut self) {
        while let Some(name) = self.idle.pop_first() {
            if self.n_users(&name) > 0 {
                continue;
            }
            let Some(object) = self.object(&name).cloned() else { continue };
            object.uses.iter().for_each(|used| self.release(used));
            self.objects.insert(name.clone(), None);
            let key = (In::Inet, name.clone());
            let is_chain = matches!(object.body, Body::Chain { .. });
            self.plan.chains.remove(&key);
            self.plan.sets.remove(&key);
            if self.base.objects.contains_key(&name) {
                let plan = &mut self.plan;
                let gone = if is_chain { &mut plan.gone_chains } else { &mut plan.gone_sets };
                gone.insert(name);
            }
        }
    }
}

/// The entries of the first that the second does not have just so.
fn missing(of: &BTreeMap<Key, Verdict>, from: &BTreeMap<Key, Verdict>) -> Vec<Element> {
    let is_missing = |(key, verdict): &(&Key, &Verdict)| from.get(*key) != Some(*verdict);
    let element = |(key, verdict): (&Key, &Verdict)| Element::verdict(key.clone(), verdict.clone());
    of.iter().filter(is_missing).map(element).collect()
}

fn target(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Jump(chain) | Verdict::Goto(chain) => Some(chain.clone()),
        _ => None,
    }
}

fn digest(rules: &[Rule]) -> String {
    let table = TableId::new(TableFamily::Inet, "");
    let mut writer = Writer::default();
    for rule in rules {
        writer.nest(1, |body| rule.encode(&table, body));
    }
    name::digest_of(writer.bytes())
}
