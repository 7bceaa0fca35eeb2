//! Other programs' tables of the packet filter that drop what ours lets through.
//!
//! A packet passes every table that has a chain at its way: a drop in any of them is final. So
//! chains that drop by default, and rules that drop without looking at the interface, are named;
//! they are never touched.

use std::collections::{BTreeMap, BTreeSet};

use host::marks::TABLES;
use kernel::Result;
use kernel::nft::expression::{Ct, Meta};
use kernel::nft::{
    Chain, Expression, Hook, ListedRule, Nft, Rule, Source, TableFamily, TableId, Verdict,
};

use crate::finding::{Finding, Severity};

/// What other tables drop, by table and chain, in words.
pub(crate) type Drops = BTreeMap<(String, String), String>;

/// Looks at one table, or at all.
pub(crate) fn look(
    nft: &mut Nft,
    only: Option<&BTreeSet<TableId>>,
    drops: &mut Drops,
) -> Result<()> {
    let tables = nft.tables()?;
    drops.retain(|(name, _), _| tables.iter().any(|table| table.id.to_string() == *name));
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
        let name = table.to_string();
        drops.retain(|(of, _), _| *of != name);
        drops.extend(found(&name, &chains, &rules));
    }
    Ok(())
}

/// What the chains of one table drop on the way of forwarded packets.
fn found(table: &str, chains: &[Chain], rules: &[ListedRule]) -> Drops {
    let mut drops = Drops::new();
    for chain in chains.iter().filter(|chain| is_on_the_way(chain)) {
        let place = (table.to_owned(), chain.name.clone());
        if chain.base.as_ref().is_some_and(|base| base.drops_by_default) {
            drops.insert(place, "drops what none of its rules accepts".to_owned());
            continue;
        }
        let own = rules.iter().filter(|listed| listed.rule.chain == chain.name);
        let bad = own.filter(|listed| drops_at_large(&listed.rule)).count();
        if bad > 0 {
            let rules = if bad == 1 { "a rule" } else { "rules" };
            drops.insert(place, format!("has {rules} that drop without naming an interface"));
        }
    }
    drops
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
        Expression::Unknown(_) | Expression::Limit { .. } => true,
        _ => false,
    };
    rule.expressions.iter().any(is_drop) && !rule.expressions.iter().any(narrows)
}

/// A table of somebody else may drop what ours lets through.
pub(crate) fn finding(((table, chain), what): (&(String, String), &String)) -> Finding {
    let problem = format!(
        "chain {chain} of table {table}, which another program made, {what}: packets of pods that \
         policy allows may be lost there"
    );
    let fix = format!("nft list chain {table} {chain}      # accept cali* there, or remove it");
    Finding::new("MG-FILTER-002", Severity::Degraded, "FILTER", problem, fix)
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
}
