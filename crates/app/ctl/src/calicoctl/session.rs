//! One run of a command: its command line, its output, and the datastore once it is needed.

use std::cell::OnceCell;
use std::io::{self, Write};
use std::path::Path;

use api::Kind;
use serde_json::Value;
use store::Store;
use store::resources::{Manner, Name, Quarantined, Resources};

use super::arguments::Parsed;
use super::stop::Stop;
use api::EMULATED_CALICO_VERSION;
use store::settings::{CALICO_CONFIG_FILE, Surroundings};

/// One run of a command.
pub(crate) struct Session<'s> {
    /// The command line.
    pub(crate) parsed: &'s Parsed,
    /// Where answers go.
    pub(crate) out: &'s mut dyn Write,
    /// The datastore.
    pub(crate) datastore: Datastore<'s>,
}

/// The datastore, opened when somebody first asks for it.
pub(crate) struct Datastore<'s> {
    config: Option<&'s str>,
    resources: OnceCell<Resources>,
}

impl<'s> Datastore<'s> {
    /// The datastore that this configuration file names, or else the environment.
    pub(crate) fn new(config: Option<&'s str>) -> Self {
        Self { config, resources: OnceCell::new() }
    }

    /// The client. The words of the error are calicoctl's, without those in front of them.
    pub(crate) fn open(&self) -> Result<&Resources, Stop> {
        if let Some(resources) = self.resources.get() {
            return Ok(resources);
        }
        let config = self.config.filter(|&config| config != CALICO_CONFIG_FILE);
        if let Some(config) = config.filter(|config| !Path::new(config).exists()) {
            return Err(Stop::Said(format!("Error reading config file: {config}")));
        }
        let store = open(config).map_err(Stop::Error)?;
        // A fresh store gets no version, as from calicoctl: the nodes say which one runs.
        let manner = Manner { rewrite_unchanged: true, ..Manner::default() };
        Ok(self.resources.get_or_init(|| Resources::new(store, manner)))
    }

    /// The stored keys that were left out because they are no text.
    pub(crate) fn foreign_keys(&self) -> Vec<String> {
        self.resources.get().map(|it| it.store().foreign_keys()).unwrap_or_default()
    }

    /// The AS number that nodes without one of their own have.
    pub(crate) fn as_number(&self) -> String {
        match self.open() {
            Ok(resources) => crate::cluster::as_number(resources),
            Err(_) => "unknown".to_owned(),
        }
    }
}

fn open(config: Option<&str>) -> Result<Store, String> {
    let config = config.map(Path::new);
    let surroundings = Surroundings {
        config,
        store: None,
        variable: &|name| std::env::var_os(name),
        read: &|path| host::file::read_settings(path, config),
        is_root: rustix::process::geteuid().is_root(),
    };
    let choice = surroundings.choose().map_err(|error| error.to_string())?;
    choice.datastore.open().map_err(|error| error.to_string())
}

impl Session<'_> {
    /// The client for a command on resources: calicoctl says on standard output why there is
    /// none.
    pub(crate) fn client(&self) -> Result<&Resources, Stop> {
        self.datastore.open().map_err(|stop| match stop {
            Stop::Error(text) => Stop::Said(format!("Failed to create Calico API client: {text}")),
            stop => stop,
        })
    }

    /// Refuses to work with a cluster of another Calico version, unless that is allowed.
    pub(crate) fn check_version(&self) -> Result<(), Stop> {
        const OVERRIDE: &str = "Use --allow-version-mismatch to override";
        if self.parsed.is_set("allow-version-mismatch") {
            return Ok(());
        }
        let resources = match self.datastore.open() {
            Ok(resources) => resources,
            Err(said @ Stop::Said(_)) => return Err(said),
            // The command itself will say why, if it needs the datastore at all.
            Err(_) => return Ok(()),
        };
        let information = Name::cluster(Kind::ClusterInformation, "default");
        let information = match resources.get(&information) {
            Ok(stored) => stored.object,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => {
                return Err(Stop::Error(format!(
                    "unable to get Cluster Information to verify version mismatch: {}\n{OVERRIDE}",
                    error.calico()
                )));
            }
        };
        let version = information.pointer("/spec/calicoVersion").and_then(Value::as_str);
        let Some(version) = version.filter(|version| !version.is_empty()) else { return Ok(()) };
        let (cluster, client) = (release(version), release(EMULATED_CALICO_VERSION));
        if cluster == client {
            return Ok(());
        }
        Err(Stop::Error(format!(
            "version mismatch.\nClient Version:   {EMULATED_CALICO_VERSION}\n\
             Cluster Version:  {cluster}\n{OVERRIDE}"
        )))
    }
}

/// Says on standard error that a stored value is not shown, because it cannot be used.
pub(crate) fn warn(quarantined: &Quarantined) -> io::Result<()> {
    let key = &quarantined.key;
    let reasons: Vec<String> = quarantined.problems.iter().map(ToString::to_string).collect();
    writeln!(io::stderr(), "warning: {key} is left out: {}", reasons.join("; "))
}

/// The release in a version: `3.32.0` of `v3.32.0-4-gabcdef`.
fn release(version: &str) -> &str {
    let version = version.strip_prefix('v').unwrap_or(version);
    version.split('-').next().unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_one_release_match() {
        assert_eq!(release("v3.32.0-4-gabcdef"), "3.32.0");
        assert_eq!(release("3.32.0"), release("v3.32.0"));
        assert_ne!(release("v3.32.1"), release("v3.32.0"));
    }
}
