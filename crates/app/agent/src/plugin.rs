//! The CNI plugin: short-lived, called by a container runtime.
//!
//! Where an agent runs, the plugin opens the container's namespace, hands the call over and prints
//! the answer. Where none was ever set up, it runs the agent's code for this one call in its own
//! process, under a lock, with the datastore that the network configuration names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use sandbox::call::{Call, Command};
use sandbox::failure::{Code, Failure};
use sandbox::netconf::NetConf;
use sandbox::version::Version;

use crate::delegate;
use crate::gates;
use crate::serve;
use host::bounded;
use host::protocol::{self, Question, Reply};
use host::tickets::Tickets;
use sandbox::identity::Identity;

/// The most that is read of standard input.
const INPUT_MAX: u64 = 1 << 20;
/// How long a restarting agent is waited for.
const AGENT_WAIT: Duration = Duration::from_secs(20);
/// How long it is waited for by who asks only whether it is there.
const STATUS_WAIT: Duration = Duration::from_secs(3);
/// How long an agent may take for one call.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// What is printed to whoever calls without saying what for.
const HELP: &str = "\
A CNI plugin: container runtimes call it, with CNI_COMMAND and the other variables of the
protocol in the environment and a network configuration on standard input.

Usage:
  calico                 gives containers an interface and addresses
  calico-ipam            manages addresses for another plugin

Flags:
  -v                     prints the Calico release that this stands in for
  -t                     tests whether the datastore of the configuration can be used
  -upgrade               (calico-ipam) moves this node's addresses here from host-local
";

/// Runs as the plugin of this name, with these arguments.
pub fn run(plugin: &str, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let flags: Vec<String> =
        arguments.map(|flag| flag.to_string_lossy().replacen("--", "-", 1)).collect();
    let has_flag = |name: &str| flags.iter().any(|flag| flag == name);
    let reply = if has_flag("-v") {
        Reply { output: format!("{}\n", api::EMULATED_CALICO_VERSION), status: 0 }
    } else if std::env::var_os("CNI_COMMAND").is_none_or(|command| command.is_empty()) {
        // A flag that nobody knows must not pass for a success.
        let is_known = |flag: &String| ["-t", "-h", "-help", "--help"].contains(&flag.as_str());
        Reply { output: HELP.to_owned(), status: if flags.iter().all(is_known) { 0 } else { 2 } }
    } else {
        with_input(plugin, has_flag("-t"))
    };
    let mut output = io::stdout().lock();
    let printed = output.write_all(reply.output.as_bytes()).and_then(|()| output.flush());
    match printed {
        Ok(()) => ExitCode::from(reply.status),
        Err(_) => ExitCode::from(1),
    }
}

fn with_input(plugin: &str, tests_datastore: bool) -> Reply {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("CNI_"))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect();
    match bounded::read(io::stdin(), INPUT_MAX) {
        Ok(input) if tests_datastore => match serve::test_datastore(&input) {
            Ok(()) => Reply::default(),
            Err(failure) => serve::refused(&failure),
        },
        Ok(input) => call(plugin, environment, &input),
        Err(error) => serve::refused(&Failure::new(Code::Io, format!("standard input: {error}"))),
    }
}

fn call(plugin: &str, environment: BTreeMap<String, String>, input: &[u8]) -> Reply {
    match try_call(plugin, environment, input) {
        Ok(reply) => reply,
        Err(failure) => serve::refused(&failure),
    }
}

fn try_call(
    plugin: &str,
    environment: BTreeMap<String, String>,
    input: &[u8],
) -> Result<Reply, Failure> {
    let call = Call::read(&environment, input)?;
    if call.command == Command::Version {
        return Ok(serve::printed(&Version::report()));
    }
    let conf = NetConf::read(&call.configuration)?;
    let netns = open_netns(&call)?;
    if call.command == Command::Add {
        gates::wait(&conf.readiness_gates)?;
    }
    let delegated = match plugin {
        "calico" => delegate::before(&call, &conf)?,
        _ => None,
    };
    let question = Question {
        plugin: plugin.to_owned(),
        environment,
        input: String::from_utf8_lossy(input).into_owned(),
        delegated: delegated.clone(),
    };
    let reply = match agent_socket(&conf) {
        Some(socket) => ask_agent(&socket, &question, netns.as_ref(), call.command),
        None => serve::directly(&question, netns),
    };
    let reply = reply.map_err(|failure| match (call.command, failure.code) {
        // Whatever is in the way: an ADD could not be served now.
        (Command::Status, Code::Plugin | Code::TryAgainLater | Code::Io) => {
            Failure { code: Code::NotAvailable, ..failure }
        }
        _ => failure,
    });
    let failed = reply.as_ref().map_or(true, |reply| reply.status != 0);
    if delegated.is_some() && call.command == Command::Add && failed {
        // The other address manager has given addresses that nobody will use.
        let _ = delegate::call(&call, &conf, Command::Del);
    }
    if call.command == Command::Del && !failed && plugin == "calico" {
        delegate::after(&call, &conf)?;
    }
    reply
}

/// DEL goes on without: the namespace may be gone, and the rest is still to be done.
fn open_netns(call: &Call) -> Result<Option<OwnedFd>, Failure> {
    if call.netns.is_empty() {
        return Ok(None);
    }
    // A path may name anything: opening a pipe would wait for somebody to write.
    let mut options = File::options();
    match options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&call.netns) {
        Ok(file) => Ok(Some(file.into())),
        Err(_) if call.command == Command::Del => Ok(None),
        Err(error) => {
            let message = format!("CNI_NETNS {:?}: {error}", call.netns);
            Err(Failure::plugin(message)
                .with_details("the container is gone, or its runtime names another path"))
        }
    }
}

/// Where the agent listens, if one was set up here.
fn agent_socket(conf: &NetConf) -> Option<PathBuf> {
    if !conf.agent_socket.is_empty() {
        return Some(PathBuf::from(&conf.agent_socket));
    }
    let usual = Path::new("/run/margay/agent.sock");
    let was_set_up = usual.exists() || Path::new("/var/lib/margay/agent").exists();
    was_set_up.then(|| usual.to_owned())
}

fn ask_agent(
    socket: &Path,
    question: &Question,
    netns: Option<&OwnedFd>,
    command: Command,
) -> Result<Reply, Failure> {
    let started = Instant::now();
    loop {
        let why = match ask_once(socket, question, netns) {
            Ok(reply) => return Ok(reply),
            // No agent can listen at such a path, however long it is waited for.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let message = format!("agent_socket {}: {error}", socket.display());
                return Err(Failure::new(Code::InvalidConfiguration, message)
                    .with_details("choose a shorter folder for the agent (--run-dir)"));
            }
            Err(error) => error,
        };
        // Who asks how it is wants to know it now; a restart takes less than a second.
        let patience = if command == Command::Status { STATUS_WAIT } else { AGENT_WAIT };
        if started.elapsed() > patience {
            if command == Command::Del && leave_ticket(socket, question).is_ok() {
                return Ok(Reply::default());
            }
            let message = format!(
                "{}: the agent at {} does not answer: {why}",
                command.name(),
                socket.display()
            );
            return Err(Failure::new(Code::TryAgainLater, message)
                .with_details("margay status      # is the agent running on this node?"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The agent takes the sandbox down when it is back.
fn leave_ticket(socket: &Path, question: &Question) -> Result<(), Failure> {
    let call = Call::read(&question.environment, question.input.as_bytes())?;
    let left = Tickets::beside(socket).leave(&Identity::of(&call), question);
    left.map_err(|error| Failure::new(Code::Io, error.to_string()))
}

fn ask_once(socket: &Path, question: &Question, netns: Option<&OwnedFd>) -> io::Result<Reply> {
    let stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(ANSWER_WAIT))?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    protocol::ask(&stream, question, netns)?;
    protocol::receive(&stream)
}
