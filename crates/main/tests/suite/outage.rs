//! A datastore that does not answer, or not to us: one clear error, in time.

use std::net::TcpListener;

use crate::certificates;
use crate::harness::{Done, Place, pool};
use crate::member::{self, Member, Options, free_port};

/// The error of a command that reads and of one that writes.
fn both_ways(place: &Place, more: &[(&str, &str)]) -> [Done; 2] {
    place.file("given.yaml", &pool("p", "10.1.0.0/24"));
    let runs = ["get np", "apply -f given.yaml"].map(|words| {
        let mut command = place.command(&words.split(' ').collect::<Vec<_>>());
        let piped = std::process::Stdio::piped;
        command.envs(more.iter().copied()).stdout(piped()).stderr(piped()).spawn().unwrap()
    });
    runs.map(|child| Done::from(child.wait_with_output().unwrap()))
}

#[test]
fn nobody_listens() {
    let url = format!("http://127.0.0.1:{}", free_port());
    for done in both_ways(&Place::at(&url), &[]) {
        done.refused(&["etcd does not answer: ", &url, "connection refused", " s"]);
    }
}

#[test]
fn somebody_listens_and_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    for done in both_ways(&Place::at(&url), &[]) {
        let (progress, error) = done.err.split_once("error: ").unwrap();
        let first = progress.lines().next().unwrap();
        assert_eq!(first, format!("waiting for etcd at {url} (no answer yet, 1 s of 10 s)"));
        assert!(error.contains(&url) && error.contains("no answer within 10.0 s"), "{done:?}");
        assert_eq!((done.code, done.out.as_str()), (2, ""));
    }
}

#[test]
fn completion_of_a_silent_store_knows_nothing_and_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::at(&format!("http://{}", listener.local_addr().unwrap()));
    let mut command = place.command(&["--", "margay", "get", "np", "w"]);
    command.env("COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_COMP_TYPE", "9");
    command.env("_CLAP_COMPLETE_INDEX", "3");
    assert_eq!(Done::from(command.output().unwrap()).ok().out, "");
}

#[test]
fn all_members_are_named_when_none_answers() {
    let urls = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    for done in both_ways(&Place::at(&urls.join(",")), &[]) {
        done.refused(&[&urls[0], &urls[1]]);
    }
}

#[test]
fn wrong_certificates_say_what_is_wrong() {
    if !member::is_installed() {
        return;
    }
    let [right, wrong] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    certificates::write_all(right.path());
    certificates::write_all(wrong.path());
    let options = Options { tls_directory: Some(right.path()), more: &["--client-cert-auth=true"] };
    let member = Member::start_with(&options);
    let place = Place::at(&member.url);
    let file = |wrong_one: bool, name: &str| {
        let directory = if wrong_one { &wrong } else { &right };
        directory.path().join(name).display().to_string()
    };
    let settings = |wrong_ca: bool, wrong_client: bool| {
        [
            ("ETCD_CA_CERT_FILE", file(wrong_ca, "ca.pem")),
            ("ETCD_CERT_FILE", file(wrong_client, "client.pem")),
            ("ETCD_KEY_FILE", file(wrong_client, "client.key")),
        ]
    };
    let with = |settings: &[(&'static str, String)]| {
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        both_ways(&place, &settings)
    };
    crate::harness::until("the member to serve", || {
        with(&settings(false, false)).iter().all(|done| done.code == 0)
    });
    for done in with(&settings(true, false)) {
        done.refused(&[&member.url, "its certificate is not trusted"]);
    }
    for done in with(&settings(false, true)) {
        done.refused(&[&member.url, "certificate"]);
    }
    for done in with(&settings(false, false)[..1]) {
        done.refused(&[&member.url, "certificate"]);
    }
    for done in with(&[("ETCD_CA_CERT_FILE", "/nowhere/ca.pem".to_owned())]) {
        done.refused(&["/nowhere/ca.pem"]);
    }
}

#[test]
fn a_wrong_password_is_said_and_never_shown() {
    let Some(mut place) = Place::etcd() else { return };
    for command in ["user add root --new-user-password=right-secret", "auth enable"] {
        place.member().etcdctl(&command.split(' ').collect::<Vec<_>>());
    }
    let right = [("ETCD_USERNAME", "root"), ("ETCD_PASSWORD", "right-secret")];
    for done in both_ways(&place, &right) {
        done.code(0);
    }
    let wrong = [("ETCD_USERNAME", "root"), ("ETCD_PASSWORD", "wrong-secret")];
    for done in both_ways(&place, &wrong) {
        let done = done.refused(&["authentication failed"]);
        assert!(!done.err.contains("secret"), "{done:?}");
    }
    for done in both_ways(&place, &[]) {
        done.refused(&["user name is empty"]);
    }
}

#[test]
fn a_store_that_is_no_store_is_refused_with_its_name() {
    let place = Place::embedded();
    place.file("store.db", "not a database");
    for done in both_ways(&place, &[]) {
        done.refused(&[
            "store.db",
            "not a margay store",
            "why: this datastore was chosen by MARGAY_STORE=",
        ]);
    }
    assert_eq!(std::fs::read(place.path("store.db")).unwrap(), b"not a database");
}
