//! Taking a write back: which of its keys are as it left them, and what is to be put there again.

use std::collections::BTreeSet;

use store::resources::{Cleared, NotRestored, Resources, Restored, digest};
use store::{KeyValue, Store};

use super::lineage::{Lineage, Standing};
use super::{Change, Entry, Failure, History};

/// What has to be put back to take a write back, which may be nothing, and what stays although the
/// write may have changed it.
pub(crate) fn to_restore(
    store: &Store,
    history: &History,
    number: u64,
    entry: &Entry,
) -> Result<(Vec<Restored>, Vec<String>), Failure> {
    let entries = history.kept()?.entries;
    let same = entries.iter().filter(|(_, it)| it.cluster == entry.cluster);
    let way = Way { store, history, entries: &entries, lineage: Lineage::of(same) };
    let (to_do, stays) = way.to_do(number, entry)?;
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

/// What a taking back has to look at.
struct Way<'h> {
    store: &'h Store,
    history: &'h History,
    entries: &'h [(u64, Entry)],
    lineage: Lineage<'h>,
}

/// What is in the way of taking a write back.
#[derive(Default)]
struct Obstacles {
    /// Writes of ours, and what they have to do with it.
    ours: Vec<String>,
    /// Those that have to be taken back first.
    later: BTreeSet<u64>,
    theirs: Vec<String>,
}

impl Way<'_> {
    /// The changes still to be taken back, each with what is stored now; and of a write that is
    /// not certain, those that cannot be, which is no reason not to take back the others.
    fn to_do<'e>(&self, number: u64, entry: &'e Entry) -> Result<ToDo<'e>, Failure> {
        let mut obstacles = Obstacles::default();
        let to_do = self.judge(number, entry, &mut obstacles)?;
        if entry.uncertain.is_some() {
            return Ok((to_do, obstacles.theirs.into_iter().chain(obstacles.ours).collect()));
        }
        self.add_further(&mut obstacles)?;
        let Obstacles { ours, later, theirs } = obstacles;
        let what = match (theirs.is_empty(), ours.is_empty()) {
            (true, true) => return Ok((to_do, Vec::new())),
            (true, false) => "later writes changed these objects; nothing was taken back",
            (false, _) => "somebody changed these objects since; nothing was taken back",
        };
        let is_theirs = !theirs.is_empty();
        let refused = theirs.into_iter().chain(ours).fold(Failure::new(what), Failure::detail);
        Err(match (is_theirs, later.is_empty()) {
            (true, _) => refused.help("margay get shows them; change them by hand"),
            (false, true) => refused.help("margay history"),
            (false, false) => {
                let in_order = later.into_iter().rev().chain([number]);
                let commands: Vec<String> =
                    in_order.map(|number| self.history.undo_command(number)).collect();
                refused.help(commands.join(" && "))
            }
        })
    }

    /// What is to be done for one write, and what is in its way.
    fn judge<'e>(
        &self,
        number: u64,
        entry: &'e Entry,
        obstacles: &mut Obstacles,
    ) -> Result<Vec<(&'e Change, Option<KeyValue>)>, Failure> {
        let mut to_do = Vec::new();
        for change in &entry.changes {
            let (current, _) = self.store.get(&change.key)?;
            // As an undo leaves it that was killed half way, and that can be said again.
            let before = change.before.as_ref().map(|before| &before.0);
            if current.as_ref().map(|current| &current.value) == before {
                continue;
            }
            // Absent is absent, whoever removed it.
            if current.is_none() && change.is_removal() {
                to_do.push((change, current));
                continue;
            }
            let now = current.as_ref().map(|current| current.mod_revision);
            let name = &change.name;
            match self.lineage.standing(&change.key, now, number) {
                Standing::AsLeft if is_digest(change, current.as_ref()) => {
                    to_do.push((change, current));
                }
                Standing::AsLeft => obstacles.theirs.push(describe(change, now)),
                Standing::Foreign(revision) => obstacles.theirs.push(describe(change, revision)),
                Standing::TakenBack(by) => obstacles
                    .ours
                    .push(format!("{name}: write {by} has taken write {number} back already")),
                Standing::After(later) => {
                    obstacles.ours.push(format!("{name}: {} changed it later", spoken(&later)));
                    obstacles.later.extend(later);
                }
            }
        }
        Ok(to_do)
    }

    /// The writes that have to be taken back first may have others in their way.
    fn add_further(&self, obstacles: &mut Obstacles) -> Result<(), Failure> {
        let mut judged = BTreeSet::new();
        while let Some(number) = obstacles.later.iter().rev().find(|it| !judged.contains(*it)) {
            let number = *number;
            judged.insert(number);
            let found = self.entries.iter().find(|(it, _)| *it == number);
            let Some((_, entry)) = found.filter(|(_, entry)| entry.uncertain.is_none()) else {
                continue;
            };
            let mut further = Obstacles::default();
            self.judge(number, entry, &mut further)?;
            let theirs = further.theirs.into_iter().filter(|it| !obstacles.theirs.contains(it));
            let theirs: Vec<String> = theirs.collect();
            obstacles.theirs.extend(theirs);
            obstacles.later.extend(further.later);
        }
        Ok(())
    }
}

fn is_digest(change: &Change, current: Option<&KeyValue>) -> bool {
    change.digest == current.map(|current| digest(&current.value))
}

fn spoken(writes: &[u64]) -> String {
    match writes {
        [one] => format!("write {one}"),
        all => {
            let all: Vec<String> = all.iter().map(u64::to_string).collect();
            format!("writes {}", all.join(", "))
        }
    }
}

fn describe(change: &Change, now: Option<i64>) -> String {
    let name = &change.name;
    if change.is_unknown() {
        return format!("{name}: not as the write would have left it");
    }
    match (change.revision, now) {
        (Some(then), Some(now)) if then == now => {
            format!("{name}: other contents at the same revision; was the store restored?")
        }
        (Some(then), Some(now)) => {
            format!("{name}: written again (revision {now}, was {then})")
        }
        (Some(_), None) => format!("{name}: removed"),
        (None, _) => format!("{name}: made anew"),
    }
}
