//! A kernel that refuses when a test wants it to.

use std::collections::BTreeSet;

use kernel::nft::{
    Batch, Chain, DataType, Element, Key, ListedRule, Nft, Set, Table, TableFamily, TableId,
};
use kernel::{Errno, Error, Failure, Refusal, Result};

use super::super::TABLE;
use super::super::netfilter::Netfilter;

/// What goes wrong.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Nothing,
    /// So many operations fail from that one on.
    From {
        first: usize,
        n: usize,
        errno: Errno,
        how: How,
    },
    /// So many transactions.
    Next {
        n: usize,
        errno: Errno,
        how: How,
    },
    /// Every transaction that has these bytes in it.
    Holding(Vec<u8>, Errno),
}

/// How it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// A message of the transaction is named.
    Named,
    /// The socket says so.
    Socket,
}

/// A real kernel behind a fault.
#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) nft: Nft,
    pub(super) fault: Fault,
    /// How many operations there were.
    pub(super) n_operations: usize,
    /// How many transactions were tried.
    pub(super) n_transactions: usize,
    /// Whether one of our tables was in force once: from then on there always is one.
    pub(super) was_in_force: bool,
    /// Interfaces that some table in force must know.
    pub(super) is_open: Option<BTreeSet<String>>,
}

impl Faulty {
    pub(super) fn new(nft: Nft) -> Self {
        let fault = Fault::Nothing;
        let (n_operations, n_transactions) = (0, 0);
        Self { nft, fault, n_operations, n_transactions, was_in_force: false, is_open: None }
    }

    /// Counts an operation, which fails if it is its turn.
    fn next(&mut self, attempt: &str, is_commit: bool) -> Result<()> {
        self.n_operations += 1;
        let (errno, how) = match &mut self.fault {
            Fault::From { first, n, errno, how } => {
                let after = self.n_operations.checked_sub(*first);
                if after.is_none_or(|after| after >= *n) {
                    return Ok(());
                }
                (*errno, *how)
            }
            Fault::Next { n, errno, how } if is_commit && *n > 0 => {
                *n -= 1;
                (*errno, *how)
            }
            _ => return Ok(()),
        };
        match how {
            How::Named if is_commit => Err(rejected(attempt, errno)),
            How::Named | How::Socket => {
                Err(Error::System { attempt: attempt.to_owned(), source: errno.into() })
            }
        }
    }

    /// At least one of our tables must be in force, complete with its hooks.
    fn check(&mut self) {
        let is_in_force = |table: &Table| {
            let is_ours = table.id.name == TABLE || table.id.name.starts_with("margay-");
            is_ours && table.id.family == TableFamily::Inet && !table.is_dormant
        };
        let active: Vec<TableId> =
            self.nft.tables().unwrap().into_iter().filter(is_in_force).map(|it| it.id).collect();
        assert!(!self.was_in_force || !active.is_empty(), "nothing is in force");
        self.was_in_force |= !active.is_empty();
        for table in active {
            let chains = self.nft.chains(Some(&table)).unwrap();
            assert!(chains.iter().any(|(_, chain)| chain.name == "forward"), "{table} is bare");
            for interface in self.is_open.iter().flatten() {
                let map = Set::new("to4", &[DataType::LinkName]).to_verdicts();
                let known = self.nft.elements(&table, &map).unwrap();
                let key = Key::link_name(interface);
                assert!(known.iter().any(|it| it.key == key), "{interface} is closed");
            }
        }
    }
}

fn rejected(attempt: &str, errno: Errno) -> Error {
    let refusal = Refusal { errno, message: None };
    Error::Rejected(vec![Failure { attempt: attempt.to_owned(), refusal }])
}

impl Netfilter for Faulty {
    fn commit(&mut self, batch: &Batch) -> Result<()> {
        self.n_transactions += 1;
        self.next(&batch.attempt(1), true)?;
        if let Fault::Holding(bytes, errno) = &self.fault {
            let encoded = batch.encode(0);
            if encoded.bytes().windows(bytes.len()).any(|it| it == bytes) {
                return Err(rejected(&batch.attempt(1), *errno));
            }
        }
        self.nft.commit(batch)?;
        self.check();
        Ok(())
    }

    fn disown(&mut self) -> Result<()> {
        self.next("let our tables go", false)?;
        self.nft.disown()
    }

    fn generation(&mut self) -> Result<u32> {
        self.next("read the generation of the ruleset", false)?;
        self.nft.generation()
    }

    fn tables(&mut self) -> Result<Vec<Table>> {
        self.next("list the tables", false)?;
        self.nft.tables()
    }

    fn chains(&mut self, table: &TableId) -> Result<Vec<Chain>> {
        self.next("list the chains", false)?;
        Netfilter::chains(&mut self.nft, table)
    }

    fn rules(&mut self, table: &TableId) -> Result<Vec<ListedRule>> {
        self.next("list the rules", false)?;
        Netfilter::rules(&mut self.nft, table)
    }

    fn sets(&mut self, table: &TableId) -> Result<Vec<Set>> {
        self.next("list the sets", false)?;
        self.nft.sets(table)
    }

    fn elements(&mut self, table: &TableId, set: &Set) -> Result<Vec<Element>> {
        self.next("list the elements", false)?;
        self.nft.elements(table, set)
    }

    // No packet comes by in the namespace of a test.
    fn await_packets(&mut self) {}

    fn rest(&mut self, _: std::time::Duration) {}
}
