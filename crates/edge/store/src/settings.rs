//! Which datastore to use, and why: the file, variable or default that chose it.
//!
//! Calico's configuration file (`CalicoAPIConfig`) and variables are read as calicoctl reads
//! them: a file that is there decides alone, else the environment does, each variable also under
//! the prefix `CALICO_`. With neither, the embedded store of this host is used.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

mod open;

/// Where calicoctl looks when no file is named.
pub const CALICO_CONFIG_FILE: &str = "/etc/calico/calicoctl.cfg";

/// Where the embedded store of a host lies when the host's administrator asks.
const SYSTEM_STORE: &str = "/var/lib/margay/store.db";

/// A datastore, and who chose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The datastore.
    pub datastore: Datastore,
    /// What chose it, for people (`default: no DATASTORE_TYPE, no …`).
    pub why: String,
}

/// A datastore that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datastore {
    /// The embedded store in this file.
    Embedded(PathBuf),
    /// An etcd cluster.
    Etcd(Box<EtcdSettings>),
}

/// How to reach etcd, as Calico's configuration says it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EtcdSettings {
    /// Comma-separated URLs.
    pub endpoints: String,
    /// A domain whose SRV records name the endpoints.
    pub discovery_srv: String,
    /// User name; used only together with the password.
    pub username: String,
    /// Password.
    pub password: String,
    /// Client key: a file.
    pub key_file: String,
    /// Client certificate: a file.
    pub cert_file: String,
    /// Authorities to trust: a file.
    pub ca_cert_file: String,
    /// Client key in PEM.
    pub key: String,
    /// Client certificate in PEM.
    pub cert: String,
    /// Authorities to trust, in PEM.
    pub ca_cert: String,
}

impl fmt::Debug for EtcdSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Passwords and keys never reach a log.
        formatter
            .debug_struct("EtcdSettings")
            .field("endpoints", &self.endpoints)
            .field("discovery_srv", &self.discovery_srv)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Why no datastore could be chosen. The text of each is calicoctl's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The file cannot be read; the text says why.
    NoFile(PathBuf, String),
    /// The file is not a configuration; the text says why.
    Syntax(PathBuf, String),
    /// The file has a field that there is not.
    UnknownField {
        /// The file.
        path: PathBuf,
        /// The field of its spec.
        field: String,
        /// The fields that there are.
        known: Vec<&'static str>,
    },
    /// There is no such datastore.
    UnknownType {
        /// The name that was given.
        name: String,
        /// Where.
        why: String,
    },
    /// etcd was asked for, but no endpoint was named.
    NoEndpoints {
        /// What asked for it.
        why: String,
    },
    /// The variable of this name is no text.
    NotText(String),
    /// Two settings exclude each other.
    Contradiction(&'static str),
    /// Nothing was chosen, and there is no home for a store of the user's own.
    NoHome,
    /// The Kubernetes datastore was asked for.
    Kubernetes(String),
    /// The store named on the command line would lie in a folder that is not there.
    NoFolder(PathBuf),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile(path, why) => {
                write!(formatter, "{} cannot be read: {why}", path.display())
            }
            Self::Syntax(path, why) => {
                write!(formatter, "syntax error in {}: {why}", path.display())
            }
            Self::UnknownField { path, field, .. } => write!(
                formatter,
                "syntax error in {}: failed to parse config as YAML/JSON: error unmarshaling \
                 JSON: while decoding JSON: json: unknown field \"{field}\"",
                path.display()
            ),
            Self::UnknownType { name, .. } => write!(formatter, "unknown datastore type: {name}"),
            Self::NoEndpoints { .. } => formatter.write_str("no etcd endpoints specified"),
            Self::NoHome => formatter.write_str(
                "no datastore was chosen and there is no HOME to keep one in; \
                 set MARGAY_STORE to a file or ETCD_ENDPOINTS to the URLs of etcd",
            ),
            Self::NotText(name) => write!(formatter, "the variable {name} is not UTF-8"),
            Self::NoFolder(folder) => write!(
                formatter,
                "there is no folder {} to keep a store in, --store",
                folder.display()
            ),
            Self::Contradiction(why) => formatter.write_str(why),
            Self::Kubernetes(why) => write!(
                formatter,
                "the Kubernetes datastore ({why}) is not supported by this version; \
                 use etcd (ETCD_ENDPOINTS) or the embedded store (DATASTORE_TYPE=embedded)"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// What the choice depends on, so that it can be made for any environment.
pub struct Surroundings<'a> {
    /// The file named on the command line.
    pub config: Option<&'a Path>,
    /// The store named on the command line.
    pub store: Option<&'a Path>,
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The contents of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
    /// Whether the caller is the administrator of the host.
    pub is_root: bool,
}

impl Surroundings<'_> {
    /// A folder; it may have any name.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// A setting, under its own name or under Calico's prefix; empty when there is none.
    fn setting(&self, name: &str) -> Result<String, Error> {
        Ok(self.named_setting(name)?.map(|(_, value)| value).unwrap_or_default())
    }

    /// The same, with the name under which it stands.
    fn named_setting(&self, name: &str) -> Result<Option<(String, String)>, Error> {
        for name in [name.to_owned(), format!("CALICO_{name}")] {
            match (self.variable)(&name).map(OsString::into_string) {
                Some(Ok(value)) if !value.is_empty() => return Ok(Some((name, value))),
                Some(Err(_)) => return Err(Error::NotText(name)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The user's own folder for what Margay keeps: history, and the store of an ordinary user.
    /// None for a user without a home: a folder that others write to is no place for it.
    pub fn state_dir(&self) -> Option<PathBuf> {
        if let Some(dir) = self.folder("MARGAY_STATE_DIR") {
            return Some(dir);
        }
        if self.is_root {
            return Some("/var/lib/margay".into());
        }
        let home = || self.folder("HOME").map(|home| home.join(".local/state"));
        let base = self.folder("XDG_STATE_HOME").or_else(home);
        base.map(|base| base.join("margay"))
    }

    fn own_config(&self) -> Option<PathBuf> {
        let home = || self.folder("HOME").map(|home| home.join(".config"));
        let base = self.folder("XDG_CONFIG_HOME").or_else(home);
        base.map(|base| base.join("margay/config.yaml"))
    }

    /// Chooses the datastore.
    pub fn choose(&self) -> Result<Choice, Error> {
        if let Some(path) = self.store {
            // A name mistyped must not become a store of its own in a folder of its own.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|folder| !folder.exists()) {
                return Err(Error::NoFolder(folder.into()));
            }
            return Ok(Choice {
                datastore: Datastore::Embedded(path.into()),
                why: "--store".into(),
            });
        }
        if let Some(path) = self.config {
            let bytes = (self.read)(path).map_err(|error| unreadable(path, &error))?;
            return self.by_file(path, &bytes);
        }
        let own = self.own_config();
        for path in [Some(Path::new(CALICO_CONFIG_FILE)), own.as_deref()].into_iter().flatten() {
            match (self.read)(path) {
                Ok(bytes) => return self.by_file(path, &bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Somebody meant this file to decide: going on without it would write elsewhere.
                Err(error) => return Err(unreadable(path, &error)),
            }
        }
        self.by_environment(own.as_deref())
    }

    fn by_environment(&self, own: Option<&Path>) -> Result<Choice, Error> {
        let setting = |name: &str| self.setting(name);
        let spec = Spec {
            datastore_type: setting("DATASTORE_TYPE")?,
            store: setting("MARGAY_STORE")?,
            kubernetes: setting("KUBECONFIG")? + &setting("K8S_API_ENDPOINT")?,
            etcd: EtcdSettings {
                endpoints: setting("ETCD_ENDPOINTS")?,
                discovery_srv: setting("ETCD_DISCOVERY_SRV")?,
                username: setting("ETCD_USERNAME")?,
                password: setting("ETCD_PASSWORD")?,
                key_file: setting("ETCD_KEY_FILE")?,
                cert_file: setting("ETCD_CERT_FILE")?,
                ca_cert_file: setting("ETCD_CA_CERT_FILE")?,
                ..EtcdSettings::default()
            },
        };
        // In the order in which they decide.
        let deciding = [
            "DATASTORE_TYPE",
            "ETCD_ENDPOINTS",
            "ETCD_DISCOVERY_SRV",
            "MARGAY_STORE",
            "KUBECONFIG",
            "K8S_API_ENDPOINT",
        ];
        let chosen_by = deciding.into_iter().find_map(|name| {
            let (name, value) = self.named_setting(name).ok().flatten()?;
            Some(format!("{name}={}", without_secrets(&value)))
        });
        let why = chosen_by.unwrap_or_else(|| {
            let own = own.map_or_else(String::new, |own| format!(", no {}", own.display()));
            format!("default: no DATASTORE_TYPE, no {CALICO_CONFIG_FILE}{own}")
        });
        self.resolve(spec, why)
    }

    fn by_file(&self, path: &Path, bytes: &[u8]) -> Result<Choice, Error> {
        let spec = read_file(path, bytes)?;
        let etcd = &spec.etcd;
        let deciding = [
            ("datastoreType", &spec.datastore_type),
            ("etcdEndpoints", &etcd.endpoints),
            ("etcdDiscoverySrv", &etcd.discovery_srv),
            ("embeddedStore", &spec.store),
            ("kubeconfig", &spec.kubernetes),
        ];
        let field = deciding.iter().find(|(_, value)| !value.is_empty()).map(|(name, _)| name);
        // The type says what is meant; where etcd is, its own field says.
        let field = match field {
            Some(&"datastoreType") if !etcd.endpoints.is_empty() => Some(&"etcdEndpoints"),
            field => field,
        };
        let flag = if self.config.is_some() { "--config " } else { "" };
        let field = field.map(|field| format!(": spec.{field}")).unwrap_or_default();
        self.resolve(spec, format!("{flag}{}{field}", path.display()))
    }

    fn resolve(&self, spec: Spec, why: String) -> Result<Choice, Error> {
        let has_etcd = !spec.etcd.endpoints.is_empty() || !spec.etcd.discovery_srv.is_empty();
        let datastore = match spec.datastore_type.as_str() {
            "" if has_etcd => Datastore::Etcd(Box::new(checked(spec.etcd)?)),
            "" if !spec.kubernetes.is_empty() && spec.store.is_empty() => {
                return Err(Error::Kubernetes(why));
            }
            "" | "embedded" | "sqlite" => Datastore::Embedded(match spec.store.as_str() {
                "" if self.is_root => SYSTEM_STORE.into(),
                "" => self.state_dir().ok_or(Error::NoHome)?.join("store.db"),
                store => store.into(),
            }),
            "etcdv3" if has_etcd => Datastore::Etcd(Box::new(checked(spec.etcd)?)),
            "etcdv3" => return Err(Error::NoEndpoints { why }),
            "kubernetes" => return Err(Error::Kubernetes(why)),
            other => return Err(Error::UnknownType { name: other.into(), why }),
        };
        Ok(Choice { datastore, why })
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::NoFile(path.into(), text::plain_reason(error))
}

/// The text without user and password in URLs.
pub fn without_secrets(text: &str) -> String {
    let masked = text.split("://").enumerate().map(|(index, part)| {
        let end = part.find(['/', ',']).unwrap_or(part.len());
        match part[..end].rfind('@').filter(|_| index > 0) {
            Some(at) => format!("…{}", &part[at..]),
            None => part.to_owned(),
        }
    });
    masked.collect::<Vec<_>>().join("://")
}

/// Calico refuses settings that contradict each other rather than picking one.
fn checked(etcd: EtcdSettings) -> Result<EtcdSettings, Error> {
    if !etcd.endpoints.is_empty() && !etcd.discovery_srv.is_empty() {
        return Err(Error::Contradiction(
            "multiple discovery or bootstrap options specified, use either \"etcdEndpoints\" \
             or \"etcdDiscoverySrv\"",
        ));
    }
    let files = [&etcd.key_file, &etcd.cert_file, &etcd.ca_cert_file];
    let inline = [&etcd.key, &etcd.cert, &etcd.ca_cert];
    let any = |settings: [&String; 3]| settings.into_iter().any(|text| !text.is_empty());
    if any(files) && any(inline) {
        return Err(Error::Contradiction(
            "cannot mix inline certificate-key and certificate / key files",
        ));
    }
    Ok(etcd)
}

/// The settings of a file or of the environment, before a choice is made of them.
#[derive(Default)]
struct Spec {
    datastore_type: String,
    store: String,
    kubernetes: String,
    etcd: EtcdSettings,
}

/// Fields of the file that are used.
const FIELDS: &[&str] = &[
    "datastoreType",
    "embeddedStore",
    "etcdEndpoints",
    "etcdDiscoverySrv",
    "etcdUsername",
    "etcdPassword",
    "etcdKeyFile",
    "etcdCertFile",
    "etcdCACertFile",
    "etcdKey",
    "etcdCert",
    "etcdCACert",
];

/// Fields of Calico's file that concern Kubernetes; known, and not used by this version.
const KUBERNETES_FIELDS: &[&str] = &[
    "kubeconfig",
    "k8sAPIEndpoint",
    "k8sKeyFile",
    "k8sCertFile",
    "k8sCAFile",
    "k8sAPIToken",
    "k8sInsecureSkipTLSVerify",
    "k8sDisableNodePoll",
    "usePodCIDR",
    "kubeconfigInline",
    "k8sClientQPS",
    "k8sClientBurst",
    "k8sCurrentContext",
    "calicoAPIGroup",
];

fn read_file(path: &Path, bytes: &[u8]) -> Result<Spec, Error> {
    let syntax = |why: String| Error::Syntax(path.into(), why);
    let value = text::yaml::parse(bytes).map_err(|error| {
        let error = error.go_message();
        syntax(format!(
            "failed to parse config as YAML/JSON: error converting YAML to JSON: {error}"
        ))
    })?;
    let of = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or("");
    if of("apiVersion") != "projectcalico.org/v3" {
        let version = of("apiVersion");
        return Err(syntax(format!("invalid config file: unknown APIVersion '{version}'")));
    }
    if of("kind") != "CalicoAPIConfig" {
        let kind = of("kind");
        return Err(syntax(format!(
            "invalid config file: expected kind 'CalicoAPIConfig', got '{kind}'"
        )));
    }
    let mut spec = Spec::default();
    for (name, value) in value.get("spec").and_then(Value::as_object).into_iter().flatten() {
        let given = match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        match name.as_str() {
            "datastoreType" => spec.datastore_type = given,
            "embeddedStore" => spec.store = given,
            "etcdEndpoints" => spec.etcd.endpoints = given,
            "etcdDiscoverySrv" => spec.etcd.discovery_srv = given,
            "etcdUsername" => spec.etcd.username = given,
            "etcdPassword" => spec.etcd.password = given,
            "etcdKeyFile" => spec.etcd.key_file = given,
            "etcdCertFile" => spec.etcd.cert_file = given,
            "etcdCACertFile" => spec.etcd.ca_cert_file = given,
            "etcdKey" => spec.etcd.key = given,
            "etcdCert" => spec.etcd.cert = given,
            "etcdCACert" => spec.etcd.ca_cert = given,
            known if KUBERNETES_FIELDS.contains(&known) => spec.kubernetes += &given,
            other => {
                let known = FIELDS.iter().chain(KUBERNETES_FIELDS).copied().collect();
                return Err(Error::UnknownField { path: path.into(), field: other.into(), known });
            }
        }
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        variables: &[(&str, &str)],
        read: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Choice, Error> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(*value))
        };
        let is_root = true;
        Surroundings { config: None, store: None, variable: &variable, read, is_root }.choose()
    }

    fn absent(_: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    #[test]
    fn what_decides_is_what_is_named() {
        let both = [("MARGAY_STORE", "/a.db"), ("ETCD_ENDPOINTS", "http://u:s3cret@h:1,http://i")];
        let choice = choose(&both, &absent).unwrap();
        assert!(matches!(choice.datastore, Datastore::Etcd(_)));
        assert_eq!(choice.why, "ETCD_ENDPOINTS=http://…@h:1,http://i");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_passed_over() {
        let refused = choose(&[], &|_| Err(io::ErrorKind::PermissionDenied.into()));
        assert!(matches!(refused, Err(Error::NoFile(..))));
        assert!(choose(&[], &absent).is_ok());
    }

    #[test]
    fn a_user_without_a_home_has_no_default_store_and_no_state() {
        let surroundings = Surroundings {
            config: None,
            store: None,
            variable: &|_| None,
            read: &absent,
            is_root: false,
        };
        assert_eq!(surroundings.state_dir(), None);
        let refused = surroundings.choose().unwrap_err();
        assert_eq!(refused, Error::NoHome);
        assert!(refused.to_string().contains("MARGAY_STORE"), "{refused}");
    }
}
