//! Containers that are connected: their records in the journal, and their interfaces.
//!
//! Each is taken down as a runtime would do it: by a DEL of this program's own plugin, which frees
//! its addresses and its endpoint in the datastore.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use host::journal;
use kernel::Netlink;
use sandbox::identity::{Identity, Workload};
use sandbox::life::Record;
use serde_json::{Value, json};

use super::super::arguments::Place;
use super::super::failure::Failure;
use super::super::setup::datastore::Chosen;
use super::super::setup::layout::{Layout, Root};
use super::step::{Act, Step};

/// What is connected, or was.
pub(super) struct Sandboxes {
    records: Vec<Record>,
    /// The containers whose interfaces stand.
    wired: Vec<(Identity, String)>,
}

impl Sandboxes {
    /// Reads the journal and the kernel.
    pub(super) fn look(root: &Root, layout: &Layout) -> Result<Self, Failure> {
        let records = journal::read(&root.join(&layout.state_dir).join("sandboxes"));
        let mut wired = Vec::new();
        if root.is_host() {
            let links = Netlink::open().and_then(|mut netlink| netlink.links());
            let links = links.map_err(|error| Failure::new(error.to_string()))?;
            wired = links
                .into_iter()
                .filter_map(|link| {
                    let identity = Identity::from_alias(link.alias.as_deref()?)?;
                    Some((identity, link.name.to_string()))
                })
                .collect();
        }
        Ok(Self { records, wired })
    }

    /// The containers that run, for people.
    pub(super) fn live(&self) -> Vec<String> {
        self.wired
            .iter()
            .map(|(identity, interface)| {
                let record = self.records.iter().find(|record| record.identity == *identity);
                match record {
                    Some(record) => named(record),
                    None => format!("{identity}, interface {interface}"),
                }
            })
            .collect()
    }

    /// How the datastore is told.
    pub(super) fn steps(&self, root: &Root, layout: &Layout, place: &Place) -> Vec<Step> {
        if self.records.is_empty() || !root.is_host() {
            return Vec::new();
        }
        let chosen = Chosen::find(place, root, false);
        let path: Vec<String> =
            layout.bin_dirs.iter().map(|dir| dir.display().to_string()).collect();
        let steps = self.records.iter().map(|record| {
            let mut configuration = json!({
                "cniVersion": "1.0.0",
                "name": record.network,
                "type": "calico",
                "nodename": record.node,
                "nodename_file_optional": true,
                "ipam": { "type": record.ipam },
                "state_dir": layout.state_dir,
            });
            if let Ok(chosen) = &chosen {
                chosen.describe(&mut configuration);
            }
            let disconnection = Disconnection {
                identity: record.identity.clone(),
                workload: record.workload.clone(),
                netns: PathBuf::from(&record.netns_path),
                path: path.join(":"),
                configuration,
                no_datastore: chosen.as_ref().err().map(|failure| failure.what().to_owned()),
            };
            let act = Act::Sandbox(Box::new(disconnection));
            Step::new("container", named(record), "its addresses and endpoint", act)
        });
        steps.collect()
    }
}

fn named(record: &Record) -> String {
    let name = match &record.workload {
        Workload::Pod { namespace, name } => format!("{namespace}/{name}"),
        Workload::Plain => record.identity.to_string(),
    };
    let addresses: Vec<String> =
        record.addresses.iter().map(|held| held.network.address().to_string()).collect();
    match addresses.is_empty() {
        true => name,
        false => format!("{name} ({})", addresses.join(", ")),
    }
}

/// A DEL.
pub(super) struct Disconnection {
    identity: Identity,
    workload: Workload,
    netns: PathBuf,
    path: String,
    configuration: Value,
    /// Why the datastore cannot be told; the rest goes away all the same.
    no_datastore: Option<String>,
}

impl Disconnection {
    /// Runs this program as the plugin.
    pub(super) fn perform(&self) -> Result<(), String> {
        if let Some(why) = &self.no_datastore {
            return Err(format!("its addresses stay in the datastore: {why}"));
        }
        let plain = |error: std::io::Error| text::plain_reason(&error);
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("cni")
            .env("CNI_COMMAND", "DEL")
            .env("CNI_CONTAINERID", &self.identity.container)
            .env("CNI_IFNAME", &self.identity.interface)
            .env("CNI_NETNS", &self.netns)
            .env("CNI_PATH", &self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Workload::Pod { namespace, name } = &self.workload {
            let named = format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}");
            command.env("CNI_ARGS", named);
        }
        let mut child = command.spawn().map_err(plain)?;
        let input = text::json::to_string(&self.configuration);
        // A plugin that does not read has a reason, which its answer gives.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        let done = child.wait_with_output().map_err(plain)?;
        if done.status.success() {
            return Ok(());
        }
        let answer = text::json::parse(&done.stdout).unwrap_or_default();
        Err(answer["msg"].as_str().map_or_else(|| done.status.to_string(), str::to_owned))
    }
}
