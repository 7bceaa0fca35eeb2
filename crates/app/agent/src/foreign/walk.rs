//! The way of packets through the chains of a table.

use std::collections::BTreeMap;
use std::rc::Rc;

use kernel::nft::ListedRule;

use super::ask::{self, Branch, Fate, Members};
use super::packets::{Packets, Taken};

/// The kernel lets no packet go deeper.
const DEPTH_MAX: usize = 16;
/// So many sets of packets are told apart, ...
const SETS_MAX: usize = 16;
/// ... and so many rules are looked at: what is beyond them is taken to drop nothing.
const STEPS_MAX: usize = 200_000;

/// Follows packets through the chains of one table.
pub(super) struct Walk<'a, 'm, 'c> {
    rules: BTreeMap<&'a str, Vec<&'a ListedRule>>,
    members: &'m mut Members<'c>,
    /// What rules do, by their handle.
    known: BTreeMap<u64, Rc<[Branch]>>,
    n_steps: usize,
    /// The rules that drop some of the packets, by chain and handle.
    pub(super) lost: Vec<(String, u64)>,
}

/// How packets leave a chain.
#[derive(Default)]
struct Leaving {
    /// Those that go on where they came from.
    back: Vec<Packets>,
}

impl Leaving {
    /// Whether it is known which packets left: else they are taken to stay.
    fn takes(&mut self, packets: Vec<Packets>) -> bool {
        let has_room = self.back.len() + packets.len() <= SETS_MAX;
        if has_room {
            self.back.extend(packets);
        }
        has_room
    }
}

impl<'a, 'm, 'c> Walk<'a, 'm, 'c> {
    pub(super) fn new(rules: &'a [ListedRule], members: &'m mut Members<'c>) -> Self {
        let mut by_chain: BTreeMap<&str, Vec<&ListedRule>> = BTreeMap::new();
        for listed in rules {
            by_chain.entry(&listed.rule.chain).or_default().push(listed);
        }
        Self { rules: by_chain, members, known: BTreeMap::new(), n_steps: 0, lost: Vec::new() }
    }

    /// The packets that come to the end of a base chain.
    pub(super) fn through(&mut self, chain: &str, packets: Packets) -> Vec<Packets> {
        self.chain(chain, packets, DEPTH_MAX)
    }

    /// The packets that come back from a chain.
    fn chain(&mut self, chain: &str, packets: Packets, depth: usize) -> Vec<Packets> {
        let rules = self.rules.get(chain).cloned().unwrap_or_default();
        let (mut here, mut leaving) = (vec![packets], Leaving::default());
        for listed in rules {
            self.n_steps += 1;
            if self.n_steps > STEPS_MAX || depth == 0 {
                break;
            }
            let branches = self.branches(listed);
            for branch in branches.iter() {
                let met = std::mem::take(&mut here);
                for packets in met {
                    here.extend(self.step(listed, branch, packets, &mut leaving, depth));
                }
            }
            if here.is_empty() {
                break;
            }
        }
        here.extend(leaving.back);
        here
    }

    fn branches(&mut self, listed: &ListedRule) -> Rc<[Branch]> {
        if let Some(known) = self.known.get(&listed.handle) {
            return Rc::clone(known);
        }
        let read: Rc<[Branch]> = ask::branches(&listed.rule, self.members).into();
        self.known.insert(listed.handle, Rc::clone(&read));
        read
    }

    /// What is left for the next rule.
    fn step(
        &mut self,
        listed: &ListedRule,
        branch: &Branch,
        packets: Packets,
        leaving: &mut Leaving,
        depth: usize,
    ) -> Vec<Packets> {
        let taken = branch
            .questions
            .iter()
            .try_fold(Taken::all_of(&packets), |taken, question| taken.asked(question));
        let Some(taken) = taken else { return vec![packets] };
        let rest = taken.rest(&packets);
        match &branch.fate {
            Fate::Accepted => rest.into_iter().collect(),
            Fate::Lost => {
                let place = (listed.rule.chain.clone(), listed.handle);
                if !self.lost.contains(&place) {
                    self.lost.push(place);
                }
                rest.into_iter().collect()
            }
            Fate::Returns => match leaving.takes(vec![taken.packets]) {
                true => rest.into_iter().collect(),
                false => vec![packets],
            },
            Fate::Jumps(chain) => {
                let is_all = taken.is_all();
                let back = self.chain(chain, taken.packets, depth - 1);
                match back.is_empty() {
                    true => rest.into_iter().collect(),
                    // All of them went there: those that come back go on.
                    false if is_all && back.len() <= SETS_MAX => back,
                    false => vec![packets],
                }
            }
            Fate::GoesTo(chain) => {
                let back = self.chain(chain, taken.packets, depth - 1);
                match leaving.takes(back) {
                    true => rest.into_iter().collect(),
                    false => vec![packets],
                }
            }
        }
    }
}
