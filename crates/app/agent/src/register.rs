//! How an agent introduces itself: to the datastore as a Node, and to whoever started it.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use api::Kind;
use net::Cidr;
use sandbox::claim::resource_key;
use serde_json::{Value, json};
use store::resources::{Manner, Resources};
use store::{Committed, Compare, Op, Store, Txn};

use crate::arguments::Arguments;
use crate::dataplane::Error;
use crate::node::now;

/// How often a Node that others change meanwhile is tried.
const TRIES: usize = 20;

/// The datastore that the environment names.
pub(crate) fn open_store(arguments: &Arguments) -> Result<Store, Error> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(endpoints) = set("ETCD_ENDPOINTS") {
        let pem = |name: &str| set(name).map(|file| store::etcd::Pem::File(PathBuf::from(file)));
        let config = store::etcd::Config {
            endpoints: endpoints.split(',').map(|it| it.trim().to_owned()).collect(),
            user: set("ETCD_USERNAME"),
            password: set("ETCD_PASSWORD"),
            ca: pem("ETCD_CA_CERT_FILE"),
            certificate: pem("ETCD_CERT_FILE"),
            key: pem("ETCD_KEY_FILE"),
            ..store::etcd::Config::default()
        };
        return Ok(Store::Etcd(store::etcd::Store::new(config)?));
    }
    let path = set("MARGAY_STORE").map(PathBuf::from);
    let path = path.unwrap_or_else(|| arguments.state_dir.join("store.db"));
    Ok(Store::Sqlite(store::sqlite::Store::open(path)?))
}

/// Makes the Node, or gives it these addresses. What else it says stays.
pub(crate) fn register(store: &Store, name: &str, addresses: &[Cidr]) -> Result<(), Error> {
    let calico_version = api::EMULATED_CALICO_VERSION.to_owned();
    let manner = Manner { calico_version, rewrite_unchanged: false };
    let resources = Resources::new(store.clone(), manner);
    if let Err(error) = resources.initialise() {
        return Err(Error::Settings(error.to_string()));
    }
    let key = resource_key(Kind::Node, "", name);
    for _ in 0..TRIES {
        let (found, _) = store.get(&key)?;
        let stored = found.as_ref().and_then(|entry| text::json::parse(&entry.value).ok());
        let wanted = node_object(stored.as_ref(), name, addresses);
        if stored.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let compare = match &found {
            Some(entry) => Compare::ModRevision(key.clone(), entry.mod_revision),
            None => Compare::Absent(key.clone()),
        };
        let value = text::json::to_string(&wanted).into_bytes();
        let ops = vec![Op::Put { key: key.clone(), value }];
        if let Committed::Applied { .. } = store.commit(Txn { compares: vec![compare], ops })? {
            return Ok(());
        }
    }
    Err(Error::Settings(format!("Node {name} was changed by others {TRIES} times in a row")))
}

fn node_object(stored: Option<&Value>, name: &str, addresses: &[Cidr]) -> Value {
    let mut object = stored.filter(|it| it.is_object()).cloned().unwrap_or_else(|| {
        json!({
            "kind": "Node",
            "apiVersion": "projectcalico.org/v3",
            "metadata": {
                "name": name,
                "uid": uuid::Uuid::new_v4().to_string(),
                "creationTimestamp": now().text(),
            },
            "spec": {},
        })
    });
    for address in addresses {
        let field = if address.is_ipv4() { "ipv4Address" } else { "ipv6Address" };
        object["spec"]["bgp"][field] = address.to_string().into();
    }
    object
}

/// Tells the service manager that calls are served.
pub(crate) fn ready() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let told = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"READY=1", &path));
    if let Err(error) = told {
        crate::supervisor::say(&format!("NOTIFY_SOCKET: {error}"));
    }
}
