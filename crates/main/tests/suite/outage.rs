//! A datastore that does not answer, or not to us: one clear error, in time.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

#[test]
fn undo_and_history_say_that_the_datastore_does_not_answer() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let place = Place::at(&url);
    for words in ["undo", "undo 1"] {
        place.margay(words).refused(&["etcd does not answer: ", &url]);
    }
}

/// A proxy that closes the connection instead of passing on the answer to a transaction that
/// changes this key: such a request names it twice.
fn losing_answers(target: &str, key: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let target = target.trim_start_matches("http://").to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&target) else { continue };
            let (request, answer) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let is_asked = Arc::new(AtomicBool::new(false));
            let asked = is_asked.clone();
            pass_on(request, server, move |text| {
                asked.fetch_or(text.matches(key).count() >= 2, Ordering::SeqCst);
                true
            });
            pass_on(answer, client, move |_| !is_asked.load(Ordering::SeqCst));
        }
    });
    url
}

/// Passes on what comes until the judge says no; then both ends are closed.
fn pass_on(mut from: TcpStream, mut to: TcpStream, judge: impl Fn(&str) -> bool + Send + 'static) {
    std::thread::spawn(move || {
        let mut buffer = [0; 65536];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            if !judge(&String::from_utf8_lossy(&buffer[..len])) {
                // What was asked for is done by then, whatever this was the answer to.
                std::thread::sleep(std::time::Duration::from_millis(300));
                break;
            }
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

#[test]
fn a_write_whose_answer_was_lost_is_not_said_to_be_nothing() {
    let Some(direct) = Place::etcd() else { return };
    direct
        .give(
            "apply",
            &pool("p", "10.1.0.0/24")
                .replace("IPPool", "IPReservation")
                .replace("cidr: 10.1.0.0/24", "reservedCIDRs: [10.1.0.0/24]"),
        )
        .ok();
    let key = "/calico/resources/v3/projectcalico.org/ipreservations/p";
    let before = direct.dump();
    let lossy = losing_answers(direct.endpoints(), key);
    let mut command = direct.command(&["delete", "ipreservation", "p", "--yes"]);
    let done = Done::from(command.env("ETCD_ENDPOINTS", &lossy).output().unwrap());
    let lost = "the answer to a write was lost";
    let done = done.code(2).complains(&["error: it is not certain whether anything was", lost]);
    assert!(done.err.contains("undo: margay undo 2 (not certain: "), "{done:#?}");
    direct.margay("undo").ok().says(&["write 2 taken back: IPReservation p"]);
    assert_eq!(direct.dump(), before);
    let key = "/calico/ipam/v2/config";
    let lossy = losing_answers(direct.endpoints(), key);
    let mut command = direct.command(&["ipam", "configure", "--strictaffinity=true"]);
    let done = Done::from(command.env("ETCD_ENDPOINTS", &lossy).output().unwrap());
    done.code(2).complains(&[lost, "undo: margay undo ", "(not certain: "]);
    direct.margay("undo").ok().says(&["taken back: IPAM settings"]);
    assert_eq!(direct.dump(), before);
}
