//! Endpoints of workloads, and policies, in the form in which programs store them, read at once.
//!
//! A cluster has many of them, and each node reads all of them. Nearly all are written alike:
//! known fields, each once, in plain letters. What is not is left to the way of all objects, which
//! knows what else is right and can say what is wrong; so there is no error here, only `None`.
//! Tests hold what is read here equal to what is read there.

mod policy;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use net::{Cidr, Protocol};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::{Metadata, Object, WorkloadEndpoint, WorkloadPort};

pub use policy::plain_policy;

/// An endpoint, if its bytes are as plain as can be.
pub fn plain_workload_endpoint(bytes: &[u8]) -> Option<Object<WorkloadEndpoint>> {
    let (named, stored) = Stored::<StoredSpec<'_>>::of_kind("WorkloadEndpoint", bytes)?;
    Some(Object { metadata: metadata(named)?, spec: spec(&stored)? })
}

/// An object with a spec of that form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored<'a, Spec> {
    kind: &'a str,
    #[serde(rename = "apiVersion")]
    api_version: &'a str,
    #[serde(borrow)]
    metadata: Fields<StoredMetadata<'a>>,
    spec: Fields<Spec>,
}

impl<'a, Spec: Deserialize<'a>> Stored<'a, Spec> {
    /// The parts of an object, if it says that it is one of the kind.
    fn of_kind(kind: &str, bytes: &'a [u8]) -> Option<(StoredMetadata<'a>, Spec)> {
        let Fields(stored): Fields<Self> = serde_json::from_slice(bytes).ok()?;
        let is_one = stored.kind == kind && stored.api_version == "projectcalico.org/v3";
        is_one.then_some((stored.metadata.0, stored.spec.0))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StoredMetadata<'a> {
    name: &'a str,
    #[serde(default)]
    generate_name: &'a str,
    #[serde(default)]
    namespace: &'a str,
    uid: &'a str,
    creation_timestamp: &'a str,
    #[serde(default, borrow)]
    labels: Entries<'a>,
    #[serde(default, borrow)]
    annotations: Entries<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StoredSpec<'a> {
    orchestrator: &'a str,
    #[serde(default)]
    workload: &'a str,
    node: &'a str,
    #[serde(default, rename = "containerID")]
    container_id: &'a str,
    #[serde(default)]
    pod: &'a str,
    endpoint: &'a str,
    #[serde(default)]
    service_account_name: &'a str,
    #[serde(borrow)]
    ip_networks: Vec<&'a str>,
    #[serde(default, borrow)]
    profiles: Vec<&'a str>,
    interface_name: &'a str,
    #[serde(default)]
    mac: Option<&'a str>,
    #[serde(default, borrow)]
    ports: Vec<Fields<StoredPort<'a>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPort<'a> {
    name: &'a str,
    protocol: &'a str,
    port: u16,
}

/// Labels or annotations, each once.
#[derive(Default)]
struct Entries<'a>(Vec<(&'a str, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Entries<'de>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("labels or annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(&str, Cow<'_, str>)> = Vec::new();
                while let Some((name, Text(value))) = map.next_entry()? {
                    if entries.len() >= ENTRIES_MAX || entries.iter().any(|it| it.0 == name) {
                        return Err(serde::de::Error::custom("too many, or one of them twice"));
                    }
                    entries.push((name, value));
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(Once)
    }
}

/// An object. Derived readers take a list for its fields, too.
#[derive(Default)]
struct Fields<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Fields<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Named<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Named<T> {
            type Value = Fields<T>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Fields)
            }
        }
        from.deserialize_map(Named(PhantomData))
    }
}

/// A text that may have to be put together.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn metadata(stored: StoredMetadata<'_>) -> Option<Metadata> {
    let is_plain = [stored.name, stored.namespace, stored.uid].into_iter().all(is_name)
        && is_name(stored.generate_name.trim_end_matches('-'))
        && !stored.name.is_empty()
        && is_time(stored.creation_timestamp);
    let are_labels = stored.labels.0.iter().all(|(name, value)| is_key(name) && is_word(value));
    let are_annotations =
        stored.annotations.0.iter().all(|(name, value)| is_key(name) && value.len() <= REMARK_MAX);
    let owned = |entries: Entries<'_>| -> BTreeMap<String, String> {
        entries.0.into_iter().map(|(name, value)| (name.to_owned(), value.into_owned())).collect()
    };
    (is_plain && are_labels && are_annotations).then(|| Metadata {
        name: stored.name.to_owned(),
        namespace: stored.namespace.to_owned(),
        uid: stored.uid.to_owned(),
        labels: owned(stored.labels),
        annotations: owned(stored.annotations),
        ..Metadata::default()
    })
}

/// The name of a label or an annotation.
fn is_key(name: &str) -> bool {
    let (prefix, last) = name.split_once('/').unwrap_or(("none", name));
    name.len() <= WORD_MAX
        && !(prefix.is_empty() || last.is_empty())
        && is_name(prefix)
        && is_word(last)
}

fn spec(stored: &StoredSpec<'_>) -> Option<WorkloadEndpoint> {
    let names = [
        stored.orchestrator,
        stored.workload,
        stored.node,
        stored.container_id,
        stored.pod,
        stored.endpoint,
        stored.service_account_name,
    ];
    let is_interface = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        (1..=15).contains(&text.len()) && text.bytes().all(is_plain)
    };
    let is_plain = names.into_iter().chain(stored.profiles.iter().copied()).all(is_name)
        && !stored.profiles.contains(&"")
        && !stored.container_id.contains('.')
        && is_interface(stored.interface_name);
    if !is_plain {
        return None;
    }
    let address = |text: &&str| {
        let network: Cidr = text.parse().ok()?;
        (network == Cidr::host(network.address())).then_some(network)
    };
    let port = |Fields(stored): &Fields<StoredPort<'_>>| {
        let protocol: Protocol = stored.protocol.parse().ok()?;
        let is_plain = matches!(stored.protocol, "TCP" | "UDP" | "SCTP")
            && (1..=15).contains(&stored.name.len())
            && is_name(stored.name)
            && !stored.name.contains(['.', '-'])
            && stored.name.bytes().any(|byte| byte.is_ascii_lowercase())
            && stored.port > 0;
        let (name, port) = (stored.name.to_owned(), stored.port);
        let (host_port, host_ip) = (0, String::new());
        is_plain.then_some(WorkloadPort { name, protocol, port, host_port, host_ip })
    };
    Some(WorkloadEndpoint {
        orchestrator: stored.orchestrator.to_owned(),
        workload: stored.workload.to_owned(),
        node: stored.node.to_owned(),
        container_id: stored.container_id.to_owned(),
        pod: stored.pod.to_owned(),
        endpoint: stored.endpoint.to_owned(),
        service_account_name: stored.service_account_name.to_owned(),
        ip_networks: stored.ip_networks.iter().map(address).collect::<Option<_>>()?,
        profiles: stored.profiles.iter().map(|&name| name.to_owned()).collect(),
        interface_name: stored.interface_name.to_owned(),
        mac: stored.mac.map(str::parse).transpose().ok()?,
        ports: stored.ports.iter().map(port).collect::<Option<_>>()?,
        ..WorkloadEndpoint::default()
    })
}

/// Nothing, or small letters and digits with dashes, and single dots, between them: what every
/// check of names takes.
fn is_name(text: &str) -> bool {
    is_joined(text, NAME_MAX, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// The same with capital letters, as long as a label may be.
fn is_word(text: &str) -> bool {
    is_joined(text, WORD_MAX, |byte| byte.is_ascii_alphanumeric())
}

const NAME_MAX: usize = 253;
const WORD_MAX: usize = 63;
/// So many labels or annotations, and so long ones, are looked at here.
const ENTRIES_MAX: usize = 32;
const REMARK_MAX: usize = 4096;

fn is_joined(text: &str, length_max: usize, is_plain: impl Fn(u8) -> bool) -> bool {
    // At the beginning and at the end stands what a dot does.
    let (mut before, mut is_joined) = (b'.', true);
    for byte in text.bytes().chain([b'.']) {
        is_joined &= match byte {
            b'.' => is_plain(before),
            b'-' => before != b'.',
            byte => is_plain(byte),
        };
        before = byte;
    }
    text.is_empty() || is_joined && text.len() <= length_max
}

/// A time as Kubernetes writes it, on a day that every month has.
fn is_time(text: &str) -> bool {
    let number = |from: usize| text.get(from..from + 2).and_then(|it| it.parse::<u8>().ok());
    let is_digit = |at: usize, byte: u8| match b"dddd-dd-ddTdd:dd:ddZ"[at] {
        b'd' => byte.is_ascii_digit(),
        wanted => byte == wanted,
    };
    text.len() == 20
        && text.bytes().enumerate().all(|(at, byte)| is_digit(at, byte))
        && number(5).is_some_and(|month| (1..=12).contains(&month))
        && number(8).is_some_and(|day| (1..=28).contains(&day))
        && number(11).is_some_and(|hour| hour < 24)
        && number(14).is_some_and(|minute| minute < 60)
        && number(17).is_some_and(|second| second < 60)
}

#[cfg(test)]
mod tests;
