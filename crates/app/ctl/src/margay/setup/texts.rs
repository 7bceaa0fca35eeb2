//! The files that setting up writes: the network that runtimes read, and the agent's unit.

use std::fmt::Write as _;
use std::path::Path;

use host::marks;
use serde_json::{Value, json};

use super::super::failure::Failure;
use super::SetupArguments;
use super::datastore::Chosen;
use super::item::Item;
use super::layout::{Layout, RECEIPT, Root};

/// The newest version of the protocol that every runtime and every chained plugin in use speaks.
const CNI_VERSION: &str = "1.0.0";

/// Plugins that do their work behind ours, and the capability that makes runtimes use them.
const CHAINED: [(&str, &str); 2] = [("portmap", "portMappings"), ("bandwidth", "bandwidth")];

/// Which families of addresses containers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Families {
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
}

/// Everything that is to be there, in the order in which it is made.
pub(crate) fn items(
    arguments: &SetupArguments,
    layout: &mut Layout,
    root: &Root,
    chosen: &Chosen,
    families: Families,
) -> Result<Vec<Item>, Failure> {
    let mut folders = layout.folders();
    folders.extend(Path::new(RECEIPT).parent().map(Path::to_owned));
    layout.note_missing(&folders, root);
    let receipt = layout.receipt()?;
    let own = receipt.path().parent().map(Path::to_owned);
    let mut items: Vec<Item> = own.iter().map(|path| Item::Folder { path: path.clone() }).collect();
    items.push(receipt);
    let others = folders.into_iter().filter(|folder| Some(folder) != own.as_ref());
    items.extend(others.map(|path| Item::Folder { path }));
    items.push(Item::Program { path: layout.program.clone() });
    items.extend(layout.links());
    if let Some(unit) = &layout.unit {
        let note = format!("The agent alone connects containers here; {}.\n", marks::TEXT);
        let what = "says that an agent was set up";
        items.push(Item::Text { path: layout.agent_note(), text: note, what });
        let text = self::unit(arguments, layout, chosen);
        items.push(Item::Text { path: unit.clone(), text, what: "unit of the agent" });
    }
    let text = text::json::to_string_indented(&conflist(layout, root, chosen, families)) + "\n";
    let what = "the network, for podman, containerd and others";
    items.push(Item::Text { path: layout.conflist.clone(), text, what });
    Ok(items)
}

/// The network, as runtimes read it.
fn conflist(layout: &Layout, root: &Root, chosen: &Chosen, families: Families) -> Value {
    let mut ours = json!({
        "type": "calico",
        "nodename": layout.node,
        "nodename_file_optional": true,
        "ipam": {
            "type": "calico-ipam",
            "assign_ipv4": families.ipv4.to_string(),
            "assign_ipv6": families.ipv6.to_string(),
        },
    });
    match &layout.unit {
        Some(_) => ours["agent_socket"] = json!(layout.run_dir.join("agent.sock")),
        None => {
            ours["state_dir"] = json!(layout.state_dir);
            chosen.describe(&mut ours);
        }
    }
    let mut plugins = vec![ours];
    // A chain with a plugin that a runtime does not find serves nobody.
    let is_there =
        |name: &str| layout.bin_dirs.iter().all(|dir| root.join(&dir.join(name)).exists());
    for (name, capability) in CHAINED.into_iter().filter(|(name, _)| is_there(name)) {
        plugins.push(json!({ "type": name, "capabilities": { capability: true } }));
    }
    json!({
        "cniVersion": CNI_VERSION,
        "name": layout.network,
        "comment": marks::TEXT,
        "plugins": plugins,
    })
}

/// What the agent may do at all: change the network of this host, and enter that of containers.
const CAPABILITIES: &str = "CAP_NET_ADMIN CAP_SYS_ADMIN";

/// The agent's unit.
fn unit(arguments: &SetupArguments, layout: &Layout, chosen: &Chosen) -> String {
    let mut command = format!("{} agent --node {}", layout.program.display(), layout.node);
    for address in &arguments.address {
        let _ = write!(command, " --address {address}");
    }
    let _ = write!(command, " --state-dir {}", layout.state_dir.display());
    let _ = write!(command, " --run-dir {}", layout.run_dir.display());
    let mut own = String::new();
    for (name, value) in chosen.environment() {
        let _ = writeln!(own, "Environment=\"{name}={}\"", escaped(&value));
    }
    own += &folder("StateDirectory", "/var/lib", &layout.state_dir);
    own += &folder("RuntimeDirectory", "/run", &layout.run_dir);
    let store = layout.store.as_deref().and_then(Path::parent);
    if let Some(store) = store.filter(|store| !store.starts_with(&layout.state_dir)) {
        let _ = writeln!(own, "ReadWritePaths={}", store.display());
    }
    format!(
        "# This unit was {mark}.
[Unit]
Description=Margay, the network of this host's containers
# Firewalls that start by clearing every rule go first.
After=local-fs.target network.target nftables.service firewalld.service
Before=containerd.service crio.service kubelet.service podman-restart.service

[Service]
Type=notify
# The dataplane is a child of the process that is started here, and says when it is ready.
NotifyAccess=all
ExecStart={command}
Restart=always
RestartSec=1
{own}RuntimeDirectoryPreserve=yes
LimitNOFILE=65536
OOMScoreAdjust=-900

CapabilityBoundingSet={CAPABILITIES}
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectClock=yes
ProtectHostname=yes
PrivateTmp=yes
PrivateDevices=yes
RestrictAddressFamilies=AF_UNIX AF_NETLINK AF_INET AF_INET6
RestrictNamespaces=net
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
",
        mark = marks::TEXT,
    )
}

/// The service manager makes a folder below its own place; elsewhere it only leaves it writable.
fn folder(setting: &str, place: &str, path: &Path) -> String {
    match path.strip_prefix(place) {
        Ok(below) => format!("{setting}={}\n", below.display()),
        Err(_) => format!("ReadWritePaths={}\n", path.display()),
    }
}

/// A value between double quotes of a unit.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%")
}
