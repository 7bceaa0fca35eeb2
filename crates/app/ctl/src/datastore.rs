//! Opens the datastore that the settings chose.

use std::path::PathBuf;

use api::Kind;
use serde_json::Value;
use store::etcd::{Config, Pem};
use store::resources::{Name, Resources};
use store::{Error, Store, etcd, sqlite};

use crate::settings::{Datastore, EtcdSettings};

/// Opens a datastore. etcd is not asked yet: the first request connects.
pub(crate) fn open(datastore: &Datastore) -> Result<Store, Error> {
    open_with(datastore, None, |_| ())
}

/// Opens a datastore with other settings of the connection than the usual ones. `locked` is told
/// of waits for other processes. A missing file is made by the first write.
pub(crate) fn open_with(
    datastore: &Datastore,
    locked: Option<fn(&sqlite::Waiting)>,
    adjust: impl FnOnce(&mut Config),
) -> Result<Store, Error> {
    match datastore {
        Datastore::Embedded(path) => {
            sqlite::Store::open_lazily(path.clone(), locked).map(Store::Sqlite)
        }
        Datastore::Etcd(settings) => {
            let mut config = config(settings);
            adjust(&mut config);
            etcd::Store::new(config).map(Store::Etcd)
        }
    }
}

fn config(settings: &EtcdSettings) -> Config {
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let pem = |inline: &String, file: &String| {
        let file = given(file).map(|file| Pem::File(PathBuf::from(file)));
        given(inline).map(Pem::Inline).or(file)
    };
    let endpoints = settings.endpoints.split(',').map(str::trim);
    Config {
        endpoints: endpoints.filter(|text| !text.is_empty()).map(str::to_owned).collect(),
        discovery_srv: given(&settings.discovery_srv),
        user: given(&settings.username),
        password: given(&settings.password),
        ca: pem(&settings.ca_cert, &settings.ca_cert_file),
        certificate: pem(&settings.cert, &settings.cert_file),
        key: pem(&settings.key, &settings.key_file),
        ..Config::default()
    }
}

/// The AS number of a cluster that sets none.
const DEFAULT_AS_NUMBER: &str = "64512";

/// The AS number that nodes without one of their own have; `unknown` while the store does not
/// tell.
pub(crate) fn cluster_as_number(resources: &Resources) -> String {
    match resources.get(&Name::cluster(Kind::BgpConfiguration, "default")) {
        Ok(stored) => match stored.object.pointer("/spec/asNumber") {
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::String(text)) => text.clone(),
            _ => DEFAULT_AS_NUMBER.to_owned(),
        },
        Err(error) if error.is_not_found() => DEFAULT_AS_NUMBER.to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_stand_between_commas() {
        let endpoints = "http://a:1, http://b:2,".to_owned();
        let settings = EtcdSettings { endpoints, ..EtcdSettings::default() };
        assert_eq!(config(&settings).endpoints, ["http://a:1", "http://b:2"]);
    }

    #[test]
    fn certificates_come_from_files_or_in_full() {
        let settings = EtcdSettings {
            cert_file: "c.pem".to_owned(),
            key: "-----".to_owned(),
            ..EtcdSettings::default()
        };
        let config = config(&settings);
        assert!(matches!(config.certificate, Some(Pem::File(file)) if file.ends_with("c.pem")));
        assert!(matches!(config.key, Some(Pem::Inline(_))) && config.ca.is_none());
    }
}
