//! What the datastore tells, several at a time: a start reads the whole cluster, on all processors.

use std::time::Duration;

use intent::Read;
use store::{Event, Watch};

/// So many are read together.
const MANY: usize = 512;

/// Fewer are read where they are taken in.
const WORTH_IT: usize = 64;

/// Events that are there already, from the first one on, and their values as they were read; none
/// where that is left to whoever takes it in. Whether there may be more.
pub(crate) fn gather(watch: &mut Watch, first: Event) -> (Vec<(Event, Option<Read>)>, bool) {
    let mut events = vec![first];
    while events.len() < MANY {
        let Some(event) = watch.next(Duration::ZERO) else { return (read(events), false) };
        events.push(event);
    }
    (read(events), true)
}

fn read(events: Vec<Event>) -> Vec<(Event, Option<Read>)> {
    if events.len() < WORTH_IT {
        return events.into_iter().map(|event| (event, None)).collect();
    }
    let (here, there) = events.split_at(events.len() / 2);
    let mut reads = std::thread::scope(|scope| {
        let there = scope.spawn(|| values(there));
        let mut reads = values(here);
        // What cannot be borne is found out by whoever takes it in.
        reads.extend(there.join().unwrap_or_default());
        reads
    });
    reads.resize(events.len(), None);
    events.into_iter().zip(reads).collect()
}

fn values(events: &[Event]) -> Vec<Option<Read>> {
    let value = |event: &Event| match event {
        Event::Put(entry) => Read::new(&entry.key, &entry.value),
        _ => None,
    };
    let read = || events.iter().map(value).collect();
    std::panic::catch_unwind(read).unwrap_or_else(|_| vec![None; events.len()])
}
