//! The rules of one chain of an endpoint.
//!
//! Where many rules look at the destination port, a map leads from protocol and port to chains that
//! hold only the rules for it; where many follow on each other that differ only in the set of the
//! other end, a map leads from its address to what the first of them does. So the rules that a
//! packet walks through hardly grow with their number, and the one that decides is still known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::resource::{Action, Direction};
use nft::expression::LookupResult;
use nft::{Chain, DataType, Expression, Register, Rule, Set, Source, Verdict};

use crate::input::PolicyId;
use crate::intent::Directions;
use crate::rule_name::{RuleName, kind_code};
use crate::set::SetId;
use crate::verdict::End;

use super::clause::{Clause, Protocols, Side, alternatives};
use super::denial::denial;
use super::draft::{Draft, Scope, digest, target};
use super::emit::{Emitter, FAMILY, IPV4, IPV6, PROTOCOL};
use super::program::marked;
use super::settings::Counters;
use super::state::{Lane, Origin, Part, SetUse, Stage};
use super::table::{self, Class};

/// The most bytes of what stands before a logged packet.
const PREFIX_LEN_MAX: usize = 127;
/// Fewer rules in a row than this are walked through.
const RUN_LEN_MIN: usize = 6;

/// One alternative of a rule.
struct Step<'i> {
    clause: Clause,
    action: Action,
    direction: Direction,
    owner: Owner<'i>,
    /// The place of the rule among those of its owner.
    number: usize,
}

/// Steps that differ only in the set of the same end.
struct Run {
    len: usize,
    is_worth_a_map: bool,
}

/// Whose rule it is.
#[derive(Clone, Copy)]
enum Owner<'a> {
    /// A policy of a tier.
    Policy(&'a str, &'a PolicyId),
    Profile(&'a str),
}

/// Writes the rules of a chain as the intent has them now.
pub(super) fn render(draft: &mut Draft<'_>, name: &str, origin: &Arc<Origin>) {
    let mut steps = Steps::default();
    let may_branch = match &origin.part {
        Part::Tier { name: tier, policies, may_branch, .. } => {
            for policy in policies {
                let Some(rules) = draft.policy(policy) else { continue };
                steps.put(rules, origin.lane, Owner::Policy(tier, policy));
            }
            *may_branch
        }
        Part::Profile(profile) => {
            if let Some(rules) = draft.profile(profile) {
                steps.put(rules, origin.lane, Owner::Profile(profile));
            }
            false
        }
    };
    let steps = steps.found;
    let mut writer = ChainWriter::new(draft, origin);
    let clauses: Vec<&Clause> = steps.iter().map(|step| &step.clause).collect();
    let classes = if may_branch { table::classes(&clauses) } else { None };
    let rules = match classes {
        Some(classes) => writer.branches(name, &steps, &classes),
        None => {
            let all: Vec<(Clause, &Step<'_>)> =
                steps.iter().map(|step| (step.clause.clone(), step)).collect();
            writer.list(&all)
        }
    };
    let rules = in_chain(rules, name);
    let scope = writer.emitter.scope;
    draft.put_chain(Chain::plain(name), rules, scope, Some(origin.clone()));
}

fn in_chain(mut rules: Vec<Rule>, chain: &str) -> Vec<Rule> {
    rules.iter_mut().for_each(|rule| chain.clone_into(&mut rule.chain));
    rules
}

/// The steps of a chain that a packet can come to.
#[derive(Default)]
struct Steps<'i> {
    found: Vec<Step<'i>>,
    /// What is decided by one of them.
    decided: BTreeSet<Clause>,
    /// Whether one decides about everything.
    is_complete: bool,
}

impl<'i> Steps<'i> {
    /// Adds the rules of one owner. Many policies allow the same thing: what asks for the same as
    /// one before that decides never matches.
    fn put(&mut self, rules: &Directions, lane: Lane, owner: Owner<'i>) {
        let Lane { direction, is_ipv4, .. } = lane;
        for (number, rule) in rules.of(direction).iter().enumerate() {
            let action = rule.action;
            for clause in alternatives(rule, is_ipv4) {
                if self.is_complete || self.decided.contains(&clause) {
                    continue;
                }
                if action != Action::Log {
                    self.is_complete = clause.is_unconditional();
                    self.decided.insert(clause.clone());
                }
                self.found.push(Step { clause, action, direction, owner, number });
            }
        }
    }
}

impl Step<'_> {
    fn name(&self) -> RuleName {
        match self.owner {
            Owner::Policy(_, id) => RuleName::policy(self.direction, id.clone(), self.number),
            Owner::Profile(name) => RuleName::profile(self.direction, name, self.number),
        }
    }
}

/// Writes rules whose chain has no name yet.
struct ChainWriter<'d, 'a> {
    emitter: Emitter<'d, 'a>,
    origin: Arc<Origin>,
    /// The rule that ends its chains, and the chain that it leads to.
    end: Option<(Rule, Option<String>)>,
}

impl<'d, 'a> ChainWriter<'d, 'a> {
    fn new(draft: &'d mut Draft<'a>, origin: &Arc<Origin>) -> Self {
        let mut emitter = Emitter::new(draft, origin.lane.is_ipv4);
        // The next chain is kept also while no rule leads there: other rules may come.
        emitter.scope.uses.extend(origin.next.clone());
        Self { emitter, origin: origin.clone(), end: None }
    }

    /// A map from protocol and port to chains for each class, and the rules for all others.
    fn branches(&mut self, name: &str, steps: &[Step<'_>], classes: &[Class]) -> Vec<Rule> {
        let mut chains: BTreeMap<(u8, &[usize]), String> = BTreeMap::new();
        let mut entries = BTreeMap::new();
        for class in classes {
            let key = (class.protocol, class.steps.as_slice());
            let chain = match chains.get(&key) {
                Some(chain) => chain.clone(),
                None => {
                    let chain = self.class_chain(steps, class);
                    chains.insert(key, chain.clone());
                    chain
                }
            };
            entries.insert(class.key(), Verdict::Goto(chain));
        }
        let mut map = Set::new(&format!("ports-of-{name}"), &[DataType::Protocol, DataType::Port]);
        if classes.iter().any(|class| class.first != class.last) {
            // Its sort is part of its name, because it cannot change.
            map.name = format!("port-ranges-of-{name}");
            map = map.with_ranges();
        }
        self.emitter.scope.uses.insert(map.name.clone());
        let at = |slot| Register::slot(slot).expect("there are 16 slots");
        let lookup = Rule::new("")
            .with(Expression::Load { source: PROTOCOL, register: Register::FIRST })
            .with(Expression::Load { source: Source::DESTINATION_PORT, register: at(1) })
            .with(Expression::Lookup {
                register: Register::FIRST,
                set: map.name.clone(),
                result: LookupResult::Verdict,
            });
        self.emitter.draft.put_map(map.to_verdicts(), entries);
        let others: Vec<(Clause, &Step<'_>)> = steps
            .iter()
            .filter(|step| !table::has_port(&step.clause))
            .map(|step| (step.clause.clone(), step))
            .collect();
        let mut rules = vec![lookup];
        rules.extend(self.list(&others));
        rules
    }

    /// The chain of a class: only what can match there, without what the class implies.
    fn class_chain(&mut self, steps: &[Step<'_>], class: &Class) -> String {
        let outer = std::mem::take(&mut self.emitter.scope);
        let inside: Vec<(Clause, &Step<'_>)> = class
            .steps
            .iter()
            .filter_map(|at| steps.get(*at))
            .filter_map(|step| Some((table::within(&step.clause, class)?, step)))
            .collect();
        let rules = self.list(&inside);
        let chain = self.shared_chain(rules);
        self.close_scope(outer, &chain);
        chain
    }

    /// A chain that is named by what is in it.
    fn shared_chain(&mut self, rules: Vec<Rule>) -> String {
        let name = format!("{}-{}", self.origin.lane.prefix(), digest(&rules));
        let scope = std::mem::take(&mut self.emitter.scope);
        self.emitter.scope.sets.clone_from(&scope.sets);
        if self.emitter.draft.object(&name).is_none() {
            let rules = in_chain(rules, &name);
            self.emitter.draft.put_chain(Chain::plain(&name), rules, scope, None);
        }
        name
    }

    /// Goes back to the scope of the chain that leads to another.
    fn close_scope(&mut self, outer: Scope, chain: &str) {
        let inner = std::mem::replace(&mut self.emitter.scope, outer);
        self.emitter.scope.sets.extend(inner.sets);
        self.emitter.scope.uses.insert(chain.to_owned());
    }

    /// Rules one after the other, and what becomes of the rest.
    fn list(&mut self, steps: &[(Clause, &Step<'_>)]) -> Vec<Rule> {
        let steps = reachable(steps);
        let mut rules = Vec::new();
        let mut rest = steps.as_slice();
        while !rest.is_empty() {
            let run = self.run(rest);
            let (now, after) = rest.split_at(run.len.max(1));
            rest = after;
            if run.is_worth_a_map {
                rules.push(self.by_address(now));
                continue;
            }
            for (clause, step) in now {
                let conditions = self.emitter.conditions(clause, Rule::new(""));
                rules.push(self.act(conditions, step));
                if clause.is_unconditional() && step.action != Action::Log {
                    return rules;
                }
            }
        }
        rules.push(self.end());
        rules
    }

    /// How many of the first steps differ only in the set of the same end. They are worth a map if
    /// its elements are not too many, which are in memory beside those of the sets.
    fn run(&mut self, steps: &[(&Clause, &Step<'_>)]) -> Run {
        let Some(end) = steps.first().and_then(|(clause, _)| clause.only_set()).map(|it| it.0)
        else {
            return Run { len: 0, is_worth_a_map: false };
        };
        let is_ipv4 = self.origin.lane.is_ipv4;
        let (mut len, mut n_elements) = (0_usize, 0);
        for (clause, step) in steps {
            let Some((is_source, id)) = clause.only_set() else { break };
            let using = SetUse { id: id.clone(), is_ipv4, has_ports: false };
            let kind = self.emitter.draft.kind(&using);
            if is_source != end || step.action == Action::Log || kind.is_wide() {
                break;
            }
            len += 1;
            n_elements += kind.size();
        }
        let is_worth_a_map = len >= RUN_LEN_MIN && n_elements <= len * (len / 4).max(8);
        Run { len, is_worth_a_map }
    }

    /// One rule for many: by the address of the one end.
    fn by_address(&mut self, run: &[(&Clause, &Step<'_>)]) -> Rule {
        let is_ipv4 = self.origin.lane.is_ipv4;
        let mut targets = Vec::new();
        let mut is_source = true;
        for (clause, step) in run {
            let Some((is_of_source, id)) = clause.only_set() else { continue };
            is_source = is_of_source;
            let id = id.clone();
            self.emitter.scope.sets.insert(SetUse { id: id.clone(), is_ipv4, has_ports: false });
            targets.push((id, self.acting_chain(step)));
        }
        let map = self.emitter.draft.address_map(is_ipv4, targets);
        self.emitter.scope.uses.insert(map.clone());
        let (family, source) = match (is_ipv4, is_source) {
            (true, true) => (IPV4, Source::IPV4_SOURCE),
            (true, false) => (IPV4, Source::IPV4_DESTINATION),
            (false, true) => (IPV6, Source::IPV6_SOURCE),
            (false, false) => (IPV6, Source::IPV6_DESTINATION),
        };
        Rule::new("").when(FAMILY, family).dispatch(source, &map)
    }

    /// A chain that does what a step does, whatever the packet.
    fn acting_chain(&mut self, step: &Step<'_>) -> String {
        if step.action == Action::Deny {
            return denial(self.emitter.draft, &step.name(), self.origin.lane.stage);
        }
        let outer = std::mem::take(&mut self.emitter.scope);
        let rule = self.act(Rule::new(""), step);
        let chain = self.shared_chain(vec![rule]);
        self.emitter.scope = outer;
        chain
    }

    fn act(&mut self, rule: Rule, step: &Step<'_>) -> Rule {
        let settings = self.emitter.draft.settings;
        let counted = |rule: Rule| match settings.counters {
            Counters::All => rule.counted(),
            Counters::Denials | Counters::None => rule,
        };
        let rule = match step.action {
            Action::Allow => self.allow(counted(rule)),
            Action::Pass => {
                let verdict = self.leave();
                counted(rule).verdict(verdict)
            }
            Action::Deny => {
                let verdict = self.deny(&step.name());
                rule.verdict(verdict)
            }
            Action::Log => {
                let mut rule = rule;
                if let Some(rate) = settings.log_rate {
                    rule = rule.with(rate.expression());
                }
                let prefix = log_prefix(&settings.log_prefix, step.owner);
                rule.with(Expression::Log { group: None, prefix, snap_len: 0 })
            }
        };
        rule.comment(&step.name().to_text())
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
    fn leave(&mut self) -> Verdict {
        match self.origin.next.clone() {
            Some(next) => {
                self.emitter.scope.uses.insert(next.clone());
                Verdict::Goto(next)
            }
            None => Verdict::Return,
        }
    }

    fn deny(&mut self, name: &RuleName) -> Verdict {
        let chain = denial(self.emitter.draft, name, self.origin.lane.stage);
        self.emitter.scope.uses.insert(chain.clone());
        Verdict::Goto(chain)
    }

    /// The rule for what no other decides: the same in every chain of a tier.
    fn end(&mut self) -> Rule {
        let direction = self.origin.lane.direction;
        let (rule, used) = match self.end.take() {
            Some(known) => known,
            None => match &self.origin.clone().part {
                Part::Tier { name, end, .. } => {
                    let name = RuleName::end_of_tier(direction, name.clone());
                    let verdict = match end {
                        End::Deny => self.deny(&name),
                        End::Pass => self.leave(),
                    };
                    let used = target(&verdict);
                    (Rule::new("").verdict(verdict).comment(&name.to_text()), used)
                }
                Part::Profile(_) => {
                    let verdict = self.leave();
                    let used = target(&verdict);
                    (Rule::new("").verdict(verdict), used)
                }
            },
        };
        self.emitter.scope.uses.extend(used.clone());
        self.end = Some((rule.clone(), used));
        rule
    }
}

impl Clause {
    fn is_unconditional(&self) -> bool {
        let side = Side::default();
        let has_other = self.not_protocol.is_some() || self.icmp.is_some();
        let all = Protocols::Any;
        !has_other && self.protocol == all && self.source == side && self.destination == side
    }

    /// The set of one end, if that is the only condition; true for the source.
    fn only_set(&self) -> Option<(bool, &SetId)> {
        let has_other = self.not_protocol.is_some() || self.icmp.is_some();
        if has_other || self.protocol != Protocols::Any {
            return None;
        }
        let is_free = |side: &Side| side.sets.is_empty() && side.has_sets_only();
        match (self.source.sets.as_slice(), self.destination.sets.as_slice()) {
            ([id], []) if self.source.has_sets_only() && is_free(&self.destination) => {
                Some((true, id))
            }
            ([], [id]) if self.destination.has_sets_only() && is_free(&self.source) => {
                Some((false, id))
            }
            _ => None,
        }
    }
}

impl Side {
    /// Whether it asks for nothing but sets that the address is in.
    fn has_sets_only(&self) -> bool {
        let Self { nets, not_nets, sets: _, not_sets, ports, not_ports, .. } = self;
        let has_ports = !(ports.is_empty() && not_ports.is_empty());
        let has_port_sets = !(self.port_sets.is_empty() && self.not_port_sets.is_empty());
        nets.is_empty()
            && not_nets.is_empty()
            && not_sets.is_empty()
            && !has_ports
            && !has_port_sets
    }
}

/// The steps that a packet can come to, once more: without what a class implies, more of them ask
/// for the same.
fn reachable<'a, 'i>(steps: &'a [(Clause, &'a Step<'i>)]) -> Vec<(&'a Clause, &'a Step<'i>)> {
    let mut decided: BTreeSet<&Clause> = BTreeSet::new();
    let mut reachable = Vec::new();
    for (clause, step) in steps {
        if decided.contains(clause) {
            continue;
        }
        if step.action != Action::Log {
            decided.insert(clause);
        }
        reachable.push((clause, *step));
    }
    reachable
}

/// What stands before a logged packet: `%t` is the tier, `%k` the kind, `%n` the name and `%p` the
/// name with its namespace.
fn log_prefix(pattern: &str, owner: Owner<'_>) -> String {
    let (tier, kind, name, namespace) = match owner {
        Owner::Policy(tier, id) => {
            (tier, kind_code(id.kind), id.name.as_str(), id.namespace.as_str())
        }
        Owner::Profile(name) => ("", "pro", name, ""),
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
        let policy = Owner::Policy("default", &id);
        assert_eq!(log_prefix("calico-packet", policy), "calico-packet: ");
        assert_eq!(log_prefix("%p:%k:%%y%t%%n %", policy), "shop/db:np:%%ydefault%db %: ");
        assert_eq!(log_prefix("%k %n%t", Owner::Profile("kns.a")), "pro kns.a: ");
        assert_eq!(log_prefix(&"é".repeat(100), policy).len(), 126);
    }
}
