//! A lab that is there: where it lies, what is remembered of it, and its namespaces.

use std::process::{Command, Stdio};

use kernel::Netns;

use crate::arguments::DatastoreKind;
use crate::datastore;
use crate::failure::Failure;
use crate::place::{Lock, Place};
use crate::processes;
use crate::rootless;
use crate::state::State;

/// The name of the namespace that connects the nodes.
pub(crate) const FABRIC: &str = "fabric";

/// An opened lab.
pub(crate) struct Lab {
    pub(crate) place: Place,
    pub(crate) state: State,
}

impl Lab {
    /// Opens a lab that was built, entering its namespaces.
    pub(crate) fn open(place: &Place) -> Result<Self, Failure> {
        let absent = || {
            Failure::new(format!("there is no lab {:?}", place.name))
                .help(format!("margay lab up{}", flag(&place.name)))
        };
        let state = State::read(place)?.ok_or_else(absent)?;
        if !state.is_built {
            let flag = flag(&place.name);
            return Err(Failure::new(format!("the lab {:?} was never finished", place.name)).help(
                format!("margay lab up{flag}     builds it anew; margay lab down{flag} removes it"),
            ));
        }
        place.check_owner()?;
        rootless::enter(place)?;
        let lab = Self { place: place.clone(), state };
        // Without its namespaces (after a reboot, or once all its processes are gone) the lab of
        // an ordinary user cannot be entered any more.
        match lab.netns(FABRIC) {
            Ok(_) => Ok(lab),
            Err(_) => {
                Err(Failure::new(format!("the namespaces of the lab {:?} are gone", place.name))
                    .help(format!("margay lab down{}     and up again", flag(&place.name))))
            }
        }
    }

    /// The same, while nobody else changes it.
    pub(crate) fn open_to_change(place: &Place) -> Result<(Self, Lock), Failure> {
        // A lock makes the folder of all labs: only where there is one already.
        if State::read(place)?.is_none() {
            Self::open(place)?;
        }
        let lock = place.lock()?;
        Ok((Self::open(place)?, lock))
    }

    /// Remembers what changed.
    pub(crate) fn save(&self) -> Result<(), Failure> {
        self.state.write(&self.place)
    }

    /// The namespace of a node, a pod or the fabric.
    pub(crate) fn netns(&self, name: &str) -> Result<Netns, Failure> {
        Ok(Netns::open(self.place.namespace(name))?)
    }

    /// This binary with words, talking to the lab's datastore and keeping its files in the lab.
    pub(crate) fn margay(&self, words: &[&str], part: &str) -> Result<Command, Failure> {
        let mut command = processes::command(&self.place, processes::own_binary()?, part);
        self.surround(&mut command);
        command.args(words).stdin(Stdio::null());
        Ok(command)
    }

    /// Gives a command the variables that lead to the lab's datastore, and to no other.
    pub(crate) fn surround(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            let leads_away = ["ETCD_", "CALICO_", "FELIX_", "KUBE", "K8S_", "CNI_"]
                .iter()
                .any(|start| name.starts_with(start));
            let is_setting = ["DATASTORE_TYPE", "MARGAY_STORE", "MARGAY_RUN_DIR", "NODENAME"];
            if leads_away || is_setting.contains(&&*name) {
                command.env_remove(&*name);
            }
        }
        command.env("MARGAY_STATE_DIR", self.place.folder.join("state"));
        match self.state.datastore {
            DatastoreKind::Sqlite => command.env("MARGAY_STORE", self.place.store()),
            DatastoreKind::Etcd => {
                command.env("DATASTORE_TYPE", "etcdv3").env("ETCD_ENDPOINTS", datastore::ENDPOINT)
            }
        };
    }
}

/// How a command names this lab.
pub(crate) fn flag(name: &str) -> String {
    match name {
        "default" => String::new(),
        name => format!(" --name {name}"),
    }
}
