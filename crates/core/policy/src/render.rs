//! The intent of a node as its nftables ruleset: one table for both families, and one for ARP.
//!
//! What [`crate::Judge`] says of a packet is what the kernel does with it, and the rule that
//! decides carries its [`crate::RuleName`] as comment. A [`Renderer`] knows what stands and makes
//! the transaction that leads from there to another intent; its work follows what is dirty.
//!
//! Packets enter by `forward`, `input` and the like, are dispatched by their interface through a
//! map to the chains of its endpoint (`program`), and come back from there if they are allowed. An
//! interface that is in no map is closed.

mod audit;
mod base;
mod chain;
mod clause;
mod denial;
mod draft;
mod emit;
mod host;
mod members;
mod name;
mod plan;
mod program;
mod replace;
mod ruleset;
mod settings;
mod state;
mod surroundings;
mod table;
#[cfg(test)]
mod tests;
mod tunnel;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use nft::{Batch, Table};

use crate::input::{Key, PolicyId};
use crate::intent::{Directions, Dirty, Intent, SetChange};
use crate::set::SetId;

use draft::Draft;
use plan::{Fill, In, Plan, SetPlan, Transaction};
use state::{Body, Kind, Litter, Object, SetUse, State, chains_of};
use workload::Placed;

pub use denial::{denial_chains, n_untold};
pub use host::is_of_hosts;
pub use replace::Standing;
pub use ruleset::{DISPATCH, Filled, Ruleset, Sizes, places};
pub use settings::{
    Counters, DenyAction, EndpointToHost, Failsafe, Listeners, Rate, ServiceLoops, Settings,
    Surroundings, Tunnels,
};

/// So many chains and sets may stand that nothing leads to.
const LITTER_MAX: usize = 64;

/// Renders intents for a table, and knows what stands in it.
#[derive(Clone, Debug)]
pub struct Renderer {
    settings: Settings,
    state: State,
    /// What was refused and stands as it was before.
    debts: Dirty,
}

/// Transactions, and what stands once they are committed.
#[derive(Debug)]
pub struct Change {
    /// The transactions, to be committed one after the other; none if there is nothing to do. What
    /// is in force after each of them is what was before, or what is wanted.
    pub steps: Vec<Step>,
    /// What cannot be carried out, and stands as before.
    pub refused: Vec<Refusal>,
    is_anew: bool,
    objects: BTreeMap<String, Option<Object>>,
    users: BTreeMap<String, usize>,
    kinds: BTreeMap<SetUse, Kind>,
    workloads: BTreeMap<Key, Option<Placed>>,
    /// IP sets that may be gone.
    touched: Vec<SetUse>,
    waiting: Option<BTreeSet<(String, Key)>>,
    surroundings: Option<Surroundings>,
    done: Dirty,
    policies: BTreeMap<PolicyId, Option<Arc<Directions>>>,
    profiles: BTreeMap<String, Option<Arc<Directions>>>,
    /// What is there after the first part, and nothing leads to yet.
    fresh: Litter,
    /// What is there until the last part, and nothing leads to any more.
    gone: Litter,
}

/// A transaction of several.
#[derive(Debug)]
pub struct Step {
    /// The transaction.
    pub batch: Batch,
    /// Whether no packet may be under way any more that has met what stood before the last one.
    pub waits: bool,
    part: Part,
}

/// What a transaction of several is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It makes what nothing leads to yet.
    Prepare,
    /// It brings what is wanted into force.
    Switch,
    /// It removes what nothing leads to any more.
    Tidy,
}

/// Something that nftables cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is.
    pub object: Refused,
    /// Why.
    pub limit: Limit,
}

/// What can be refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// A workload: its interface stays as it was, closed if it is new.
    Workload(Key),
    /// A host endpoint.
    Host(Key),
    /// A policy.
    Policy(PolicyId),
    /// A profile.
    Profile(String),
    /// An IP set.
    Set(SetId),
    /// Pools, services and interfaces of this host.
    Surroundings,
}

/// What is exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No interface can have this name.
    InterfaceName(String),
    /// Another endpoint, stored there, has the interface.
    TakenInterface(Key),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(key) => write!(f, "workload endpoint {key}"),
            Self::Host(key) => write!(f, "host endpoint {key}"),
            Self::Policy(id) => write!(f, "{id}"),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Set(id) => write!(f, "IP set {id}"),
            Self::Surroundings => f.write_str("the pools, services and interfaces of this node"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.limit)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InterfaceName(name) => write!(f, "interface {name:?} should have 1 to 15 bytes"),
            Self::TakenInterface(key) => write!(f, "its interface is that of {key}"),
        }
    }
}

impl Renderer {
    /// For a table of which nothing is known.
    pub fn new(settings: Settings) -> Self {
        Self { settings, state: State::default(), debts: Dirty::default() }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Everything anew, in the place of whatever stands under our names.
    pub fn install(&self, intent: &Intent, surroundings: &Surroundings) -> Change {
        self.drafted(intent, &whole(intent), surroundings, true).0
    }

    fn step(&self, part: Part, fill: impl FnOnce(&mut Transaction)) -> Step {
        Step::with(self.tables(), part, fill)
    }

    /// What leads to an intent from the one that stands, where they differ by what is dirty.
    pub fn update(&self, intent: &Intent, dirty: &Dirty, surroundings: &Surroundings) -> Change {
        self.drafted(intent, dirty, surroundings, false).0
    }

    fn drafted(
        &self,
        intent: &Intent,
        dirty: &Dirty,
        surroundings: &Surroundings,
        is_anew: bool,
    ) -> (Change, Plan) {
        let (nothing, no_debts) = (State::default(), Dirty::default());
        let (base, debts) = match is_anew {
            true => (&nothing, &no_debts),
            false => (&self.state, &self.debts),
        };
        let draft = |dirty| Draft::new(&self.settings, intent, dirty, base, debts);
        let dirty = &*program::with_turned(&draft(dirty));
        let mut draft = draft(dirty);
        let mut change = Change::of(is_anew);
        if is_anew {
            draft.plan.is_anew = true;
            for (table, set) in still_sets() {
                let fill = Fill::By { removed: Vec::new(), added: Vec::new() };
                let key = (table, set.name.clone());
                draft.plan.sets.insert(key, SetPlan { set, is_new: true, fill });
            }
        }
        if is_anew || *surroundings != base.surroundings {
            surroundings::replace(&base.surroundings, surroundings, &mut draft);
            change.surroundings = Some(surroundings.clone());
        }
        host::place(&mut draft, surroundings);
        workload::place(&mut draft, &mut change);
        draft.sweep();
        self.render_again(&mut draft);
        draft.sweep();
        self.members(&mut draft);
        change.done = dirty.clone();
        change.rules_of(intent);
        change.steps = match is_anew {
            true => vec![self.step(Part::Switch, |it| draft.plan.carry_out(intent, it))],
            false => vec![
                self.step(Part::Prepare, |it| draft.plan.prepare(intent, it)),
                self.step(Part::Switch, |it| draft.plan.switch(intent, it)),
                self.step(Part::Tidy, |it| draft.plan.tidy(it)),
            ],
        };
        (change.fresh, change.gone) = (draft.plan.fresh(), draft.plan.gone.clone());
        change.steps.retain(|step| !step.batch.is_empty());
        for name in draft.objects.keys() {
            if let Some(Body::Chain { sets, .. }) = base.objects.get(name).map(|it| &it.body) {
                change.touched.extend(sets.iter().cloned());
            }
        }
        change.touched.extend(draft.kinds.keys().cloned());
        (change.objects, change.users, change.kinds) = (draft.objects, draft.users, draft.kinds);
        (change, draft.plan)
    }

    /// Writes the chains again that were made from something dirty.
    fn render_again(&self, draft: &mut Draft<'_>) {
        let (base, dirty) = (draft.base, draft.dirty);
        let mut chains: BTreeSet<String> = BTreeSet::new();
        for policy in &dirty.policies {
            chains.extend(chains_of(&base.by_policy, policy).cloned());
        }
        for profile in &dirty.profiles {
            chains.extend(chains_of(&base.by_profile, profile).cloned());
        }
        for using in dirty.sets.keys().flat_map(SetUse::all) {
            let Some(stood) = base.kinds.get(&using) else { continue };
            if !stood.is_like(draft.kind(&using)) {
                chains.extend(chains_of(&base.by_set, &using).cloned());
            }
        }
        for chain in chains {
            if let Some(Object { body: Body::Chain { origin: Some(origin), .. }, .. }) =
                draft.object(&chain)
            {
                let origin = origin.clone();
                chain::render(draft, &chain, &origin);
            }
        }
    }

    /// Changes the members of the IP sets that stand before and after.
    fn members(&self, draft: &mut Draft<'_>) {
        let (base, dirty) = (draft.base, draft.dirty);
        for (id, change) in &dirty.sets {
            for using in SetUse::all(id).filter(|using| base.kinds.contains_key(using)) {
                for name in chains_of(&base.by_set, &using) {
                    draft.change_addresses(name);
                }
                let set = using.set(draft.kind(&using).is_wide());
                let stands = base.objects.contains_key(&set.name);
                if !stands || draft.object(&set.name).is_none() {
                    continue;
                }
                let fill = match self.debts.sets.contains_key(id) {
                    true => Fill::All(using),
                    false => Fill::Change(using, change.clone()),
                };
                let key = (In::Inet, set.name.clone());
                draft.plan.sets.insert(key, SetPlan { set, is_new: false, fill });
            }
        }
    }

    /// The transaction of a change was committed: that is what stands now.
    pub fn committed(&mut self, change: Change) {
        if change.is_anew {
            self.state = State::default();
            self.debts = Dirty::default();
        }
        let state = &mut self.state;
        state.litter = Litter::default();
        state.kinds.extend(change.kinds);
        for (name, object) in change.objects {
            let before = state.objects.remove(&name);
            state.index(&name, before.as_ref(), object.as_ref());
            if let Some(object) = object {
                state.objects.insert(name, object);
            }
        }
        for (name, n_users) in change.users {
            if n_users == 0 {
                state.users.remove(&name);
            } else {
                state.users.insert(name, n_users);
            }
        }
        for using in change.touched {
            if chains_of(&state.by_set, &using).next().is_none() {
                state.kinds.remove(&using);
            }
        }
        for (key, placed) in change.workloads {
            state.place(key, placed);
        }
        put_all(&mut state.policies, change.policies);
        put_all(&mut state.profiles, change.profiles);
        if let Some(waiting) = change.waiting {
            state.waiting = waiting;
        }
        if let Some(surroundings) = change.surroundings {
            state.surroundings = surroundings;
        }
        self.debts.settle(&change.done);
    }

    /// Of the transactions of a change so many were committed, and the next one was not. Whether
    /// what is wanted is in force all the same: only what nothing leads to any more is left.
    pub fn stopped(&mut self, change: Change, n_committed: usize) -> bool {
        match change.steps.get(n_committed).map(|step| step.part) {
            Some(Part::Prepare) => false,
            Some(Part::Switch) => {
                if n_committed > 0 {
                    self.state.litter.extend(change.fresh);
                }
                false
            }
            Some(Part::Tidy) | None => {
                let gone = change.gone.clone();
                self.committed(change);
                self.state.litter = gone;
                true
            }
        }
    }

    /// Whether nothing stands that nothing leads to.
    pub fn is_tidy(&self) -> bool {
        self.state.litter.is_empty()
    }

    /// The surroundings that stand.
    pub fn surroundings(&self) -> &Surroundings {
        &self.state.surroundings
    }

    /// The kernel refused what was made from these: it stands as before, and is owed.
    pub fn refused(&mut self, dirty: &Dirty) {
        let debts = &mut self.debts;
        debts.workloads.extend(dirty.workloads.iter().cloned());
        debts.hosts.extend(dirty.hosts.iter().cloned());
        debts.policies.extend(dirty.policies.iter().cloned());
        debts.profiles.extend(dirty.profiles.iter().cloned());
        debts.sets.extend(dirty.sets.keys().map(|id| (id.clone(), SetChange::default())));
    }

    /// These are to be carried out one after the other: until it is its turn, each policy and
    /// profile has the rules that stand, so that no other is refused in its place.
    pub fn hold(&mut self, dirty: &Dirty) {
        self.debts.policies.extend(dirty.policies.iter().cloned());
        self.debts.profiles.extend(dirty.profiles.iter().cloned());
    }

    /// What was refused and not carried out since: to be tried again as dirty.
    pub fn debts(&self) -> &Dirty {
        &self.debts
    }

    /// Parts of what is dirty that can be carried out one after the other, each by an update of its
    /// own: to find the one that the kernel refuses.
    pub fn pieces(&self, dirty: &Dirty) -> Vec<Dirty> {
        let mut pieces = Vec::new();
        // A set that is not there yet comes with the first rule that names it.
        let stands =
            |id: &SetId| SetUse::all(id).any(|using| self.state.kinds.contains_key(&using));
        for (id, change) in dirty.sets.iter().filter(|(id, _)| stands(id)) {
            let sets = BTreeMap::from([(id.clone(), change.clone())]);
            pieces.push(Dirty { sets, ..Dirty::default() });
        }
        for policy in &dirty.policies {
            let policies = BTreeSet::from([policy.clone()]);
            pieces.push(Dirty { policies, ..Dirty::default() });
        }
        for profile in &dirty.profiles {
            let profiles = BTreeSet::from([profile.clone()]);
            pieces.push(Dirty { profiles, ..Dirty::default() });
        }
        for key in &dirty.workloads {
            let workloads = BTreeSet::from([key.clone()]);
            pieces.push(Dirty { workloads, ..Dirty::default() });
        }
        for key in &dirty.hosts {
            let hosts = BTreeSet::from([key.clone()]);
            pieces.push(Dirty { hosts, ..Dirty::default() });
        }
        pieces
    }
}

impl Step {
    fn with(tables: [Table; 2], part: Part, fill: impl FnOnce(&mut Transaction)) -> Self {
        let mut transaction = Transaction::new(tables);
        fill(&mut transaction);
        Self { batch: transaction.batch, waits: false, part }
    }
}

impl Dirty {
    /// Takes out what has been carried out.
    fn settle(&mut self, done: &Self) {
        self.workloads.retain(|it| !done.workloads.contains(it));
        self.hosts.retain(|it| !done.hosts.contains(it));
        self.policies.retain(|it| !done.policies.contains(it));
        self.profiles.retain(|it| !done.profiles.contains(it));
        self.sets.retain(|it, _| !done.sets.contains_key(it));
    }
}

impl Change {
    /// The transactions that bring what is wanted into force. The one that is left only removes
    /// what nothing leads to any more, and may wait for more of it ([`Renderer::stopped`]) unless
    /// that is much.
    pub fn pressing(&self) -> &[Step] {
        let is_tidying = self.steps.last().is_some_and(|step| step.part == Part::Tidy);
        let is_much = self.gone.len() > LITTER_MAX || self.steps.len() == 1;
        &self.steps[..self.steps.len() - usize::from(is_tidying && !is_much)]
    }

    /// Takes the rules that stand once it is committed.
    fn rules_of(&mut self, intent: &Intent) {
        if self.is_anew {
            let all = intent.policies.iter();
            self.policies = all.map(|(id, rules)| (id.clone(), Some(rules.clone()))).collect();
            let all = intent.profiles.iter();
            self.profiles = all.map(|(name, rules)| (name.clone(), Some(rules.clone()))).collect();
            return;
        }
        let policy = |id: &PolicyId| (id.clone(), intent.policies.get(id).cloned());
        self.policies = self.done.policies.iter().map(policy).collect();
        let profile = |name: &String| (name.clone(), intent.profiles.get(name).cloned());
        self.profiles = self.done.profiles.iter().map(profile).collect();
    }

    fn of(is_anew: bool) -> Self {
        Self {
            steps: Vec::new(),
            refused: Vec::new(),
            is_anew,
            objects: BTreeMap::new(),
            users: BTreeMap::new(),
            kinds: BTreeMap::new(),
            touched: Vec::new(),
            workloads: BTreeMap::new(),
            waiting: None,
            surroundings: None,
            done: Dirty::default(),
            policies: BTreeMap::new(),
            profiles: BTreeMap::new(),
            fresh: Litter::default(),
            gone: Litter::default(),
        }
    }
}

fn put_all<K: Ord, V>(into: &mut BTreeMap<K, V>, changes: BTreeMap<K, Option<V>>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(into.insert(key, value)),
            None => drop(into.remove(&key)),
        }
    }
}

/// Everything is dirty.
fn whole(intent: &Intent) -> Dirty {
    Dirty {
        workloads: intent.workloads.keys().cloned().collect(),
        hosts: intent.hosts.keys().cloned().collect(),
        ..Dirty::default()
    }
}

/// The sets and maps that stand still.
fn still_sets() -> impl Iterator<Item = (In, nft::Set)> {
    workload::sets().into_iter().chain(surroundings::sets()).chain(denial::sets())
}
