//! The reference caller of the protocol, `cnitool`, with the reference plugins behind ours.

use std::path::PathBuf;

use crate::world::{World, has};

/// Where `cargo xtask verify` puts it, or anywhere on the path.
fn cnitool() -> Option<PathBuf> {
    let target = PathBuf::from(env!("CARGO_BIN_EXE_margay"));
    let built = target.parent()?.parent()?.join("tools/cnitool");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join("cnitool"));
    let found = Some(built).filter(|it| it.is_file()).or_else(|| places.find(|it| it.is_file()));
    if found.is_none() {
        eprintln!("skipped: no cnitool (cargo xtask verify builds it where Go is installed)");
    }
    found
}

#[test]
fn cnitool_adds_checks_and_deletes_with_portmap_and_bandwidth_behind() {
    let Some(cnitool) = cnitool() else { return };
    if !has(&["busybox", "iptables", "tc"]) || !has(&["/usr/lib/cni/portmap"]) {
        return;
    }
    let Some(world) = World::new() else { return };
    world.margay("setup --no-agent").says(0, &["10-margay.conflist"]);
    world.ok(&["ip", "netns", "add", "c"]);
    let bandwidth = r#""bandwidth": {"ingressRate": 1000000, "ingressBurst": 1000000}"#;
    let port = r#"{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}"#;
    let all = format!(r#"CAP_ARGS={{"portMappings": [{port}], {bandwidth}}}"#);
    // Debian's portmap looks for its IPv6 rules even where a container has no IPv6 address.
    let without_ports = format!("CAP_ARGS={{{bandwidth}}}");
    let call = |capabilities: &str, verb: &str| {
        let paths = ["NETCONFPATH=/etc/cni/net.d", "CNI_PATH=/usr/lib/cni", capabilities];
        let words = [cnitool.to_str().unwrap(), verb, "margay", "/run/netns/c"];
        world.run(&std::iter::once("env").chain(paths).chain(words).collect::<Vec<_>>())
    };
    let added = call(&all, "add").says(0, &["ips"]).out;
    let added: serde_json::Value = serde_json::from_str(&added).unwrap();
    let address = added["ips"][0]["address"].as_str().unwrap().strip_suffix("/32").unwrap();
    let host_interface = added["interfaces"][0]["name"].as_str().unwrap();
    call(&without_ports, "check").says(0, &[]);

    let shaped = world.ok(&["tc", "qdisc", "show", "dev", host_interface]);
    assert!(shaped.contains("tbf") && shaped.contains("rate 1Mbit"), "{shaped}");
    let serve = ["ip", "netns", "exec", "c", "busybox", "httpd", "-p", "80", "-h", "/etc/cni"];
    world.ok(&serve);
    // The server has no such page; that it says so is answer enough.
    assert!(world.fetch(&[], address, 80).contains("404"));
    assert!(world.fetch(&[], "172.30.0.1", 8080).contains("404"));

    // CHECK sees what somebody broke.
    world.ok(&["ip", "-n", "c", "route", "del", "default"]);
    call(&without_ports, "check").says(1, &["route 0.0.0.0/0 is missing"]);

    call(&all, "del").says(0, &[]);
    call(&all, "del").says(0, &[]);
    world.assert_no_container();
}
