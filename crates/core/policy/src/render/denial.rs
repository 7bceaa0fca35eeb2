//! The chains that drop, and tell of it.
//!
//! Each rule tells of so many packets of a source; the sources are counted in sets that packets
//! fill. Who sends more than that is dropped at once, and counted. The sets are bounded: when many
//! sources fill one, all that come after share the rate of the rule.

use std::time::Duration;

use nft::expression::Rejection;
use nft::{Chain, DataType, Expression, Register, Rule, Set, Source, Verdict};
use sha1::{Digest, Sha1};

use crate::rule_name::RuleName;

use super::draft::{Draft, Scope};
use super::emit::{FAMILY, IPV4, IPV6};
use super::name;
use super::plan::In;
use super::settings::{Counters, DenyAction, Listeners};
use super::state::Stage;

/// How many pairs of source and rule have a rate of their own.
const SOURCES_MAX: u32 = 4096;
/// After that time of silence a source may send at once what it may at first.
const SILENCE: Duration = Duration::from_secs(10);

fn set(is_ipv4: bool) -> Set {
    let (name, address) = match is_ipv4 {
        true => ("told4", DataType::Ipv4),
        false => ("told6", DataType::Ipv6),
    };
    // The second field is the number of the rule.
    Set::new(name, &[address, DataType::Mark]).dynamic(SILENCE, SOURCES_MAX)
}

/// The sets of sources whose denied packets were told of.
pub(super) fn sets() -> impl Iterator<Item = (In, Set)> {
    [true, false].into_iter().map(|is_ipv4| (In::Inet, set(is_ipv4)))
}

/// The chain that drops a packet in the name of what decided.
pub(super) fn denial(draft: &mut Draft<'_>, name: &RuleName, stage: Stage) -> String {
    let text = name.to_text();
    let is_guard = matches!(name.place, crate::Place::Guard { .. });
    // After routing no message can be sent, and one about a packet that is not tracked is dropped
    // as a packet of no connection.
    let is_silent = is_guard || matches!(stage, Stage::Translated | Stage::Untracked);
    let is_rejection = draft.settings.deny_action == DenyAction::Reject && !is_silent;
    let [deny, reject] = denial_chains(&text);
    let chain = if is_rejection { reject } else { deny };
    if draft.object(&chain).is_some() {
        return chain;
    }
    let settings = draft.settings;
    let last = |rule: Rule| match is_rejection {
        true => rule.with(Expression::Reject(Rejection::Icmp(1))),
        false => rule.verdict(Verdict::Drop),
    };
    let last = |rule: Rule| last(rule).comment(&text);
    let mut rules = Vec::new();
    if let Some(listeners) = &settings.denials {
        for is_ipv4 in [true, false] {
            rules.push(last(excess(Rule::new(&chain), is_ipv4, listeners, &text)));
        }
        rules.push(told(Rule::new(&chain), listeners, &text));
    }
    let rest = match settings.counters {
        Counters::None if settings.denials.is_none() => Rule::new(&chain),
        _ => Rule::new(&chain).counted(),
    };
    rules.push(last(rest));
    draft.put_chain(Chain::plain(&chain), rules, Scope::default(), None);
    chain
}

/// Goes on with packets of a source that has sent more than are told of.
fn excess(rule: Rule, is_ipv4: bool, listeners: &Listeners, text: &str) -> Rule {
    let (family, address, slot) = match is_ipv4 {
        true => (IPV4, Source::IPV4_SOURCE, 1),
        false => (IPV6, Source::IPV6_SOURCE, 4),
    };
    let number = Sha1::digest(text.as_bytes()).iter().take(4).copied().collect();
    let behind = Register::slot(slot).expect("there are 16 slots");
    rule.when(FAMILY, family)
        .with(Expression::Load { source: address, register: Register::FIRST })
        .with(Expression::Constant { register: behind, value: number })
        .with(Expression::Update {
            register: Register::FIRST,
            set: set(is_ipv4).name,
            step: Box::new(listeners.rate.excess()),
        })
        .counted()
}

/// Tells of a packet, and counts those that it told of.
fn told(rule: Rule, listeners: &Listeners, text: &str) -> Rule {
    let told = Expression::Log {
        group: Some(listeners.group),
        prefix: text.to_owned(),
        snap_len: listeners.n_bytes,
    };
    rule.with(listeners.rate_of_all.expression()).with(told).counted()
}

/// The chains that drop in the name of a rule, by its text.
pub fn denial_chains(text: &str) -> [String; 2] {
    ["deny", "reject"].map(|verb| format!("{verb}-{}", name::digest([text])))
}

/// How many packets the rules of such a chain denied without telling of them.
pub fn n_untold(rules: &[Rule]) -> u64 {
    let count = |rule: &Rule| {
        let counters = rule.expressions.iter().filter_map(|it| match it {
            Expression::Counter { packets, .. } => Some(*packets),
            _ => None,
        });
        counters.sum::<u64>()
    };
    let tells =
        |rule: &&Rule| rule.expressions.iter().any(|it| matches!(it, Expression::Log { .. }));
    let told: u64 = rules.iter().filter(tells).map(count).sum();
    let denied: u64 = rules.iter().filter(|rule| !tells(rule)).map(count).sum();
    // Where none tells, none is missed.
    if rules.iter().any(|rule| tells(&rule)) { denied.saturating_sub(told) } else { 0 }
}
