//! Opens the datastore that the settings chose.

use std::path::PathBuf;

use super::{Datastore, EtcdSettings};
use crate::etcd::{self, Config, Pem};
use crate::{Error, Store, sqlite};

impl Datastore {
    /// Opens it. etcd is not asked yet: the first request connects.
    pub fn open(&self) -> Result<Store, Error> {
        self.open_with(None, |_| ())
    }

    /// Opens it with other settings of the connection than the usual ones. `locked` is told of
    /// waits for other processes. A missing file is made by the first write.
    pub fn open_with(
        &self,
        locked: Option<fn(&sqlite::Waiting)>,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Store, Error> {
        match self {
            Self::Embedded(path) => {
                sqlite::Store::open_lazily(path.clone(), locked).map(Store::Sqlite)
            }
            Self::Etcd(settings) => {
                let mut config = config(settings);
                adjust(&mut config);
                etcd::Store::new(config).map(Store::Etcd)
            }
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
