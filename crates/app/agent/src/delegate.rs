//! Other address managers: programs that the plugin calls as the runtime calls it.
//!
//! Only the plugin does this, never the agent: it is the one place where we run another program.

use std::io::Write;
use std::path::Path;
use std::process::{Command as Process, Stdio};

use sandbox::call::{Call, Command};
use sandbox::claim::CALICO_IPAM;
use sandbox::failure::{Code, Failure};
use sandbox::netconf::NetConf;
use serde_json::Value;

/// Before an ADD: asks the address manager, if it is not ours.
pub(crate) fn before(call: &Call, conf: &NetConf) -> Result<Option<Value>, Failure> {
    let is_foreign = !matches!(conf.ipam.plugin.as_str(), "" | CALICO_IPAM);
    match call.command {
        Command::Add if is_foreign => self::call(call, conf, Command::Add).map(Some),
        _ => Ok(None),
    }
}

/// After a DEL: tells the address manager, if it is not ours.
pub(crate) fn after(call: &Call, conf: &NetConf) -> Result<(), Failure> {
    match conf.ipam.plugin.as_str() {
        "" | CALICO_IPAM => Ok(()),
        _ => self::call(call, conf, Command::Del).map(drop),
    }
}

/// Calls the address manager that the configuration names.
pub(crate) fn call(call: &Call, conf: &NetConf, command: Command) -> Result<Value, Failure> {
    let name = &conf.ipam.plugin;
    if name.contains('/') {
        let message = format!("ipam.type {name:?} is not the name of a plugin");
        return Err(Failure::new(Code::InvalidConfiguration, message));
    }
    let folders: Vec<&str> = call.path.split(':').collect();
    let found = folders.iter().map(|folder| Path::new(folder).join(name)).find(|it| it.is_file());
    let Some(program) = found else {
        let message = format!("failed to find plugin {name:?} in path {folders:?}");
        return Err(Failure::plugin(message));
    };
    let answered = run(&program, call, command)
        .map_err(|error| Failure::new(Code::Io, format!("{}: {error}", program.display())))?;
    if answered.status.success() {
        return Ok(text::json::parse(&answered.stdout).unwrap_or_default());
    }
    let told = text::json::parse(&answered.stdout).unwrap_or_default();
    let message = match told["msg"].as_str() {
        Some(message) => message.to_owned(),
        None => format!("{name} ended with {}", answered.status),
    };
    Err(Failure::plugin(message).with_details(told["details"].as_str().unwrap_or_default()))
}

fn run(program: &Path, call: &Call, command: Command) -> std::io::Result<std::process::Output> {
    let mut child = Process::new(program)
        .env("CNI_COMMAND", command.name())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text::json::to_string(&call.configuration).as_bytes())?;
    }
    child.wait_with_output()
}
