//! Namespaces: identity, what is not one, names, threads.

use std::os::fd::OwnedFd;
use std::process::Command;

use kernel::{Error, Netlink, Netns, sysctl};
use kernel::{Family, sysctl::Sysctl};

use crate::world::{name, world};

#[test]
fn a_namespace_is_the_same_one_by_every_way_to_it() {
    let Some(world) = world() else { return };
    let by_thread = world.netns.enter(Netns::current).unwrap().unwrap();
    assert_eq!(by_thread.id(), world.netns.id());
    assert_ne!(Netns::current().unwrap().id(), world.netns.id());
    let descriptor = OwnedFd::from(std::fs::File::open("/proc/self/ns/net").unwrap());
    assert_eq!(Netns::from_fd(descriptor).unwrap().id(), Netns::current().unwrap().id());
}

#[test]
fn what_is_no_network_namespace_is_named() {
    if world().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in ["/proc/self/ns/uts", "/proc/self/ns/mnt", "/etc/passwd", pipe.to_str().unwrap()] {
        let error = Netns::open(path).unwrap_err();
        assert!(matches!(error, Error::NotANetns(_)), "{path}: {error}");
        assert_eq!(error.to_string(), format!("{path} is not a network namespace"));
    }
    assert!(Netns::open(folder.path().join("gone")).unwrap_err().is_not_found());
}

#[test]
fn a_named_namespace_is_made_once_and_removed_for_good() {
    if world().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = Netns::create_named(folder.path(), "node-1").unwrap();
    let again = Netns::create_named(folder.path(), "node-1").unwrap_err();
    let opened = Netns::open(folder.path().join("node-1")).unwrap();
    Netns::delete_named(folder.path(), "node-1").unwrap();
    Netns::delete_named(folder.path(), "node-1").unwrap();
    assert!(again.already_exists(), "{again}");
    assert_eq!(opened.id(), made.id());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(Netns::create_named(folder.path(), "../x").is_err());
    // What holds it open still can use it.
    assert_eq!(Netlink::in_netns(&made).unwrap().links().unwrap().len(), 1);
}

#[test]
fn a_panic_inside_leaves_the_caller_where_it_was() {
    let Some(world) = world() else { return };
    let before = Netns::current().unwrap().id();
    let panicked = std::panic::catch_unwind(|| world.netns.enter(|| panic!("inside")));
    assert!(panicked.is_err());
    assert_eq!(Netns::current().unwrap().id(), before);
}

#[test]
fn settings_belong_to_the_namespace() {
    let Some(mut world) = world() else { return };
    world.veth("cali.1", "eth0", None);
    let proxy = Sysctl::of_link(Family::V4, &name("cali.1"), "proxy_arp");
    assert_eq!(sysctl::read(&world.netns, &proxy).unwrap(), "0");
    sysctl::write(&world.netns, &proxy, "1").unwrap();
    assert_eq!(sysctl::read(&world.netns, &proxy).unwrap(), "1");
    let error = sysctl::read(&Netns::current().unwrap(), &proxy).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    let forward = Sysctl::of_family(Family::V4, "ip_forward");
    let delay = Sysctl::of_neighbours(Family::V4, &name("cali.1"), "proxy_delay");
    let none = Sysctl::of_all(Family::V4, "no_such_setting");
    let results =
        sysctl::write_all(&world.netns, &[(none, "1"), (forward.clone(), "1"), (delay, "0")])
            .unwrap();
    let ends: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ends, [false, true, true]);
    assert_eq!(sysctl::read(&world.netns, &forward).unwrap(), "1");
}

#[test]
fn a_name_cannot_lead_out_of_the_settings() {
    let Some(world) = world() else { return };
    let outside = Sysctl::of_all(Family::V4, "../../../kernel/hostname");
    assert!(matches!(sysctl::read(&world.netns, &outside), Err(Error::Invalid(_))));
}
