//! Which datastore the agent connects to.

use super::value::Value;
use super::{Config, Source, Sources};

/// The kinds of datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatastoreType {
    /// An etcd cluster.
    EtcdV3,
    /// A Kubernetes API server.
    Kubernetes,
}

/// The connection: first from the settings that every program shares (`DATASTORE_TYPE`,
/// `ETCD_ENDPOINTS` and so on), then with the agent's own parameters over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatastoreSettings {
    /// The kind of datastore.
    pub datastore_type: DatastoreType,
    /// URLs joined by commas.
    pub etcd_endpoints: String,
    /// The path of the client's key.
    pub etcd_key_file: String,
    /// The path of the client's certificate.
    pub etcd_cert_file: String,
    /// The path of the authority's certificate.
    pub etcd_ca_cert_file: String,
}

impl DatastoreSettings {
    /// The settings with the agent's parameters over them.
    ///
    /// Only parameters of the file count, and only when spelled exactly: the real agent
    /// ignores the others here, and taking them would connect to another datastore than it
    /// does. An etcd address wins over the type `kubernetes`.
    #[must_use]
    pub fn overridden(mut self, config: &Config, sources: &Sources) -> Self {
        let is_given = |name: &str| {
            let text = sources.get(&Source::ConfigFile).and_then(|texts| texts.get(name));
            text.is_some_and(|text| !text.is_empty())
        };
        if is_given("DatastoreType") {
            self.datastore_type = match config.text("DatastoreType") {
                "kubernetes" => DatastoreType::Kubernetes,
                _ => DatastoreType::EtcdV3,
            };
        }
        let endpoints = match config.get("EtcdEndpoints") {
            Some(Value::List(list)) if is_given("EtcdEndpoints") && !list.is_empty() => {
                Some(list.join(","))
            }
            _ => is_given("EtcdAddr")
                .then(|| format!("{}://{}", config.text("EtcdScheme"), config.text("EtcdAddr"))),
        };
        if let Some(endpoints) = endpoints {
            self.etcd_endpoints = endpoints;
            self.datastore_type = DatastoreType::EtcdV3;
        }
        for (name, path) in [
            ("EtcdKeyFile", &mut self.etcd_key_file),
            ("EtcdCertFile", &mut self.etcd_cert_file),
            ("EtcdCaFile", &mut self.etcd_ca_cert_file),
        ] {
            if is_given(name) {
                config.text(name).clone_into(path);
            }
        }
        self
    }
}

impl Config {
    /// Whether the agent needs to hear of every change of every node.
    pub fn needs_node_updates(&self, has_encapsulation: bool) -> bool {
        has_encapsulation || self.is_on("BPFEnabled")
    }
}
