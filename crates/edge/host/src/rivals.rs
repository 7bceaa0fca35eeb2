//! Agents of Calico that run on this host: two writers of one kernel undo each other's work.

use std::fs;
use std::path::Path;

/// The names of the processes that program a node's kernel.
const NAMES: [&str; 3] = ["calico-node", "calico-felix", "felix"];

/// A process of Calico's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its number.
    pub process: u32,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for Rival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (process {})", self.name, self.process)
    }
}

/// The agents of Calico in this network namespace; one in another does not meet us.
pub fn running() -> Vec<Rival> {
    running_below(Path::new("/proc"))
}

fn running_below(processes: &Path) -> Vec<Rival> {
    let Ok(entries) = fs::read_dir(processes) else { return Vec::new() };
    let here = fs::read_link(processes.join("self/ns/net")).ok();
    let mut found: Vec<Rival> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let process = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?.trim().to_owned();
            let is_agent = NAMES.contains(&name.as_str());
            let is_here = || fs::read_link(entry.path().join("ns/net")).ok() == here;
            (is_agent && is_here()).then_some(Rival { process, name })
        })
        .collect();
    found.sort_by_key(|rival| rival.process);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_an_agent_in_the_same_network_counts() {
        let folder = tempfile::tempdir().unwrap();
        let processes = [
            ("self", "margay", "net:[1]"),
            ("7", "calico-node", "net:[2]"),
            ("9", "calico-node", "net:[1]"),
            ("11", "calico-typha", "net:[1]"),
            ("13", "sh", "net:[1]"),
        ];
        for (number, name, netns) in processes {
            fs::create_dir_all(folder.path().join(number).join("ns")).unwrap();
            fs::write(folder.path().join(number).join("comm"), format!("{name}\n")).unwrap();
            symlink(netns, folder.path().join(number).join("ns/net")).unwrap();
        }
        let found = running_below(folder.path());
        assert_eq!(found, [Rival { process: 9, name: "calico-node".into() }]);
    }
}
