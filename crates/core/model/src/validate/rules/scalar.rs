//! Ports and protocols, wherever they stand.

use net::{Port, Protocol};
use serde::Deserialize;
use serde_json::Value;

use super::{Faults, Place};

const PORT_NUMBERS: &str = "port range invalid, port number must be between 1 and 65535";

/// Port numbers start at 1.
pub(super) fn port(place: &Place<'_>, faults: &mut Faults) {
    if let Some(Port::Numbers { first: 0, .. }) = read_port(place.value) {
        let message = "port numbers are from 1 to 65535";
        faults.note(&place.path, message, ("Port", "0".to_owned()), PORT_NUMBERS);
    }
}

/// A protocol is a number from 1 to 255 or one of the known names.
pub(super) fn protocol(place: &Place<'_>, faults: &mut Faults) {
    let Some(protocol) = read_protocol(place.value) else { return };
    let reason = match protocol {
        Protocol::Number(0) => "protocol number invalid",
        Protocol::Name(_) if !protocol.is_known_name() => "protocol name invalid",
        Protocol::Number(_) | Protocol::Name(_) => return,
    };
    let message = format!(
        "\"{protocol}\" is not TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite or a number from 1 to 255"
    );
    faults.note(&place.path, message, ("Protocol", protocol.to_string()), reason);
}

/// The port that a value names; `None` where decoding has already refused it.
pub(super) fn read_port(value: &Value) -> Option<Port> {
    Port::deserialize(value).ok()
}

/// The protocol that a value names; `None` where decoding has already refused it.
pub(super) fn read_protocol(value: &Value) -> Option<Protocol> {
    Protocol::deserialize(value).ok()
}

/// Whether the value names the protocol with this name and number. Calico's CRD rules know the
/// exact name or the bare number only.
pub(super) fn is_protocol(value: &Value, name: &str, number: u64) -> bool {
    value.as_str() == Some(name) || value.as_u64() == Some(number)
}
