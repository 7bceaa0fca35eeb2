//! Work on many items at once, with the results in the order of the items.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Calls `work` on every item, on at most `n_workers` threads.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    n_workers: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let worker = || {
        while let Some((at, item)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).map(|item| (at, item))
        } {
            let result = work(item);
            done.lock().expect("no holder of this lock can panic").push((at, result));
        }
    };
    thread::scope(|scope| {
        for _ in 0..n_workers.min(items.len()) {
            scope.spawn(worker);
        }
    });
    let mut done = done.into_inner().expect("no holder of this lock can panic");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The same for work that can fail: after a failure no further item is begun, and the first failure
/// in the order of the items is returned with the number of failures.
pub(crate) fn try_each<T: Sync, R: Send, E: Send>(
    items: &[T],
    n_workers: usize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, (E, usize)> {
    let has_failed = AtomicBool::new(false);
    let results = each(items, n_workers, |item| {
        if has_failed.load(Ordering::Relaxed) {
            return None;
        }
        Some(work(item).inspect_err(|_| has_failed.store(true, Ordering::Relaxed)))
    });
    let mut done = Vec::with_capacity(results.len());
    let mut failures = Vec::new();
    for result in results.into_iter().flatten() {
        match result {
            Ok(value) => done.push(value),
            Err(error) => failures.push(error),
        }
    }
    let n_failed = failures.len();
    match failures.into_iter().next() {
        Some(first) => Err((first, n_failed)),
        None => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        assert_eq!(super::each(&items, 7, |n| n * 2), (0..200).step_by(2).collect::<Vec<_>>());
        assert!(super::each(&[] as &[u8], 7, |n| *n).is_empty());
    }
    #[test]
    fn nothing_is_begun_after_a_failure() {
        let begun = std::sync::atomic::AtomicUsize::new(0);
        let fails = |item: &usize| {
            begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if *item == 0 { Err("no") } else { Ok(*item) }
        };
        assert_eq!(super::try_each(&[0, 1, 2, 3], 1, fails), Err(("no", 1)));
        assert_eq!(begun.into_inner(), 1);
        assert_eq!(super::try_each(&[1, 2], 1, |n| Ok::<_, ()>(n + 1)), Ok(vec![2, 3]));
    }
}
