//! Which datastore is used, and what is said when the settings are wrong.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::harness::{Done, Place};

/// Runs the program with one variable more.
fn with(place: &Place, words: &str, name: &str, value: impl AsRef<OsStr>) -> Done {
    let mut command = place.command(&words.split(' ').collect::<Vec<_>>());
    Done::from(command.env(name, value).output().unwrap())
}

#[test]
fn a_variable_that_is_no_text_is_named_and_never_passed_over() {
    let place = Place::embedded();
    let odd = OsStr::from_bytes(b"/tmp/\xff");
    for name in ["MARGAY_STORE", "ETCD_ENDPOINTS", "DATASTORE_TYPE", "CALICO_ETCD_PASSWORD"] {
        with(&place, "get np", name, odd).refused(&[name, "is not UTF-8"]);
        let as_other = with(&place, "calicoctl get np", name, odd).code(1);
        assert!(as_other.out.contains(name), "{as_other:?}");
    }
    let named = with(&place, "get np --store other.db", "ETCD_ENDPOINTS", odd);
    assert_eq!(named.code, 0, "a variable that does not matter: {named:?}");
}

#[test]
fn settings_and_templates_have_an_end() {
    let place = Place::embedded();
    place.file("long.cfg", &" ".repeat((1 << 20) + 1));
    for endless in ["long.cfg", "/dev/zero"] {
        let done = place.margay(&format!("get np -c {endless}"));
        done.refused(&[endless, "larger than 1 MiB"]);
        let done = place.margay(&format!("get np -A -o go-template-file={endless}"));
        done.refused(&[endless, "larger than 1 MiB"]);
    }
}
