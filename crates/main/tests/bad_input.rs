//! Input that is wrong, hostile or too large: the built program says what is wrong and where,
//! ends with the right code, and writes nothing.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const MARGAY: &str = env!("CARGO_BIN_EXE_margay");

/// A datastore of its own, and a folder for files.
struct World {
    dir: TempDir,
}

impl World {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn command(&self, name: &str, words: &[&str]) -> Command {
        let mut command = Command::new(MARGAY);
        command
            .arg0(name)
            .args(words)
            .current_dir(self.dir.path())
            .env_clear()
            .env("HOME", self.dir.path())
            .env("MARGAY_STORE", self.dir.path().join("store.db"))
            .env("MARGAY_STATE_DIR", self.dir.path().join("state"))
            .stdin(Stdio::null());
        command
    }

    fn margay(&self, words: &[&str]) -> Ran {
        Ran::from(self.command("margay", words).output().unwrap())
    }

    fn calicoctl(&self, words: &[&str]) -> Ran {
        Ran::from(self.command("calicoctl", words).output().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Applies the content as both programs and expects that neither takes it.
    #[track_caller]
    fn refuses(&self, content: impl AsRef<[u8]>, says: &str) {
        self.file("x.yaml", content);
        let ran = self.margay(&["apply", "-f", "x.yaml"]);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains(says), "{says}\n{}", ran.err);
        let ran = self.calicoctl(&["apply", "-f", "x.yaml"]);
        assert_eq!(ran.code, Some(1), "{} {}", ran.out, ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
    }

    #[track_caller]
    fn has(&self, kind: &str, names: &[&str]) {
        let ran = self.margay(&["get", kind, "-o", "custom-columns=NAME"]);
        let found: Vec<&str> = ran.out.lines().skip(1).map(str::trim).collect();
        assert_eq!(found, names, "{}", ran.err);
    }
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

fn set(name: &str, nets: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata:\n  name: {name}\n\
         spec:\n  nets: {nets}\n"
    )
}

fn policy(selector: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {{name: p}}\n\
         spec:\n  selector: \"{selector}\"\n"
    )
}

#[test]
fn nothing_is_written_when_the_last_document_is_bad() {
    let world = World::new();
    for (last, says) in [
        (set("c", "[nonsense]"), "spec.nets[0]: \"nonsense\" is not a CIDR"),
        (
            set("c", "[]") + "  nest: 1\n",
            "spec.nest: unknown field; did you mean nets?  (x.yaml:21)",
        ),
        ("a: [\n".to_owned(), "x.yaml:16:1"),
    ] {
        let good = format!("{}---\n{}---\n", set("a", "[10.0.0.0/8]"), set("b", "[]"));
        world.file("x.yaml", good + &last);
        let ran = world.margay(&["apply", "-f", "x.yaml"]);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains("nothing was written"), "{}", ran.err);
        assert!(ran.err.contains(says), "{says}\n{}", ran.err);
        world.has("globalnetworksets", &[]);
    }
}

#[test]
fn calicoctl_writes_up_to_the_bad_document_and_says_so() {
    let world = World::new();
    let good = format!("{}---\n{}---\n", set("a", "[10.0.0.0/8]"), set("b", "[]"));
    world.file("x.yaml", good + &set("c", "[nonsense]"));
    let ran = world.calicoctl(&["apply", "-f", "x.yaml"]);
    assert_eq!(ran.code, Some(1));
    let said = ran.out + &ran.err;
    assert!(said.contains("Partial success: applied the first 2 out of 3"), "{said}");
    world.has("globalnetworksets", &["a", "b"]);
}

#[test]
fn documents_that_explode_are_refused() {
    let world = World::new();
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    world.refuses(bomb, "x.yaml:6:15: aliases expand to more than 400000 values");
    world.refuses("a: &a [*a]\n", "x.yaml:1:8: the alias *a");
    world.refuses("[".repeat(100_000), "x.yaml:1:201: lists and maps are nested more than 200");
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    world.refuses(deep, "nested more than 200 levels deep");
    let long = format!("a: {}\n", "x".repeat(10 << 20));
    world.refuses(long, "x.yaml:1:1: the document is longer than 10485760 bytes");
}

#[test]
fn documents_that_are_no_text_or_no_yaml_are_refused_with_their_place() {
    let world = World::new();
    let after = |tail: &[u8]| [set("a", "[]").as_bytes(), tail].concat();
    for (tail, says) in [
        (&b"# \xff\n"[..], "x.yaml:7:3: the text is not UTF-8"),
        (b"x: \0\n", "x.yaml:7:4: control character U+0000 is not allowed"),
        (b"\tx: 1\n", "x.yaml:7:1: found character that cannot start any token"),
        (b"  nets: []\n", "x.yaml:7:3: key \"nets\" is already set on line 6"),
        (b"x: [!<y, z]\n", "x.yaml:7:"),
        (b"? [a]\n: b\n", "x.yaml:7:3: a map key must be text"),
        (b"x: *y\n", "x.yaml:7:4: the alias *y"),
    ] {
        world.refuses(after(tail), says);
    }
    world.refuses("", "x.yaml: no resources in this file");
    world.refuses("words\n", "x.yaml:1:1: a document is a resource");
    world.has("globalnetworksets", &[]);
}

#[test]
fn names_cannot_leave_their_place() {
    let world = World::new();
    for name in ["../../etc", "a/b", "..", "\"a\\0b\"", "\"a\\nb\"", "\"%2f\"", "\"\"", "A"] {
        world.refuses(set(name, "[]"), "metadata.name: ");
    }
    world.refuses(set("a".repeat(300).as_str(), "[]"), "a name may have 253 characters");
    for namespace in ["../x", "a/b"] {
        let namespaced = set(&format!("a\n  namespace: {namespace}"), "[]");
        let namespaced = namespaced.replace("GlobalNetworkSet", "NetworkSet");
        world.refuses(namespaced, "x.yaml:5)");
    }
    let ran = world.margay(&["get", "networksets", "-A"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{}", ran.err);
    // What the document says reaches the terminal as text only.
    world.file("x.yaml", set("\"\\e[31m\"", "[]"));
    let ran = world.margay(&["apply", "-f", "x.yaml"]);
    assert!(!ran.err.contains('\u{1b}'), "{:?}", ran.err);
}

#[test]
fn numbers_beyond_their_type_are_refused() {
    let world = World::new();
    let fields = [
        ("IPPool", "blockSize"),
        ("BGPPeer", "asNumber"),
        ("BGPConfiguration", "listenPort"),
        ("FelixConfiguration", "vxlanVNI"),
        ("FelixConfiguration", "wireguardListeningPort"),
        ("FelixConfiguration", "iptablesRefreshInterval"),
        ("CalicoNodeStatus", "updatePeriodSeconds"),
    ];
    let values = [
        "99999999999999999999999",
        "9223372036854775808",
        "18446744073709551616",
        "-9223372036854775810000",
        "1e400",
        "1.5",
        "\"9223372036854775807h\"",
        "[1]",
        "{}",
    ];
    let mut documents = Vec::new();
    for (kind, field) in fields {
        for value in values {
            documents.push(format!(
                "apiVersion: projectcalico.org/v3\nkind: {kind}\nmetadata: {{name: default}}\n\
                 spec: {{{field}: {value}}}\n"
            ));
        }
    }
    world.file("x.yaml", documents.join("---\n"));
    let ran = world.margay(&["validate", "-f", "x.yaml"]);
    assert_eq!(ran.code, Some(2));
    for (number, document) in documents.iter().enumerate() {
        let place = format!("(x.yaml:{})", number * 5 + 4);
        assert!(ran.err.contains(&place), "nothing about\n{document}{}", ran.err);
    }
}

#[test]
fn each_of_thousands_of_bad_objects_is_named_with_its_line() {
    let world = World::new();
    let documents: Vec<String> = (0..3000).map(|n| set(&format!("s{n}"), "[x]")).collect();
    world.file("x.yaml", documents.join("---\n"));
    let items = (0..3000).map(|n| format!("- metadata: {{name: s{n}}}\n  spec: {{nets: [x]}}\n"));
    let list = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSetList\nitems:\n".to_owned();
    world.file("y.yaml", items.fold(list, |list, item| list + &item));
    for (file, line) in [("x.yaml", 2999 * 7 + 6), ("y.yaml", 3 + 2999 * 2 + 2)] {
        let ran = world.margay(&["validate", "-f", file]);
        assert_eq!(ran.code, Some(2));
        assert_eq!(ran.err.matches("is not a CIDR").count(), 3000);
        let last = format!("({file}:{line})\nhelp: margay help field GlobalNetworkSet.spec.nets\n");
        assert!(ran.err.ends_with(&last), "{line}");
    }
    let nets: Vec<String> = (0..20_000).map(|n| format!("net{n}")).collect();
    world.file("x.yaml", set("a", &format!("[{}]", nets.join(", "))));
    let ran = world.margay(&["validate", "-f", "x.yaml"]);
    assert!(ran.err.contains("spec.nets[19999]: \"net19999\" is not"));
}

#[test]
fn long_selectors_are_refused_in_a_few_words() {
    let world = World::new();
    let many = (0..60_000).map(|n| format!("a{n} == 'b'")).collect::<Vec<_>>().join(" || ");
    for selector in [many, "(".repeat(500_000), "!".repeat(500_000) + "has(a)"] {
        world.refuses(policy(&selector), "spec.selector: ");
        let ran = world.margay(&["validate", "-f", "x.yaml"]);
        assert!(ran.err.len() < 2000, "{} bytes of complaint", ran.err.len());
    }
}

#[test]
fn patches_cannot_break_or_move_an_object() {
    let world = World::new();
    world.file("x.yaml", format!("{}---\n{}", set("a", "[10.0.0.0/8]"), set("b", "[]")));
    assert_eq!(world.margay(&["apply", "-f", "x.yaml"]).code, Some(0));
    let before = world.margay(&["get", "globalnetworksets", "-o", "yaml"]).out;
    let deep = format!("{{\"spec\":{{\"nets\":{}{}}}}}", "[".repeat(30_000), "]".repeat(30_000));
    let double = "{\"op\":\"copy\",\"from\":\"\",\"path\":\"/a\"}";
    let bomb = format!("[{}]", vec![double; 100].join(","));
    for (kind, patch) in [
        ("strategic", deep.as_str()),
        ("strategic", "{\"metadata\":{\"name\":\"b\"}}"),
        ("strategic", "{\"metadata\":null}"),
        ("strategic", "{\"kind\":\"Tier\"}"),
        ("strategic", "{\"spec\":{\"nets\":[\"x\"]}}"),
        ("strategic", "[]"),
        ("strategic", "{"),
        ("merge", "5"),
        ("json", "[{\"op\":\"replace\",\"path\":\"\",\"value\":3}]"),
        ("json", bomb.as_str()),
    ] {
        let ran = world.margay(&["patch", "globalnetworkset", "a", "--type", kind, "-p", patch]);
        assert_eq!(ran.code, Some(2), "{:.60}: {}", patch, ran.err);
        assert!(ran.err.starts_with("error: "), "{}", ran.err);
    }
    assert_eq!(world.margay(&["get", "globalnetworksets", "-o", "yaml"]).out, before);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::new();
    let documents: Vec<String> = (0..2000).map(|n| set(&format!("s{n}"), "[10.0.0.0/8]")).collect();
    world.file("x.yaml", documents.join("---\n"));
    assert_eq!(world.margay(&["apply", "-f", "x.yaml"]).code, Some(0));
    for format in ["ps", "yaml", "json"] {
        let mut command = world.command("margay", &["get", "globalnetworksets", "-o", format]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let world = World::new();
    for (path, says) in [
        ("missing.yaml", "missing.yaml: no such file or directory"),
        ("/proc/self/mem", "/proc/self/mem: input/output error"),
        ("-", "-: no resources in this file"),
    ] {
        let ran = world.margay(&["apply", "-f", path]);
        assert_eq!(ran.code, Some(2));
        assert!(ran.err.contains(says), "{}", ran.err);
        assert_eq!(world.calicoctl(&["apply", "-f", path]).code, Some(1));
    }
}

#[test]
fn odd_names_of_files_are_read() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let folder = world.dir.path().join("odd dir");
    fs::create_dir(&folder).unwrap();
    let names: [&[u8]; 4] = [b"a\nb.yaml", b"\xff\xfe.yaml", b"-f.yaml", b"c d.YAML"];
    for (number, name) in names.iter().enumerate() {
        let mut file = fs::File::create(folder.join(OsStr::from_bytes(name))).unwrap();
        file.write_all(set(&format!("s{number}"), "[]").as_bytes()).unwrap();
    }
    fs::create_dir(folder.join("folder.yaml")).unwrap();
    std::os::unix::fs::symlink(".", folder.join("loop")).unwrap();
    let ran = world.margay(&["apply", "-R", "-f", "odd dir"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    world.has("globalnetworksets", &["s0", "s1", "s2", "s3"]);
    let mut command = world.command("margay", &["apply", "-f"]);
    command.arg(Path::new("odd dir").join(OsStr::from_bytes(b"\xff\xfe.yaml")));
    assert_eq!(command.output().unwrap().status.code(), Some(0));
}

#[test]
fn a_source_without_an_end_is_refused_and_a_pipe_in_a_folder_passed_over() {
    let world = World::new();
    let endless = world.margay(&["validate", "-f", "/dev/zero"]);
    assert_eq!(endless.code, Some(2));
    assert!(endless.err.contains("/dev/zero: larger than 1 GiB"), "{}", endless.err);
    let folder = world.dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("a.yaml")).status().unwrap().success());
    fs::write(folder.join("b.yaml"), set("b", "[10.0.0.0/8]")).unwrap();
    assert_eq!(world.margay(&["validate", "-f", "folder"]).code, Some(0));
}
