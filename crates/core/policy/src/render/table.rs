//! Rules by protocol and destination port: which of them a packet can meet at all.

use std::collections::{BTreeMap, BTreeSet};

use nft::Key;

use super::clause::{Clause, Protocols, WITH_PORTS};

/// Fewer rules than this are walked through.
const RULES_MIN: usize = 8;
/// How many rules there may be in all classes together, for each one there is.
const GROWTH_MAX: usize = 8;

/// Ports of a protocol for which the same rules are met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) protocol: u8,
    pub(super) first: u16,
    pub(super) last: u16,
    /// The rules that can match, by their place.
    pub(super) steps: Vec<usize>,
}

impl Class {
    /// Its key in a map.
    pub(super) fn key(&self) -> Key {
        let ports = |port: u16| port.to_be_bytes().to_vec();
        Key::concatenation(&[
            Key::One(vec![self.protocol]),
            Key::range(ports(self.first), ports(self.last)),
        ])
    }
}

/// The protocol of a clause that asks for ports of the destination.
fn protocol(clause: &Clause) -> Option<u8> {
    match clause.protocol {
        Protocols::One(one)
            if WITH_PORTS.contains(&one) && !clause.destination.ports.is_empty() =>
        {
            Some(one)
        }
        _ => None,
    }
}

/// Whether a clause asks for a port of the destination in a protocol.
pub(super) fn has_port(clause: &Clause) -> bool {
    protocol(clause).is_some()
}

/// What is left of a clause for packets of a class; none if it cannot match there.
pub(super) fn within(clause: &Clause, class: &Class) -> Option<Clause> {
    let is_met = match clause.protocol {
        Protocols::Any | Protocols::WithPorts => true,
        Protocols::One(one) => one == class.protocol,
        Protocols::WithoutPorts => false,
    };
    if !is_met || clause.not_protocol == Some(class.protocol) {
        return None;
    }
    let mut rest = clause.clone();
    rest.protocol = Protocols::Any;
    rest.not_protocol = None;
    // The class was made of the ports of rules for one protocol.
    if has_port(clause) {
        rest.destination.ports.clear();
    }
    Some(rest)
}

/// The classes of many rules; none if they are few, or if the classes would be too large.
pub(super) fn classes(clauses: &[&Clause]) -> Option<Vec<Class>> {
    let n_with_port = clauses.iter().filter(|clause| has_port(clause)).count();
    if n_with_port < RULES_MIN {
        return None;
    }
    let n_rules_max = clauses.len() * GROWTH_MAX;
    let mut n_rules = 0;
    let mut found: Vec<Class> = Vec::new();
    for one in WITH_PORTS {
        let others: Vec<usize> = (0..clauses.len())
            .filter(|at| clauses.get(*at).is_some_and(|it| !has_port(it) && meets(it, one)))
            .collect();
        for class in parts(clauses, one, n_rules_max)? {
            let mut steps: Vec<usize> = others.iter().chain(&class.steps).copied().collect();
            steps.sort_unstable();
            match found.last_mut() {
                Some(last) if last.is_followed_by(&class) && last.steps == steps => {
                    last.last = class.last;
                }
                _ => {
                    n_rules += steps.len();
                    found.push(Class { steps, ..class });
                }
            }
        }
    }
    (n_rules <= n_rules_max).then_some(found)
}

impl Class {
    fn is_followed_by(&self, next: &Self) -> bool {
        self.protocol == next.protocol && u32::from(self.last) + 1 == u32::from(next.first)
    }
}

fn meets(clause: &Clause, protocol: u8) -> bool {
    let class = Class { protocol, first: 0, last: 0, steps: Vec::new() };
    within(clause, &class).is_some()
}

/// The ranges of a protocol's ports between all ends of ranges, with the rules that ask for them.
fn parts(clauses: &[&Clause], one: u8, n_rules_max: usize) -> Option<Vec<Class>> {
    let asking = || clauses.iter().enumerate().filter(|(_, it)| protocol(it) == Some(one));
    let mut starts: BTreeSet<u32> = BTreeSet::new();
    for (first, last) in asking().flat_map(|(_, it)| &it.destination.ports) {
        starts.extend([u32::from(*first), u32::from(*last) + 1]);
    }
    let mut steps: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut n_rules = 0;
    for (at, clause) in asking() {
        for (first, last) in &clause.destination.ports {
            for start in starts.range(u32::from(*first)..=u32::from(*last)) {
                steps.entry(*start).or_default().push(at);
                n_rules += 1;
                if n_rules > n_rules_max {
                    return None;
                }
            }
        }
    }
    let part = |(start, steps): (u32, Vec<usize>)| {
        let end = starts.range(start + 1..).next().copied().unwrap_or(65_536);
        let first = u16::try_from(start).ok()?;
        let last = u16::try_from(end - 1).ok()?;
        Some(Class { protocol: one, first, last, steps })
    };
    Some(steps.into_iter().filter_map(part).collect())
}

#[cfg(test)]
mod tests {
    use model::resource::Action;
    use net::Protocol;

    use super::super::clause::alternatives;
    use super::*;
    use crate::Rule;

    fn clause(protocol: u8, ports: &[(u16, u16)]) -> Clause {
        let mut rule = Rule::all(Action::Allow);
        rule.protocol = Some(Protocol::Number(protocol));
        rule.destination.ports.ranges = ports.to_vec();
        alternatives(&rule, true).remove(0)
    }

    #[test]
    fn a_class_holds_the_rules_of_its_ports_and_those_of_all() {
        let mut all: Vec<Clause> = (0..8).map(|it| clause(6, &[(80 + it, 82 + it)])).collect();
        all.push(clause(6, &[]));
        all.push(clause(17, &[]));
        all.push(clause(17, &[(53, 53), (65_535, 65_535)]));
        let clauses: Vec<&Clause> = all.iter().collect();
        let found = classes(&clauses).unwrap();
        let class = |first, last, steps: &[usize]| Class {
            protocol: 6,
            first,
            last,
            steps: steps.to_vec(),
        };
        assert_eq!(found[0], class(80, 80, &[0, 8]));
        assert_eq!(found[2], class(82, 82, &[0, 1, 2, 8]));
        assert_eq!(found[9], class(89, 89, &[7, 8]));
        let last = Class { protocol: 17, first: 65_535, last: 65_535, steps: vec![9, 10] };
        assert_eq!(found[11], last);
        assert_eq!(found.len(), 12);
    }

    #[test]
    fn few_rules_and_rules_that_would_grow_too_many_have_none() {
        let few: Vec<Clause> = (0..7).map(|it| clause(6, &[(it, it)])).collect();
        assert_eq!(classes(&few.iter().collect::<Vec<_>>()), None);
        let mut many: Vec<Clause> = (0..100).map(|it| clause(6, &[(it, it)])).collect();
        many.extend((0..100).map(|_| clause(6, &[])));
        assert_eq!(classes(&many.iter().collect::<Vec<_>>()), None);
    }
}
