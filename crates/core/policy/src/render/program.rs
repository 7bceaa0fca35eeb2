//! What an endpoint does with packets of one direction and family: a chain for each tier, each
//! profile and each denial, linked by `goto`.
//!
//! To allow is to return to where the first chain was jumped to from. A chain's name is a digest of
//! what it is made from and of the name of the next, so endpoints with the same policies share
//! them all, and others the ends. The kernel counts links as it counts jumps, hence the limit.

use std::sync::Arc;

use model::resource::{Action, Direction};
use nft::expression::{Meta, Rejection, Target};
use nft::{Chain, Expression, Register, Rule, Source, Verdict};

use crate::input::PolicyId;
use crate::intent::{Directions, TierInForce};
use crate::rule_name::{RuleName, kind_code};
use crate::verdict::End;

use super::clause::{Clause, Protocols, Side, alternatives};
use super::draft::{Draft, Scope};
use super::emit::Emitter;
use super::name;
use super::settings::{Counters, DenyAction};
use super::state::{Lane, Origin, Part, Stage};

/// How many chains can follow on each other below the one that dispatches: the kernel allows 16
/// levels, two of which are that one and the base chain.
const LINKS_MAX: usize = 14;

/// The most bytes of what stands before a logged packet.
const PREFIX_LEN_MAX: usize = 127;

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
        next = Some(chain(draft, Origin { lane, part: Part::Profile(profile.clone()), next }));
    }
    for (tier, policies) in tiers.into_iter().rev() {
        let end = match lane.stage {
            Stage::Normal | Stage::Translated | Stage::Forward => tier.end,
            Stage::PreDnat | Stage::Untracked => End::Pass,
        };
        let part = Part::Tier { name: tier.name.clone(), end, policies };
        next = Some(chain(draft, Origin { lane, part, next }));
    }
    Ok(next)
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
fn chain(draft: &mut Draft<'_>, origin: Origin) -> String {
    let name = format!("{}-{}", origin.lane.prefix(), origin.digest());
    if draft.object(&name).is_none() {
        render(draft, &name, &Arc::new(origin));
    }
    name
}

impl Origin {
    fn digest(&self) -> String {
        let next = self.next.as_deref().unwrap_or_default();
        match &self.part {
            Part::Tier { name, end, policies } => {
                let end = match end {
                    End::Deny => "deny",
                    End::Pass => "pass",
                };
                let texts = policies.iter().flat_map(|policy| {
                    [kind_code(policy.kind), policy.namespace.as_str(), policy.name.as_str()]
                });
                name::digest(["tier", next, name, end].into_iter().chain(texts))
            }
            Part::Profile(profile) => name::digest(["profile", next, profile]),
        }
    }
}

/// Writes the rules of a chain as the intent has them now.
pub(super) fn render(draft: &mut Draft<'_>, name: &str, origin: &Arc<Origin>) {
    let intent = draft.intent;
    let mut writer = ChainWriter::new(draft, name, origin);
    let direction = origin.lane.direction;
    let mut is_decided = false;
    match &origin.part {
        Part::Tier { name: tier, policies, .. } => {
            for policy in policies {
                let Some(rules) = intent.policies.get(policy) else { continue };
                for (number, rule) in rules_of(rules, direction).iter().enumerate() {
                    let name = RuleName::policy(direction, policy.clone(), number);
                    let logged = Logged::Policy(tier, policy);
                    is_decided = is_decided || writer.rule(rule, &name, &logged);
                }
            }
        }
        Part::Profile(profile) => {
            let rules = intent.profiles.get(profile).map_or(&[][..], |it| rules_of(it, direction));
            for (number, rule) in rules.iter().enumerate() {
                let name = RuleName::profile(direction, profile.clone(), number);
                is_decided = is_decided || writer.rule(rule, &name, &Logged::Profile(profile));
            }
        }
    }
    if !is_decided {
        writer.end();
    }
    writer.finish();
}

fn rules_of(directions: &Directions, direction: Direction) -> &[crate::Rule] {
    match direction {
        Direction::Ingress => &directions.ingress,
        Direction::Egress => &directions.egress,
    }
}

/// Whose rule a logged packet met.
enum Logged<'a> {
    Policy(&'a str, &'a PolicyId),
    Profile(&'a str),
}

struct ChainWriter<'d, 'a> {
    emitter: Emitter<'d, 'a>,
    name: String,
    origin: Arc<Origin>,
    rules: Vec<Rule>,
}

impl<'d, 'a> ChainWriter<'d, 'a> {
    fn new(draft: &'d mut Draft<'a>, name: &str, origin: &Arc<Origin>) -> Self {
        let mut emitter = Emitter::new(draft, origin.lane.is_ipv4);
        // The next chain is kept also while no rule leads there: other rules may come.
        emitter.scope.uses.extend(origin.next.clone());
        Self { emitter, name: name.to_owned(), origin: origin.clone(), rules: Vec::new() }
    }

    /// Adds a rule; true if nothing gets past it.
    fn rule(&mut self, rule: &crate::Rule, name: &RuleName, logged: &Logged<'_>) -> bool {
        let mut is_decided = false;
        for clause in alternatives(rule, self.origin.lane.is_ipv4) {
            let conditions = self.emitter.conditions(&clause, Rule::new(&self.name));
            let acting = self.act(conditions, rule.action, name, logged);
            self.rules.push(acting);
            is_decided |= clause.is_unconditional() && rule.action != Action::Log;
        }
        is_decided
    }

    fn act(&mut self, rule: Rule, action: Action, name: &RuleName, logged: &Logged<'_>) -> Rule {
        let settings = self.emitter.draft.settings;
        let counted = |rule: Rule| match settings.counters {
            Counters::All => rule.counted(),
            Counters::Denials | Counters::None => rule,
        };
        let rule = match action {
            Action::Allow => self.allow(counted(rule)),
            Action::Pass => {
                let verdict = self.leave();
                counted(rule).verdict(verdict)
            }
            Action::Deny => {
                let verdict = self.deny(name);
                rule.verdict(verdict)
            }
            Action::Log => {
                let mut rule = rule;
                if let Some(rate) = settings.log_rate {
                    rule = rule.with(rate.expression());
                }
                let prefix = log_prefix(&settings.log_prefix, logged);
                rule.with(Expression::Log { group: None, prefix, snap_len: 0 })
            }
        };
        rule.comment(&name.to_text())
    }

    fn allow(&self, rule: Rule) -> Rule {
        let mask = self.emitter.draft.settings.accept_mark();
        match self.origin.lane.stage {
            Stage::Normal | Stage::Translated | Stage::Forward => rule.verdict(Verdict::Return),
            Stage::PreDnat => marked(rule, mask).verdict(Verdict::Accept),
            Stage::Untracked => {
                marked(rule.with(Expression::NoTrack), mask).verdict(Verdict::Accept)
            }
        }
    }

    /// Goes on after the chain.
    fn leave(&self) -> Verdict {
        match self.origin.next.clone() {
            Some(next) => Verdict::Goto(next),
            None => Verdict::Return,
        }
    }

    fn deny(&mut self, name: &RuleName) -> Verdict {
        let chain = denial(self.emitter.draft, name, self.origin.lane.stage);
        self.emitter.scope.uses.insert(chain.clone());
        Verdict::Goto(chain)
    }

    /// The rule for what no other decides.
    fn end(&mut self) {
        let rule = Rule::new(&self.name);
        let direction = self.origin.lane.direction;
        let rule = match &self.origin.clone().part {
            Part::Tier { name, end, .. } => {
                let name = RuleName::end_of_tier(direction, name.clone());
                let verdict = match end {
                    End::Deny => self.deny(&name),
                    End::Pass => self.leave(),
                };
                rule.verdict(verdict).comment(&name.to_text())
            }
            Part::Profile(_) => {
                let verdict = self.leave();
                rule.verdict(verdict)
            }
        };
        self.rules.push(rule);
    }

    fn finish(self) {
        let Self { emitter, name, origin, rules } = self;
        emitter.draft.put_chain(Chain::plain(&name), rules, emitter.scope, Some(origin));
    }
}

impl Clause {
    fn is_unconditional(&self) -> bool {
        let side = Side::default();
        let has_other = self.not_protocol.is_some() || self.icmp.is_some();
        let all = Protocols::Any;
        !has_other && self.protocol == all && self.source == side && self.destination == side
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

/// What stands before a logged packet: `%t` is the tier, `%k` the kind, `%n` the name and `%p` the
/// name with its namespace.
fn log_prefix(pattern: &str, logged: &Logged<'_>) -> String {
    let (tier, kind, name, namespace) = match logged {
        Logged::Policy(tier, id) => {
            (*tier, kind_code(id.kind), id.name.as_str(), id.namespace.as_str())
        }
        Logged::Profile(name) => ("", "pro", *name, ""),
    };
    let full = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        let (before, after) = rest.split_at(at);
        text.push_str(before);
        let value = match after.as_bytes().get(1) {
            Some(b't') => tier,
            Some(b'k') => kind,
            Some(b'n') => name,
            Some(b'p') => &full,
            _ => {
                text.push('%');
                rest = &after[1..];
                continue;
            }
        };
        text.push_str(value);
        rest = &after[2..];
    }
    text.push_str(rest);
    text.push_str(": ");
    while text.len() > PREFIX_LEN_MAX {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::PolicyKind;

    #[test]
    fn a_logged_packet_says_whose_rule_it_met() {
        let id = PolicyId {
            kind: PolicyKind::NetworkPolicy,
            namespace: "shop".to_owned(),
            name: "db".to_owned(),
        };
        let policy = Logged::Policy("default", &id);
        assert_eq!(log_prefix("calico-packet", &policy), "calico-packet: ");
        assert_eq!(log_prefix("%p:%k:%%y%t%%n %", &policy), "shop/db:np:%%ydefault%db %: ");
        assert_eq!(log_prefix("%k %n%t", &Logged::Profile("kns.a")), "pro kns.a: ");
        assert_eq!(log_prefix(&"é".repeat(100), &policy).len(), 126);
    }
}
