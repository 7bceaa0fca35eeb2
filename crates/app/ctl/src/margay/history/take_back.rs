//! Taking a write back: which of its keys are as it left them, and what is to be put there again.

use std::collections::BTreeMap;

use store::resources::{Cleared, NotRestored, Resources, Restored, digest};
use store::{KeyValue, Store};

use super::{Change, Entry, Failure, History};

type Revisions<'e> = BTreeMap<&'e str, Vec<i64>>;

/// Per key, the revisions at which it is as the write left it: the one the write gave it, and
/// those by which later writes of ours were taken back to it.
fn equivalents<'e>(entry: &'e Entry, later: &[(u64, Entry)]) -> Revisions<'e> {
    let left = |change: &'e Change| (change.key.as_str(), change.revision.into_iter().collect());
    let mut same: Revisions<'e> = entry.changes.iter().map(left).collect();
    for one in later.iter().flat_map(|(_, entry)| &entry.changes) {
        if let Some(same) = same.get_mut(one.key.as_str())
            && one.stands_for.is_some_and(|revision| same.contains(&revision))
        {
            same.extend(one.revision);
        }
    }
    same
}

/// Which of our later writes left each key at its revision, or removed it.
fn culprits(later: &[(u64, Entry)]) -> BTreeMap<(&str, Option<i64>), u64> {
    let changes = later.iter().flat_map(|(number, entry)| {
        entry.changes.iter().map(|change| ((change.key.as_str(), change.revision), *number))
    });
    changes.collect()
}

/// What has to be put back to take a write back, and what stays although the write may have
/// changed it.
pub(crate) fn to_restore(
    store: &Store,
    history: &History,
    number: u64,
    entry: &Entry,
) -> Result<(Vec<Restored>, Vec<String>), Failure> {
    let mut later = history.kept()?.entries;
    later.retain(|(later, it)| *later > number && it.cluster == entry.cluster);
    let (to_do, stays) = to_do(store, entry, &later)?;
    if to_do.is_empty() {
        let what = match stays.is_empty() {
            true => format!("all is as it was before write {number}"),
            false => format!("nothing is known to be as write {number} left it"),
        };
        return Err(stays.into_iter().fold(Failure::new(what), Failure::detail));
    }
    let restored = to_do.into_iter().map(|(change, current)| Restored {
        key: change.key.clone(),
        now: current.map(|current| (current.value, current.mod_revision)),
        value: change.before.as_ref().map(|before| before.0.clone()),
    });
    Ok((restored.collect(), stays))
}

/// Puts it back, in one transaction with the rules that delete and apply are held to.
pub(crate) fn take_back(
    resources: &Resources,
    number: u64,
    entry: &Entry,
    restored: &[Restored],
) -> Result<Cleared, Failure> {
    resources.restore(restored).map_err(|why| match why {
        NotRestored::Refused(refusals) => {
            let what = Failure::new(format!("write {number} cannot be taken back"));
            refusals.iter().map(ToString::to_string).fold(what, Failure::detail)
        }
        NotRestored::Moved(keys) => {
            let what = Failure::new("somebody changed these objects at this moment");
            let moved = entry.changes.iter().filter(|change| keys.contains(&change.key));
            moved.map(|change| change.name.clone()).fold(what, Failure::detail)
        }
        NotRestored::Failed(error) => error.into(),
    })
}

type ToDo<'e> = (Vec<(&'e Change, Option<KeyValue>)>, Vec<String>);

/// The changes still to be taken back, each with what is stored now; and of a write that is not
/// certain, those that cannot be, which is no reason not to take back the others.
fn to_do<'e>(store: &Store, entry: &'e Entry, later: &[(u64, Entry)]) -> Result<ToDo<'e>, Failure> {
    let (equivalents, culprits) = (equivalents(entry, later), culprits(later));
    let (mut ours, mut theirs, mut to_do) = (Vec::new(), Vec::new(), Vec::new());
    for change in &entry.changes {
        let (current, _) = store.get(&change.key)?;
        let is_as_left = match (&current, change.revision) {
            (None, None) => !change.is_unknown(),
            (Some(now), Some(_)) => {
                let same = equivalents.get(change.key.as_str());
                same.is_some_and(|same| same.contains(&now.mod_revision))
                    && change.digest.as_ref() == Some(&digest(&now.value))
            }
            _ => false,
        };
        // As an undo leaves it that was killed half way, and that can be said again.
        let before = change.before.as_ref().map(|before| &before.0);
        let is_back = current.as_ref().map(|current| &current.value) == before;
        let now = current.as_ref().map(|current| current.mod_revision);
        let culprit = culprits.get(&(change.key.as_str(), now));
        match (is_back, is_as_left, culprit) {
            (true, _, _) => {}
            (false, true, _) => to_do.push((change, current)),
            (false, false, Some(write)) => ours.push(format!(
                "{}: write {write} changed it later; margay undo {write} first",
                change.name
            )),
            (false, false, None) => theirs.push(describe(change, current.as_ref())),
        }
    }
    if entry.uncertain.is_some() {
        return Ok((to_do, theirs.into_iter().chain(ours).collect()));
    }
    let what = match (theirs.is_empty(), ours.is_empty()) {
        (true, true) => return Ok((to_do, Vec::new())),
        (true, false) => "later writes changed these objects; nothing was taken back",
        (false, _) => "somebody changed these objects since; nothing was taken back",
    };
    let is_theirs = !theirs.is_empty();
    let refused = theirs.into_iter().chain(ours).fold(Failure::new(what), Failure::detail);
    Err(match is_theirs {
        true => refused.help("margay get shows them; change them by hand"),
        false => refused.help("margay history"),
    })
}

fn describe(change: &Change, current: Option<&KeyValue>) -> String {
    let name = &change.name;
    if change.is_unknown() {
        return format!("{name}: not as the write would have left it");
    }
    match (change.revision, current) {
        (Some(then), Some(now)) if then == now.mod_revision => {
            format!("{name}: other contents at the same revision; was the store restored?")
        }
        (Some(then), Some(now)) => {
            format!("{name}: written again (revision {}, was {then})", now.mod_revision)
        }
        (Some(_), None) => format!("{name}: removed"),
        (None, _) => format!("{name}: made anew"),
    }
}
