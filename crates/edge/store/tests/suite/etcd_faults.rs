//! etcd members that die, fall silent, forget and elect.

use std::time::{Duration, Instant};

use store::{Committed, Error, Event, Store, Txn, etcd};

use crate::member::{self, Member, Options, quick, wait_until_serving};
use crate::proxy::Proxy;
use crate::view::{View, delete, put, shown, write};

fn host(url: &str) -> &str {
    url.trim_start_matches("http://")
}

/// A store whose connections all go through `proxy`.
fn through(proxy: &Proxy, timeout: Duration) -> Store {
    let endpoints = vec![format!("http://{}", proxy.address)];
    Store::Etcd(etcd::Store::new(etcd::Config { endpoints, timeout, ..quick() }).unwrap())
}

#[test]
fn a_watch_survives_a_killed_and_restarted_member() {
    if !member::is_installed() {
        return;
    }
    let mut member = Member::start();
    let store = member.store();
    write(&store, vec![put("/a", "1"), put("/b", "1")]);
    let mut watch = store.watch("/");
    let mut view = View::default();
    view.until_in_sync(&mut watch);
    member.kill();
    view.until(&mut watch, "the news of the loss", View::is_disconnected);
    let lost = view.events.iter().find_map(|event| match event {
        Event::Disconnected { endpoint, .. } => Some(endpoint.clone()),
        _ => None,
    });
    assert_eq!(lost, Some(member.url.clone()));
    member.restart();
    wait_until_serving(&store);
    write(&store, vec![put("/a", "2"), delete("/b")]);
    write(&store, vec![put("/a", "3")]);
    view.until(&mut watch, "the last change", |view| view.changes().len() == 5);
    assert_eq!(view.changes()[2..], ["+/a@3", "-/b@3", "+/a@4"]);
    view.until(&mut watch, "in-sync again", |view| view.n_in_sync() == 2);
}

#[test]
fn a_compaction_while_disconnected_gives_the_right_deletes() {
    if !member::is_installed() {
        return;
    }
    let member = Member::start();
    let direct = member.store();
    write(&direct, vec![put("/gone", "1"), put("/kept", "1"), put("/changed", "1")]);
    let proxy = Proxy::start(host(&member.url));
    let mut watch = through(&proxy, Duration::from_secs(2)).watch("/");
    let mut view = View::default();
    view.until_in_sync(&mut watch);
    proxy.silence_all();
    write(&direct, vec![delete("/gone"), put("/changed", "2"), put("/brief", "1")]);
    write(&direct, vec![delete("/brief"), put("/new", "3")]);
    direct.compact(4).unwrap();
    view.until(&mut watch, "the news of the loss", View::is_disconnected);
    proxy.heal();
    view.until(&mut watch, "in-sync again", |view| view.n_in_sync() == 2);
    assert_eq!(view.changes()[3..], ["+/changed@3", "-/gone@4", "+/new@4"]);
    view.until_equal(&mut watch, &direct, "/");
}

#[test]
fn a_half_open_connection_is_noticed_and_replaced() {
    if !member::is_installed() {
        return;
    }
    let member = Member::start();
    let direct = member.store();
    write(&direct, vec![put("/a", "1")]);
    let proxy = Proxy::start(host(&member.url));
    let store = through(&proxy, Duration::from_secs(5));
    store.get("/a").unwrap();
    let mut watch = store.watch("/");
    let mut view = View::default();
    view.until_in_sync(&mut watch);
    proxy.silence_present();
    write(&direct, vec![put("/a", "2")]);
    view.until(&mut watch, "the change", |view| view.changes().len() == 2);
    assert!(view.is_disconnected());
    assert_eq!(view.changes(), ["+/a@2", "+/a@3"]);
}

#[test]
fn an_endpoint_that_does_not_answer_is_named_with_its_reason() {
    if !member::is_installed() {
        return;
    }
    let member = Member::start();
    let proxy = Proxy::start(host(&member.url));
    let store = through(&proxy, Duration::from_secs(1));
    store.get("/").unwrap();
    proxy.silence_all();
    let began = Instant::now();
    let error = store.get("/").unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Unreachable(_)), "{text}");
    assert!(text.contains(&proxy.address) && text.contains("no answer"), "{text}");
    let lost = store.commit(Txn { compares: vec![], ops: vec![put("/a", "1")] });
    // The connection is new, so nothing was sent for sure; or it was, and nobody knows.
    assert!(matches!(lost, Err(Error::Uncertain(_) | Error::Unreachable(_))), "{lost:?}");
    let Err(Error::Unreachable(outages)) = store.get("/") else { panic!("still silent") };
    assert!(outages[0].lasting >= Duration::from_secs(1) && outages[0].lasting <= began.elapsed());

    let nobody = format!("http://127.0.0.1:{}", member::free_port());
    let endpoints = vec![nobody.clone(), format!("http://127.0.0.1:{}", member::free_port())];
    let config = etcd::Config { endpoints: endpoints.clone(), ..quick() };
    let store = Store::Etcd(etcd::Store::new(config).unwrap());
    let text = store.get("/").unwrap_err().to_string();
    for endpoint in endpoints {
        assert!(text.contains(&format!("{endpoint}: connection refused (for ")), "{text}");
    }
    assert_eq!(store.describe().split(',').next(), Some(format!("etcd {nobody}").as_str()));
}

#[test]
fn a_connection_that_stands_does_not_count_as_reaching_it() {
    if !member::is_installed() {
        return;
    }
    let member = Member::start();
    let proxy = Proxy::start(host(&member.url));
    let store = through(&proxy, Duration::from_secs(10));
    store.get("/a").unwrap();
    store.reach(Duration::from_secs(10)).unwrap();
    proxy.refuse_new();
    let error = store.reach(Duration::from_secs(10)).unwrap_err().to_string();
    assert!(error.contains(&proxy.address), "{error}");
    store.get("/a").unwrap();
    proxy.silence_all();
    store.reach(Duration::from_millis(200)).unwrap_err();
    proxy.heal();
    store.reach(Duration::from_secs(10)).unwrap();
}

#[test]
fn calls_go_to_the_endpoint_that_is_left() {
    if !member::is_installed() {
        return;
    }
    let member = Member::start();
    let nobody = format!("http://127.0.0.1:{}", member::free_port());
    let endpoints = vec![nobody, member.url.clone()];
    let store = Store::Etcd(etcd::Store::new(etcd::Config { endpoints, ..quick() }).unwrap());
    write(&store, vec![put("/a", "1")]);
    let mut watch = store.watch("/");
    let mut view = View::default();
    view.until_in_sync(&mut watch);
    assert_eq!(view.changes(), ["+/a@2"]);
}

#[test]
fn three_members_lose_their_leader_and_nobody_loses_a_change() {
    if !member::is_installed() {
        return;
    }
    let mut members = Member::cluster(3, &Options::default());
    let endpoints: Vec<_> = members.iter().map(|member| member.url.clone()).collect();
    let config = etcd::Config { endpoints, ..quick() };
    let store = Store::Etcd(etcd::Store::new(config).unwrap());
    // All of them: the two that are left have to be a majority.
    members.iter().for_each(|member| wait_until_serving(&member.store()));
    let mut watch = store.watch("/");
    let mut view = View::default();
    view.until_in_sync(&mut watch);
    for round in 0..60 {
        if round == 20 {
            leader(&mut members).kill();
        }
        write_surely(&store, &format!("/k{}", round % 5), &round.to_string());
    }
    view.until_equal(&mut watch, &store, "/");
    assert_eq!(view.state["/k4"].value, b"59");
    // Repeated writes can add versions, but each version that exists was delivered once.
    let n_versions: i64 = view.state.values().map(|entry| entry.version).sum();
    assert_eq!(i64::try_from(view.changes().len()), Ok(n_versions));
}

fn leader(members: &mut [Member]) -> &mut Member {
    let is_leader = |member: &&mut Member| {
        let status = member.etcdctl(&["endpoint", "status", "-w", "simple"]);
        status.split(", ").nth(4) == Some("true")
    };
    members.iter_mut().find(is_leader).expect("a leader")
}

/// Repeats a write whose answer is lost, as is right for one that can be repeated.
fn write_surely(store: &Store, key: &str, value: &str) {
    let began = Instant::now();
    loop {
        match store.commit(Txn { compares: vec![], ops: vec![put(key, value)] }) {
            Ok(Committed::Applied { .. }) => return,
            Err(Error::Uncertain(_) | Error::Unreachable(_))
                if began.elapsed() < Duration::from_secs(120) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn another_cluster_under_the_same_name_is_delivered_anew() {
    if !member::is_installed() {
        return;
    }
    let (one, other) = (Member::start(), Member::start());
    write(&one.store(), vec![put("/a", "one"), put("/only-one", "1")]);
    write(&other.store(), vec![put("/a", "other")]);
    let proxies = [Proxy::start(host(&one.url)), Proxy::start(host(&other.url))];
    proxies[1].refuse();
    let endpoints = proxies.iter().map(|proxy| format!("http://{}", proxy.address)).collect();
    let store = Store::Etcd(etcd::Store::new(etcd::Config { endpoints, ..quick() }).unwrap());
    let mut watch = store.watch("/");
    let mut until_in_sync = || {
        let mut changes = Vec::new();
        loop {
            match watch.next(Duration::from_secs(120)).expect("an event") {
                Event::InSync(_) => return changes,
                Event::Disconnected { .. } => {}
                event => changes.push(shown(&event)),
            }
        }
    };
    assert_eq!(until_in_sync(), ["+/a@2", "+/only-one@2"]);
    proxies[0].refuse();
    proxies[1].heal();
    // The revision is the same by chance, the value is not.
    assert_eq!(until_in_sync(), ["+/a@2", "-/only-one@2"]);
}
