//! The members of one set: what items contribute, less what lies within a wider network.
//!
//! Members that are to be seen are kept by whoever shows them. Here is the rest: how many more
//! items contribute a member than one, and networks within wider ones, which come to light when
//! those go.

use std::collections::{BTreeMap, BTreeSet};

use net::Cidr;

use crate::intent::SetChange;
use crate::set::Member;

/// What there is to know about a set's members beside the visible ones.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Of members that several items contribute: how many beyond the first.
    more: BTreeMap<Member, u32>,
    /// Networks within a visible one.
    hidden: BTreeSet<Cidr>,
    /// How many visible networks there are of each family and length.
    lengths: BTreeMap<(bool, u8), u32>,
}

/// Visible members that came (true) or went since the last flush.
#[derive(Debug, Default)]
pub(super) struct Difference(BTreeMap<Member, bool>);

impl Difference {
    fn note(&mut self, member: Member, came: bool) {
        // What came and went again, or the other way round, is as it was.
        if self.0.remove(&member).is_none() {
            self.0.insert(member, came);
        }
    }

    /// The same, in two lists.
    pub(super) fn into_change(self) -> SetChange {
        let mut change = SetChange::default();
        for (member, came) in self.0 {
            let list = if came { &mut change.added } else { &mut change.removed };
            list.push(member);
        }
        change
    }
}

impl Members {
    /// All members of a set at once, in any order, those that several items contribute as often.
    pub(super) fn new(mut all: Vec<Member>) -> (Self, BTreeSet<Member>) {
        all.sort_unstable();
        let mut it = Self::default();
        let mut visible = Vec::with_capacity(all.len());
        let mut widest: Option<Cidr> = None;
        for chunk in all.chunk_by(Member::eq) {
            let Some(member) = chunk.first() else { continue };
            if let Some(more) = u32::try_from(chunk.len() - 1).ok().filter(|more| *more > 0) {
                it.more.insert(member.clone(), more);
            }
            if let Member::Net(net) = member {
                // In order of address and length, networks follow the widest that they are in.
                if widest.is_some_and(|widest| widest.contains(net.network())) {
                    it.hidden.insert(*net);
                    continue;
                }
                widest = Some(*net);
                it.count(*net, true);
            }
            visible.push(member.clone());
        }
        (it, visible.into_iter().collect())
    }

    /// An item contributes a member.
    pub(super) fn add(
        &mut self,
        member: Member,
        visible: &mut BTreeSet<Member>,
        difference: &mut Difference,
    ) {
        let is_known = match &member {
            Member::Net(net) => self.hidden.contains(net) || visible.contains(&member),
            Member::Port { .. } => visible.contains(&member),
        };
        if is_known {
            *self.more.entry(member).or_default() += 1;
            return;
        }
        if let Member::Net(net) = member {
            if self.is_within_visible(net, visible) {
                self.hidden.insert(net);
                return;
            }
            let within: Vec<Member> = visible.range(within(net)).cloned().collect();
            for narrower in within {
                visible.remove(&narrower);
                if let Member::Net(net) = narrower {
                    self.count(net, false);
                    self.hidden.insert(net);
                }
                difference.note(narrower, false);
            }
            self.count(net, true);
        }
        visible.insert(member.clone());
        difference.note(member, true);
    }

    /// An item does not contribute a member any more.
    pub(super) fn remove(
        &mut self,
        member: Member,
        visible: &mut BTreeSet<Member>,
        difference: &mut Difference,
    ) {
        if let Some(more) = self.more.get_mut(&member) {
            *more -= 1;
            if *more == 0 {
                self.more.remove(&member);
            }
            return;
        }
        if let Member::Net(net) = member {
            if self.hidden.remove(&net) {
                return;
            }
            self.count(net, false);
            self.reveal(net, visible, difference);
        }
        visible.remove(&member);
        difference.note(member, false);
    }

    /// Shows the widest of the networks that were hidden by one that goes.
    fn reveal(&mut self, gone: Cidr, visible: &mut BTreeSet<Member>, difference: &mut Difference) {
        let mut revealed: Vec<Cidr> = Vec::new();
        for net in self.hidden.range(gone..=last(gone)) {
            if !revealed.last().is_some_and(|widest| widest.contains(net.network())) {
                revealed.push(*net);
            }
        }
        for net in revealed {
            self.hidden.remove(&net);
            self.count(net, true);
            visible.insert(Member::Net(net));
            difference.note(Member::Net(net), true);
        }
    }

    fn is_within_visible(&self, net: Cidr, visible: &BTreeSet<Member>) -> bool {
        let family = net.is_ipv4();
        let mut shorter = self.lengths.range((family, 0)..(family, net.prefix_len()));
        shorter.any(|((_, length), _)| {
            let wider = Cidr::new(net.network(), *length).map(Cidr::masked);
            wider.is_some_and(|wider| visible.contains(&Member::Net(wider)))
        })
    }

    fn count(&mut self, net: Cidr, is_new: bool) {
        let length = (net.is_ipv4(), net.prefix_len());
        let count = self.lengths.entry(length).or_default();
        if is_new {
            *count += 1;
            return;
        }
        *count -= 1;
        if *count == 0 {
            self.lengths.remove(&length);
        }
    }
}

/// The networks within one, itself included, in the order of members.
fn within(net: Cidr) -> std::ops::RangeInclusive<Member> {
    Member::Net(net)..=Member::Net(last(net))
}

/// The last address of a network, which is the last of the networks within it.
fn last(net: Cidr) -> Cidr {
    Cidr::host(net.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Member {
        text.parse().unwrap()
    }

    /// What came and what went.
    fn change(difference: Difference) -> (Vec<String>, Vec<String>) {
        let texts = |members: Vec<Member>| {
            let text = |member: &Member| match member {
                Member::Net(net) => net.to_string(),
                Member::Port { address, .. } => address.to_string(),
            };
            members.iter().map(text).collect()
        };
        let change = difference.into_change();
        (texts(change.added), texts(change.removed))
    }

    #[test]
    fn a_wide_network_hides_narrower_ones_until_it_goes() {
        let all = ["10.0.0.0/16", "10.0.1.0/24", "10.1.0.0/16", "10.1.0.0/16", "11.0.0.0/8"];
        let (mut members, mut visible) = Members::new(all.map(net).to_vec());
        assert_eq!(visible, BTreeSet::from(["10.0.0.0/16", "10.1.0.0/16", "11.0.0.0/8"].map(net)));
        let mut difference = Difference::default();
        members.add(net("10.0.0.0/8"), &mut visible, &mut difference);
        members.add(net("10.0.1.1"), &mut visible, &mut difference);
        let went = ["10.0.0.0/16", "10.1.0.0/16"].map(str::to_owned).to_vec();
        assert_eq!(change(difference), (vec!["10.0.0.0/8".to_owned()], went.clone()));
        let mut difference = Difference::default();
        members.remove(net("10.0.0.0/8"), &mut visible, &mut difference);
        assert_eq!(change(difference), (went, vec!["10.0.0.0/8".to_owned()]));
        let mut difference = Difference::default();
        members.remove(net("10.1.0.0/16"), &mut visible, &mut difference);
        assert_eq!(change(difference), (Vec::new(), Vec::new()), "another item still has it");
        let mut difference = Difference::default();
        members.remove(net("10.0.0.0/16"), &mut visible, &mut difference);
        let came = vec!["10.0.1.0/24".to_owned()];
        assert_eq!(change(difference), (came, vec!["10.0.0.0/16".to_owned()]));
    }

    #[test]
    fn what_goes_and_comes_back_is_no_difference() {
        let (mut members, mut visible) = Members::new(vec![net("10.0.0.1,tcp:80")]);
        let mut difference = Difference::default();
        members.remove(net("10.0.0.1,tcp:80"), &mut visible, &mut difference);
        assert!(visible.is_empty());
        members.add(net("10.0.0.1,tcp:80"), &mut visible, &mut difference);
        assert_eq!(change(difference), (Vec::new(), Vec::new()));
    }
}
