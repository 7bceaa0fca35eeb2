//! What an endpoint does with packets of one direction and family: a chain for each tier, each
//! profile and each denial, linked by `goto`.
//!
//! To allow is to return to where the first chain was jumped to from. A chain's name is a digest of
//! what it is made from and of the name of the next, so endpoints with the same policies share
//! them all, and others the ends. The kernel counts links as it counts jumps, hence the limit.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::resource::Direction;
use nft::expression::{Meta, Rejection, Target};
use nft::{Chain, Expression, Register, Rule, Source, Verdict};

use crate::input::PolicyId;
use crate::intent::TierInForce;
use crate::rule_name::{RuleName, kind_code};
use crate::verdict::End;

use super::chain;
use super::draft::{Draft, Scope};
use super::name;
use super::settings::{Counters, DenyAction};
use super::state::{Lane, Origin, Part, Stage};

/// How many chains can follow on each other below the one that dispatches: the kernel allows 16
/// levels, two of which are that one and the base chain.
const LINKS_MAX: usize = 14;

/// More tiers and profiles than the kernel can link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyLinks {
    pub(super) n_links: usize,
    pub(super) n_links_max: usize,
}

/// The first chain for these tiers and profiles.
pub(super) fn program(
    draft: &mut Draft<'_>,
    lane: Lane,
    tiers: &[TierInForce],
    profiles: &[String],
) -> Result<Option<String>, TooManyLinks> {
    let tiers: Vec<(&TierInForce, Vec<PolicyId>)> = tiers
        .iter()
        .map(|tier| (tier, enforced(tier, lane.direction)))
        .filter(|(_, policies)| !policies.is_empty())
        .collect();
    let profiles = if lane.stage.has_profiles() { profiles } else { &[] };
    // The last one is a denial.
    let n_links = tiers.len() + profiles.len() + 1;
    if n_links > LINKS_MAX {
        return Err(TooManyLinks { n_links, n_links_max: LINKS_MAX });
    }
    let mut next = match lane.stage.has_profiles() {
        true => Some(denial(draft, &RuleName::no_profile(lane.direction), lane.stage)),
        false => None,
    };
    for profile in profiles.iter().rev() {
        next = Some(linked(draft, Origin { lane, part: Part::Profile(profile.clone()), next }));
    }
    let may_branch = branching(&tiers, LINKS_MAX - n_links);
    for (at, (tier, policies)) in tiers.into_iter().enumerate().rev() {
        let end = match lane.stage {
            Stage::Normal | Stage::Translated | Stage::Forward => tier.end,
            Stage::PreDnat | Stage::Untracked => End::Pass,
        };
        let may_branch = may_branch.contains(&at);
        let part = Part::Tier { name: tier.name.clone(), end, policies, may_branch };
        next = Some(linked(draft, Origin { lane, part, next }));
    }
    Ok(next)
}

/// The tiers whose chains may lead to others of their own: as many as there are links left, those
/// with most policies first.
fn branching(tiers: &[(&TierInForce, Vec<PolicyId>)], n_left: usize) -> BTreeSet<usize> {
    let mut order: Vec<usize> = (0..tiers.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(tiers.get(*at).map_or(0, |(_, all)| all.len())));
    order.into_iter().take(n_left).collect()
}

/// The policies of a tier that decide about a direction.
fn enforced(tier: &TierInForce, direction: Direction) -> Vec<PolicyId> {
    let policies = match direction {
        Direction::Ingress => &tier.ingress,
        Direction::Egress => &tier.egress,
    };
    policies.iter().filter(|policy| !policy.kind.is_staged()).cloned().collect()
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

/// The chain that drops a packet in the name of what decided.
pub(super) fn denial(draft: &mut Draft<'_>, name: &RuleName, stage: Stage) -> String {
    let text = name.to_text();
    let is_guard = matches!(name.place, crate::Place::Guard { .. });
    let is_rejection =
        draft.settings.deny_action == DenyAction::Reject && stage != Stage::Translated && !is_guard;
    let verb = if is_rejection { "reject" } else { "deny" };
    let chain = format!("{verb}-{}", name::digest([text.as_str()]));
    if draft.object(&chain).is_some() {
        return chain;
    }
    let settings = draft.settings;
    let mut rules = Vec::new();
    if let Some(listeners) = &settings.denials {
        rules.push(Rule::new(&chain).with(listeners.rate.expression()).with(Expression::Log {
            group: Some(listeners.group),
            prefix: text.clone(),
            snap_len: listeners.n_bytes,
        }));
    }
    let mut last = Rule::new(&chain);
    if settings.counters != Counters::None {
        last = last.counted();
    }
    let last = match is_rejection {
        true => last.with(Expression::Reject(Rejection::Icmp(1))),
        false => last.verdict(Verdict::Drop),
    };
    rules.push(last.comment(&text));
    draft.put_chain(Chain::plain(&chain), rules, Scope::default(), None);
    chain
}

/// Sets bits of the packet's mark.
pub(super) fn marked(rule: Rule, mask: u32) -> Rule {
    let register = Register::FIRST;
    rule.with(Expression::Load { source: Source::Meta(Meta::Mark), register })
        .with(Expression::Bitwise {
            register,
            mask: (!mask).to_ne_bytes().to_vec(),
            xor: mask.to_ne_bytes().to_vec(),
        })
        .with(Expression::Store { target: Target::Meta(Meta::Mark), register })
}
