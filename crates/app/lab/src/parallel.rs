//! Work on many items at once, with the results in the order of the items.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
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

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        assert_eq!(super::each(&items, 7, |n| n * 2), (0..200).step_by(2).collect::<Vec<_>>());
        assert!(super::each(&[] as &[u8], 7, |n| *n).is_empty());
    }
}
