//! Runs the program in surroundings of its own.

mod running;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use store::{Op, Store, Txn, sqlite};
use tempfile::TempDir;

pub(crate) use self::running::{Running, until};
use crate::member::{self, Member};

/// A home, a state folder and a datastore that nothing else uses.
pub(crate) struct Place {
    home: TempDir,
    /// The endpoints of etcd; none means the embedded store.
    etcd: Option<String>,
    member: Option<Member>,
}

/// What a finished run left.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn embedded() -> Place {
        Place { home: tempfile::tempdir().unwrap(), etcd: None, member: None }
    }

    /// A place whose datastore is etcd at these endpoints.
    pub(crate) fn at(endpoints: &str) -> Place {
        Place { etcd: Some(endpoints.to_owned()), ..Place::embedded() }
    }

    /// A place with an etcd member of its own; none, said aloud, where etcd is not installed.
    pub(crate) fn etcd() -> Option<Place> {
        member::is_installed().then(|| {
            let member = Member::start();
            Place { member: Some(member), ..Place::at("") }.pointed_at_member()
        })
    }

    fn pointed_at_member(mut self) -> Place {
        self.etcd = self.member.as_ref().map(|member| member.url.clone());
        self
    }

    /// One place of each kind of datastore.
    pub(crate) fn both() -> Vec<Place> {
        std::iter::once(Place::embedded()).chain(Place::etcd()).collect()
    }

    pub(crate) fn is_etcd(&self) -> bool {
        self.member.is_some()
    }

    pub(crate) fn member(&mut self) -> &mut Member {
        self.member.as_mut().unwrap()
    }

    /// The endpoints of etcd.
    pub(crate) fn endpoints(&self) -> &str {
        self.etcd.as_deref().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file into the home, and gives its name.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The datastore itself, for looking and for writing what the program would not.
    pub(crate) fn store(&self) -> Store {
        match &self.member {
            Some(member) => member.store(),
            None => Store::Sqlite(sqlite::Store::open(self.path("store.db")).unwrap()),
        }
    }

    /// Stores bytes under a key, past every check.
    pub(crate) fn put(&self, key: &str, value: &str) {
        let op = Op::Put { key: key.to_owned(), value: value.into() };
        self.store().commit(Txn { compares: vec![], ops: vec![op] }).unwrap();
    }

    /// What is stored under a key.
    pub(crate) fn stored(&self, key: &str) -> Value {
        let entry = self.store().get(key).unwrap().0;
        let entry = entry.unwrap_or_else(|| panic!("{key} is not stored"));
        serde_json::from_slice(&entry.value).unwrap()
    }

    /// Every key with its bytes.
    pub(crate) fn dump(&self) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        let each = |entry: store::KeyValue| {
            all.push((entry.key, entry.value));
            std::ops::ControlFlow::Continue(())
        };
        self.store().list_each("/calico/", each).unwrap();
        all
    }

    /// The program with the words of a command line, in these surroundings and no others.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
        command.args(words).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home.path()).env("MARGAY_STATE_DIR", self.path("state"));
        match &self.etcd {
            Some(endpoints) => command.env("ETCD_ENDPOINTS", endpoints),
            None => command.env("MARGAY_STORE", self.path("store.db")),
        };
        command.current_dir(self.home.path()).stdin(Stdio::null());
        command
    }

    /// Runs the program; the words are separated by blanks.
    pub(crate) fn margay(&self, words: &str) -> Done {
        self.run(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs the program with words that may hold blanks.
    pub(crate) fn run(&self, words: &[&str]) -> Done {
        Done::from(self.command(words).output().unwrap())
    }

    /// Runs the program on a document.
    pub(crate) fn give(&self, words: &str, document: &str) -> Done {
        self.file("given.yaml", document);
        self.margay(&format!("{words} -f given.yaml"))
    }

    /// The answer in JSON.
    pub(crate) fn json(&self, words: &str) -> Value {
        let done = self.margay(&format!("{words} -o json")).ok();
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        Done {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Done {
    /// Ends the test unless the exit code is this one.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Done {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Ends the test unless everything was fine and only the answer was said.
    #[track_caller]
    pub(crate) fn ok(self) -> Done {
        let done = self.code(0);
        assert_eq!(done.err, "", "an answer only: {done:#?}");
        done
    }

    /// Ends the test unless it was an error without an answer that says all of these.
    #[track_caller]
    pub(crate) fn refused(self, said: &[&str]) -> Done {
        let done = self.code(2);
        assert_eq!(done.out, "", "no answer: {done:#?}");
        assert!(done.err.starts_with("error: "), "{done:#?}");
        done.complains(said)
    }

    /// Ends the test unless the complaint says all of these.
    #[track_caller]
    pub(crate) fn complains(self, said: &[&str]) -> Done {
        for text in said {
            assert!(self.err.contains(text), "{text:?} is not said: {self:#?}");
        }
        self
    }

    /// Ends the test unless the answer says all of these.
    #[track_caller]
    pub(crate) fn says(self, said: &[&str]) -> Done {
        for text in said {
            assert!(self.out.contains(text), "{text:?} is not said: {self:#?}");
        }
        self
    }
}

/// A network policy, as the shortest document there is.
pub(crate) fn policy(namespace: &str, name: &str, order: i64) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata:\n  name: {name}\n  \
         namespace: {namespace}\nspec:\n  order: {order}\n  selector: app == \"web\"\n---\n"
    )
}

/// An IP pool.
pub(crate) fn pool(name: &str, cidr: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: {name}\n\
         spec:\n  cidr: {cidr}\n---\n"
    )
}
