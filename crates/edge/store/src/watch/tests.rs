use super::*;
use proptest::prelude::*;

fn entry(key: &str, mod_revision: i64) -> Entry {
    let key = key.as_bytes().to_vec();
    Entry { key, value: Vec::new(), create_revision: 1, mod_revision, version: 1, lease: 0 }
}

fn names(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| match event {
        Event::Put(entry) => format!("+{}@{}", entry.key, entry.mod_revision),
        Event::Delete { key, mod_revision } => format!("-{key}@{mod_revision}"),
        other => format!("{other:?}"),
    };
    events.iter().map(name).collect()
}

#[test]
fn a_repeated_event_is_delivered_once() {
    let mut known = Known::new("/");
    assert!(known.put(entry("/a", 3)).is_some());
    assert!(known.put(entry("/a", 3)).is_none());
    assert!(known.delete(b"/a", 2).is_none());
    assert!(known.delete(b"/a", 4).is_some());
    assert!(known.delete(b"/a", 4).is_none());
}

#[test]
fn a_key_that_is_not_text_is_counted_but_not_delivered() {
    let mut known = Known::new("/");
    let mut odd = entry("/", 3);
    odd.key.push(0xff);
    assert!(known.put(odd).is_none());
    assert_eq!(known.len(), 1);
    assert!(known.delete(b"/\xff", 4).is_none());
    assert_eq!(known.len(), 0);
}

#[test]
fn a_page_deletes_only_within_its_own_range() {
    let mut known =
        Known::from_state("/", [("/a", 2), ("/b", 2), ("/d", 2)].map(|(k, r)| (k.to_string(), r)));
    let first = Page { after: None, entries: vec![entry("/b", 2)], is_last: false, revision: 9 };
    assert_eq!(names(&known.merge_page(first)), ["-/a@9"]);
    let last = Page {
        after: Some(b"/b".to_vec()),
        entries: vec![entry("/c", 5)],
        is_last: true,
        revision: 9,
    };
    assert_eq!(names(&known.merge_page(last)), ["+/c@5", "-/d@9"]);
}

proptest! {
    /// Whatever was known and however the listing is cut into pages, applying the events to what
    /// was known gives the listing.
    #[test]
    fn merged_pages_turn_the_known_state_into_the_listing(
        before in prop::collection::btree_map("/[a-c]{0,3}", 2i64..5, 0..12),
        listing in prop::collection::btree_map("/[a-c]{0,3}", 2i64..5, 0..12),
        page_len in 1usize..4,
    ) {
        let mut known = Known::from_state("/", before.clone());
        let mut state = before;
        let listed: Vec<_> = listing.iter().collect();
        let mut pages: Vec<&[_]> = listed.chunks(page_len).collect();
        if pages.is_empty() {
            pages.push(&[]);
        }
        let mut after = None;
        for (index, page) in pages.iter().enumerate() {
            let entries = page.iter().map(|(key, revision)| entry(key, **revision));
            let entries: Vec<_> = entries.collect();
            let last_key = entries.last().map(|entry| entry.key.clone());
            let is_last = index + 1 == pages.len();
            let page = Page { after: after.take(), entries, is_last, revision: 9 };
            for event in known.merge_page(page) {
                match event {
                    Event::Put(entry) => {
                        prop_assert_ne!(state.insert(entry.key, entry.mod_revision),
                            Some(entry.mod_revision), "delivered twice");
                    }
                    Event::Delete { key, .. } => {
                        prop_assert!(state.remove(&key).is_some(), "deleted twice");
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            after = last_key;
        }
        prop_assert_eq!(&state, &listing);
        prop_assert_eq!(known.len(), listing.len());
    }
}
