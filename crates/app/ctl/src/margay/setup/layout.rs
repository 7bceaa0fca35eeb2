//! Where everything goes, and the receipt of it that stays on the host.
//!
//! The receipt says where to look; whether what is found there is ours, its own mark says.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use host::{bounded, file, marks};
use serde::{Deserialize, Serialize};

use super::super::failure::Failure;
use super::SetupArguments;
use super::item::Item;

/// Where the receipt lies.
pub(crate) const RECEIPT: &str = "/etc/margay/setup.json";

/// The names under which runtimes call the plugin.
pub(crate) const PLUGINS: [&str; 2] = ["calico", "calico-ipam"];

/// Where runtimes look for plugins, the usual place first.
const BIN_DIRS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];

/// A plugin that every collection of them has: a folder with it is one that a runtime uses.
const TELLTALE: &str = "loopback";

/// How many links are followed on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;

/// The root of a host's files.
#[derive(Clone, Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// The root at a folder; `/` is this host's.
    pub(crate) fn at(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Whether this is the running host, and not the files of another one.
    pub(crate) fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where a file of the host lies for us. Links on the way are followed as that host would
    /// follow them: an image cannot lead us out of its own root.
    pub(crate) fn join(&self, path: &Path) -> PathBuf {
        if self.is_host() {
            return self.0.join(path);
        }
        let words = |path: &Path| -> Vec<OsString> {
            let words = path.components().filter(|it| !matches!(it, Component::RootDir));
            words.map(|word| word.as_os_str().to_owned()).rev().collect()
        };
        let mut ahead = words(path);
        let mut inside = PathBuf::new();
        let mut links_left = LINKS_MAX;
        while let Some(word) = ahead.pop() {
            if word == ".." {
                inside.pop();
                continue;
            }
            inside.push(&word);
            // The last one is what is meant, not what it links to.
            if ahead.is_empty() || links_left == 0 {
                continue;
            }
            if let Ok(target) = fs::read_link(self.0.join(&inside)) {
                links_left -= 1;
                inside.pop();
                if target.is_absolute() {
                    inside = PathBuf::new();
                }
                ahead.extend(words(&target));
            }
        }
        self.0.join(inside)
    }
}

/// Where everything goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Layout {
    /// Our mark.
    comment: String,
    /// The node's name.
    pub(crate) node: String,
    /// The network's name.
    pub(crate) network: String,
    /// This program.
    pub(crate) program: PathBuf,
    /// Where runtimes look for plugins.
    pub(crate) bin_dirs: Vec<PathBuf>,
    /// What makes runtimes see the network.
    pub(crate) conflist: PathBuf,
    /// The agent's unit; none where plugins act alone.
    pub(crate) unit: Option<PathBuf>,
    /// What survives a reboot.
    pub(crate) state_dir: PathBuf,
    /// Where the agent's socket is.
    pub(crate) run_dir: PathBuf,
    /// The embedded store; none if the datastore is elsewhere.
    pub(crate) store: Option<PathBuf>,
    /// Folders that were not there before.
    pub(crate) made_folders: BTreeSet<PathBuf>,
}

impl Layout {
    /// The layout that the command line asks for.
    pub(crate) fn wanted(
        arguments: &SetupArguments,
        root: &Root,
        store: Option<&Path>,
    ) -> Result<Self, Failure> {
        let node = arguments.node.clone().unwrap_or_else(host_name);
        check_name("--node", &node, "the node needs a name")?;
        check_name("--network", &arguments.network, "the network needs a name")?;
        let unit = arguments.unit_dir.join("margay.service");
        let layout = Self {
            comment: marks::TEXT.to_owned(),
            node,
            network: arguments.network.clone(),
            program: arguments.program.clone(),
            bin_dirs: match arguments.bin_dir.is_empty() {
                true => usual_bin_dirs(root),
                false => arguments.bin_dir.clone(),
            },
            conflist: arguments.conf_dir.join(format!("10-{}.conflist", arguments.network)),
            unit: (!arguments.no_agent).then_some(unit),
            state_dir: arguments.host.state_dir.clone(),
            run_dir: arguments.host.run_dir.clone(),
            store: store.map(Path::to_owned),
            made_folders: BTreeSet::new(),
        };
        layout.check_paths()?;
        Ok(layout)
    }

    /// The layout of a host of which no receipt says anything.
    pub(crate) fn usual(state_dir: &Path, run_dir: &Path) -> Self {
        Self {
            comment: marks::TEXT.to_owned(),
            node: host_name(),
            network: "margay".to_owned(),
            program: "/usr/local/bin/margay".into(),
            bin_dirs: BIN_DIRS.map(PathBuf::from).to_vec(),
            conflist: "/etc/cni/net.d/10-margay.conflist".into(),
            unit: Some("/etc/systemd/system/margay.service".into()),
            state_dir: state_dir.to_owned(),
            run_dir: run_dir.to_owned(),
            store: Some("/var/lib/margay/store.db".into()),
            made_folders: BTreeSet::new(),
        }
    }

    /// The receipt of a host, if it was set up.
    pub(crate) fn read(root: &Root) -> Result<Option<Self>, Failure> {
        let path = root.join(Path::new(RECEIPT));
        let bytes = match file::read_linked(&path, bounded::SETTINGS_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let why = text::plain_reason(&error);
                return Err(Failure::new(format!("{}: {why}", path.display()))
                    .help("move it away; what was made at the usual places is found without it"));
            }
        };
        let layout = serde_json::from_slice::<Self>(&bytes).map_err(|error| {
            Failure::new(format!("the receipt of the setup cannot be read, {}", path.display()))
                .why(error.to_string())
                .help("move it away; what was made at the usual places is found without it")
        })?;
        Ok(Some(layout))
    }

    /// The folders that are needed, whoever made them.
    pub(crate) fn folders(&self) -> BTreeSet<PathBuf> {
        let files = [Some(&self.program), Some(&self.conflist), self.unit.as_ref()];
        let files = files.into_iter().flatten().chain(&self.store);
        let parents = files.filter_map(|file| file.parent()).map(Path::to_owned);
        parents.chain(self.bin_dirs.clone()).chain([self.state_dir.clone()]).collect()
    }

    /// Takes note of the folders that will have to be made, with those above them.
    pub(crate) fn note_missing(&mut self, folders: &BTreeSet<PathBuf>, root: &Root) {
        let missing = folders.iter().flat_map(|folder| folder.ancestors());
        let is_missing = |folder: &&Path| folder.parent().is_some() && !root.join(folder).exists();
        let missing = missing.filter(is_missing);
        self.made_folders.extend(missing.map(Path::to_owned));
    }

    /// The links by which runtimes call this program.
    pub(crate) fn links(&self) -> Vec<Item> {
        let names = self.bin_dirs.iter().flat_map(|dir| PLUGINS.map(|name| dir.join(name)));
        names.map(|path| Item::Link { path, target: self.program.clone() }).collect()
    }

    /// The file that says that an agent was set up here, so that no plugin acts alone.
    pub(crate) fn agent_note(&self) -> PathBuf {
        self.state_dir.join("agent")
    }

    /// Every place where something of ours may stand, without what should be in it.
    pub(crate) fn bare_items(&self) -> Vec<Item> {
        let text = |path: PathBuf, what| Item::Text { path, text: String::new(), what };
        let mut items = vec![text(self.conflist.clone(), "network")];
        items.extend(self.unit.iter().map(|unit| text(unit.clone(), "unit")));
        items.extend(self.unit.iter().map(|_| text(self.agent_note(), "note")));
        items.extend(self.links());
        items.push(Item::Program { path: self.program.clone() });
        items
    }

    /// The receipt as it is written.
    pub(crate) fn receipt(&self) -> Result<Item, Failure> {
        let value = serde_json::to_value(self).map_err(|error| Failure::new(error.to_string()))?;
        let text = text::json::to_string_indented(&value) + "\n";
        Ok(Item::Text { path: RECEIPT.into(), text, what: "where everything is" })
    }

    fn check_paths(&self) -> Result<(), Failure> {
        let single = [&self.program, &self.conflist, &self.state_dir, &self.run_dir];
        let all = single.into_iter().chain(&self.bin_dirs).chain(&self.unit).chain(&self.store);
        for path in all {
            let is_plain = path.to_str().is_some_and(|text| {
                !text
                    .contains(|c: char| c.is_whitespace() || c.is_control() || "%\"'\\".contains(c))
            });
            if !path.is_absolute() || !is_plain {
                return Err(Failure::new(format!("{} cannot be used", path.display()))
                    .why("paths must begin with / and hold no blanks, quotes or percent signs"));
            }
        }
        Ok(())
    }
}

/// The name of this host, as Calico's nodes are called by it.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase()
}

fn check_name(flag: &str, name: &str, empty: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if name.is_empty() {
        return Err(Failure::new(format!("{empty}, {flag}")).help(format!("{flag} NAME")));
    }
    match name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(Failure::new(format!("{name:?} cannot be a name, {flag}"))
            .help("letters, digits, and between them dots, dashes and underscores")),
    }
}

/// Where plugins lie already; the usual place if nowhere.
fn usual_bin_dirs(root: &Root) -> Vec<PathBuf> {
    let used = |dir: &&str| root.join(&Path::new(dir).join(TELLTALE)).exists();
    let found: Vec<PathBuf> = BIN_DIRS.into_iter().filter(used).map(PathBuf::from).collect();
    if found.is_empty() { vec![BIN_DIRS[0].into()] } else { found }
}

/// The link by which a service manager starts a unit, once it is enabled.
pub(crate) fn wanted_by(unit: &Path) -> Option<PathBuf> {
    Some(unit.with_file_name("multi-user.target.wants").join(unit.file_name()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_of_an_image_lead_to_its_own_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let at =
            |path: &str| root.join(Path::new(path)).strip_prefix(folder.path()).unwrap().to_owned();
        fs::create_dir_all(folder.path().join("usr/lib")).unwrap();
        symlink("/usr/lib", folder.path().join("absolute")).unwrap();
        symlink("../../../usr/lib", folder.path().join("up")).unwrap();
        symlink("loop", folder.path().join("loop")).unwrap();
        assert_eq!(at("/etc/cni"), Path::new("etc/cni"));
        assert_eq!(at("/absolute/cni"), Path::new("usr/lib/cni"));
        assert_eq!(at("/up/cni"), Path::new("usr/lib/cni"));
        assert_eq!(at("/../../up/../x"), Path::new("usr/x"));
        assert_eq!(at("/absolute"), Path::new("absolute"), "the last one is meant itself");
        assert_eq!(at("/loop/x"), Path::new("loop/x"));
    }
}
