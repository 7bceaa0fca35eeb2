//! Raw parameters from a FelixConfiguration resource.

use std::collections::BTreeMap;
use std::fmt;

use net::{Cidr, Dscp, Duration, Port};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::number::print_float;
use super::parameter::{Kind, Parameter};
use super::table::PARAMETERS;

const GLOBAL_NAME: &str = "default";
const HOST_PREFIX: &str = "node.";
const ANNOTATION_PREFIX: &str = "config.projectcalico.org/";

/// Fields of `bpfConntrackTimeouts` and the keys they become, in order.
const CONNTRACK_TIMEOUTS: [(&str, &str); 8] = [
    ("creationGracePeriod", "CreationGracePeriod"),
    ("tcpSynSent", "TCPSynSent"),
    ("tcpEstablished", "TCPEstablished"),
    ("tcpFinsSeen", "TCPFinsSeen"),
    ("tcpResetSeen", "TCPResetSeen"),
    ("udpTimeout", "UDPTimeout"),
    ("genericTimeout", "GenericTimeout"),
    ("icmpTimeout", "ICMPTimeout"),
];

/// Which hosts a resource is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All hosts.
    Global,
    /// The one host.
    Host(String),
    /// The hosts that its `nodeSelector` selects.
    Selected,
}

impl Scope {
    /// The scope that the name of a resource gives it.
    pub fn of(name: &str) -> Self {
        match name.strip_prefix(HOST_PREFIX) {
            Some("") => Self::Global,
            Some(host) => Self::Host(host.to_owned()),
            None if name == GLOBAL_NAME => Self::Global,
            None => Self::Selected,
        }
    }
}

/// A field that does not have the type of its parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// The parameter.
    pub parameter: &'static str,
    /// The field of the spec.
    pub field: &'static str,
    /// What is wrong with its value.
    pub message: String,
}

impl fmt::Display for Undecodable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "spec.{}: {}", self.field, self.message)
    }
}

impl std::error::Error for Undecodable {}

/// The raw parameters of a spec, with those of the annotations over them, and the fields that have
/// another type: one of them costs the others nothing.
pub fn from_resource(
    spec: &Map<String, Value>,
    annotations: &BTreeMap<String, String>,
) -> (BTreeMap<String, String>, Vec<Undecodable>) {
    let (mut raw, mut undecodable) = (BTreeMap::new(), Vec::new());
    for parameter in PARAMETERS {
        let Some(field) = parameter.field else { continue };
        let Some(value) = spec.get(field.name).filter(|value| !value.is_null()) else { continue };
        let text = match text_of(parameter, value) {
            Ok(text) => text,
            Err(message) => {
                let (parameter, field) = (parameter.name, field.name);
                undecodable.push(Undecodable { parameter, field, message });
                continue;
            }
        };
        let is_left_out = text.is_empty() && value.is_string() && !field.keeps_empty;
        let has_no_items = parameter.kind == Kind::KeyDurations && text.is_empty();
        if !is_left_out && !has_no_items {
            raw.insert(parameter.name.to_owned(), text);
        }
    }
    for (key, value) in annotations {
        if let Some(name) = key.strip_prefix(ANNOTATION_PREFIX) {
            raw.insert(name.to_owned(), value.clone());
        }
    }
    (raw, undecodable)
}

/// Decodes the type that the field has; the error is that of the decoder.
fn decode<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| error.to_string())
}

/// The text that the parameter's own reader takes for the value.
fn text_of(parameter: &Parameter, value: &Value) -> Result<String, String> {
    Ok(match parameter.kind {
        Kind::Bool | Kind::OptionalBool => decode::<bool>(value)?.to_string(),
        Kind::Int(..) | Kind::MarkMask => decode::<i64>(value)?.to_string(),
        Kind::Seconds => print_float(decode::<Duration>(value)?.seconds()),
        Kind::Milliseconds => print_float(milliseconds(decode(value)?)),
        Kind::Cidrs | Kind::InterfaceFilters => decode::<Vec<String>>(value)?.join(","),
        Kind::PortRange => decode::<Port>(value)?.to_string(),
        Kind::PortRanges => {
            let ports: Vec<Port> = decode(value)?;
            ports.iter().map(Port::to_string).collect::<Vec<_>>().join(",")
        }
        Kind::Dscp => decode::<Dscp>(value)?.to_string(),
        Kind::FailsafePorts => failsafe_ports(&decode::<Vec<ProtocolPort>>(value)?),
        Kind::TableRange => decode::<Tables>(value)?.to_string(),
        Kind::TableRanges => {
            let ranges: Vec<Tables> = decode(value)?;
            ranges.iter().map(Tables::to_string).collect::<Vec<_>>().join(",")
        }
        Kind::KeyDurations => {
            let overrides: Vec<TimeoutOverride> = decode(value)?;
            let text = |item: &TimeoutOverride| format!("{}={}", item.name, item.timeout);
            overrides.iter().map(text).collect::<Vec<_>>().join(",")
        }
        Kind::KeyValues if parameter.name == "BPFConntrackTimeouts" => {
            conntrack_timeouts(&decode(value)?)
        }
        Kind::KeyValues if parameter.name == "BPFLogFilters" => {
            let map: BTreeMap<String, String> = decode(value)?;
            map.iter().map(|(key, value)| format!("{key}={value},")).collect()
        }
        _ => decode::<String>(value)?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a float of milliseconds is what is printed")]
fn milliseconds(duration: Duration) -> f64 {
    let nanoseconds = duration.nanoseconds();
    (nanoseconds / 1_000_000) as f64 + (nanoseconds % 1_000_000) as f64 / 1e6
}

#[derive(Deserialize)]
struct ProtocolPort {
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    net: String,
}

/// No ports at all are written as `none`: an empty text would mean the default ports.
fn failsafe_ports(ports: &[ProtocolPort]) -> String {
    if ports.is_empty() {
        return "none".to_owned();
    }
    let text = |ProtocolPort { protocol, port, net }: &ProtocolPort| {
        let protocol = protocol.to_lowercase();
        let is_v6 = net.parse().is_ok_and(|cidr: Cidr| !cidr.is_ipv4());
        match net.as_str() {
            "" => format!("{protocol}:{port}"),
            net if is_v6 => format!("{protocol}:[{net}]:{port}"),
            net => format!("{protocol}:{net}:{port}"),
        }
    };
    ports.iter().map(text).collect::<Vec<_>>().join(",")
}

#[derive(Deserialize)]
struct Tables {
    #[serde(default)]
    min: i64,
    #[serde(default)]
    max: i64,
}

impl fmt::Display for Tables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.min, self.max)
    }
}

#[derive(Deserialize)]
struct TimeoutOverride {
    #[serde(default)]
    name: String,
    #[serde(default)]
    timeout: Duration,
}

fn conntrack_timeouts(timeouts: &BTreeMap<String, Option<String>>) -> String {
    let given = CONNTRACK_TIMEOUTS.iter().filter_map(|(field, key)| {
        timeouts.get(*field)?.as_ref().map(|value| format!("{key}={value}"))
    });
    given.collect::<Vec<_>>().join(",")
}
