//! One call of a plugin: the environment and standard input of a CNI command, checked in the
//! order in which the reference library checks them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::failure::{Code, Failure};
use crate::version::Version;

/// What the runtime wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Give the container an interface.
    Add,
    /// Take it back.
    Del,
    /// See whether it is as it should be.
    Check,
    /// Take back everything but the listed attachments.
    Gc,
    /// Say whether an ADD could be served.
    Status,
    /// Say which versions of the protocol are spoken.
    Version,
}

/// A call that is well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is wanted.
    pub command: Command,
    /// The container; empty for commands that are not about one.
    pub container: String,
    /// The path of its network namespace; may be empty for DEL.
    pub netns: String,
    /// The name of the interface inside.
    pub interface: String,
    /// `CNI_ARGS`, split. The last one of a name counts.
    pub arguments: BTreeMap<String, String>,
    /// Where other plugins are found.
    pub path: String,
    /// The version of the configuration.
    pub version: Version,
    /// The network configuration, as handed in.
    pub configuration: Value,
}

/// The variables of the protocol, in the order in which missing ones are named, with the commands
/// that need them.
const VARIABLES: [(&str, &[Command]); 4] = [
    ("CNI_CONTAINERID", &[Command::Add, Command::Check, Command::Del]),
    ("CNI_NETNS", &[Command::Add, Command::Check]),
    ("CNI_IFNAME", &[Command::Add, Command::Check, Command::Del]),
    ("CNI_PATH", &[Command::Add, Command::Check, Command::Del, Command::Gc]),
];

impl Command {
    /// The command of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    fn since(self) -> Version {
        match self {
            Self::Check => Version::V0_4_0,
            Self::Gc | Self::Status => Version::V1_1_0,
            Self::Add | Self::Del | Self::Version => Version::V0_1_0,
        }
    }
}

impl Call {
    /// Reads a call. `environment` holds the variables that are set.
    pub fn read(environment: &BTreeMap<String, String>, input: &[u8]) -> Result<Self, Failure> {
        let variable = |name: &str| environment.get(name).cloned().unwrap_or_default();
        let name = variable("CNI_COMMAND");
        if name.is_empty() {
            return Err(missing(&["CNI_COMMAND"]));
        }
        let command = Command::parse(&name).ok_or_else(|| {
            Failure::new(Code::InvalidEnvironment, format!("unknown CNI_COMMAND: {name}"))
        })?;
        let absent: Vec<&str> = VARIABLES
            .iter()
            .filter(|(name, commands)| commands.contains(&command) && variable(name).is_empty())
            .map(|(name, _)| *name)
            .collect();
        if !absent.is_empty() {
            return Err(missing(&absent));
        }
        // What a command is not about is not checked, so it is not passed on either.
        let is_about_one = matches!(command, Command::Add | Command::Del | Command::Check);
        let of_one = |name: &str| if is_about_one { variable(name) } else { String::new() };
        let mut call = Self {
            command,
            container: of_one("CNI_CONTAINERID"),
            netns: of_one("CNI_NETNS"),
            interface: of_one("CNI_IFNAME"),
            arguments: BTreeMap::new(),
            path: variable("CNI_PATH"),
            version: Version::V1_1_0,
            configuration: Value::Null,
        };
        if command == Command::Version {
            return Ok(call);
        }
        call.configuration = read_configuration(input)?;
        if is_about_one {
            check_container(&call.container)?;
            check_interface(&call.interface)?;
        }
        call.version = read_version(&call.configuration)?;
        if call.version < command.since() {
            let message = format!("config version does not allow {name}");
            return Err(Failure::new(Code::IncompatibleVersion, message));
        }
        call.arguments = split_arguments(&variable("CNI_ARGS"))?;
        Ok(call)
    }
}

fn missing(names: &[&str]) -> Failure {
    let message = format!("required env variables [{}] missing", names.join(","));
    Failure::new(Code::InvalidEnvironment, message)
}

fn read_configuration(input: &[u8]) -> Result<Value, Failure> {
    let bad = |why: String| {
        Failure::new(Code::Decoding, format!("error unmarshall network config: {why}"))
    };
    let value = text::json::parse(input).map_err(|error| bad(error.to_string()))?;
    let Some(object) = value.as_object() else {
        return Err(bad("the network configuration is not a JSON object".into()));
    };
    let name = match object.get("name") {
        None | Some(Value::Null) => "",
        Some(Value::String(name)) => name,
        Some(_) => return Err(bad("name is not a text".into())),
    };
    if name.is_empty() {
        return Err(Failure::new(Code::InvalidConfiguration, "missing network name"));
    }
    if !is_network_name(name) {
        let message = "invalid characters found in network name";
        return Err(Failure::new(Code::InvalidConfiguration, message).with_details(name));
    }
    Ok(value)
}

fn read_version(configuration: &Value) -> Result<Version, Failure> {
    let named = match configuration.get("cniVersion") {
        None | Some(Value::Null) => "",
        Some(Value::String(version)) => version,
        Some(_) => {
            let message = "decoding version from network config: cniVersion is not a text";
            return Err(Failure::new(Code::Decoding, message));
        }
    };
    Version::parse(named).ok_or_else(|| {
        let known: Vec<String> =
            Version::ALL.into_iter().map(|version| format!("{:?}", version.text())).collect();
        Failure::new(Code::IncompatibleVersion, "incompatible CNI versions")
            .with_details(format!("config is {named:?}, plugin supports [{}]", known.join(" ")))
    })
}

/// A letter or digit, then letters, digits, underscores, dots and dashes.
pub(crate) fn is_network_name(name: &str) -> bool {
    let mut characters = name.bytes();
    characters.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && characters.all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-'))
}

fn check_container(container: &str) -> Result<(), Failure> {
    if is_network_name(container) {
        return Ok(());
    }
    let message = "invalid characters in containerID";
    Err(Failure::new(Code::InvalidEnvironment, message).with_details(container))
}

fn check_interface(interface: &str) -> Result<(), Failure> {
    let bad = |message: &str| Failure::new(Code::InvalidEnvironment, message);
    if interface.len() > 15 {
        return Err(bad("interface name is too long")
            .with_details("interface name should be less than 16 characters"));
    }
    if matches!(interface, "." | "..") {
        return Err(bad("interface name is . or .."));
    }
    if interface.chars().any(|c| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control()) {
        return Err(bad("interface name contains / or : or whitespace characters"));
    }
    Ok(())
}

/// `A=1;B=2`. Calico stops at the first piece without an equals sign.
fn split_arguments(text: &str) -> Result<BTreeMap<String, String>, Failure> {
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    text.split(';')
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(Failure::plugin(format!("ARGS: invalid pair {pair:?}"))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_about_no_container_has_none() {
        let set =
            [("CNI_COMMAND", "STATUS"), ("CNI_CONTAINERID", "\u{fc}\u{fc}"), ("CNI_IFNAME", "/")];
        let environment = set.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let call = Call::read(&environment, br#"{"cniVersion":"1.1.0","name":"n"}"#).unwrap();
        assert_eq!((call.container.as_str(), call.interface.as_str()), ("", ""));
    }
}
