//! Cutting a pool into smaller ones.

use api::Kind;
use model::prepare::{Neighbours, prepare_create};
use net::Cidr;
use serde_json::Value;

use super::super::write::refused;
use super::super::{Change, Error, Name, Resources};
use crate::{Committed, Compare, Op, Txn};

/// So many pools are written at once: a stock etcd takes 128 changes in one transaction.
const POOLS_AT_ONCE: usize = 100;
/// The longest name that an object may have.
const NAME_MAX: usize = 253;
const NAME_CUT: usize = 245;

/// Why a pool was not split, and at which piece, if it was at one.
pub type NotSplit = (Option<Cidr>, Error);

impl Resources {
    /// Puts a pool for each of these networks into the place of a pool; blocks and addresses stay
    /// as they are. Up to a hundred pieces are one step: there is the pool, or there are they.
    /// Returns the names.
    pub fn split_pool(&self, name: &str, cidrs: &[Cidr]) -> Result<Vec<(String, Cidr)>, NotSplit> {
        let whole = |error: Error| (None, error);
        let old = Name::cluster(Kind::IpPool, name);
        let (entry, _) = self.store().get(&old.key()).map_err(|error| whole(error.into()))?;
        let Some(entry) = entry else { return Err(whole(Error::NotFound(old))) };
        let stored = self.get(&old).map_err(whole)?;
        let mut puts = Vec::new();
        let mut made = Vec::new();
        for (index, cidr) in cidrs.iter().enumerate() {
            let piece = piece_of(&stored.object, name, index, *cidr);
            let piece_name = Name::of(Kind::IpPool, &piece);
            // The pieces lie in the pool that they replace: neighbours cannot be asked.
            let context = self.context();
            let prepared = prepare_create(Kind::IpPool, piece, &context, &Neighbours::default())
                .map_err(|refusal| (Some(*cidr), refused(&piece_name, refusal)))?;
            puts.push((piece_name.key(), text::json::to_string(&prepared).into_bytes()));
            made.push((piece_name.name, *cidr));
        }
        let n_chunks = puts.len().div_ceil(POOLS_AT_ONCE);
        for (index, some) in puts.chunks(POOLS_AT_ONCE).enumerate() {
            let mut txn = Txn::default();
            let mut changes = Vec::new();
            for (key, value) in some {
                txn.compares.push(Compare::Absent(key.clone()));
                txn.ops.push(Op::Put { key: key.clone(), value: value.clone() });
                changes.push(Change::new(key.clone(), None, Some(value)));
            }
            txn.compares.push(Compare::ModRevision(old.key(), entry.mod_revision));
            if index + 1 == n_chunks {
                txn.ops.push(Op::Delete { key: old.key() });
                let before = Some((entry.value.clone(), entry.mod_revision));
                changes.push(Change::new(old.key(), before, None));
            }
            match self.commit_told(txn, || changes).map_err(|error| whole(error.into()))? {
                Committed::Applied { .. } => {}
                Committed::Conflict { .. } => return Err(whole(Error::Conflict(old))),
            }
        }
        Ok(made)
    }
}

fn piece_of(pool: &Value, name: &str, index: usize, cidr: Cidr) -> Value {
    let mut piece = pool.clone();
    let mut piece_name = format!("split-{name}-{index}");
    if piece_name.len() > NAME_MAX {
        let cut: String = name.chars().take(NAME_CUT).collect();
        piece_name = format!("split-{cut}-{index}");
    }
    if let Some(metadata) = piece["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "generation", "selfLink", "creationTimestamp"] {
            metadata.shift_remove(field);
        }
        metadata.insert("name".to_owned(), piece_name.into());
    }
    if let Some(spec) = piece["spec"].as_object_mut() {
        spec.insert("cidr".to_owned(), cidr.to_string().into());
        spec.shift_remove("disabled");
    }
    piece
}
