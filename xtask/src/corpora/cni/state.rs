//! The state of a network namespace, in the form of the recordings.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

use super::{items, text};

/// Settings of each `cali…` interface of the host.
const HOST_SYSCTLS: [&str; 10] = [
    "net.ipv4.conf.{}.route_localnet",
    "net.ipv4.neigh.{}.proxy_delay",
    "net.ipv4.conf.{}.proxy_arp",
    "net.ipv4.conf.{}.forwarding",
    "net.ipv4.conf.{}.rp_filter",
    "net.ipv6.conf.{}.accept_dad",
    "net.ipv6.conf.{}.disable_ipv6",
    "net.ipv6.conf.{}.proxy_ndp",
    "net.ipv6.conf.{}.forwarding",
    "net.ipv6.conf.{}.accept_ra",
];
/// Settings of a container, and of each of its interfaces.
const CONTAINER_SYSCTLS: [&str; 5] = [
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.all.disable_ipv6",
    "net.ipv6.conf.default.disable_ipv6",
    "net.ipv6.conf.lo.disable_ipv6",
];
const CONTAINER_INTERFACE_SYSCTLS: [&str; 2] =
    ["net.ipv6.conf.{}.accept_dad", "net.ipv6.conf.{}.disable_ipv6"];

/// The state of a container; null when its namespace is gone.
pub(super) fn of_container(netns: &str, until: Instant) -> anyhow::Result<Value> {
    if !std::path::Path::new("/run/netns").join(netns).exists() {
        return Ok(Value::Null);
    }
    let (links, routes) = settled(Some(netns), until)?;
    let mut names: Vec<String> = CONTAINER_SYSCTLS.map(str::to_owned).to_vec();
    for link in &links {
        names.extend(CONTAINER_INTERFACE_SYSCTLS.map(|it| it.replace("{}", text(link, "name"))));
    }
    let sysctls = sysctls(Some(netns), &names)?;
    Ok(json!({ "links": links, "routes": routes, "sysctls": sysctls }))
}

/// The state of the host.
pub(super) fn of_host(until: Instant) -> anyhow::Result<Value> {
    let (links, routes) = settled(None, until)?;
    let ours = links.iter().map(|link| text(link, "name")).filter(|it| it.starts_with("cali"));
    let names: Vec<String> =
        ours.flat_map(|name| HOST_SYSCTLS.map(|it| it.replace("{}", name))).collect();
    let sysctls = sysctls(None, &names)?;
    Ok(json!({ "links": links, "routes": routes, "sysctls": sysctls }))
}

/// Links and routes, once each interface that is up has its link-local address.
fn settled(netns: Option<&str>, until: Instant) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
    loop {
        let listed = ip(netns, &["-d", "addr", "show"])?;
        let listed = items_of(&listed);
        let links: Vec<Value> =
            listed.iter().filter(|link| text(link, "ifname") != "lo").map(link_form).collect();
        let waits = listed.iter().any(|link| {
            let has_local = items(link, "addr_info").iter().any(|it| text(it, "scope") == "link");
            let has_carrier = items(link, "flags").iter().any(|flag| flag == "LOWER_UP");
            has_carrier && text(link, "ifname") != "lo" && !has_local
        });
        if !waits || Instant::now() > until {
            let mut routes = Vec::new();
            for family in ["-4", "-6"] {
                let found = ip(netns, &["-d", family, "route", "show", "table", "all"])?;
                routes.extend(items_of(&found).iter().filter_map(route_form));
            }
            return Ok((links, routes));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn link_form(link: &Value) -> Value {
    let addresses: Vec<String> = items(link, "addr_info")
        .iter()
        .map(|it| format!("{}/{} scope {}", text(it, "local"), it["prefixlen"], text(it, "scope")))
        .collect();
    json!({
        "name": text(link, "ifname"),
        "mac": text(link, "address"),
        "mtu": link["mtu"],
        "kind": text(&link["linkinfo"], "info_kind"),
        "tx_queues": link["num_tx_queues"],
        "rx_queues": link["num_rx_queues"],
        "addresses": addresses,
    })
}

fn route_form(route: &Value) -> Option<Value> {
    let table = route.get("table").and_then(Value::as_str).unwrap_or("main");
    if table == "local" {
        return None;
    }
    let mut form = Map::new();
    for field in ["type", "dst", "gateway", "dev", "protocol", "scope", "metric"] {
        if let Some(value) = route.get(field) {
            form.insert(field.to_owned(), value.clone());
        }
    }
    form.insert("table".to_owned(), table.into());
    Some(Value::Object(form))
}

fn ip(netns: Option<&str>, words: &[&str]) -> anyhow::Result<Value> {
    let mut command = Command::new("ip");
    if let Some(netns) = netns {
        command.args(["-n", netns]);
    }
    let output = command.arg("-j").args(words).output().context("ip")?;
    ensure!(output.status.success(), "ip: {}", String::from_utf8_lossy(&output.stderr));
    match output.stdout.trim_ascii() {
        b"" => Ok(Value::Null),
        text => Ok(serde_json::from_slice(text)?),
    }
}

fn items_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The settings that are there, with their values.
fn sysctls(netns: Option<&str>, names: &[String]) -> anyhow::Result<Value> {
    let file = |name: &String| format!("/proc/sys/{}", name.replace('.', "/"));
    let mut values = Map::new();
    if names.is_empty() {
        return Ok(Value::Object(values));
    }
    let files: Vec<String> = names.iter().map(file).collect();
    let mut command = match netns {
        Some(netns) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", netns, "grep", "-s", "."]);
            command
        }
        None => {
            let mut command = Command::new("grep");
            command.args(["-s", "."]);
            command
        }
    };
    let output = command.args(&files).arg("/dev/null").output().context("grep")?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for (name, file) in names.iter().zip(&files) {
        let start = format!("{file}:");
        if let Some(value) = printed.lines().find_map(|line| line.strip_prefix(start.as_str())) {
            values.insert(name.clone(), value.into());
        }
    }
    Ok(Value::Object(values))
}
