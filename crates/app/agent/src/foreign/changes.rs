//! Which tables of others have changed, and when it is time to look at them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kernel::nft::TableId;

/// How long the tables of others must be quiet before they are looked at.
const SETTLE: Duration = Duration::from_millis(300);

/// Tables that are never quiet are looked at after this long.
const SETTLE_MAX: Duration = Duration::from_millis(700);

/// Tables of others that have changed and were not looked at since.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    tables: BTreeSet<TableId>,
    /// Any table may have changed: events were lost.
    is_any: bool,
    /// When the first of them changed.
    since: Option<Instant>,
}

impl Changes {
    /// A table has changed.
    pub(crate) fn note(&mut self, table: TableId, now: Instant) {
        self.tables.insert(table);
        self.since.get_or_insert(now);
    }

    /// Nobody knows which tables have.
    pub(crate) fn note_loss(&mut self, now: Instant) {
        self.is_any = true;
        self.since.get_or_insert(now);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// How long more of them are waited for; none if there is nothing to look at.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let since = self.since?;
        Some(SETTLE.min((since + SETTLE_MAX).saturating_duration_since(now)))
    }

    /// The tables to look at, once it is time to; none of them by name if it is all.
    pub(crate) fn due(
        &mut self,
        is_quiet: bool,
        now: Instant,
    ) -> Option<Option<BTreeSet<TableId>>> {
        let since = self.since?;
        if !is_quiet && now.saturating_duration_since(since) < SETTLE_MAX {
            return None;
        }
        let changes = std::mem::take(self);
        Some((!changes.is_any).then_some(changes.tables))
    }
}

#[cfg(test)]
mod tests {
    use kernel::nft::TableFamily;

    use super::*;

    #[test]
    fn tables_that_are_never_quiet_are_looked_at_all_the_same() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let table = |name: &str| TableId::new(TableFamily::Inet, name);
        let mut changes = Changes::default();
        assert_eq!((changes.wait(at(0)), changes.due(true, at(0))), (None, None));
        changes.note(table("guard"), at(0));
        for n in 1..7 {
            changes.note(table("noise"), at(100 * n));
            assert_eq!(changes.due(false, at(100 * n)), None);
        }
        assert_eq!(changes.wait(at(100)), Some(SETTLE));
        assert_eq!(changes.wait(at(600)), Some(Duration::from_millis(100)));
        assert_eq!(changes.wait(at(900)), Some(Duration::ZERO));
        let both = BTreeSet::from([table("guard"), table("noise")]);
        assert_eq!(changes.due(false, at(700)), Some(Some(both)));
        assert!(changes.is_empty());
        // Quiet ones are looked at sooner, and after a loss all of them.
        changes.note(table("guard"), at(1000));
        changes.note_loss(at(1000));
        assert_eq!(changes.due(true, at(1300)), Some(None));
    }
}
