//! How to reach a cluster.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::Error;

/// How to reach an etcd cluster. `Debug` shows no secret.
#[derive(Clone)]
pub struct Config {
    /// `http://` or `https://` addresses of the members. Without a scheme, `https` if `ca` or
    /// `certificate` is given.
    pub endpoints: Vec<String>,
    /// Domain whose `_etcd-client-ssl._tcp` and `_etcd-client._tcp` SRV records name the members.
    pub discovery_srv: Option<String>,
    /// User to log in as.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// Authorities to trust for `https`; the system's if none.
    pub ca: Option<Pem>,
    /// Client certificate chain; needs `key`.
    pub certificate: Option<Pem>,
    /// Private key of `certificate`.
    pub key: Option<Pem>,
    /// Deadline of each step of a call: one transaction, one page of a listing.
    pub timeout: Duration,
    /// A connection on which nothing came in for this long is tested, and given up after half of
    /// this again. A stock etcd drops clients that test more often than every 5 s.
    pub keep_alive: Duration,
    /// Told when a call has taken a second, and every few seconds after that.
    pub waiting: Option<fn(&Waiting)>,
}

/// A call that takes its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The endpoints asked.
    pub endpoints: String,
    /// What is wrong with them, where that is known already.
    pub reason: Option<String>,
    /// How long the call has taken so far.
    pub elapsed: Duration,
    /// When the call will be given up.
    pub limit: Duration,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.as_deref().unwrap_or("no answer yet");
        let (elapsed, limit) = (self.elapsed.as_secs(), self.limit.as_secs());
        write!(f, "waiting for etcd at {} ({reason}, {elapsed} s of {limit} s)", self.endpoints)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            endpoints: Vec::new(),
            discovery_srv: None,
            user: None,
            password: None,
            ca: None,
            certificate: None,
            key: None,
            timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(10),
            waiting: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("endpoints", &self.endpoints.iter().map(|it| masked(it)).collect::<Vec<_>>())
            .field("discovery_srv", &self.discovery_srv)
            .field("user", &self.user)
            .field("ca", &self.ca)
            .field("certificate", &self.certificate)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// The endpoint without what stands before an `@`; such an endpoint is refused, but may be shown.
fn masked(endpoint: &str) -> String {
    match endpoint.rsplit_once('@') {
        Some((_, host)) => format!("(masked)@{host}"),
        None => endpoint.to_owned(),
    }
}

/// PEM text, given by file or in full.
#[derive(Clone)]
pub enum Pem {
    /// Read from this file at every new connection, so that a renewed one is picked up.
    File(PathBuf),
    /// The text itself.
    Inline(String),
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pem::File(path) => write!(f, "{}", path.display()),
            Pem::Inline(_) => f.write_str("(inline)"),
        }
    }
}

impl Pem {
    pub(super) fn read(&self) -> Result<Vec<u8>, Error> {
        match self {
            Pem::Inline(text) => Ok(text.clone().into_bytes()),
            Pem::File(path) => std::fs::read(path)
                .map_err(|error| Error::File { file: path.clone(), reason: error.to_string() }),
        }
    }
}

impl Config {
    /// Refuses what cannot work, and gives every endpoint its scheme.
    pub(super) fn check(mut self) -> Result<Config, Error> {
        let refuse = |reason: &str| Err(Error::Config(format!("etcd: {reason}")));
        if self.endpoints.is_empty() && self.discovery_srv.is_none() {
            return refuse("no endpoint and no discovery domain is given");
        }
        if !self.endpoints.is_empty() && self.discovery_srv.is_some() {
            return refuse("endpoints and a discovery domain exclude each other");
        }
        if self.certificate.is_some() != self.key.is_some() {
            return refuse("a client certificate and its key must be given together");
        }
        if self.user.is_some() != self.password.is_some() {
            return refuse("user and password must be given together");
        }
        let has_tls = self.ca.is_some() || self.certificate.is_some();
        let scheme = if has_tls { "https" } else { "http" };
        for endpoint in &mut self.endpoints {
            let trimmed = endpoint.trim().trim_end_matches('/');
            // The endpoint is printed in many places, and etcd would ignore the credentials.
            if trimmed.contains('@') {
                return refuse(
                    "an endpoint holds a user or password: \
                     put user and password into ETCD_USERNAME and ETCD_PASSWORD",
                );
            }
            *endpoint = match trimmed.contains("://") {
                true => trimmed.to_string(),
                false => format!("{scheme}://{trimmed}"),
            };
            if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
                return refuse(&format!("the endpoint {endpoint} is neither http nor https"));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Config)) -> Result<Vec<String>, String> {
        let mut config = Config { endpoints: vec!["a:2379".into()], ..Config::default() };
        change(&mut config);
        config.check().map(|config| config.endpoints).map_err(|error| error.to_string())
    }

    #[test]
    fn endpoints_get_a_scheme_and_halves_are_refused() {
        let pem = || Some(Pem::Inline("secret".into()));
        assert_eq!(check(|_| ()), Ok(vec!["http://a:2379".into()]));
        assert_eq!(check(|config| config.ca = pem()), Ok(vec!["https://a:2379".into()]));
        assert!(check(|config| config.key = pem()).unwrap_err().contains("together"));
        assert!(check(|config| config.user = Some("u".into())).unwrap_err().contains("together"));
        assert!(check(|config| config.endpoints.clear()).unwrap_err().contains("no endpoint"));
        let both = |config: &mut Config| config.discovery_srv = Some("x".into());
        assert!(check(both).unwrap_err().contains("exclude"));
        let unix = |config: &mut Config| config.endpoints = vec!["unix:///x".into()];
        assert!(check(unix).unwrap_err().contains("neither http nor https"));
    }

    #[test]
    fn credentials_in_an_endpoint_are_refused_and_not_shown() {
        for endpoint in ["http://root:hunter2@a:2379", "root:hunter2@a", "unix://root:hunter2@a"] {
            let refused = check(|config| config.endpoints = vec![endpoint.into()]).unwrap_err();
            assert!(refused.contains("ETCD_PASSWORD") && !refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let config = Config {
            endpoints: vec!["http://root:hunter2@a:2379".into()],
            user: Some("felix".into()),
            password: Some("hunter2".into()),
            key: Some(Pem::Inline("hunter2".into())),
            ..Config::default()
        };
        let shown = format!("{config:?}");
        assert!(shown.contains("felix") && !shown.contains("hunter2"), "{shown}");
    }
}
