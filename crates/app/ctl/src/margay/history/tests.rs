//! The folder of entries, and what it must not do.

use super::*;

pub(super) fn entry(undoes: Option<u64>) -> Entry {
    Entry {
        under_way: false,
        time: String::new(),
        command: String::new(),
        store: String::new(),
        cluster: None,
        undoes,
        n_to_undo: 0,
        is_part: false,
        uncertain: None,
        changes: vec![Change {
            name: "Tier t".to_owned(),
            key: "k".to_owned(),
            before: Some(KeptBytes(b"\xff{}".to_vec())),
            before_revision: Some(1),
            revision: Some(2),
            digest: None,
            stands_for: None,
        }],
    }
}

fn record(history: &History, entry: &Entry) -> io::Result<u64> {
    history.begin(entry)?.end(entry)
}

#[test]
fn bytes_that_are_no_text_come_back_as_they_were() {
    let home = tempfile::tempdir().unwrap();
    let history = History::below(Some(home.path().to_owned()));
    let number = record(&history, &entry(None)).unwrap();
    assert_eq!(history.read(number).unwrap(), entry(None));
}

#[test]
fn leftovers_and_wild_numbers_are_in_nobodys_way() {
    let home = tempfile::tempdir().unwrap();
    let history = History::below(Some(home.path().to_owned()));
    assert_eq!(record(&history, &entry(None)).unwrap(), 1);
    let dir = home.path().join("history");
    fs::write(dir.join(format!("{}.json", u64::MAX)), "{}").unwrap();
    fs::write(dir.join(format!("{}.new", std::process::id())), "mine").unwrap();
    assert_eq!(record(&history, &entry(Some(1))).unwrap(), 2);
    assert_eq!(history.numbers().unwrap(), [1, 2]);
    let leftover = fs::read(dir.join(format!("{}.new", std::process::id()))).unwrap();
    assert_eq!(leftover, b"mine");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 4);
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let own = rustix::process::geteuid().as_raw();
    assert!(check_owner(home.path(), own).is_ok());
    assert!(check_owner(&home.path().join("not-there-yet"), own).is_ok());
    let refused = check_owner(home.path(), own + 1).unwrap_err().to_string();
    assert!(refused.contains("belongs to another user"), "{refused}");
}

#[test]
fn without_a_home_nothing_is_kept() {
    let refused = record(&History::below(None), &entry(None)).unwrap_err();
    assert_eq!(refused.to_string(), "there is no HOME to keep the history in");
}

#[test]
fn a_taking_back_that_was_taken_back_counts_no_more() {
    let entries = [(1, entry(None)), (2, entry(Some(1))), (3, entry(Some(2)))];
    assert_eq!(taken_back(&entries), BTreeMap::from([(2, 3)]));
    assert_eq!(taken_back(&entries[..2]), BTreeMap::from([(1, 2)]));
}

#[test]
fn a_part_that_was_taken_back_is_not_the_whole() {
    let part = Entry { is_part: true, ..entry(Some(1)) };
    assert_eq!(taken_back(&[(1, entry(None)), (2, part)]), BTreeMap::new());
}

#[test]
fn what_cannot_be_read_is_named_and_not_passed_over() {
    let home = tempfile::tempdir().unwrap();
    let history = History::below(Some(home.path().to_owned()));
    record(&history, &entry(None)).unwrap();
    let dir = home.path().join("history");
    let pipe = dir.join("000002.json");
    let (mode, kind) = (Mode::from_raw_mode(0o600), rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    fs::write(dir.join("000003.json"), "").unwrap();
    let kept = history.kept().unwrap();
    assert_eq!(kept.entries.len(), 1);
    let said: Vec<String> = kept.unreadable.iter().map(|(_, why)| why.to_string()).collect();
    assert!(said[0].contains("write 2 cannot be read") && said[0].contains("not a regular file"));
    assert!(said[1].contains("write 3 cannot be read"), "{said:?}");
    let refused = history.newest(u64::MAX, |_| true, &[]).unwrap_err().to_string();
    assert!(refused.contains("write 3 cannot be read"), "{refused}");
    assert!(refused.contains("margay undo 1 passes over it"), "{refused}");
    record(&history, &entry(None)).unwrap();
    assert_eq!(
        history.newest(u64::MAX, |_| true, &[]).unwrap(),
        Some(4),
        "they are older than that"
    );
}
