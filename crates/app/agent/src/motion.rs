//! Interfaces that are being made or removed just now.
//!
//! The records name an interface before it is there and after it is gone. Meanwhile its routes are
//! left as they are: one that cannot be put in place yet is no fault, and nobody has to look why.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The interfaces in motion, by name. Two sandboxes of one pod may move the same.
#[derive(Debug, Default)]
pub(crate) struct Motions(Mutex<BTreeMap<String, usize>>);

/// Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Motion<'m> {
    all: &'m Motions,
    interface: String,
}

impl Motions {
    pub(crate) fn begin(&self, interface: &str) -> Motion<'_> {
        *self.lock().entry(interface.to_owned()).or_default() += 1;
        Motion { all: self, interface: interface.to_owned() }
    }

    pub(crate) fn contains(&self, interface: &str) -> bool {
        self.lock().contains_key(interface)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Motion<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(&self.interface) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.interface);
            }
        }
    }
}

/// Lets some in at once, in the order in which they come: the kernel makes one interface after the
/// other, and whoever came first should not wait for whoever came last.
#[derive(Debug)]
pub(crate) struct Gate {
    places: u64,
    counts: Mutex<Counts>,
    has_left: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    came: u64,
    left: u64,
}

/// A place inside, until it is dropped.
#[derive(Debug)]
pub(crate) struct Inside<'g>(&'g Gate);

impl Gate {
    pub(crate) fn new(places: usize) -> Self {
        let places = u64::try_from(places).unwrap_or(1).max(1);
        Self { places, counts: Mutex::default(), has_left: Condvar::new() }
    }

    pub(crate) fn enter(&self) -> Inside<'_> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let number = counts.came;
        counts.came += 1;
        while number >= counts.left + self.places {
            counts = self.has_left.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
        Inside(self)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner).left += 1;
        self.0.has_left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn an_interface_moves_until_everybody_who_moves_it_is_done() {
        let motions = Motions::default();
        let (first, second) = (motions.begin("calia"), motions.begin("calia"));
        drop(first);
        assert!(motions.contains("calia") && !motions.contains("calib"));
        drop(second);
        assert!(!motions.contains("calia"));
    }

    #[test]
    fn a_gate_lets_in_as_many_as_it_has_places_and_everybody_in_the_end() {
        let gate = Gate::new(3);
        let (inside, most, through) =
            (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let _inside = gate.enter();
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    through.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 3);
        assert_eq!(through.load(Ordering::SeqCst), 20);
    }
}
