use std::path::{Path, PathBuf};

use super::*;

/// A host with an embedded store of its own.
struct Host {
    folder: tempfile::TempDir,
    config: PathBuf,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("calicoctl.cfg");
        let store = folder.path().join("store.db");
        let text = format!(
            "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  \
             datastoreType: embedded\n  embeddedStore: {}\n",
            store.display()
        );
        std::fs::write(&config, text).unwrap();
        Self { folder, config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Runs a command; gives what it wrote, and how it ended if that was not well.
    fn run(&self, line: &[&str]) -> (String, Option<Stop>) {
        let config = ["--config", self.config.to_str().unwrap()];
        answered(line.iter().chain(&config).copied())
    }

    fn says(&self, line: &[&str]) -> String {
        let (said, stop) = self.run(line);
        assert!(stop.is_none(), "{line:?}: {stop:?}");
        said
    }

    fn fails(&self, line: &[&str]) -> String {
        match self.run(line) {
            (_, Some(Stop::Error(text))) => stop::shortened(&text),
            other => panic!("{line:?}: {other:?}"),
        }
    }
}

fn answered<'a>(line: impl Iterator<Item = &'a str>) -> (String, Option<Stop>) {
    let mut out = Vec::new();
    let stop = answer(line.map(OsString::from), &mut out).err();
    (String::from_utf8(out).unwrap(), stop)
}

fn set(name: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata:\n  name: {name}\n\
         spec:\n  nets:\n  - 10.0.0.0/8\n---\n"
    )
}

#[test]
fn an_object_lives() {
    let host = Host::new();
    let file = host.file("set.yaml", &set("one"));
    let done = |what: &str| format!("Successfully {what} 1 'GlobalNetworkSet' resource(s)\n");
    assert_eq!(host.says(&["create", "-f", &file]), done("created"));
    assert_eq!(
        host.fails(&["create", "-f", &file]),
        "failed to create 'GlobalNetworkSet' resource: \
         [resource already exists: GlobalNetworkSet(one) with error: <nil>]"
    );
    assert_eq!(host.says(&["create", "-f", &file, "--skip-exists"]), done("created"));
    assert_eq!(host.says(&["apply", "-f", &file]), done("applied"));
    assert_eq!(
        host.says(&["get", "gnetsets", "-o", "wide"]),
        concat!("NAME   NETS         \n", "one    10.0.0.0/8   \n\n",)
    );
    assert_eq!(
        host.says(&["label", "gnetsets", "one", "a=b"]),
        "Successfully set label a on gnetsets one\n"
    );
    assert_eq!(
        host.says(&["patch", "gnetsets", "one", "-p", r#"{"spec":{"nets":["1.2.3.4/32"]}}"#]),
        "Successfully patched 1 'GlobalNetworkSet' resource\n"
    );
    assert_eq!(host.says(&["delete", "gnetsets", "one"]), done("deleted"));
    assert_eq!(
        host.fails(&["delete", "gnetsets", "one"]),
        "Failed to delete 'GlobalNetworkSet' resource: \
         resource does not exist: GlobalNetworkSet(one) with error: <nil>\n"
    );
}

#[test]
fn a_partial_success_counts_what_was_done() {
    let host = Host::new();
    let two = format!("{}{}", set("one"), set("two"));
    let file = host.file("sets.yaml", &format!("{two}{}", set("Not A Name")));
    let (said, stop) = host.run(&["create", "-f", &file]);
    let sentence = "Partial success: created the first 2 out of 3 'GlobalNetworkSet' resources:\n";
    assert_eq!(said, sentence);
    assert!(matches!(stop, Some(Stop::Error(text)) if text.starts_with("hit error: [error with")));
}

#[test]
fn the_first_fault_of_a_file_is_said_and_nothing_is_written() {
    let host = Host::new();
    let file = host.file("bad.yaml", &format!("{}{}more: 1\n", set("one"), set("two")));
    let (_, stop) = host.run(&["create", "-f", &file]);
    assert!(matches!(stop, Some(Stop::Error(_))));
    assert_eq!(host.says(&["get", "gnetsets"]), "NAME   \n\n");
}

#[test]
fn commands_without_words_say_what_they_need() {
    for verb in ["get", "create", "apply", "replace", "delete", "validate"] {
        let words = Host::new().fails(&[verb]);
        assert!(words.starts_with(&format!("nothing to {verb}; use: calicoctl {verb} ")));
    }
}

#[test]
fn a_cluster_of_another_version_is_refused_unless_that_is_allowed() {
    let host = Host::new();
    let file = host.file("set.yaml", &set("one"));
    host.says(&["create", "-f", &file]);
    let store = store::sqlite::Store::open(host.path("store.db")).map(store::Store::Sqlite);
    let key = "/calico/resources/v3/projectcalico.org/clusterinformations/default".to_owned();
    let value = br#"{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3",
        "metadata":{"name":"default"},"spec":{"calicoVersion":"v3.1.0"}}"#;
    let put = store::Op::Put { key, value: value.to_vec() };
    store.unwrap().commit(store::Txn { compares: Vec::new(), ops: vec![put] }).unwrap();
    let refused = host.fails(&["get", "gnetsets"]);
    assert!(refused.starts_with("failed to get resources: version mismatch.\n"), "{refused}");
    assert_eq!(host.says(&["get", "gnetsets", "--allow-version-mismatch"]), "NAME   \none    \n\n");
}

#[test]
fn a_command_of_a_later_version_says_so() {
    let words = Host::new().fails(&["datastore", "migrate", "lock"]);
    assert_eq!(words, "calicoctl datastore migrate lock is not part of this version");
}

#[test]
fn help_and_unknown_commands_are_answered_with_help() {
    for line in [&["get", "--help"][..], &["help", "get"], &["nope"], &["ipam"], &[]] {
        let (said, stop) = answered(line.iter().copied());
        assert!(stop.is_none() && said.contains("Usage: calicoctl"), "{line:?}");
    }
}

#[test]
fn a_missing_configuration_file_is_said_on_standard_output() {
    let (_, stop) = answered(["get", "nodes", "-c", "/no/such.cfg"].into_iter());
    let words = "Error reading config file: /no/such.cfg";
    assert!(matches!(stop, Some(Stop::Said(text)) if text == words));
    assert!(!Path::new("/no/such.cfg").exists());
}

#[test]
fn nobody_reading_the_output_is_no_fault() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let stop = answer([OsString::from("--help")].into_iter(), &mut Closed).unwrap_err();
    assert!(matches!(&stop, Stop::Output(error) if error.kind() == io::ErrorKind::BrokenPipe));
    assert_eq!(say(stop, &mut Closed).unwrap(), ExitCode::from(BROKEN_PIPE));
}

#[test]
fn addresses_are_counted_and_settings_changed() {
    let host = Host::new();
    let pool = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: p\nspec:\n  \
                cidr: 10.0.0.0/16\n";
    let file = host.file("pool.yaml", pool);
    host.says(&["create", "-f", &file]);
    let table = host.says(&["ipam", "show"]);
    let row = "| IP Pool  | 10.0.0.0/16 |     65536 |     0 (0%) |       0 (0%) | 65536 (100%) |\n";
    assert!(table.contains(row), "{table}");
    assert_eq!(host.says(&["ipam", "show", "--ip=10.0.0.1"]), "10.0.0.1 is not assigned\n");
    assert_eq!(
        host.says(&["ipam", "configure", "--strictaffinity=true"]),
        "Successfully set StrictAffinity to: true\n"
    );
    let settings = host.says(&["ipam", "show", "--show-configuration"]);
    assert!(settings.contains("| StrictAffinity               | true    |"), "{settings}");
    assert_eq!(
        host.fails(&["ipam", "configure", "--strictaffinity=false", "--max-blocks-per-host=2"]),
        "error: MaxBlocksPerHost requires StrictAffinity to be enabled"
    );
}
