//! Other programs' tables of the packet filter that drop what ours lets through.
//!
//! A packet passes every table that has a chain at its way: a drop in any of them is final. So
//! chains that drop by default, and rules that drop without looking at the interface, are named;
//! they are never touched.

use std::collections::{BTreeMap, BTreeSet};

use host::marks::TABLES;
use kernel::Result;
use kernel::nft::expression::{Comparison, Ct, Meta};
use kernel::nft::{
    Chain, Expression, Hook, ListedRule, Nft, Rule, Source, TableFamily, TableId, Verdict,
};

use crate::finding::{Finding, Severity};

/// What other tables drop, by table and chain.
pub(crate) type Drops = BTreeMap<(String, String), Loss>;

/// How a chain drops, and how to let sandboxes through there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    what: String,
    fix: String,
}

/// What the names of sandboxes' interfaces begin with.
const PREFIX: &[u8] = b"cali";
/// So many chains are followed from one to the next.
const LINKS_MAX: usize = 4;

/// Looks at one table, or at all.
pub(crate) fn look(
    nft: &mut Nft,
    only: Option<&BTreeSet<TableId>>,
    drops: &mut Drops,
) -> Result<()> {
    let tables = nft.tables()?;
    drops.retain(|(name, _), _| tables.iter().any(|table| spoken(&table.id) == *name));
    for table in tables.iter().map(|table| &table.id) {
        let is_meant = only.is_none_or(|only| only.contains(table));
        let is_ip = matches!(table.family, TableFamily::Inet | TableFamily::Ip | TableFamily::Ip6);
        if !is_meant || !is_ip || TABLES.contains(&table.name.as_str()) {
            continue;
        }
        let chains: Vec<Chain> =
            nft.chains(Some(table))?.into_iter().map(|(_, chain)| chain).collect();
        let rules = match chains.iter().any(is_on_the_way) {
            true => nft.rules(Some(table))?,
            false => Vec::new(),
        };
        let name = spoken(table);
        drops.retain(|(of, _), _| *of != name);
        drops.extend(found(&name, &chains, &rules));
    }
    Ok(())
}

/// A table as `nft` is told which one is meant.
fn spoken(table: &TableId) -> String {
    format!("{} {}", table.family, table.name)
}

/// What the chains of one table drop on the way of forwarded packets.
fn found(table: &str, chains: &[Chain], rules: &[ListedRule]) -> Drops {
    let mut drops = Drops::new();
    for chain in chains.iter().filter(|chain| is_on_the_way(chain)) {
        let own: Vec<&ListedRule> =
            rules.iter().filter(|listed| listed.rule.chain == chain.name).collect();
        let bad: Vec<&ListedRule> =
            own.iter().filter(|listed| drops_at_large(&listed.rule)).copied().collect();
        // What is accepted before cannot be lost.
        let first = own.iter().position(|listed| drops_at_large(&listed.rule));
        let before = &own[..first.unwrap_or(own.len())];
        if lets_ours_through(before, rules) {
            continue;
        }
        let is_closed = chain.base.as_ref().is_some_and(|base| base.drops_by_default);
        let what = match bad.as_slice() {
            _ if is_closed => "drops what none of its rules accepts".to_owned(),
            [] => continue,
            [one] => {
                let handle = one.handle;
                format!("has a rule that drops without naming an interface (handle {handle})")
            }
            [first, ..] => format!(
                "has {} rules that drop without naming an interface (the first with handle {})",
                bad.len(),
                first.handle
            ),
        };
        let fix = fix(table, &chain.name, chains);
        drops.insert((table.to_owned(), chain.name.clone()), Loss { what, fix });
    }
    drops
}

/// What to type so that sandboxes are let through: in the way of the program whose table it is.
fn fix(table: &str, chain: &str, chains: &[Chain]) -> String {
    let both =
        |command: &str| format!("{command} -i cali+ -j ACCEPT; {command} -o cali+ -j ACCEPT");
    let has_docker = chains.iter().any(|chain| chain.name == "DOCKER-USER");
    match (table, chain) {
        ("ip filter", "FORWARD") if has_docker => both("iptables -I DOCKER-USER"),
        ("ip6 filter", "FORWARD") if has_docker => both("ip6tables -I DOCKER-USER"),
        ("ip filter", "FORWARD") => both("iptables -I FORWARD"),
        ("ip6 filter", "FORWARD") => both("ip6tables -I FORWARD"),
        ("inet firewalld", _) => "firewall-cmd --permanent --zone=trusted --add-interface=cali+; \
                                  firewall-cmd --reload"
            .to_owned(),
        _ => format!(
            "nft insert rule {table} {chain} iifname 'cali*' accept; nft insert rule {table} \
             {chain} oifname 'cali*' accept"
        ),
    }
}

/// Whether these rules accept everything that comes from sandboxes, and everything that goes there.
fn lets_ours_through(own: &[&ListedRule], all: &[ListedRule]) -> bool {
    [Meta::InputName, Meta::OutputName].into_iter().all(|side| accepts(own, all, side, LINKS_MAX))
}

fn accepts(own: &[&ListedRule], all: &[ListedRule], side: Meta, links: usize) -> bool {
    own.iter().any(|listed| match Condition::of(&listed.rule, side) {
        Some((_, Verdict::Accept)) => true,
        Some((condition, Verdict::Jump(chain) | Verdict::Goto(chain))) if links > 0 => {
            let within: Vec<&ListedRule> =
                all.iter().filter(|listed| listed.rule.chain == *chain).collect();
            let is_open = |rule: &Rule| {
                matches!(Condition::of(rule, side), Some((Condition::None, Verdict::Accept)))
            };
            match condition {
                Condition::Ours => within.iter().any(|listed| is_open(&listed.rule)),
                Condition::None => accepts(&within, all, side, links - 1),
            }
        }
        _ => false,
    })
}

/// What a rule asks before its verdict.
enum Condition {
    /// Nothing.
    None,
    /// That the packet comes from, or goes to, a sandbox.
    Ours,
}

impl Condition {
    /// The condition and the verdict of a rule; none if it asks anything else.
    fn of(rule: &Rule, side: Meta) -> Option<(Self, &Verdict)> {
        let asks = |it: &&Expression| {
            !matches!(it, Expression::Counter { .. } | Expression::NamedCounter(_))
        };
        let steps: Vec<&Expression> = rule.expressions.iter().filter(asks).collect();
        match steps.as_slice() {
            [Expression::Verdict(verdict)] => Some((Self::None, verdict)),
            [
                Expression::Load { source: Source::Meta(meta), .. },
                Expression::Compare { operator: Comparison::Equal, value, .. },
                Expression::Verdict(verdict),
            ] if *meta == side && PREFIX.starts_with(value) => Some((Self::Ours, verdict)),
            _ => None,
        }
    }
}

/// Whether forwarded packets meet a chain by themselves.
fn is_on_the_way(chain: &Chain) -> bool {
    let hook = chain.base.as_ref().map(|base| base.hook);
    matches!(hook, Some(Hook::Prerouting | Hook::Forward | Hook::Postrouting))
}

/// Whether a rule drops packets whichever interface they come from or go to. Those that look at
/// the state of connections drop what is invalid, and matches of iptables cannot be read.
fn drops_at_large(rule: &Rule) -> bool {
    let is_drop =
        |it: &Expression| matches!(it, Expression::Verdict(Verdict::Drop) | Expression::Reject(_));
    let narrows = |it: &Expression| match it {
        Expression::Load { source, .. } => matches!(
            source,
            Source::Meta(Meta::InputName | Meta::OutputName | Meta::InputIndex | Meta::OutputIndex)
                | Source::Ct(Ct::State)
                | Source::Fib { .. }
        ),
        Expression::Unknown(_) | Expression::Limit { .. } | Expression::Update { .. } => true,
        _ => false,
    };
    rule.expressions.iter().any(is_drop) && !rule.expressions.iter().any(narrows)
}

/// A table of somebody else may drop what ours lets through.
pub(crate) fn finding(((table, chain), loss): (&(String, String), &Loss)) -> Finding {
    let Loss { what, fix } = loss;
    let problem = format!(
        "chain {chain} of table {table}, which another program made, {what}: packets of pods that \
         policy allows may be lost there"
    );
    Finding::new("MG-FILTER-002", Severity::Degraded, "FILTER", problem, fix.clone())
}

#[cfg(test)]
mod tests {
    use kernel::nft::{Base, ChainKind};

    use super::*;

    fn base(name: &str, hook: Hook, drops_by_default: bool) -> Chain {
        let base = Base { drops_by_default, ..Base::new(ChainKind::Filter, hook, 0) };
        Chain::based(name, base)
    }

    fn listed(rule: Rule) -> ListedRule {
        ListedRule { table: TableId::new(TableFamily::Ip, "filter"), handle: 1, rule }
    }

    #[test]
    fn what_drops_at_large_is_named_and_the_rest_is_not() {
        let chains = [
            base("FORWARD", Hook::Forward, true),
            base("guard", Hook::Prerouting, false),
            base("fine", Hook::Forward, false),
            base("INPUT", Hook::Input, true),
        ];
        let drop = |chain: &str| Rule::new(chain).verdict(Verdict::Drop);
        let rules = [
            listed(drop("guard")),
            listed(
                Rule::new("fine")
                    .when(Source::Meta(Meta::InputName), b"eth0\0")
                    .verdict(Verdict::Drop),
            ),
            listed(Rule::new("fine").verdict(Verdict::Accept)),
            listed(drop("INPUT")),
        ];
        let drops = found("ip filter", &chains, &rules);
        let places: Vec<&str> = drops.keys().map(|(_, chain)| chain.as_str()).collect();
        assert_eq!(places, ["FORWARD", "guard"]);
    }

    #[test]
    fn a_chain_that_accepts_sandboxes_first_drops_nothing_of_theirs() {
        let chains = [base("FORWARD", Hook::Forward, true), Chain::plain("DOCKER-USER")];
        let jump = Rule::new("FORWARD").counted().verdict(Verdict::Jump("DOCKER-USER".into()));
        let accept = |side| {
            Rule::new("DOCKER-USER").when(Source::Meta(side), b"cali").verdict(Verdict::Accept)
        };
        let from = listed(accept(Meta::InputName));
        let to = listed(accept(Meta::OutputName));
        let of = |rules: &[ListedRule]| found("ip filter", &chains, rules);
        assert_eq!(of(&[listed(jump.clone()), from.clone(), to.clone()]), Drops::new());
        // One side only is not enough, and nobody is asked who is not on the way.
        for rules in [vec![listed(jump), from.clone()], vec![from, to]] {
            let drops = of(&rules);
            let loss = &drops[&("ip filter".to_owned(), "FORWARD".to_owned())];
            assert!(loss.fix.starts_with("iptables -I DOCKER-USER -i cali+"), "{loss:?}");
        }
    }

    #[test]
    fn what_comes_before_a_rule_that_drops_counts_and_what_comes_after_does_not() {
        let chains = [base("guard", Hook::Forward, false)];
        let sides = [Meta::InputName, Meta::OutputName];
        let accept = |side| {
            listed(Rule::new("guard").when(Source::Meta(side), b"cali").verdict(Verdict::Accept))
        };
        let drop = listed(Rule::new("guard").verdict(Verdict::Drop));
        let open = [accept(sides[0]), accept(sides[1]), drop.clone()];
        assert_eq!(found("inet mine", &chains, &open), Drops::new());
        let late = [drop, accept(sides[0]), accept(sides[1])];
        let drops = found("inet mine", &chains, &late);
        let loss = &drops[&(spoken(&TableId::new(TableFamily::Inet, "mine")), "guard".to_owned())];
        assert_eq!(loss.what, "has a rule that drops without naming an interface (handle 1)");
        assert!(loss.fix.starts_with("nft insert rule inet mine guard iifname"), "{loss:?}");
    }
}
