//! What a command works with: the datastore that was chosen, the terminal, the history.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use api::Kind;
use store::etcd::{Config, Waiting};
use store::resources::{self, Manner, Name, Resources};
use store::{Store, sqlite};

use super::arguments::Place;
use super::explain_field::unknown_kind;
use super::failure::Failure;
use super::history::History;
use super::recorder::{Recorded, Recorder};
use super::terminal::Terminal;
use api::EMULATED_CALICO_VERSION;
use store::settings::Surroundings;

/// The namespace of objects that name none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// A command's surroundings.
pub(crate) struct Session {
    pub(crate) terminal: Terminal,
    pub(crate) store: Store,
    pub(crate) resources: Resources,
    pub(crate) history: History,
    pub(crate) recorder: Arc<Recorder>,
    /// The flags that lead another process of this program to the same datastore.
    pub(crate) flags: Vec<OsString>,
}

impl Session {
    /// Opens the datastore that files, variables or flags choose.
    pub(crate) fn open(place: &Place) -> Result<Self, Failure> {
        Self::open_with(place, |config| config.waiting = Some(say_waiting))
    }

    /// The same, with other settings of a connection than the usual ones.
    pub(crate) fn open_with(
        place: &Place,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Self, Failure> {
        with_surroundings(place, |surroundings| {
            let choice = surroundings.choose()?;
            let store = choice.datastore.open_with(Some(say_locked), adjust)?;
            let history = History::below(surroundings.state_dir());
            let session = Self::over(store, history.called(place.program()));
            Ok(Self { flags: place.flags().collect(), ..session })
        })
    }

    /// With a datastore that is open, and the history that its writes go into.
    pub(crate) fn over(store: Store, history: History) -> Self {
        let manner =
            Manner { calico_version: EMULATED_CALICO_VERSION.to_owned(), rewrite_unchanged: false };
        let recorder = Arc::new(Recorder::new(history.clone(), store.clone(), typed()));
        let resources = Resources::new(store.clone(), manner).with_journal(recorder.clone());
        let flags = Vec::new();
        Self { terminal: Terminal::detect(), resources, store, history, recorder, flags }
    }

    /// The AS number of nodes that have none of their own.
    pub(crate) fn as_number(&self) -> String {
        crate::cluster::as_number(&self.resources)
    }

    /// The identifier of the cluster whose datastore this is, once it has one.
    pub(crate) fn cluster(&self) -> Result<Option<String>, store::Error> {
        cluster(&self.resources)
    }

    /// Where the datastore is, in words that mean the same from every folder.
    pub(crate) fn place(&self) -> String {
        place(&self.store)
    }

    /// Keeps what the requests of this command changed, so that it can be taken back. A command
    /// that changed nothing leaves no trace.
    pub(crate) fn record_changes(&self) -> Recorded {
        self.recorder.finish(true).0
    }
}

/// The identifier of a cluster, once it has one.
pub(crate) fn cluster(resources: &Resources) -> Result<Option<String>, store::Error> {
    let information = Name::cluster(Kind::ClusterInformation, "default");
    let stored = match resources.get(&information) {
        Ok(stored) => stored,
        Err(resources::Error::Store(error)) => return Err(error),
        // One that is not there, or that cannot be read, names no cluster.
        Err(_) => return Ok(None),
    };
    let guid = stored.object["spec"]["clusterGUID"].as_str();
    Ok(guid.filter(|guid| !guid.is_empty()).map(str::to_owned))
}

/// Where a datastore is, in words that mean the same from every folder.
pub(crate) fn place(store: &Store) -> String {
    let described = store.describe();
    match (store, std::fs::canonicalize(&described)) {
        (Store::Sqlite(_), Ok(path)) => path.display().to_string(),
        _ => described,
    }
}

/// A wait that takes more than a moment is said, on standard error.
pub(crate) fn say_waiting(waiting: &Waiting) {
    let _ = super::get::complain(&waiting.to_string());
}

/// What chose the datastore of this command.
pub(crate) fn chosen_by(place: &Place) -> Option<String> {
    with_surroundings(place, |surroundings| surroundings.choose().ok().map(|choice| choice.why))
}

fn say_locked(waiting: &sqlite::Waiting) {
    let _ = super::get::complain(&waiting.to_string());
}

/// Reads the environment once, and lets the caller ask it.
pub(crate) fn with_surroundings<T>(place: &Place, ask: impl FnOnce(&Surroundings<'_>) -> T) -> T {
    let variable = |name: &str| std::env::var_os(name);
    let read = |path: &Path| host::file::read_settings(path, place.config.as_deref());
    ask(&Surroundings {
        config: place.config.as_deref(),
        store: place.store.as_deref(),
        variable: &variable,
        read: &read,
        is_root: rustix::process::geteuid().is_root(),
    })
}

fn typed() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("margay".to_owned())
        .chain(words.map(|word| quoted(&word)))
        .collect::<Vec<_>>()
        .join(" ")
}

impl Place {
    /// The flags that lead to the same datastore.
    fn flags(&self) -> impl Iterator<Item = OsString> {
        let flags = [("--config", &self.config), ("--store", &self.store)];
        let given = flags.into_iter().filter_map(|(flag, file)| Some((flag, file.as_ref()?)));
        given.flat_map(|(flag, file)| [OsString::from(flag), file.clone().into_os_string()])
    }

    /// The program with those flags.
    fn program(&self) -> String {
        self.flags().fold("margay".to_owned(), |program, word| {
            format!("{program} {}", quoted(&word.to_string_lossy()))
        })
    }
}

/// A word of a command line as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:=,@%+-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The kind that somebody typed.
pub(crate) fn kind_of(typed: &str) -> Result<Kind, Failure> {
    Kind::from_alias(typed).ok_or_else(|| unknown_kind(typed))
}

/// The object that somebody typed.
pub(crate) fn name_of(kind: Kind, namespace: Option<&str>, name: &str) -> Name {
    match kind.is_namespaced() {
        true => Name::namespaced(kind, namespace.unwrap_or(DEFAULT_NAMESPACE), name),
        false => Name::cluster(kind, name),
    }
}

/// An object for people: `NetworkPolicy shop/web`.
pub(crate) fn spoken(name: &Name) -> String {
    name.spoken()
}
