//! How an agent introduces itself: to the datastore as a Node, and to whoever started it.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use api::Kind;
use net::Cidr;
use sandbox::claim::resource_key;
use serde_json::{Value, json};
use store::resources::{self, Manner, Resources};
use store::settings::Surroundings;
use store::{Committed, Compare, Op, Store, Txn};

use crate::dataplane::Error;

/// How often a Node that others change meanwhile is tried.
const TRIES: usize = 20;

/// How long a remote datastore may take for an answer: a runtime waits for the agent meanwhile.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The datastore that file and environment choose, by the rules of the command line: what `margay
/// get` shows on this host is what its agent acts on.
pub(crate) fn open_store() -> Result<Store, Error> {
    let surroundings = Surroundings {
        config: None,
        store: None,
        variable: &|name| std::env::var_os(name),
        read: &|path| host::file::read_settings(path, None),
        is_root: rustix::process::geteuid().is_root(),
    };
    let choice = surroundings.choose().map_err(|error| Error::Settings(error.to_string()))?;
    let store = choice.datastore.open_with(None, |config| config.timeout = ANSWER_WAIT)?;
    if let Store::Sqlite(file) = &store {
        file.create()?;
    }
    Ok(store)
}

/// Makes the Node, or gives it these addresses. What else it says stays.
pub(crate) fn register(store: &Store, name: &str, addresses: &[Cidr]) -> Result<(), Error> {
    let calico_version = api::EMULATED_CALICO_VERSION.to_owned();
    let manner = Manner { calico_version, rewrite_unchanged: false };
    let resources = Resources::new(store.clone(), manner);
    resources.initialise().map_err(|error| match error {
        resources::Error::Store(error) => Error::Store(error),
        error => Error::Settings(error.to_string()),
    })?;
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

/// Whether a Node of this name with these addresses may be written, by the rules that hold for
/// everybody who writes one.
pub(crate) fn check(name: &str, addresses: &[Cidr]) -> Result<(), Error> {
    let object = node_object(None, name, addresses);
    match model::validate::validate(Kind::Node, &object).first() {
        None => Ok(()),
        Some(problem) if problem.path.starts_with("metadata.name") => {
            let what = format!("{name:?} cannot be the name of a node");
            let help = "help: --node NAME, of small letters, digits, - and .";
            Err(Error::Settings(format!("{what}\nwhy: {}\n{help}", problem.message)))
        }
        Some(problem) => Err(Error::Settings(format!(
            "the node {name} cannot be written: {}: {}",
            problem.path, problem.message
        ))),
    }
}

fn node_object(stored: Option<&Value>, name: &str, addresses: &[Cidr]) -> Value {
    let mut object = stored.filter(|it| it.is_object()).cloned().unwrap_or_else(|| {
        json!({
            "kind": "Node",
            "apiVersion": "projectcalico.org/v3",
            "metadata": {
                "name": name,
                "uid": uuid::Uuid::new_v4().to_string(),
                "creationTimestamp": store::ipam::now().text(),
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
    let is_gone = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    };
    // Whoever waited for the first start need not be there for the ones after it.
    if let Err(error) = told
        && !is_gone(&error)
    {
        let why = text::plain_reason(&error);
        crate::supervisor::say(&format!(
            "the service manager could not be told that calls are served, {}: {why}",
            Path::new(&path).display()
        ));
    }
}
