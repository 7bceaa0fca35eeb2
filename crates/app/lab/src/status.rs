//! `lab status`.

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

use host::protocol::{self, Inquiry};
use host::report::{self, Severity};
use kernel::{LinkName, Netlink};
use serde_json::{Value, json};

use crate::Outcome;
use crate::agents;
use crate::arguments::{DatastoreKind, Format};
use crate::datastore;
use crate::failure::Failure;
use crate::faults;
use crate::lab::{Lab, flag};
use crate::matrix::{self, Matrix};
use crate::parallel;
use crate::place::Place;
use crate::pods;
use crate::processes;
use crate::screen::{Screen, age, count};
use crate::state::{Fault, Node, Pod, utc};
use crate::topology;
use crate::waiting::patiently;

/// How long an agent may take to say how it is.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// What an agent puts right by itself within this time is not worth telling.
const PASSING: Duration = Duration::from_secs(2);
/// How often an agent is asked meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// So many agents are asked at once.
const N_ASKED: usize = 8;

/// Something that is not as it should be.
struct Problem {
    /// The stable code of an agent's finding.
    code: Option<String>,
    outcome: Outcome,
    subject: String,
    what: String,
    /// What puts it right; none where only looking closer helps.
    fix: Option<String>,
}

/// What was found about a node.
struct NodeStatus<'a> {
    node: &'a Node,
    has_agent: bool,
    is_plugged: bool,
}

/// The command.
pub(crate) fn run(place: &Place, format: Format) -> Result<Outcome, Failure> {
    let lab = Lab::open(place)?;
    let screen = Screen::detect(format);
    let nodes: Vec<NodeStatus<'_>> = lab
        .state
        .nodes
        .iter()
        .map(|node| NodeStatus {
            node,
            has_agent: agents::is_running(&lab, &node.name),
            is_plugged: topology::is_plugged(&lab, &node.name).unwrap_or(false),
        })
        .collect();
    let matrix = Matrix::measure(&lab, matrix::PATIENCE, |_, _| true)?;
    let mut problems = problems(&lab, &nodes);
    let n_nodes = count(lab.state.nodes.len(), "agent");
    problems.extend(patiently(&format!("asking {n_nodes}"), || reported(&lab, &nodes)));
    let (fine, all) = matrix.pairs();
    if fine < all {
        problems.push(Problem {
            code: None,
            outcome: Outcome::Broken,
            subject: "pairs".to_owned(),
            what: format!("{} of {all} pairs do not answer", all - fine),
            fix: None,
        });
    }
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.outcome));
    let outcome = problems.iter().map(|problem| problem.outcome).max().unwrap_or(Outcome::Fine);
    screen.answer(&as_json(&lab, &nodes, &matrix, &problems))?;
    screen.say(&as_text(&lab, screen, &nodes, &matrix, &problems))?;
    Ok(outcome)
}

fn problems(lab: &Lab, nodes: &[NodeStatus<'_>]) -> Vec<Problem> {
    let heal = format!("margay lab heal{}", flag(&lab.place.name));
    let mut found = Vec::new();
    let mut add = |outcome, subject: &str, what: String| {
        let (subject, fix) = (subject.to_owned(), Some(heal.clone()));
        found.push(Problem { code: None, outcome, subject, what, fix });
    };
    for status in nodes {
        let name = &status.node.name;
        if !status.has_agent {
            let log = lab.place.agent_log(name);
            let what = format!("its agent does not run (log: {})", log.display());
            add(Outcome::Degraded, name, what);
        }
        if !status.is_plugged {
            add(Outcome::Broken, name, "its cable is pulled (eth0 has no carrier)".to_owned());
        }
        for (pod, what) in absent_interfaces(lab, status.node) {
            add(Outcome::Broken, &pod.name, what);
        }
    }
    let running = processes::all(&lab.place);
    let runs = |part: &str| running.iter().any(|process| process.part.as_deref() == Some(part));
    for pod in &lab.state.pods {
        if !runs(&pods::part(&pod.name)) {
            add(Outcome::Broken, &pod.name, "its process does not run".to_owned());
        }
    }
    if lab.state.datastore == DatastoreKind::Etcd && !runs(datastore::PART) {
        add(Outcome::Broken, "etcd", "it does not run".to_owned());
    }
    for fault in &lab.state.broken {
        let what = format!("broken on purpose: {}", faults::name(fault.scenario));
        add(Outcome::Degraded, &fault.target, what);
    }
    found
}

/// What the agents themselves say is wrong: the same as `margay status` on their nodes.
fn reported(lab: &Lab, nodes: &[NodeStatus<'_>]) -> Vec<Problem> {
    let running: Vec<&Node> =
        nodes.iter().filter(|status| status.has_agent).map(|status| status.node).collect();
    let told = parallel::each(&running, N_ASKED, |node| findings(lab, node));
    told.into_iter().flatten().collect()
}

fn findings(lab: &Lab, node: &Node) -> Vec<Problem> {
    let socket = lab.place.node(&node.name, "run").join("agent.sock");
    let began = Instant::now();
    loop {
        let asked = protocol::inquire(&socket, &Inquiry::Status, ANSWER_WAIT);
        let is_over = began.elapsed() > PASSING;
        match asked {
            Ok(report::Status { findings, .. }) if findings.is_empty() || is_over => {
                let problems = findings.into_iter();
                return problems.map(|finding| problem(&node.name, finding)).collect();
            }
            Err(error) if is_over => {
                return vec![Problem {
                    code: None,
                    outcome: Outcome::Degraded,
                    subject: node.name.clone(),
                    what: format!("its agent does not answer: {error}"),
                    fix: Some(format!("less {}", lab.place.agent_log(&node.name).display())),
                }];
            }
            _ => std::thread::sleep(ASK_AGAIN),
        }
    }
}

fn problem(node: &str, finding: report::Finding) -> Problem {
    let outcome = match finding.severity {
        Severity::Fine => Outcome::Fine,
        Severity::Degraded => Outcome::Degraded,
        Severity::Broken => Outcome::Broken,
    };
    let fix = Some(finding.fix).filter(|fix| !fix.is_empty());
    Problem {
        code: Some(finding.code),
        outcome,
        subject: node.to_owned(),
        what: finding.problem,
        fix,
    }
}

fn absent_interfaces<'a>(lab: &'a Lab, node: &Node) -> Vec<(&'a Pod, String)> {
    let netlink = lab.netns(&node.name).and_then(|netns| Ok(Netlink::in_netns(&netns)?));
    let Ok(mut netlink) = netlink else { return Vec::new() };
    let node = node.name.clone();
    let pods = lab.state.pods.iter().filter(move |pod| pod.node == node);
    pods.filter_map(|pod| {
        let name = LinkName::new(&pod.interface).ok()?;
        let is_absent = netlink.link_by_name(&name).is_ok_and(|link| link.is_none());
        is_absent.then(|| (pod, format!("its interface {name} is gone from {}", pod.node)))
    })
    .collect()
}

fn as_json(lab: &Lab, nodes: &[NodeStatus<'_>], matrix: &Matrix, problems: &[Problem]) -> Value {
    let state = &lab.state;
    let nodes = nodes.iter().map(|status| {
        let addresses = status.node.addresses(state.ipv6);
        let addresses: Vec<String> = addresses.iter().map(|net| net.addr().to_string()).collect();
        json!({
            "name": status.node.name,
            "addresses": addresses,
            "agentRuns": status.has_agent,
            "isPlugged": status.is_plugged,
        })
    });
    let word = |outcome: Outcome| match outcome {
        Outcome::Fine => "fine",
        Outcome::Degraded => "degraded",
        Outcome::Broken => "broken",
    };
    let worst = problems.first().map_or(Outcome::Fine, |problem| problem.outcome);
    let findings = problems.iter().map(|problem| {
        json!({
            "code": problem.code.as_deref().unwrap_or_default(),
            "severity": word(problem.outcome),
            "subject": problem.subject,
            "problem": problem.what,
            "fix": problem.fix.as_deref().unwrap_or_default(),
        })
    });
    let (fine, all) = matrix.pairs();
    json!({
        "status": word(worst),
        "lab": lab.place.name,
        "folder": lab.place.folder,
        "since": utc(state.since),
        "datastore": state.datastore,
        "ipv6": state.ipv6,
        "nodes": nodes.collect::<Vec<_>>(),
        "pods": state.pods,
        "pairs": {"answering": fine, "all": all},
        "brokenOnPurpose": state.broken.iter().map(Fault::json).collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn as_text(
    lab: &Lab,
    screen: Screen,
    nodes: &[NodeStatus<'_>],
    matrix: &Matrix,
    problems: &[Problem],
) -> String {
    let state = &lab.state;
    let worst = problems.first().map_or(Outcome::Fine, |problem| problem.outcome);
    let (fine, all) = matrix.pairs();
    let mut text = format!(
        "{} lab {:?}: {}, {}, {fine}/{all} pairs answer, up since {}\n",
        screen.mark(worst),
        lab.place.name,
        count(state.nodes.len(), "node"),
        count(state.pods.len(), "pod"),
        age(seconds_since(state.since)),
    );
    for problem in problems {
        let mark = screen.mark(problem.outcome);
        let code = problem.code.as_ref().map_or(String::new(), |code| format!("  {code}"));
        let _ = writeln!(text, "{mark} {}: {}{code}", problem.subject, problem.what);
    }
    if let Some(fix) = problems.iter().find_map(|problem| problem.fix.as_ref()) {
        let _ = writeln!(text, "fix: {fix}");
    }
    if fine < all {
        let _ = writeln!(text, "see: margay lab test{}", flag(&lab.place.name));
    }
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .map(|status| {
            let pods: Vec<String> = state.pods_of(&status.node.name).map(shown).collect();
            vec![
                status.node.name.clone(),
                status.node.v4().to_string(),
                if status.has_agent { "running" } else { "-" }.to_owned(),
                pods.join(" "),
            ]
        })
        .collect();
    text + &screen.table(&["NODE", "ADDRESS", "AGENT", "PODS"], &rows)
}

fn shown(pod: &Pod) -> String {
    match pod.addresses.first() {
        Some(address) => format!("{}={address}", pod.role()),
        None => pod.role().to_owned(),
    }
}

pub(crate) fn seconds_since(time: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs()).saturating_sub(time)
}
