//! TLS, client certificates, users and passwords.

use std::path::Path;

use store::etcd::{Config, Pem};
use store::{Error, Event, Store, Txn, etcd};

use crate::certificates;
use crate::member::{self, Member, Options, wait_until_serving};
use crate::view::{View, put, write};

fn open(config: Config) -> Store {
    Store::Etcd(etcd::Store::new(config).unwrap())
}

fn file(directory: &Path, name: &str) -> Option<Pem> {
    Some(Pem::File(directory.join(name)))
}

fn inline(directory: &Path, name: &str) -> Option<Pem> {
    Some(Pem::Inline(std::fs::read_to_string(directory.join(name)).unwrap()))
}

#[test]
fn tls_with_client_certificates_works_and_says_why_when_not() {
    if !member::is_installed() {
        return;
    }
    let right = tempfile::tempdir().unwrap();
    let wrong = tempfile::tempdir().unwrap();
    certificates::write_all(right.path());
    certificates::write_all(wrong.path());
    let options = Options { tls_directory: Some(right.path()), more: &["--client-cert-auth=true"] };
    let member = Member::start_with(&options);

    let mutual = Config {
        ca: file(right.path(), "ca.pem"),
        certificate: file(right.path(), "client.pem"),
        key: file(right.path(), "client.key"),
        ..member.config()
    };
    let store = open(mutual.clone());
    wait_until_serving(&store);
    write(&store, vec![put("/a", "1")]);
    let mut watch = store.watch("/");
    let mut view = View::default();
    view.until_in_sync(&mut watch);
    assert_eq!(view.changes(), ["+/a@2"]);

    let inline = Config {
        ca: inline(right.path(), "ca.pem"),
        certificate: inline(right.path(), "client.pem"),
        key: inline(right.path(), "client.key"),
        ..member.config()
    };
    assert_eq!(open(inline).get("/a").unwrap().1, 2);

    let says = |config: Config, text: &str| {
        let error = open(config).get("/a").unwrap_err().to_string();
        assert!(error.contains(text), "{error:?} does not say {text:?}");
    };
    says(
        Config { ca: file(wrong.path(), "ca.pem"), ..mutual.clone() },
        &format!("{}: its certificate is not trusted: ", member.url),
    );
    says(Config { certificate: None, key: None, ..mutual.clone() }, "certificate");
    let unproven = open(Config { certificate: None, key: None, ..mutual.clone() });
    let refused = unproven.commit(Txn { compares: vec![], ops: vec![put("/b", "1")] });
    assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    says(
        Config {
            certificate: file(wrong.path(), "client.pem"),
            key: file(wrong.path(), "client.key"),
            ..mutual.clone()
        },
        "certificate",
    );
    says(Config { ca: file(right.path(), "missing.pem"), ..mutual.clone() }, "missing.pem");
    says(Config { key: Some(Pem::Inline("not a key".into())), ..mutual }, "cannot be used");
}

#[test]
fn users_log_in_and_again_when_the_token_is_forgotten() {
    if !member::is_installed() {
        return;
    }
    let mut member = Member::start();
    for command in [
        "user add root --new-user-password=r",
        "role add reader",
        "role grant-permission reader readwrite --prefix=true /mine/",
        "user add felix --new-user-password=secret",
        "user grant-role felix reader",
        "auth enable",
    ] {
        member.etcdctl(&command.split(' ').collect::<Vec<_>>());
    }
    let login = |user: &str, password: &str| Config {
        user: Some(user.into()),
        password: Some(password.into()),
        ..member.config()
    };
    let store = open(login("felix", "secret"));
    let first = write(&store, vec![put("/mine/a", "1")]);
    let denied = |error: Error| {
        assert!(matches!(error, Error::Denied(_)), "{error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    };
    denied(store.get("/other").unwrap_err());
    let foreign = Txn { compares: vec![], ops: vec![put("/other", "1")] };
    denied(store.commit(foreign).unwrap_err());
    denied(open(login("felix", "wrong-secret")).get("/mine/a").unwrap_err());
    denied(member.store().get("/mine/a").unwrap_err());

    let mut foreign = store.watch("/other/");
    let mut view = View::default();
    view.until(&mut foreign, "the refusal", View::is_disconnected);
    let Some(Event::Disconnected { error, .. }) = view.events.first() else { panic!() };
    assert_eq!(error, "etcd: permission denied");

    let mut watch = store.watch("/mine/");
    let mut view = View::default();
    view.until_in_sync(&mut watch);
    // Tokens live in the member's memory.
    member.kill();
    view.until(&mut watch, "the news of the loss", View::is_disconnected);
    member.restart();
    let mut n_tries = 0;
    while let Err(error) = store.get("/mine/a") {
        assert!(matches!(error, Error::Unreachable(_)) && n_tries < 1000, "{error:?}");
        n_tries += 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let second = write(&store, vec![put("/mine/a", "2")]);
    view.until(&mut watch, "the change", |view| view.changes().len() == 2);
    assert_eq!(view.changes(), [format!("+/mine/a@{first}"), format!("+/mine/a@{second}")]);
}
