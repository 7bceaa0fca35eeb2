//! Agents: one a node, started as a service manager would, ready when they say so.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::protocol::{self, Inquiry};
use host::report;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::lab::{Lab, flag};
use crate::place::Place;
use crate::processes::{self, Process};
use crate::state::Node;

/// How long an agent may take to say how it is.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// So many agents are asked at once.
pub(crate) const N_ASKED: usize = 8;
/// How long an agent may take to be ready.
const START_WAIT: Duration = Duration::from_secs(30);
/// How often a child that may have ended is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long a killed agent may go on answering.
const END_WAIT: Duration = Duration::from_secs(5);
/// Lines of the log that are shown when an agent does not start.
const LOG_LINES: usize = 5;

/// The part of the lab that the agent of a node is.
pub(crate) fn part(node: &str) -> String {
    format!("agent/{node}")
}

/// Starts the agent of a node and waits until it says that it is ready.
pub(crate) fn start(lab: &Lab, node: &Node) -> Result<(), Failure> {
    for what in ["state", "run", "log"] {
        lab.place.make(&lab.place.node(&node.name, what))?;
    }
    let notify = lab.place.node(&node.name, "run").join("notify.sock");
    let _ = fs::remove_file(&notify);
    let failed = |error: io::Error| Failure::new(format!("{}: {error}", notify.display()));
    let socket = UnixDatagram::bind(&notify).map_err(failed)?;
    socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
    let mut command = command(lab, node)?;
    command.env("NOTIFY_SOCKET", &notify);
    let mut child = processes::spawn_in(&lab.netns(&node.name)?, &mut command)?;
    let ready = wait(&socket, &mut child);
    let _ = fs::remove_file(&notify);
    ready.map_err(|why| {
        let log = lab.place.agent_log(&node.name);
        let mut failure = Failure::new(format!("the agent of {} does not start", node.name))
            .why(why)
            .help(format!("less {}", log.display()));
        for line in last_lines(&fs::read_to_string(&log).unwrap_or_default()) {
            failure = failure.detail(line);
        }
        failure
    })
}

fn command(lab: &Lab, node: &Node) -> Result<Command, Failure> {
    let log = lab.place.agent_log(&node.name);
    let open = File::options().create(true).append(true).open(&log);
    let open = open.map_err(|error| Failure::new(format!("{}: {error}", log.display())))?;
    let mut command = lab.margay(&["agent", "--node", &node.name], &part(&node.name))?;
    for address in node.addresses(lab.state.ipv6) {
        command.arg("--address").arg(address.to_string());
    }
    command.arg("--state-dir").arg(lab.place.node(&node.name, "state"));
    command.arg("--run-dir").arg(lab.place.node(&node.name, "run"));
    // Newer kernels let nobody break what is the agent's own, and a lab is there to be broken.
    command.arg("--shared-tables");
    command.stdout(Stdio::null()).stderr(open);
    Ok(command)
}

/// Waits for `READY=1`, the one line of the protocol that means it.
fn wait(socket: &UnixDatagram, child: &mut Child) -> Result<(), String> {
    let began = Instant::now();
    let mut message = [0; 4096];
    loop {
        match socket.recv(&mut message) {
            Ok(len) => {
                let said = message.get(..len).unwrap_or_default();
                if said.split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                    return Ok(());
                }
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it ended with {status}"));
        }
        if began.elapsed() > START_WAIT {
            return Err(format!(
                "it did not say that it is ready within {} s",
                START_WAIT.as_secs()
            ));
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn last_lines(log: &str) -> Vec<&str> {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].to_vec()
}

/// Whether the agent of a node runs and accepts connections.
pub(crate) fn is_running(lab: &Lab, node: &str) -> bool {
    let socket = lab.place.node(node, "run").join("agent.sock");
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}

/// What keeps the agent of a node from answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hindrance {
    node: String,
    /// The name of the lab.
    lab: String,
    /// The process that was stopped; none where no agent runs.
    stopped: Option<i32>,
}

impl Hindrance {
    /// What a table says of the agent.
    pub(crate) fn word(&self) -> &'static str {
        match self.stopped {
            Some(_) => "stopped",
            None => "-",
        }
    }

    /// What is the matter, in the user's words.
    pub(crate) fn what(&self) -> String {
        let node = &self.node;
        match self.stopped {
            Some(pid) => format!("the agent of {node} is stopped (process {pid})"),
            None => format!("the agent of {node} does not run"),
        }
    }

    /// The same where the node is named already.
    pub(crate) fn of_node(&self, place: &Place) -> String {
        match self.stopped {
            Some(pid) => format!("its agent is stopped (process {pid})"),
            None => {
                let log = place.agent_log(&self.node);
                format!("its agent does not run (log: {})", log.display())
            }
        }
    }

    /// What puts it right.
    pub(crate) fn fix(&self) -> String {
        format!("margay lab heal{}", flag(&self.lab))
    }
}

/// What keeps the agent of a node from answering, if anything is known to.
pub(crate) fn hindrance(lab: &Lab, node: &str) -> Option<Hindrance> {
    let of = |stopped| Hindrance { node: node.to_owned(), lab: lab.place.name.clone(), stopped };
    let part = part(node);
    let mut found = processes::all(&lab.place).into_iter();
    let stopped = found
        .find(|process| process.part.as_ref() == Some(&part) && processes::is_stopped(process.pid));
    match stopped {
        Some(process) => Some(of(Some(process.pid))),
        None => (!is_running(lab, node)).then(|| of(None)),
    }
}

/// Says of a call why the agent of a node did not answer it, if it did not, and what helps.
pub(crate) fn explain_silence(lab: &Lab, node: &str, failure: Failure) -> Failure {
    match hindrance(lab, node) {
        Some(hindrance) => failure.detail(hindrance.what()).help(hindrance.fix()),
        // It has said itself what is wrong.
        None if ask(lab, node).is_ok() => failure,
        None => {
            let log = lab.place.agent_log(node);
            failure
                .detail(format!("the agent of {node} runs, but does not answer"))
                .detail(format!("log: {}", log.display()))
                .help(format!("margay lab heal{}     starts it anew", flag(&lab.place.name)))
        }
    }
}

/// Asks the agent of a node how it is.
pub(crate) fn ask(lab: &Lab, node: &str) -> io::Result<report::Status> {
    inquire(lab, node, &Inquiry::Status)
}

/// Asks the agent of a node something.
pub(crate) fn inquire<T: DeserializeOwned>(
    lab: &Lab,
    node: &str,
    inquiry: &Inquiry,
) -> io::Result<T> {
    let socket = lab.place.node(node, "run").join("agent.sock");
    let asked = protocol::inquire(&socket, inquiry, ANSWER_WAIT);
    asked.map_err(|error| match is_timeout(&error) {
        true => io::Error::other(format!("no answer within {} s", ANSWER_WAIT.as_secs())),
        false => error,
    })
}

/// Whether the agent of a node runs and says how it is.
pub(crate) fn is_well(lab: &Lab, node: &str) -> bool {
    hindrance(lab, node).is_none() && ask(lab, node).is_ok()
}

/// How long it takes to ask so many agents if none answers.
pub(crate) fn all_wait(n_nodes: usize) -> Duration {
    let n_rounds = u32::try_from(n_nodes.div_ceil(N_ASKED)).unwrap_or(u32::MAX);
    ANSWER_WAIT.saturating_mul(n_rounds)
}

/// Whether nobody answers any more: the socket of a killed process lives a moment longer than what
/// tells whose it is.
fn falls_silent(lab: &Lab, node: &str) -> bool {
    let began = Instant::now();
    while is_running(lab, node) {
        if began.elapsed() > END_WAIT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Kills the agent of a node with everything that it started, whoever started it; how many
/// processes that were.
pub(crate) fn kill(lab: &Lab, node: &str) -> Result<usize, Failure> {
    let part = part(node);
    let run = lab.place.node(node, "run");
    let locks = ["supervisor.lock", "dataplane.lock"].map(|lock| run.join(lock));
    let (ended, left) = processes::end(|| {
        let is_agent = |process: &Process| {
            process.part.as_ref() == Some(&part) || processes::holds(process, &locks)
        };
        processes::all(&lab.place).into_iter().filter(is_agent).collect()
    });
    match left.first() {
        Some(process) => {
            let what = format!("the agent of {node} cannot be killed: process {}", process.pid);
            Err(Failure::new(what))
        }
        None if !falls_silent(lab, node) => {
            let socket = run.join("agent.sock");
            Err(Failure::new(format!("an agent still answers at {}", socket.display()))
                .why("it is no process of the lab"))
        }
        None => Ok(ended),
    }
}
