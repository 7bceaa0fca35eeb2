//! What stands in the kernel, as far as it is needed to change it: no members of IP sets.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::resource::Direction;
use nft::{Base, Key, Set, Verdict};

use crate::input::{Key as EndpointKey, PolicyId};
use crate::intent::Directions;
use crate::set::SetId;
use crate::verdict::End;

use super::settings::Surroundings;
use super::workload::Placed;

/// What stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    /// Chains and sets by name; no chain has the name of a set.
    pub(super) objects: BTreeMap<String, Object>,
    /// How many others use each of them.
    pub(super) users: BTreeMap<String, usize>,
    /// For each IP set that chains look at, what sort it is of.
    pub(super) kinds: BTreeMap<SetUse, Kind>,
    /// The workloads whose interfaces are open, by where they are stored.
    pub(super) workloads: BTreeMap<EndpointKey, Placed>,
    /// Which of them has an interface.
    pub(super) owners: BTreeMap<String, EndpointKey>,
    /// Which of them speak for an address.
    pub(super) speakers: BTreeMap<IpAddr, BTreeSet<EndpointKey>>,
    /// Those that want an interface which another has.
    pub(super) waiting: BTreeSet<(String, EndpointKey)>,
    pub(super) surroundings: Surroundings,
    /// The rules that stand, for those that are refused later.
    pub(super) policies: BTreeMap<PolicyId, Arc<Directions>>,
    pub(super) profiles: BTreeMap<String, Arc<Directions>>,
    /// What stands besides, and nothing leads to.
    pub(super) litter: Litter,
    /// The chains that were made from each.
    pub(super) by_policy: BTreeSet<(PolicyId, String)>,
    pub(super) by_profile: BTreeSet<(String, String)>,
    pub(super) by_set: BTreeSet<(SetUse, String)>,
}

/// Chains and sets that nothing leads to: they were made, and what should have led to them was
/// refused; or they should have gone, and that was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Litter {
    pub(super) chains: BTreeSet<String>,
    pub(super) sets: BTreeSet<String>,
}

impl Litter {
    pub(super) fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.sets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.chains.len() + self.sets.len()
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.chains.extend(other.chains);
        self.sets.extend(other.sets);
    }
}

/// A chain or a set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    /// The chains and sets it names, each once.
    pub(super) uses: Vec<String>,
    pub(super) body: Body,
}

impl Object {
    /// Whether both are chains with the same rules.
    pub(super) fn has_rules_of(&self, other: &Self) -> bool {
        match (&self.body, &other.body) {
            (Body::Chain { digest, .. }, Body::Chain { digest: of_other, .. }) => {
                digest == of_other
            }
            _ => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body {
    Chain {
        /// What makes it a base chain.
        base: Option<Base>,
        /// Of its rules.
        digest: String,
        n_rules: usize,
        origin: Option<Arc<Origin>>,
        /// The IP sets that its rules and those of its parts name.
        sets: Vec<SetUse>,
    },
    /// A set that never changes: its name says what is in it.
    Fixed(Set),
    /// A map from keys to chains.
    Map(Set, BTreeMap<Key, Verdict>),
    /// A map from the addresses of IP sets to chains: those of the first set that has them.
    Addresses { set: Set, is_ipv4: bool, targets: Vec<(SetId, String)> },
    /// An IP set.
    Members(SetUse, Set),
}

/// Which part of an IP set rules look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SetUse {
    pub(super) id: SetId,
    pub(super) is_ipv4: bool,
    /// Ports of addresses, or addresses.
    pub(super) has_ports: bool,
}

/// What the way to look at an IP set depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    /// How many members there are of this family.
    pub(super) n_members: usize,
    /// How many of them are more than one address.
    pub(super) n_wide: usize,
}

impl Kind {
    /// The power of two from which on sets count as equally large.
    const SIZE_MAX: u32 = 14;

    pub(super) fn is_wide(self) -> bool {
        self.n_wide > 0
    }

    /// About how many members it has, at most: a power of two, so that rules are not written again
    /// with every member that comes or goes.
    pub(super) fn size(self) -> usize {
        let power = self.n_members.next_power_of_two().trailing_zeros();
        1 << power.min(Self::SIZE_MAX)
    }

    /// Whether rules for the one are rules for the other.
    pub(super) fn is_like(self, other: Self) -> bool {
        self.is_wide() == other.is_wide() && self.size() == other.size()
    }
}

/// What a chain is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) lane: Lane,
    pub(super) part: Part,
    /// Where what is not decided goes on; nowhere if none.
    pub(super) next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The policies of a tier, none of them staged.
    Tier {
        name: String,
        end: End,
        policies: Vec<PolicyId>,
        /// Whether its chain may lead to others of its own.
        may_branch: bool,
    },
    Profile(String),
}

/// For which packets, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    pub(super) direction: Direction,
    pub(super) is_ipv4: bool,
    pub(super) stage: Stage,
}

/// Which rules of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Those of workloads, and of the host itself.
    Normal,
    /// Those of the host itself after routing, where nothing can be refused with a message.
    Translated,
    /// Those of a host for what it passes on.
    Forward,
    /// Those of a host before destination NAT.
    PreDnat,
    /// Those of a host before connection tracking.
    Untracked,
}

impl Stage {
    /// Whether profiles decide where no tier does.
    pub(super) fn has_profiles(self) -> bool {
        matches!(self, Self::Normal | Self::Translated)
    }
}

impl Lane {
    /// What the names of its chains begin with: `to4`, `from6`, with a letter for other stages.
    pub(super) fn prefix(self) -> String {
        let direction = match self.direction {
            Direction::Ingress => "to",
            Direction::Egress => "from",
        };
        let family = if self.is_ipv4 { 4 } else { 6 };
        let stage = match self.stage {
            Stage::Normal => "",
            Stage::Translated => "t",
            Stage::Forward => "f",
            Stage::PreDnat => "d",
            Stage::Untracked => "u",
        };
        format!("{direction}{family}{stage}")
    }
}

impl SetUse {
    /// All ways to look at an IP set.
    pub(super) fn all(id: &SetId) -> impl Iterator<Item = Self> + use<> {
        let ways = [(true, false), (true, true), (false, false), (false, true)];
        let id = id.clone();
        ways.into_iter().map(move |(is_ipv4, has_ports)| Self {
            id: id.clone(),
            is_ipv4,
            has_ports,
        })
    }
}

impl State {
    /// Moves a workload to another place, or away.
    pub(super) fn place(&mut self, key: EndpointKey, placed: Option<Placed>) {
        if let Some(before) = self.workloads.remove(&key) {
            if self.owners.get(&before.interface) == Some(&key) {
                self.owners.remove(&before.interface);
            }
            for address in before.addresses() {
                if let Entry::Occupied(mut speakers) = self.speakers.entry(address) {
                    speakers.get_mut().remove(&key);
                    if speakers.get().is_empty() {
                        speakers.remove();
                    }
                }
            }
        }
        if let Some(placed) = placed {
            for address in placed.addresses() {
                self.speakers.entry(address).or_default().insert(key.clone());
            }
            self.owners.insert(placed.interface.clone(), key.clone());
            self.workloads.insert(key, placed);
        }
    }

    /// Has the indices tell of an object as it is now, and no more as it was.
    pub(super) fn index(&mut self, name: &str, before: Option<&Object>, after: Option<&Object>) {
        let none = Entries::default();
        let before = before.map_or(none, Object::entries);
        let after = after.map_or(none, Object::entries);
        for (of, other, is_there) in [(before, after, false), (after, before, true)] {
            // Of many entries few change at once.
            let changed = of.sets.iter().filter(|it| other.sets.binary_search(it).is_err());
            for set in changed {
                put(&mut self.by_set, (set.clone(), name.to_owned()), is_there);
            }
            for (id, _) in of.targets {
                let using = SetUse { id: id.clone(), is_ipv4: of.is_ipv4, has_ports: false };
                put(&mut self.by_set, (using, name.to_owned()), is_there);
            }
            if of.part == other.part {
                continue;
            }
            match of.part {
                Some(Part::Tier { policies, .. }) => {
                    for policy in policies {
                        put(&mut self.by_policy, (policy.clone(), name.to_owned()), is_there);
                    }
                }
                Some(Part::Profile(profile)) => {
                    put(&mut self.by_profile, (profile.clone(), name.to_owned()), is_there);
                }
                None => {}
            }
        }
    }
}

/// What the indices tell of an object.
#[derive(Clone, Copy, Default)]
struct Entries<'a> {
    /// In their order.
    sets: &'a [SetUse],
    part: Option<&'a Part>,
    targets: &'a [(SetId, String)],
    is_ipv4: bool,
}

impl Object {
    fn entries(&self) -> Entries<'_> {
        match &self.body {
            Body::Chain { origin, sets, .. } => {
                let part = origin.as_ref().map(|origin| &origin.part);
                Entries { sets, part, ..Entries::default() }
            }
            Body::Addresses { is_ipv4, targets, .. } => {
                Entries { targets, is_ipv4: *is_ipv4, ..Entries::default() }
            }
            Body::Fixed(_) | Body::Map(..) | Body::Members(..) => Entries::default(),
        }
    }
}

fn put<T: Ord>(into: &mut BTreeSet<T>, entry: T, is_there: bool) {
    if is_there {
        into.insert(entry);
    } else {
        into.remove(&entry);
    }
}

/// The chains that an index has for a key.
pub(super) fn chains_of<'a, K: Ord + Clone + 'a>(
    index: &'a BTreeSet<(K, String)>,
    key: &K,
) -> impl Iterator<Item = &'a String> {
    let from = (key.clone(), String::new());
    let key = key.clone();
    index.range(from..).take_while(move |(found, _)| *found == key).map(|(_, chain)| chain)
}
