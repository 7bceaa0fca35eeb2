use api::Kind;
use api::keys::Key;
use api::keys::value::{self, Stored};
use proptest::prelude::*;

use super::*;
use crate::resource::Resource;

const KEY: &str =
    "/calico/resources/v3/projectcalico.org/workloadendpoints/default/n1-k8s-web--1-eth0";

const SAMPLE: &str = r#"{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"n1-k8s-web--1-eth0","generateName":"web-","namespace":"default","uid":"7c9e6679-7425-40de-944b-e07fc1f90ae7","creationTimestamp":"2026-02-28T23:59:59Z","labels":{"app":"web","example.com/Tier":"Front_1","empty":"","projectcalico.org/namespace":"default"}},"spec":{"orchestrator":"k8s","workload":"","node":"n1","containerID":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","pod":"web-1","endpoint":"eth0","serviceAccountName":"default","ipNetworks":["10.65.0.1/32","fd65::1/128"],"profiles":["kns.default","ksa.default.default"],"interfaceName":"cali0123456789a","mac":"ee:ee:ee:ee:ee:ee","ports":[{"name":"http","protocol":"TCP","port":8080}]}}"#;

/// The way of all objects.
pub(super) fn by_all_rules(path: &str, kind: Kind, bytes: &[u8]) -> Option<Resource> {
    let key = Key::parse(path).unwrap();
    let Ok(Stored::Json(stored)) = value::parse(&key, bytes) else { return None };
    Resource::read(kind, &stored).ok()
}

/// Whether it is read here; if so, it must be read there, as the same.
fn is_read(bytes: &[u8]) -> bool {
    let Some(plain) = plain_workload_endpoint(bytes) else { return false };
    let plain = Some(Resource::WorkloadEndpoint(plain));
    let all = by_all_rules(KEY, Kind::WorkloadEndpoint, bytes);
    assert_eq!(plain, all, "{}", String::from_utf8_lossy(bytes));
    true
}

#[test]
fn what_programs_store_is_read_at_once() {
    assert!(is_read(SAMPLE.replace("Front_1", "Front-1").as_bytes()));
    let spare = SAMPLE.replace(r#""workload":"","#, "").replace(r#""generateName":"web-","#, "");
    assert!(is_read(spare.replace("Front_1", "1").as_bytes()));
    let list = SAMPLE.replace(
        "{\"name\":\"http\",\"protocol\":\"TCP\",\"port\":8080}",
        r#"["http","TCP",8080]"#,
    );
    assert!(!is_read(list.replace("Front_1", "1").as_bytes()));
    // Calico takes it; here nobody has to know that.
    assert!(!is_read(SAMPLE.as_bytes()));
    assert!(by_all_rules(KEY, Kind::WorkloadEndpoint, SAMPLE.as_bytes()).is_some());
}

/// Values that one field or another may not have, or has in another form.
pub(super) const ODD: [&str; 60] = [
    r#""""#,
    "null",
    "0",
    "1",
    "65536",
    "8080.0",
    "-1",
    "true",
    "{}",
    "[]",
    r#"[""]"#,
    r#"["a"]"#,
    r#""a b""#,
    r#""A""#,
    r#""-a""#,
    r#""a-""#,
    r#""a.""#,
    r#""a..b""#,
    r#""a.-b""#,
    r#""a--b""#,
    r#""a_b""#,
    r#""a/b""#,
    r#""é""#,
    r#""a\u0062""#,
    r#""a\n""#,
    r#""*""#,
    r#""10.0.0.1""#,
    r#""10.0.0.1/32""#,
    r#""10.0.0.0/24""#,
    r#""10.0.0.1/024""#,
    r#""10.00.0.1/32""#,
    r#""::ffff:10.0.0.1/128""#,
    r#""fd65::1""#,
    r#""FD65::1/128""#,
    r#""fe80::1%eth0""#,
    r#"["10.0.0.1"]"#,
    r#"["10.0.0.1/32"]"#,
    r#"["fd65::2/128","10.0.0.1/31"]"#,
    r#"[null]"#,
    r#"[["a"]]"#,
    r#""tcp""#,
    r#""TCP""#,
    r#""UDPLite""#,
    r#""ICMP""#,
    r#""6""#,
    "6",
    r#""EE-EE-EE-EE-EE-EE""#,
    r#""ee:ee:ee:ee:ee""#,
    r#""eeee.eeee.eeee""#,
    r#""2026-13-01T00:00:00Z""#,
    r#""2026-02-29T00:00:00Z""#,
    r#""2026-02-28T24:00:00Z""#,
    r#""2026-02-28T00:00:00+01:00""#,
    r#""2026-02-28T00:00:00.5Z""#,
    r#""0000-01-01T00:00:00Z""#,
    r#"{"a":"b","a":"c"}"#,
    r#"{"projectcalico.org/a/b":"c"}"#,
    r#"{"/a":"b"}"#,
    r#"{"a/":"b"}"#,
    r#"{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":"b"}"#,
];

/// Names of fields that the sample has, in its order of depth, and some it does not have.
const FIELDS: [&str; 30] = [
    "kind",
    "apiVersion",
    "name",
    "generateName",
    "namespace",
    "uid",
    "creationTimestamp",
    "labels",
    "app",
    "empty",
    "orchestrator",
    "workload",
    "node",
    "containerID",
    "pod",
    "endpoint",
    "serviceAccountName",
    "ipNetworks",
    "profiles",
    "interfaceName",
    "mac",
    "ports",
    "protocol",
    "port",
    "metadata",
    "spec",
    "example.com/Tier",
    "hostPort",
    "Node",
    "ipNATs",
];

/// The sample with another value for the fields of a name.
pub(super) fn with(text: &str, field: &str, odd: &str) -> String {
    let named = format!("\"{field}\":");
    let Some(at) = text.find(&named) else {
        return text.replacen("\"spec\":{", &format!("\"spec\":{{{named}{odd},"), 1);
    };
    let from = at + named.len();
    let rest = &text.as_bytes()[from..];
    let (mut depth, mut is_text, mut to) = (0, false, 0);
    for (at, &byte) in rest.iter().enumerate() {
        match byte {
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => depth += 1,
            b'}' | b']' if !is_text && depth > 0 => depth -= 1,
            b',' | b'}' | b']' if !is_text && depth == 0 => {
                to = at;
                break;
            }
            _ => {}
        }
    }
    format!("{}{odd}{}", &text[..from], &text[from + to..])
}

#[test]
fn what_is_odd_in_one_field_is_read_alike_or_left_alone() {
    let sample = SAMPLE.replace("Front_1", "Front-1");
    let long = [1, 15, 16, 57, 58, 63, 64, 253, 254].map(|n| format!("\"{}\"", "a".repeat(n)));
    let mut n_read = 0;
    for field in FIELDS {
        for odd in ODD.into_iter().chain(long.iter().map(String::as_str)) {
            n_read += usize::from(is_read(with(&sample, field, odd).as_bytes()));
        }
    }
    assert!(n_read > 50, "{n_read}");
}

/// One or two bytes of a text are others, or too many, or missing.
pub(super) fn edited(
    text: &str,
    edits: &[(prop::sample::Index, i32, u8)],
    printable: u8,
) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (at, how, byte) in edits {
        let byte = if *byte < 192 { printable } else { *byte };
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_is_spoilt_anywhere_is_read_alike_or_left_alone(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3, any::<u8>()), 1..3),
        text in "[ -~]",
    ) {
        is_read(&edited(&SAMPLE.replace("Front_1", "Front-1"), &edits, text.as_bytes()[0]));
    }
}
