//! The settings in force: Felix's parameters, from the environment of the agent, its configuration
//! file and the datastore.

use std::path::Path;

use model::felix::{self, Config, Consequence, Problem, Source, Sources};

use crate::finding::{Finding, Severity};

/// Where Felix has its configuration file.
const FILE: &str = "/etc/calico/felix.cfg";
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The settings, and what is wrong with them.
#[derive(Debug)]
pub(crate) struct Parameters {
    node: String,
    /// What does not come from the datastore.
    own: Sources,
    pub(crate) config: Config,
    problems: Vec<Problem>,
    file_problem: Option<String>,
}

impl Parameters {
    /// Reads what does not come from the datastore.
    pub(crate) fn read(node: &str) -> Self {
        let variables: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let pairs = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut own = Sources::new();
        own.insert(Source::Environment, felix::from_environment(pairs));
        let mut file_problem = None;
        if let Ok(bytes) = host::bounded::read_file(Path::new(FILE), FILE_BYTES_MAX) {
            match felix::from_file(&String::from_utf8_lossy(&bytes)) {
                Ok(texts) => drop(own.insert(Source::ConfigFile, texts)),
                Err(error) => file_problem = Some(format!("{FILE}: {error}")),
            }
        }
        let (config, problems) = resolve(node, &own);
        Self { node: node.to_owned(), own, config, problems, file_problem }
    }

    /// Takes what the datastore has for this node; whether anything is different now.
    pub(crate) fn take(&mut self, stored: Sources) -> bool {
        let mut sources = self.own.clone();
        sources.extend(stored);
        let (config, problems) = resolve(&self.node, &sources);
        let is_different = config != self.config || problems != self.problems;
        (self.config, self.problems) = (config, problems);
        is_different
    }

    /// What is wrong. A value that Felix would not start with is replaced by the default here: the
    /// node stays in service, and says so.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let about = |problem: &Problem| {
            let instead = match problem.consequence {
                Consequence::Refused | Consequence::Defaulted => "; the default is in force",
                Consequence::Ignored => "; it is ignored",
            };
            let fix = match problem.source {
                Source::DatastoreGlobal
                | Source::DatastorePerSelector
                | Source::DatastorePerHost => {
                    "margay get felixconfiguration -o yaml      # put it right there".to_owned()
                }
                source => format!("put it right in the {source}"),
            };
            let text = format!("setting {problem}{instead}");
            Finding::new("MG-CONF-001", Severity::Degraded, "SETTINGS", text, fix)
        };
        let mut findings: Vec<Finding> = self.problems.iter().map(about).collect();
        findings.extend(self.file_problem.iter().map(|problem| {
            let fix = format!("mend {FILE}, then restart the agent");
            Finding::new("MG-CONF-001", Severity::Degraded, "SETTINGS", problem.clone(), fix)
        }));
        findings
    }
}

fn resolve(node: &str, sources: &Sources) -> (Config, Vec<Problem>) {
    let exists = |path: &str| Path::new(path).exists();
    let find_executable = |name: &str| Path::new(name).is_file().then(|| name.to_owned());
    let about_host = felix::Host { name: node, exists: &exists, find_executable: &find_executable };
    intent::resolve(sources, &about_host)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn given(pairs: &[(&str, &str)]) -> Sources {
        let texts = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        BTreeMap::from([(Source::DatastoreGlobal, texts.collect())])
    }

    #[test]
    fn a_bad_value_is_named_and_the_default_stays_in_force() {
        let mut parameters = Parameters::read("n1");
        assert!(parameters.take(given(&[("DefaultEndpointToHostAction", "ACCEPT")])));
        assert_eq!(parameters.config.text("DefaultEndpointToHostAction"), "ACCEPT");
        assert!(!parameters.take(given(&[("DefaultEndpointToHostAction", "ACCEPT")])));
        assert!(parameters.take(given(&[("DefaultEndpointToHostAction", "MAYBE")])));
        assert_eq!(parameters.config.text("DefaultEndpointToHostAction"), "DROP");
        let findings = parameters.findings();
        assert!(findings[0].problem.contains("DefaultEndpointToHostAction"), "{findings:?}");
    }
}
