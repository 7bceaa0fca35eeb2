//! The datastore of the host: chosen as every command chooses it, and told to the agent or to the
//! plugin that acts alone.

use std::path::{Path, PathBuf};

use host::file;
use serde_json::Value;
use store::Store;
use store::settings::{CALICO_CONFIG_FILE, Choice, Datastore, EtcdSettings, Surroundings};

use super::super::arguments::Place;
use super::super::failure::Failure;
use super::layout::Root;

/// A datastore, and how others on this host are told of it.
#[derive(Debug)]
pub(crate) struct Chosen {
    datastore: Datastore,
    /// Whether the host's own settings file says it, which the agent reads as well.
    is_in_host_file: bool,
}

impl Chosen {
    /// Chooses by the host's files, the environment and the command line.
    pub(crate) fn find(place: &Place, root: &Root, has_agent: bool) -> Result<Self, Failure> {
        let read = |path: &Path| {
            let is_of_host = place.config.as_deref() != Some(path);
            let path = if is_of_host { root.join(path) } else { path.to_owned() };
            file::read_settings(&path, place.config.as_deref())
        };
        let surroundings = Surroundings {
            config: place.config.as_deref(),
            store: place.store.as_deref().filter(|_| root.is_host()),
            variable: &|name| std::env::var_os(name),
            read: &read,
            is_root: true,
        };
        let choice = match &place.store {
            Some(path) if !root.is_host() => {
                Choice { datastore: Datastore::Embedded(path.clone()), why: "--store".to_owned() }
            }
            _ => surroundings.choose()?,
        };
        let chosen = Self {
            is_in_host_file: choice.why.starts_with(CALICO_CONFIG_FILE),
            datastore: absolute(choice.datastore)?,
        };
        chosen.check(root, has_agent, &choice.why)?;
        Ok(chosen)
    }

    /// The file of the embedded store.
    pub(crate) fn embedded(&self) -> Option<&Path> {
        match &self.datastore {
            Datastore::Embedded(path) => Some(path),
            Datastore::Etcd(_) => None,
        }
    }

    /// Opens it; none if it is no part of the image that is made.
    pub(crate) fn open(&self, root: &Root) -> Result<Option<Store>, Failure> {
        let datastore = match &self.datastore {
            Datastore::Embedded(path) => Datastore::Embedded(root.join(path)),
            Datastore::Etcd(_) if !root.is_host() => return Ok(None),
            other => other.clone(),
        };
        Ok(Some(datastore.open()?))
    }

    /// The variables that tell the agent.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        if self.is_in_host_file {
            return Vec::new();
        }
        let all = match &self.datastore {
            Datastore::Embedded(path) => vec![("MARGAY_STORE", path.display().to_string())],
            Datastore::Etcd(etcd) => vec![
                ("DATASTORE_TYPE", "etcdv3".to_owned()),
                ("ETCD_ENDPOINTS", etcd.endpoints.clone()),
                ("ETCD_DISCOVERY_SRV", etcd.discovery_srv.clone()),
                ("ETCD_CA_CERT_FILE", etcd.ca_cert_file.clone()),
                ("ETCD_CERT_FILE", etcd.cert_file.clone()),
                ("ETCD_KEY_FILE", etcd.key_file.clone()),
            ],
        };
        all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// The fields of a network configuration that tell the plugin.
    pub(crate) fn describe(&self, configuration: &mut Value) {
        let mut put = |name: &str, value: String| {
            if !value.is_empty() {
                configuration[name] = value.into();
            }
        };
        match &self.datastore {
            Datastore::Embedded(path) => put("store", path.display().to_string()),
            Datastore::Etcd(etcd) => {
                put("datastore_type", "etcdv3".to_owned());
                put("etcd_endpoints", etcd.endpoints.clone());
                put("etcd_discovery_srv", etcd.discovery_srv.clone());
                put("etcd_ca_cert_file", etcd.ca_cert_file.clone());
                put("etcd_cert_file", etcd.cert_file.clone());
                put("etcd_key_file", etcd.key_file.clone());
            }
        }
    }

    /// Files of others would hold what only the host's settings file may hold, or say something
    /// else than that file.
    fn check(&self, root: &Root, has_agent: bool, why: &str) -> Result<(), Failure> {
        let has_secret = match &self.datastore {
            Datastore::Etcd(etcd) => has_secret(etcd),
            Datastore::Embedded(_) => false,
        };
        let file = root.join(Path::new(CALICO_CONFIG_FILE));
        match (has_agent, self.is_in_host_file) {
            (true, true) => Ok(()),
            (true, false) if has_secret => Err(Failure::new(
                "a password or an inline key of etcd has no place in a unit; nothing was changed",
            )
            .help(format!("put the settings into {CALICO_CONFIG_FILE}, which the agent reads"))),
            (true, false) if file.exists() => {
                Err(Failure::new("two datastores are named; nothing was changed")
                    .why(format!("{why} chose one, and the agent reads {CALICO_CONFIG_FILE}"))
                    .help("leave one of them out"))
            }
            (false, _) if has_secret => Err(Failure::new(
                "a network configuration has no place for a password or an inline key of etcd; \
                 nothing was changed",
            )
            .help("set up an agent (leave --no-agent out), or use key and certificate files")),
            _ => Ok(()),
        }
    }
}

fn has_secret(etcd: &EtcdSettings) -> bool {
    [&etcd.password, &etcd.key, &etcd.cert, &etcd.ca_cert].iter().any(|text| !text.is_empty())
}

/// Others do not run in this folder.
fn absolute(datastore: Datastore) -> Result<Datastore, Failure> {
    let whole = |path: &Path| -> Result<PathBuf, Failure> {
        std::path::absolute(path).map_err(|error| {
            Failure::new(format!("{}: {}", path.display(), text::plain_reason(&error)))
        })
    };
    Ok(match datastore {
        Datastore::Embedded(path) => Datastore::Embedded(whole(&path)?),
        etcd => etcd,
    })
}
