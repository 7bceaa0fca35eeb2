//! What an endpoint does with packets of one direction and family: a chain for each tier, each
//! profile and each denial, linked by `goto`.
//!
//! To allow is to return to where the first chain was jumped to from. A chain's name is a digest of
//! what it is made from and of the name of the next, so endpoints with the same policies share
//! them all, and others the ends. Nothing follows on a tier that decides about everything, so that
//! it is shared whatever else an endpoint has. The kernel counts links as it counts jumps: more of
//! them than it takes are several rows, which one chain asks in turn.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::resource::{Action, Direction};
use nft::expression::{Comparison, Meta, Target};
use nft::{Chain, Expression, Register, Rule, Source, Verdict};

use crate::input::PolicyId;
use crate::intent::{Directions, Dirty, TierInForce};
use crate::rule_name::{RuleName, kind_code};
use crate::verdict::End;

use super::chain;
use super::denial::denial;
use super::draft::{Draft, Scope};
use super::name;
use super::state::{Lane, Origin, Part, Stage, chains_of};

/// Where a packet's mark is read from.
pub(super) const MARK: Source = Source::Meta(Meta::Mark);

/// How many chains can follow on each other below the one that dispatches: the kernel allows 16
/// levels, two of which are that one and the base chain.
const LINKS_MAX: usize = 14;

/// How many tiers and profiles follow on each other where there are more than that: the rest of the
/// links is for the chain that asks them in turn, for a denial, and for branches.
const PARTS_IN_TURN: usize = 8;

/// The chain of packets that the first of several parts in turn has not decided about.
const UNDECIDED: &str = "undecided";

/// The first chain for these tiers and profiles; none if they decide nothing.
pub(super) fn program(
    draft: &mut Draft<'_>,
    lane: Lane,
    tiers: &[TierInForce],
    profiles: &[String],
) -> Option<String> {
    let tier = |tier: &TierInForce| {
        let policies = tier.enforced(lane.direction).cloned().collect();
        let end = match lane.stage {
            Stage::Normal | Stage::Translated | Stage::Forward => tier.end,
            Stage::PreDnat | Stage::Untracked => End::Pass,
        };
        let name = tier.name.clone();
        let part = Part::Tier { name, end, policies, may_branch: false };
        (part.n_policies() > 0).then_some(part)
    };
    let profiles = if lane.stage.has_profiles() { profiles } else { &[] };
    let profiles = profiles.iter().cloned().map(Part::Profile);
    let mut parts: Vec<Part> = tiers.iter().filter_map(tier).chain(profiles).collect();
    let last = parts.iter().position(|part| part.decides_all(draft, lane.direction));
    parts.truncate(last.map_or(parts.len(), |last| last + 1));
    let end = match lane.stage.has_profiles() {
        true => Some(denial(draft, &RuleName::no_profile(lane.direction), lane.stage)),
        false => None,
    };
    // The last link is a denial.
    if parts.len() < LINKS_MAX {
        return in_a_row(draft, lane, &mut parts, LINKS_MAX, end);
    }
    let undecided = undecided(draft);
    let n_rows = parts.len().div_ceil(PARTS_IN_TURN);
    let mut rows = Vec::new();
    for (at, parts) in parts.chunks_mut(PARTS_IN_TURN).enumerate() {
        let end = if at + 1 < n_rows { Some(undecided.clone()) } else { end.clone() };
        rows.extend(in_a_row(draft, lane, parts, LINKS_MAX - 1, end));
    }
    Some(in_turn(draft, lane, &rows))
}

/// Parts that follow on each other, the first of them first.
fn in_a_row(
    draft: &mut Draft<'_>,
    lane: Lane,
    parts: &mut [Part],
    n_links_max: usize,
    end: Option<String>,
) -> Option<String> {
    branch(parts, n_links_max.saturating_sub(parts.len() + 1));
    let mut next = end;
    for part in parts.iter().rev() {
        next = Some(linked(draft, Origin { lane, part: part.clone(), next }));
    }
    next
}

/// Lets tiers have branches of their own: as many as there are links left, those with most policies
/// first.
fn branch(parts: &mut [Part], n_left: usize) {
    let mut order: Vec<&mut Part> = parts.iter_mut().collect();
    order.sort_by_key(|part| std::cmp::Reverse(part.n_policies()));
    for part in order.into_iter().take(n_left) {
        if let Part::Tier { may_branch, .. } = part {
            *may_branch = true;
        }
    }
}

impl Part {
    fn n_policies(&self) -> usize {
        match self {
            Self::Tier { policies, .. } => policies.len(),
            Self::Profile(_) => 0,
        }
    }

    /// Whether no packet gets past it.
    fn decides_all(&self, draft: &Draft<'_>, direction: Direction) -> bool {
        match self {
            Self::Tier { end: End::Deny, policies, .. } => {
                !policies.iter().any(|id| passes(draft.policy(id), direction))
            }
            Self::Tier { .. } | Self::Profile(_) => false,
        }
    }
}

/// Whether rules have packets passed on to what follows on their tier.
fn passes(rules: Option<&Arc<Directions>>, direction: Direction) -> bool {
    let is_passing = |rule: &crate::Rule| rule.action == Action::Pass;
    rules.is_some_and(|rules| rules.of(direction).iter().any(is_passing))
}

/// What is dirty, and the endpoints for which something follows on a tier now, or no more: policies
/// of it have a rule that passes packets on, or no more.
pub(super) fn with_turned<'a>(draft: &Draft<'a>) -> Cow<'a, Dirty> {
    let dirty = draft.dirty;
    let has_turned = |id: &&PolicyId| {
        let (before, after) = (draft.base.policies.get(*id), draft.policy(id));
        let mut directions = [Direction::Ingress, Direction::Egress].into_iter();
        chains_of(&draft.base.by_policy, *id).next().is_some()
            && directions.any(|it| passes(before, it) != passes(after, it))
    };
    let turned: BTreeSet<&PolicyId> = dirty.policies.iter().filter(has_turned).collect();
    if turned.is_empty() {
        return Cow::Borrowed(dirty);
    }
    let is_concerned =
        |tier: &TierInForce| tier.ingress.iter().chain(&tier.egress).any(|it| turned.contains(it));
    let (workloads, hosts) = (draft.intent.workloads.iter(), draft.intent.hosts.iter());
    let workloads = workloads.filter(|(_, it)| it.tiers.iter().any(is_concerned));
    let hosts = hosts.filter(|(_, it)| it.all_tiers().any(is_concerned));
    let mut dirty = dirty.clone();
    dirty.workloads.extend(workloads.map(|(key, _)| key.clone()));
    dirty.hosts.extend(hosts.map(|(key, _)| key.clone()));
    Cow::Owned(dirty)
}

/// A chain that asks rows of parts one after the other, until one has decided: a packet that comes
/// back is allowed, unless it is marked as undecided.
fn in_turn(draft: &mut Draft<'_>, lane: Lane, rows: &[String]) -> String {
    let texts = rows.iter().map(String::as_str);
    let digest = name::digest(std::iter::once("in turn").chain(texts));
    let name = format!("{}-{digest}", lane.prefix());
    if draft.object(&name).is_some() {
        return name;
    }
    let mark = draft.settings.undecided_mark();
    let mut rules = vec![unmarked(Rule::new(&name), mark)];
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            rules.push(when_unmarked(Rule::new(&name), mark).verdict(Verdict::Return));
            rules.push(unmarked(Rule::new(&name), mark));
        }
        rules.push(Rule::new(&name).verdict(Verdict::Jump(row.clone())));
    }
    let scope = Scope { uses: rows.iter().cloned().collect(), ..Scope::default() };
    draft.put_chain(Chain::plain(&name), rules, scope, None);
    name
}

/// The chain that marks packets as undecided.
fn undecided(draft: &mut Draft<'_>) -> String {
    let name = UNDECIDED.to_owned();
    if draft.object(&name).is_none() {
        let rule = marked(Rule::new(&name), draft.settings.undecided_mark());
        let rules = vec![rule.verdict(Verdict::Return)];
        draft.put_chain(Chain::plain(&name), rules, Scope::default(), None);
    }
    name
}

/// The chain for a part, made if it is not there.
fn linked(draft: &mut Draft<'_>, origin: Origin) -> String {
    let name = format!("{}-{}", origin.lane.prefix(), origin.digest());
    if draft.object(&name).is_none() {
        chain::render(draft, &name, &Arc::new(origin));
    }
    name
}

impl Origin {
    fn digest(&self) -> String {
        let next = self.next.as_deref().unwrap_or_default();
        match &self.part {
            Part::Tier { name, end, policies, may_branch } => {
                let end = match end {
                    End::Deny => "deny",
                    End::Pass => "pass",
                };
                let texts = policies.iter().flat_map(|policy| {
                    [kind_code(policy.kind), policy.namespace.as_str(), policy.name.as_str()]
                });
                let sort = if *may_branch { "branching tier" } else { "tier" };
                name::digest([sort, next, name, end].into_iter().chain(texts))
            }
            Part::Profile(profile) => name::digest(["profile", next, profile]),
        }
    }
}

/// Sets bits of the packet's mark.
pub(super) fn marked(rule: Rule, mask: u32) -> Rule {
    marked_as(rule, mask, mask)
}

/// Clears bits of the packet's mark.
pub(super) fn unmarked(rule: Rule, mask: u32) -> Rule {
    marked_as(rule, mask, 0)
}

/// Has just these bits of a mask set in the packet's mark.
pub(super) fn marked_as(rule: Rule, mask: u32, bits: u32) -> Rule {
    let register = Register::FIRST;
    rule.with(Expression::Load { source: MARK, register })
        .with(Expression::Bitwise {
            register,
            mask: (!mask).to_ne_bytes().to_vec(),
            xor: bits.to_ne_bytes().to_vec(),
        })
        .with(Expression::Store { target: Target::Meta(Meta::Mark), register })
}

/// Goes on if no bit of these is set in the packet's mark.
pub(super) fn when_unmarked(rule: Rule, mask: u32) -> Rule {
    when_no_bit(rule, MARK, mask)
}

/// Goes on if no bit of these is set in something.
pub(super) fn when_no_bit(rule: Rule, source: Source, mask: u32) -> Rule {
    when_bits(rule, source, mask, 0)
}

/// Goes on if just these bits of a mask are set in something.
pub(super) fn when_bits(rule: Rule, source: Source, mask: u32, bits: u32) -> Rule {
    let register = Register::FIRST;
    let (mask, value) = (mask.to_ne_bytes().to_vec(), bits.to_ne_bytes().to_vec());
    rule.with(Expression::Load { source, register })
        .with(Expression::Bitwise { register, mask, xor: vec![0; 4] })
        .with(Expression::Compare { register, operator: Comparison::Equal, value })
}
