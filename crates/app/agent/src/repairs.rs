//! Repairs of the packet filter: one is an accident, many are a fight with another program.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::finding::{Finding, Severity};

/// How far back repairs count.
const WINDOW: Duration = Duration::from_secs(60);
/// So many of them are a fight.
const FIGHT_MIN: usize = 5;
/// More than these are not told apart.
const KEPT_MAX: usize = 1000;
/// Repairs that follow on each other faster are one note.
const NOTE_PAUSE: Duration = Duration::from_secs(10);

/// The repairs of late.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repairs {
    recent: VecDeque<Instant>,
    noted: Option<Instant>,
    n_unnoted: usize,
}

impl Repairs {
    /// The filter was repaired, and what of it; what is worth a note.
    pub(crate) fn add(&mut self, now: Instant, damage: Option<&str>) -> Option<String> {
        self.recent.push_back(now);
        if self.recent.len() > KEPT_MAX {
            self.recent.pop_front();
        }
        self.n_unnoted += 1;
        if self.noted.is_some_and(|at| now.saturating_duration_since(at) < NOTE_PAUSE) {
            return None;
        }
        self.noted = Some(now);
        let times = match std::mem::take(&mut self.n_unnoted) {
            1 => String::new(),
            n => format!(", {n} times since the last note"),
        };
        let damage = damage.map_or(String::new(), |damage| format!(" ({damage})"));
        Some(format!(
            "the packet filter was changed or removed by another program{damage}{times}; restored"
        ))
    }

    /// Somebody keeps at it.
    pub(crate) fn finding(&self, now: Instant) -> Option<Finding> {
        let is_late = |at: &&Instant| now.saturating_duration_since(**at) < WINDOW;
        let n = self.recent.iter().filter(is_late).count();
        let problem = format!(
            "another program changed or removed the packet filter {n} times in the last minute; \
             each time packets that policy forbids may pass until it is restored"
        );
        let fix = "nft monitor      # shows what it does, with its name and process";
        (n >= FIGHT_MIN).then(|| {
            Finding::new("MG-FILTER-003", Severity::Degraded, "FILTER", problem, fix.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_repairs_are_notes_and_many_are_a_fight_until_they_end() {
        let (mut repairs, start) = (Repairs::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert!(
            repairs.add(at(0), None).is_some_and(|it| it.ends_with("another program; restored"))
        );
        for n in 1..4 {
            assert_eq!(repairs.add(at(n), None), None);
        }
        assert!(repairs.finding(at(10)).is_none());
        assert_eq!(repairs.add(at(5), None), None);
        assert!(repairs.finding(at(10)).is_some());
        let noted = repairs.add(at(10_000), Some("set ours deleted by nft")).unwrap();
        let said = "program (set ours deleted by nft), 5 times since the last note";
        assert!(noted.contains(said), "{noted}");
        assert!(repairs.finding(at(60_006)).is_none());
    }
}
