//! A watch that runs while everything around it goes wrong: what it said, replayed, is the store.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use store::{Store, etcd};

use crate::harness::{Place, Running, policy, until};
use crate::member::{self, Member, Options, wait_until_serving};
use crate::proxy::Proxy;

type Objects = BTreeMap<String, Value>;

fn follow(place: &Place) -> Running {
    let watch = Running::start(place.command(&["get", "np", "-A", "-w", "-o", "json"]));
    watch.until_says(r#""type":"synced""#);
    watch
}

fn identity(object: &Value) -> String {
    let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", of("namespace"), of("name"))
}

/// What a program knows that followed the lines from the first on. A change that is said twice, or
/// out of order, ends the test.
fn replay(watch: &Running) -> Objects {
    let mut objects = Objects::new();
    let revision = |object: &Value| -> i64 {
        object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    };
    for line in watch.out() {
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let object = &event["object"];
        match event["type"].as_str().unwrap() {
            "put" => {
                let known = objects.insert(identity(object), object.clone());
                let is_newer = known.is_none_or(|known| revision(&known) < revision(object));
                assert!(is_newer, "said twice or out of order: {line}");
            }
            "removed" => {
                let known = objects.remove(&identity(object));
                assert!(known.is_some(), "removed what was not there: {line}");
            }
            "synced" => {}
            other => panic!("{other}: {line}"),
        }
    }
    objects
}

/// Ends the test unless the watch comes to know exactly what the store holds.
#[track_caller]
fn settles(watch: &Running, place: &Place) {
    let list = place.json("get np -A");
    let items = list["items"].as_array().unwrap();
    let stored: Objects = items.iter().map(|one| (identity(one), one.clone())).collect();
    until("the watch to know the store", || replay(watch) == stored);
}

/// Writers that run at the same time, each a process that changes objects of its own.
fn write_at_once(place: &Place, round: i64) -> Vec<std::process::Child> {
    (0..3)
        .map(|writer| {
            let all: String = (0..8)
                .map(|n| policy("shop", &format!("w{writer}-{n}"), round * 100 + n))
                .collect();
            let file = place.file(&format!("writer-{writer}-{round}.yaml"), &all);
            let mut command: Command = place.command(&["apply", "-f", &file]);
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect()
}

fn joined(writers: Vec<std::process::Child>) {
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
}

#[test]
fn several_writers_one_killed_and_removals_on_either_store() {
    for place in Place::both() {
        let watch = follow(&place);
        joined(write_at_once(&place, 1));
        let mut writers = write_at_once(&place, 2);
        writers[1].kill().unwrap();
        writers.remove(1).wait().unwrap();
        joined(writers);
        place.margay("delete np w0-0 w0-1 w2-7 -n shop --yes").ok();
        place.margay("undo").ok();
        place.margay("delete np w0-3 -n shop --yes").ok();
        settles(&watch, &place);
        assert_eq!(watch.err(), Vec::<String>::new());
    }
}

#[test]
fn the_table_form_shows_each_change_as_a_row() {
    for place in Place::both() {
        place.give("apply", &policy("shop", "before", 1)).ok();
        let watch = Running::start(place.command(&["get", "np", "-A", "-w", "-o", "wide"]));
        watch.until_says("before");
        place.give("apply", &policy("shop", "after", 2)).ok();
        watch.until_says("after");
        place.margay("delete np before -n shop --yes").ok();
        watch.until_says("NetworkPolicy shop/before removed");
        let lines = watch.out();
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[0].starts_with("NAMESPACE") && lines[1].contains("before"), "{lines:#?}");
    }
}

#[test]
fn only_the_names_asked_for_are_followed() {
    for place in Place::both() {
        let words = ["get", "np", "mine", "-n", "shop", "-w", "-o", "json"];
        let watch = Running::start(place.command(&words));
        place.give("apply", &(policy("shop", "other", 1) + &policy("shop", "mine", 2))).ok();
        watch.until_says(r#""name":"mine""#);
        assert!(!watch.out().iter().any(|line| line.contains("other")), "{:#?}", watch.out());
    }
}

#[test]
fn a_killed_and_compacted_etcd_is_gone_on_with() {
    let Some(mut place) = Place::etcd() else { return };
    let watch = follow(&place);
    joined(write_at_once(&place, 1));
    settles(&watch, &place);
    place.member().kill();
    watch.until_complains("waiting for http://127.0.0.1:");
    place.member().restart();
    wait_until_serving(&place.store());
    joined(write_at_once(&place, 2));
    place.margay("delete np w0-0 w0-1 -n shop --yes").ok();
    let (_, revision) = place.store().get("/").unwrap();
    place.store().compact(revision).unwrap();
    settles(&watch, &place);
}

#[test]
fn a_partition_with_a_compaction_behind_it_hides_nothing() {
    let Some(place) = Place::etcd() else { return };
    let Store::Etcd(store) = place.store() else { panic!() };
    let url = Store::Etcd(store).describe();
    let proxy = Proxy::start(url.trim_start_matches("etcd http://"));
    joined(write_at_once(&place, 1));
    let watch = follow(&Place::at(&format!("http://{}", proxy.address)));
    settles(&watch, &place);
    proxy.silence_all();
    joined(write_at_once(&place, 2));
    place.margay("delete np w1-1 w1-2 -n shop --yes").ok();
    let (_, revision) = place.store().get("/").unwrap();
    place.store().compact(revision).unwrap();
    watch.until_complains(&format!("waiting for http://{}", proxy.address));
    proxy.heal();
    settles(&watch, &place);
    joined(write_at_once(&place, 3));
    settles(&watch, &place);
}

#[test]
fn a_cluster_of_three_loses_its_leader() {
    if !member::is_installed() {
        return;
    }
    let mut members = Member::cluster(3, &Options::default());
    let urls: Vec<String> = members.iter().map(|member| member.url.clone()).collect();
    let config = etcd::Config { endpoints: urls.clone(), ..member::quick() };
    wait_until_serving(&Store::Etcd(etcd::Store::new(config).unwrap()));
    let place = Place::at(&urls.join(","));
    let watch = follow(&place);
    joined(write_at_once(&place, 1));
    settles(&watch, &place);
    let endpoints = urls.join(",");
    let status =
        members[0].etcdctl(&["--endpoints", &endpoints, "endpoint", "status", "-w", "json"]);
    let status: Value = serde_json::from_str(&status).unwrap();
    let is_leader = |at: &Value| at["Status"]["leader"] == at["Status"]["header"]["member_id"];
    let leader = status.as_array().unwrap().iter().position(is_leader).unwrap();
    let leader = urls.iter().position(|url| *url == status[leader]["Endpoint"]).unwrap();
    members[leader].kill();
    // A write during the election may be refused, but then it can be said again.
    until("a write to get through", || place.give("apply", &policy("shop", "after", 7)).code == 0);
    joined(write_at_once(&place, 2));
    settles(&watch, &place);
}
