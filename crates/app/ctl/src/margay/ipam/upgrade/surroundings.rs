//! What the host says around the move: the node's name, network configurations, traces of Calico's
//! own upgrade; and the datastore's refusals in words.

use std::fs;
use std::path::{Path, PathBuf};

use host::bounded::SETTINGS_BYTES_MAX;
use sandbox::upgrade;
use store::Error;

use super::super::super::arguments::UpgradeArguments;
use super::super::super::failure::Failure;

/// Where Calico's agent writes the node's name.
const NODE_NAME_FILE: &str = "/var/lib/calico/nodename";
/// Where configurations are, in Calico's containers and on a host.
const CONF_DIRS: [&str; 2] = ["/host/etc/cni/net.d", "/etc/cni/net.d"];

/// The node's name. In a container the host's name may be anybody's, so Calico does not take it.
pub(super) fn node(arguments: &UpgradeArguments, takes_host_name: bool) -> Result<String, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let in_file = || {
        let bytes = host::file::read_linked(Path::new(NODE_NAME_FILE), SETTINGS_BYTES_MAX).ok()?;
        String::from_utf8(bytes).ok()
    };
    let of_host = || {
        let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        takes_host_name.then_some(name)
    };
    let sources: [&dyn Fn() -> Option<String>; 5] = [
        &|| arguments.node.clone(),
        &|| variable("KUBERNETES_NODE_NAME"),
        &|| variable("NODENAME"),
        &in_file,
        &of_host,
    ];
    let names = sources.iter().filter_map(|source| source()).map(|name| name.trim().to_owned());
    let name = names.into_iter().find(|name| !name.is_empty());
    let usable = name.clone().filter(|name| upgrade::is_network(name));
    usable.ok_or_else(|| {
        let what = match name {
            Some(name) => format!("{name:?} is not the name of a node"),
            None => "there are addresses to move, but nobody says which node this is".to_owned(),
        };
        Failure::new(what).fix("KUBERNETES_NODE_NAME=NODE, or --node NODE").after(NOTHING)
    })
}

const NOTHING: &str = "nothing was changed";

/// A configuration of the network that still lets host-local give out addresses. While there is
/// one, its files stay: without them it would give addresses out again that are in use.
pub(super) fn configuration(arguments: &UpgradeArguments) -> Option<PathBuf> {
    let usual = CONF_DIRS.into_iter().map(PathBuf::from);
    let folders = arguments.conf_dir.clone().map_or_else(|| usual.collect(), |dir| vec![dir]);
    let folder = folders.into_iter().find(|folder| folder.is_dir())?;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
    let is_configuration = |path: &PathBuf| {
        let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
        matches!(extension, "conf" | "conflist" | "json")
    };
    let mut paths: Vec<PathBuf> = entries.filter(is_configuration).collect();
    paths.sort();
    paths.into_iter().find(|path| {
        let bytes = host::file::read_linked(path, SETTINGS_BYTES_MAX).unwrap_or_default();
        let parsed = text::json::parse(&bytes).unwrap_or_default();
        upgrade::names_host_local(&arguments.network, &parsed)
    })
}

/// The records are locked, by whom can only be guessed: Calico's upgrade removes two programs
/// between locking and unlocking them.
pub(super) fn locked(arguments: &UpgradeArguments) -> Failure {
    let folder = &arguments.bin_dir;
    let is_gone = |name: &str| !folder.join(name).exists();
    let was_here = folder.is_dir() && is_gone("calico") && is_gone("host-local");
    let told = match was_here {
        true => format!(
            "the datastore is locked (ClusterInformation default: datastoreReady false): Calico's \
             own upgrade was ended here after it had removed calico and host-local from {}",
            folder.display()
        ),
        false => "the datastore is locked (ClusterInformation default: datastoreReady false), by \
                  Calico's own upgrade or by calicoctl datastore migrate"
            .to_owned(),
    };
    Failure::new(told).fix("margay ipam upgrade --unlock      # if nobody moves the datastore now")
}

/// Whether it is worth asking again.
pub(super) fn may_pass(error: &store::ipam::Error) -> bool {
    use store::ipam::Error as E;
    match error {
        E::Contended => true,
        E::Store(error) => matches!(
            error,
            Error::Unreachable(_) | Error::Uncertain(_) | Error::Busy(_) | Error::Compacted { .. }
        ),
    }
}

/// What the datastore did instead of answering.
pub(super) fn unanswered(error: store::ipam::Error) -> Failure {
    match error {
        store::ipam::Error::Store(error) => Failure::from(error),
        other => Failure::new(other.to_string()).fix("run it again when less is going on"),
    }
}
