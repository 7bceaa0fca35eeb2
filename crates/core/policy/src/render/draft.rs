//! The next state of the table, drawn over the one that stands.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use nft::wire::Writer;
use nft::{Chain, DataType, Element, Key, Rule, Set, TableFamily, TableId, Verdict};

use crate::input::PolicyId;
use crate::intent::{Directions, Dirty, Intent};
use crate::set::SetId;

use super::members::by_address;
use super::name;
use super::plan::{ChainPlan, Fill, In, Plan, SetPlan};
use super::settings::Settings;
use super::state::{Body, Kind, Object, Origin, SetUse, State};

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
    pub(super) kinds: BTreeMap<SetUse, Kind>,
    /// What the kernel refused: it stands as before, unless it is dirty.
    debts: &'a Dirty,
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
        debts: &'a Dirty,
    ) -> Self {
        Self {
            settings,
            intent,
            dirty,
            base,
            plan: Plan { gone: base.litter.clone(), ..Plan::default() },
            objects: BTreeMap::new(),
            users: BTreeMap::new(),
            kinds: BTreeMap::new(),
            debts,
            idle: BTreeSet::new(),
        }
    }

    pub(super) fn object(&self, name: &str) -> Option<&Object> {
        match self.objects.get(name) {
            Some(changed) => changed.as_ref(),
            None => self.base.objects.get(name),
        }
    }

    /// The rules of a policy: those that stand, if others were refused.
    pub(super) fn policy(&self, id: &PolicyId) -> Option<&'a Arc<Directions>> {
        let is_held = self.debts.policies.contains(id) && !self.dirty.policies.contains(id);
        let stands = self.base.policies.get(id).filter(|_| is_held);
        stands.or_else(|| self.intent.policies.get(id))
    }

    /// The rules of a profile, likewise.
    pub(super) fn profile(&self, name: &String) -> Option<&'a Arc<Directions>> {
        let is_held = self.debts.profiles.contains(name) && !self.dirty.profiles.contains(name);
        let stands = self.base.profiles.get(name).filter(|_| is_held);
        stands.or_else(|| self.intent.profiles.get(name))
    }

    /// Whether the last change of an IP set was refused.
    fn is_stale(&self, id: &SetId) -> bool {
        self.debts.sets.contains_key(id)
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
        let uses: Vec<String> = scope.uses.into_iter().collect();
        let sets = scope.sets.into_iter().collect();
        let (base, digest, n_rules) = (chain.base.clone(), digest(&rules), rules.len());
        let object = Object { uses, body: Body::Chain { base, digest, n_rules, origin, sets } };
        let before = self.object(&name);
        if before == Some(&object) {
            return;
        }
        // Its parts can differ while its own rules are the same.
        let has_same_rules = before.is_some_and(|before| before.has_rules_of(&object));
        let released = before.map(|it| it.uses.clone()).unwrap_or_default();
        object.uses.iter().for_each(|it| self.retain(it));
        released.iter().for_each(|it| self.release(it));
        self.put(&name, object);
        if !has_same_rules {
            let is_new = !self.base.objects.contains_key(&name);
            self.plan.chains.insert((In::Inet, name), ChainPlan { chain, is_new, rules });
        }
    }

    /// A set that holds these keys for good, shared by all that ask for the same.
    pub(super) fn fixed_set(&mut self, prefix: &str, set: Set, keys: Vec<Key>) -> String {
        let keys: BTreeSet<Key> = keys.into_iter().collect();
        let name = name::of_keys(prefix, &set, keys.iter());
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
        let set = using.set(self.kind(using).is_wide());
        if self.object(&set.name).is_none() {
            let body = Body::Members(using.clone(), set.clone());
            self.put_set(&set, body, Vec::new(), Fill::All(using.clone()));
        }
        set.name
    }

    /// A map from the addresses of IP sets to chains, those of the first set that has them.
    pub(super) fn address_map(&mut self, is_ipv4: bool, targets: Vec<(SetId, String)>) -> String {
        let parts = targets.iter().flat_map(|(id, chain)| [id.as_str(), chain.as_str()]);
        let (number, family) = if is_ipv4 { (4, DataType::Ipv4) } else { (6, DataType::Ipv6) };
        let name = format!("addresses{number}-{}", name::digest(parts));
        if self.object(&name).is_some() {
            return name;
        }
        let set = Set::new(&name, &[family]).to_verdicts();
        let uses: BTreeSet<String> = targets.iter().map(|(_, chain)| chain.clone()).collect();
        uses.iter().for_each(|it| self.retain(it));
        let (_, entries) = by_address(&targets, is_ipv4, &self.intent.sets, None);
        let body = Body::Addresses { set: set.clone(), is_ipv4, targets };
        let fill = Fill::Anew(entries.into_iter().map(leading).collect());
        self.put_set(&set, body, uses.into_iter().collect(), fill);
        name
    }

    /// Changes the entries of a map from addresses after its sets have changed.
    pub(super) fn change_addresses(&mut self, name: &str) {
        let Some(Body::Addresses { set, is_ipv4, targets }) =
            self.base.objects.get(name).map(|it| &it.body)
        else {
            return;
        };
        let key = (In::Inet, name.to_owned());
        if self.object(name).is_none() || self.plan.sets.contains_key(&key) {
            return;
        }
        if targets.iter().any(|(id, _)| self.is_stale(id)) {
            let (_, entries) = by_address(targets, *is_ipv4, &self.intent.sets, None);
            let fill = Fill::Anew(entries.into_iter().map(leading).collect());
            self.plan.sets.insert(key, SetPlan { set: set.clone(), is_new: false, fill });
            return;
        }
        let (mut before, mut after) =
            by_address(targets, *is_ipv4, &self.intent.sets, Some(self.dirty));
        before.retain(|address, chain| {
            let is_same = after.get(address) == Some(chain);
            if is_same {
                after.remove(address);
            }
            !is_same
        });
        let removed: Vec<Element> = before.into_iter().map(leading).collect();
        let added: Vec<Element> = after.into_iter().map(leading).collect();
        if removed.is_empty() && added.is_empty() {
            return;
        }
        let fill = Fill::By { removed, added };
        self.plan.sets.insert(key, SetPlan { set: set.clone(), is_new: false, fill });
    }

    /// Of what sort an IP set is.
    pub(super) fn kind(&mut self, using: &SetUse) -> Kind {
        if let Some(known) = self.kinds.get(using) {
            return *known;
        }
        let is_unknown = self.is_stale(&using.id) && self.dirty.sets.contains_key(&using.id);
        let stood = self.base.kinds.get(using).filter(|_| !is_unknown);
        let kind = match (stood, self.dirty.sets.get(&using.id)) {
            (Some(stood), None) => *stood,
            (Some(stood), Some(change)) => {
                let (came, went) = (using.kind(&change.added), using.kind(&change.removed));
                Kind {
                    n_members: (stood.n_members + came.n_members).saturating_sub(went.n_members),
                    n_wide: (stood.n_wide + came.n_wide).saturating_sub(went.n_wide),
                }
            }
            (None, _) => {
                let set = self.intent.sets.get(&using.id);
                set.map_or_else(Kind::default, |set| using.kind(&set.members))
            }
        };
        self.kinds.insert(using.clone(), kind);
        kind
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
        self.plan.gone.chains.remove(name);
        self.plan.gone.sets.remove(name);
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
            let (plan, litter) = (&mut self.plan, &self.base.litter);
            plan.chains.remove(&key);
            plan.sets.remove(&key);
            let stands = self.base.objects.contains_key(&name);
            if !stands && !litter.chains.contains(&name) && !litter.sets.contains(&name) {
                continue;
            }
            match object.body {
                Body::Chain { base, .. } => {
                    if base.is_some() {
                        plan.gone_bases.insert(name.clone());
                    }
                    plan.gone.chains.insert(name);
                }
                _ => drop(plan.gone.sets.insert(name)),
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

/// An entry that leads from an address to a chain.
pub(super) fn leading((address, chain): (IpAddr, String)) -> Element {
    Element::verdict(Key::address(address), Verdict::Goto(chain))
}

/// The chain that a verdict leads to.
pub(super) fn target(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Jump(chain) | Verdict::Goto(chain) => Some(chain.clone()),
        _ => None,
    }
}

/// A digest of rules.
pub(super) fn digest(rules: &[Rule]) -> String {
    let table = TableId::new(TableFamily::Inet, "");
    let mut writer = Writer::default();
    for rule in rules {
        writer.nest(1, |body| rule.encode(&table, body));
    }
    name::digest_of(writer.bytes())
}
