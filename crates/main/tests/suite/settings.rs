//! Which datastore is used, and what is said when the settings are wrong.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::harness::{Done, Place, until};

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

#[test]
fn a_pipe_in_the_place_of_the_usual_settings_is_named_and_not_waited_for() {
    let place = Place::embedded();
    let path = place.file(".config/margay/config.yaml", "");
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    let mut command = place.command(&["get", "np"]);
    let child = RefCell::new(command.stderr(std::process::Stdio::piped()).spawn().unwrap());
    until("it ends", || child.borrow_mut().try_wait().unwrap().is_some());
    let done = Done::from(child.into_inner().wait_with_output().unwrap());
    done.refused(&[&path, "a named pipe stands there instead of a file; move it away"]);
}

fn config(place: &Place, spec: &str) {
    let head = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\n";
    place.file("my.cfg", &format!("{head}spec: {spec}\n"));
}

#[test]
fn a_store_that_does_not_answer_says_which_setting_chose_it() {
    let url = format!("http://127.0.0.1:{}", crate::member::free_port());
    let place = Place::embedded();
    config(&place, &format!("{{datastoreType: etcdv3, etcdEndpoints: \"{url}\"}}"));
    place.file("p.yaml", &crate::harness::policy("shop", "web", 1));
    let by_file = "why: this datastore was chosen by --config my.cfg: spec.etcdEndpoints\n";
    for words in ["get np", "label node n a=b", "ipam show", "version", "diff -f p.yaml"] {
        let done = place.margay(&format!("{words} -c my.cfg"));
        done.refused(&["etcd does not answer", by_file, "help: start etcd, or choose"]);
    }
    let by_variable = format!("chosen by CALICO_ETCD_ENDPOINTS={url}\n");
    with(&place, "get np", "CALICO_ETCD_ENDPOINTS", &url).refused(&[&by_variable]);
}

#[test]
fn the_bare_command_fails_when_the_datastore_does() {
    let place = Place::embedded();
    place.margay("").ok();
    let url = format!("http://127.0.0.1:{}", crate::member::free_port());
    let mut down = place.command(&[]);
    let down = Done::from(down.env("ETCD_ENDPOINTS", &url).output().unwrap()).code(2);
    down.says(&["✗ etcd does not answer", "next    margay version"]);
    let mut unknown = place.command(&[]);
    let unknown = unknown.env("DATASTORE_TYPE", "x").output().unwrap();
    Done::from(unknown).code(2).says(&["✗ unknown datastore type: x"]);
}

#[test]
fn wrong_settings_come_with_the_next_step() {
    let place = Place::embedded();
    let done = with(&place, "get np", "DATASTORE_TYPE", "etcd");
    done.refused(&["there is no datastore type \"etcd\", DATASTORE_TYPE=etcd", "help: for etcd: "]);
    let done = with(&place, "get np", "DATASTORE_TYPE", "etcdv3");
    done.refused(&["no etcd endpoints, DATASTORE_TYPE=etcdv3", "help: ETCD_ENDPOINTS=http"]);
    let done = with(&place, "get np", "DATASTORE_TYPE", "kubernetes");
    done.refused(&["not part of this version, DATASTORE_TYPE=kubernetes", "help: for etcd: "]);
    config(&place, "{etcdEndpoint: \"http://h:1\"}");
    let done = place.margay("get np -c my.cfg");
    done.refused(&["unknown field spec.etcdEndpoint, my.cfg", "help: did you mean etcdEndpoints?"]);
    place.margay("get np -c absent").refused(&["cannot be read, absent", "why: no such", "help: "]);
}

#[test]
fn what_is_kept_elsewhere_is_not_taken_for_a_misspelling() {
    let place = Place::embedded();
    for kind in ["pods", "pod", "po"] {
        let done = place.margay(&format!("get {kind}"));
        let done = done.refused(&["kept by Kubernetes", "margay get workloadendpoints -A"]);
        assert!(!done.err.contains("did you mean"), "{done:?}");
    }
    place.margay("get namespaces").refused(&["kubectl get namespaces"]);
    place.margay("get nodse").refused(&["help: did you mean nodes?"]);
    place
        .margay("get node absent")
        .refused(&["Node absent does not exist", "help: margay get nodes"]);
}
