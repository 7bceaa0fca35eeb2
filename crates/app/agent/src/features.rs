//! What the packet filter needs of the kernel, asked of the kernel itself.
//!
//! Each feature is tried in a transaction of its own that also removes a table that nobody has: the
//! kernel says everything that it does not know, and carries out nothing of it. So nothing is ever
//! left, no packet is touched, and nobody who follows the ruleset hears of it.

use std::sync::OnceLock;
use std::time::Duration;

use kernel::nft::expression::{Ct, FibResult, Meta, Rejection, fib_flags, nat_flags};
use kernel::nft::{
    Base, Batch, Chain, ChainKind, DataType, Element, Expression, Hook, Key, Nft, Register, Rule,
    Set, Source, Table, TableFamily, TableId, Verdict,
};
use kernel::{Errno, Error};

use crate::finding::{Finding, Severity};

/// Linux has everything that is needed since then.
pub(crate) const LINUX_MIN: &str = "5.7";

const PROBE: &str = "margay-probe";
/// A table that nobody has: the transaction fails at it.
const NOBODYS: &str = "margay-probe-is-not-there";

/// Something that the kernel must have.
#[derive(Debug)]
struct Feature {
    what: &'static str,
    /// The version of Linux that has it first.
    since: &'static str,
    /// What must be set where a kernel is built.
    option: &'static str,
    /// What does not work without it; nothing does if there is nothing else.
    without: Option<&'static str>,
    write: fn(&mut Batch, &TableId),
}

/// What is known of this node's kernel.
#[derive(Debug, Default)]
pub(crate) struct Kernel(OnceLock<Vec<Finding>>);

impl Kernel {
    /// Asks, once; what was found.
    pub(crate) fn ask(&self, nft: &mut Nft) -> &[Finding] {
        self.0.get_or_init(|| findings(&release(), |batch| nft.commit(batch)))
    }

    /// What was found; nothing before it was asked.
    pub(crate) fn findings(&self) -> &[Finding] {
        self.0.get().map_or(&[], Vec::as_slice)
    }
}

/// The release of the kernel that runs.
pub(crate) fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// One finding for all that is missing, if anything is.
fn findings(release: &str, mut commit: impl FnMut(&Batch) -> Result<(), Error>) -> Vec<Finding> {
    let mut missing = FEATURES.iter().filter(|feature| lacks(feature, &mut commit)).peekable();
    if missing.peek().is_none() {
        return Vec::new();
    }
    let missing: Vec<&Feature> = missing.collect();
    let is_broken = missing.iter().any(|feature| feature.without.is_none());
    let named: Vec<String> = missing.iter().map(|feature| feature.spoken()).collect();
    let consequence = if is_broken { "; the packet filter cannot be installed" } else { "" };
    let problem = format!("Linux {release} lacks {}{consequence}", named.join("; "));
    let severity = if is_broken { Severity::Broken } else { Severity::Degraded };
    let fix = format!(
        "uname -r      # run Linux {LINUX_MIN} or later, built with the options that are named"
    );
    vec![Finding::new("MG-KERNEL-002", severity, "KERNEL", problem, fix)]
}

impl Feature {
    fn spoken(&self) -> String {
        let Self { what, since, option, .. } = self;
        let without = self.without.map(|it| format!(": {it}")).unwrap_or_default();
        format!("{what} (since Linux {since}, {option}){without}")
    }
}

/// Whether the kernel refuses something of a feature. Whoever cannot ask does not say so.
fn lacks(feature: &Feature, commit: &mut impl FnMut(&Batch) -> Result<(), Error>) -> bool {
    let mut batch = Batch::new();
    let family = if feature.option == ARP { TableFamily::Arp } else { TableFamily::Inet };
    let table = TableId::new(family, PROBE);
    // Even if it were carried out, it would see no packet.
    batch.add_table(&Table { is_dormant: true, ..Table::new(table.clone()) });
    (feature.write)(&mut batch, &table);
    let nobodys = TableId::new(family, NOBODYS);
    batch.delete_table(&nobodys);
    let wanted = format!("delete {nobodys}");
    match commit(&batch) {
        Err(Error::Rejected(failures)) => {
            let unknown = [Errno::OPNOTSUPP, Errno::NOENT, Errno::INVAL, Errno::AFNOSUPPORT];
            let mut others = failures.iter().filter(|failure| failure.attempt != wanted);
            others.any(|failure| unknown.contains(&failure.refusal.errno))
        }
        _ => false,
    }
}

const ARP: &str = "CONFIG_NF_TABLES_ARP";

/// A chain that packets enter by themselves, with one rule.
fn chain(batch: &mut Batch, table: &TableId, base: Base, rule: impl FnOnce(Rule) -> Rule) {
    batch.add_chain(table, &Chain::based("probe", base));
    batch.add_rule(table, &rule(Rule::new("probe")));
}

fn filter(hook: Hook, priority: i32) -> Base {
    Base::new(ChainKind::Filter, hook, priority)
}

const FEATURES: &[Feature] = &[
    Feature {
        what: "tables of both families",
        since: "3.14",
        option: "CONFIG_NF_TABLES_INET",
        without: None,
        write: |batch, table| {
            chain(batch, table, filter(Hook::Forward, 0), |rule| rule.verdict(Verdict::Accept));
        },
    },
    Feature {
        what: "tables for ARP",
        since: "3.14",
        option: ARP,
        without: None,
        write: |batch, table| {
            chain(batch, table, filter(Hook::Input, 0), |rule| rule.verdict(Verdict::Accept));
        },
    },
    Feature {
        what: "the state of connections in rules",
        since: "3.14",
        option: "CONFIG_NFT_CT",
        without: None,
        write: |batch, table| {
            chain(batch, table, filter(Hook::Forward, 0), |rule| {
                rule.when_any_bit(Source::Ct(Ct::State), 2).verdict(Verdict::Accept)
            });
        },
    },
    Feature {
        what: "maps from interfaces to verdicts",
        since: "4.1",
        option: "CONFIG_NF_TABLES",
        without: None,
        write: |batch, table| {
            let map = Set::new("map", &[DataType::LinkName]).to_verdicts();
            batch.add_set(table, &map);
            let element = Element::verdict(Key::link_name("cali0"), Verdict::Accept);
            batch.add_elements(table, &map, &[element]);
            chain(batch, table, filter(Hook::Forward, 0), |rule| {
                rule.dispatch(Source::Meta(Meta::InputName), "map")
            });
        },
    },
    Feature {
        what: "the routing table in rules",
        since: "4.10",
        option: "CONFIG_NFT_FIB_INET",
        without: None,
        write: |batch, table| {
            chain(batch, table, filter(Hook::Output, 0), |rule| {
                let (flags, result) = (fib_flags::SOURCE, FibResult::AddressKind);
                let local = 2_u32.to_ne_bytes();
                rule.when(Source::Fib { flags, result }, &local).verdict(Verdict::Accept)
            });
        },
    },
    Feature {
        what: "address translation in tables of both families",
        since: "5.2",
        option: "CONFIG_NFT_MASQ",
        without: None,
        write: |batch, table| {
            let base = Base::new(ChainKind::Nat, Hook::Postrouting, 100);
            chain(batch, table, base, |rule| {
                let flags = nat_flags::RANDOM_FULLY;
                rule.with(Expression::Masquerade { flags, ports: None })
            });
        },
    },
    Feature {
        what: "sets of pairs with ranges",
        // 5.6 has them, 5.7 the flag by which they are asked for.
        since: "5.7",
        option: "CONFIG_NF_TABLES",
        without: None,
        write: |batch, table| {
            let set = Set::new("set", &[DataType::LinkName, DataType::Ipv4]).with_ranges();
            batch.add_set(table, &set);
            let range = Key::range(vec![10, 0, 0, 0], vec![10, 0, 0, 9]);
            let key = Key::concatenation(&[Key::link_name("cali0"), range]);
            batch.add_elements(table, &set, &[Element::member(key)]);
        },
    },
    Feature {
        what: "packets that are handed to listeners",
        since: "3.14",
        option: "CONFIG_NFT_LOG",
        without: None,
        write: |batch, table| {
            chain(batch, table, filter(Hook::Forward, 0), |rule| {
                let prefix = "probe".to_owned();
                rule.with(Expression::Log { group: Some(1), prefix, snap_len: 64 })
            });
        },
    },
    Feature {
        what: "rules with a rate for each source",
        since: "4.3",
        option: "CONFIG_NFT_LIMIT",
        without: None,
        write: |batch, table| {
            let (key, stay) = ([DataType::Ipv4, DataType::Mark], Duration::from_secs(10));
            batch.add_set(table, &Set::new("rates", &key).dynamic(stay, 16));
            let (register, set) = (Register::FIRST, "rates".to_owned());
            let limit =
                Expression::Limit { rate: 10, per_seconds: 1, burst: 10, is_inverted: true };
            let step = Box::new(limit);
            chain(batch, table, filter(Hook::Forward, 0), |rule| {
                rule.with(Expression::Constant { register, value: vec![0; 8] })
                    .with(Expression::Update { register, set, step })
            });
        },
    },
    Feature {
        what: "rules that turn connection tracking off",
        since: "4.9",
        option: "CONFIG_NFT_CT",
        without: Some("policies with doNotTrack cannot be carried out"),
        write: |batch, table| {
            chain(batch, table, filter(Hook::Prerouting, -300), |rule| {
                rule.with(Expression::NoTrack)
            });
        },
    },
    Feature {
        what: "rejections before routing",
        since: "5.9",
        option: "CONFIG_NFT_REJECT_INET",
        without: Some("policies with preDNAT or doNotTrack cannot reject, only drop"),
        write: |batch, table| {
            chain(batch, table, filter(Hook::Prerouting, -300), |rule| {
                rule.with(Expression::Reject(Rejection::Icmp(1)))
            });
        },
    },
];

#[cfg(test)]
mod tests {
    use kernel::{Failure, Netns, Refusal};

    use super::*;

    fn failure(attempt: &str, errno: Errno) -> Failure {
        Failure { attempt: attempt.to_owned(), refusal: Refusal { errno, message: None } }
    }

    /// A kernel that refuses whatever contains these words, and the table that is not there.
    fn without(words: &'static [&'static str]) -> impl FnMut(&Batch) -> Result<(), Error> {
        move |batch: &Batch| {
            let attempts = (1..=u32::try_from(batch.len()).unwrap()).map(|at| batch.attempt(at));
            let refused = attempts.filter_map(|attempt| {
                let is_lacking = words.iter().any(|word| attempt.contains(word));
                let errno = match is_lacking {
                    true => Errno::OPNOTSUPP,
                    false if attempt.contains(NOBODYS) => Errno::NOENT,
                    false => return None,
                };
                Some(failure(&attempt, errno))
            });
            Err(Error::Rejected(refused.collect()))
        }
    }

    #[test]
    fn a_kernel_that_has_everything_is_fine() {
        assert_eq!(findings("6.1.0", without(&[])), []);
        // Who may not ask does not know.
        let forbidden =
            |batch: &Batch| Err(Error::Rejected(vec![failure(&batch.attempt(1), Errno::PERM)]));
        assert_eq!(findings("6.1.0", forbidden), []);
    }

    #[test]
    fn what_is_missing_is_named_with_its_version_and_what_to_do() {
        let found = findings("5.4.0-90", without(&["set set"]));
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((finding.code.as_str(), finding.severity), ("MG-KERNEL-002", Severity::Broken));
        assert_eq!(
            finding.problem,
            "Linux 5.4.0-90 lacks sets of pairs with ranges (since Linux 5.7, CONFIG_NF_TABLES); \
             the packet filter cannot be installed"
        );
        assert!(finding.fix.contains("Linux 5.7 or later"), "{finding:?}");
    }

    #[test]
    fn this_kernel_has_it_all_and_nothing_is_left_behind() {
        let netns = match Netns::create() {
            Ok(netns) => netns,
            Err(_) => return,
        };
        let mut nft = Nft::in_netns(&netns).unwrap();
        let before = nft.generation().unwrap();
        assert_eq!(Kernel::default().ask(&mut nft), []);
        assert_eq!(nft.generation().unwrap(), before, "something was carried out");
        assert_eq!(nft.tables().unwrap(), []);
    }
}
