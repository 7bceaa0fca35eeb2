//! `lab status`.

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

use host::report::{self, Severity};
use kernel::{LinkName, Netlink};
use serde_json::{Value, json};

use crate::Outcome;
use crate::agents::{self, Hindrance};
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
use crate::remedy;
use crate::screen::{Screen, age, count};
use crate::state::{Fault, Node, Pod, State, utc};
use crate::topology;
use crate::waiting::patiently;

/// What an agent puts right by itself within this time is not worth telling.
const PASSING: Duration = Duration::from_secs(2);
/// Fixes that are shown.
const FIXES_MAX: usize = 5;
/// How often an agent is asked meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(100);

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
    hindrance: Option<Hindrance>,
    /// None where its namespace cannot be entered.
    is_plugged: Option<bool>,
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
            hindrance: agents::hindrance(&lab, &node.name),
            is_plugged: topology::is_plugged(&lab, &node.name).ok(),
        })
        .collect();
    let matrix = Matrix::measure(&lab, matrix::PATIENCE, |_, _| true)?;
    let mut problems = problems(&lab, &nodes);
    let what = format!("asking {}", count(nodes.len(), "agent"));
    let limit = agents::all_wait(nodes.len()) + PASSING;
    problems.extend(patiently(&what, limit, || reported(&lab, &nodes)));
    let purposely = Purposely::look(&lab);
    problems.extend(purposely.problems(&lab));
    let pairs = matrix.pairs();
    if pairs.failed() > 0 {
        problems.push(Problem {
            code: None,
            outcome: Outcome::Broken,
            subject: "pairs".to_owned(),
            what: format!("{} of {} pairs do not answer", pairs.failed(), pairs.all),
            fix: None,
        });
    }
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.outcome));
    let outcome = problems.iter().map(|problem| problem.outcome).max().unwrap_or(Outcome::Fine);
    let found = Found { lab: &lab, nodes, matrix, problems, purposely };
    screen.answer(&found.json())?;
    screen.say(&found.text(screen))?;
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
        if let Some(hindrance) = &status.hindrance {
            add(Outcome::Degraded, name, hindrance.of_node(&lab.place));
        }
        if status.is_plugged == Some(false) {
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
    let flag = flag(&lab.place.name);
    for status in nodes.iter().filter(|status| status.is_plugged.is_none()) {
        found.push(Problem {
            code: None,
            outcome: Outcome::Broken,
            subject: status.node.name.clone(),
            what: "its network namespace cannot be entered any more".to_owned(),
            fix: Some(format!("margay lab down{flag} && margay lab up{flag}")),
        });
    }
    found
}

/// What was broken on purpose.
struct Purposely<'a> {
    /// What is still so.
    broken: Vec<&'a Fault>,
    /// What is not, and how that is said.
    over: Vec<(&'a Fault, &'static str)>,
}

impl<'a> Purposely<'a> {
    fn look(lab: &'a Lab) -> Self {
        let (mut broken, mut over) = (Vec::new(), Vec::new());
        for fault in &lab.state.broken {
            match faults::put_right(lab, fault) {
                Some(how) => over.push((fault, how)),
                None => broken.push(fault),
            }
        }
        Self { broken, over }
    }

    fn problems(&self, lab: &Lab) -> impl Iterator<Item = Problem> {
        let heal = format!("margay lab heal{}", flag(&lab.place.name));
        self.broken.iter().map(move |fault| Problem {
            code: None,
            outcome: Outcome::Degraded,
            subject: fault.target.clone(),
            what: format!("broken on purpose: {}", faults::name(fault.scenario)),
            fix: Some(heal.clone()),
        })
    }
}

/// What the agents themselves say is wrong: the same as `margay status` on their nodes.
fn reported(lab: &Lab, nodes: &[NodeStatus<'_>]) -> Vec<Problem> {
    let running: Vec<&Node> = nodes
        .iter()
        .filter(|status| status.hindrance.is_none())
        .map(|status| status.node)
        .collect();
    let told = parallel::each(&running, agents::N_ASKED, |node| findings(lab, node));
    told.into_iter().flatten().collect()
}

fn findings(lab: &Lab, node: &Node) -> Vec<Problem> {
    let began = Instant::now();
    loop {
        let asked = agents::ask(lab, &node.name);
        let is_over = began.elapsed() > PASSING;
        match asked {
            Ok(report::Status { findings, .. }) if findings.is_empty() || is_over => {
                let problems = findings.into_iter();
                return problems.map(|finding| problem(lab, node, finding)).collect();
            }
            Err(error) if is_over => {
                return vec![Problem {
                    code: None,
                    outcome: Outcome::Degraded,
                    subject: node.name.clone(),
                    what: format!("its agent does not answer ({})", text::plain_reason(&error)),
                    fix: Some(format!("margay lab heal{}", flag(&lab.place.name))),
                }];
            }
            _ => std::thread::sleep(ASK_AGAIN),
        }
    }
}

fn problem(lab: &Lab, node: &Node, finding: report::Finding) -> Problem {
    let outcome = match finding.severity {
        Severity::Fine => Outcome::Fine,
        Severity::Degraded => Outcome::Degraded,
        Severity::Broken => Outcome::Broken,
    };
    let fix = Some(finding.fix).filter(|fix| !fix.is_empty());
    let fix = fix.map(|fix| remedy::from_outside(&fix, &node.name, &lab.place.name));
    Problem {
        code: Some(finding.code),
        outcome,
        subject: node.name.clone(),
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

/// Everything that a look at the lab found.
struct Found<'a> {
    lab: &'a Lab,
    nodes: Vec<NodeStatus<'a>>,
    matrix: Matrix,
    /// Worst first.
    problems: Vec<Problem>,
    purposely: Purposely<'a>,
}

impl Found<'_> {
    fn json(&self) -> Value {
        let state = &self.lab.state;
        let nodes = self.nodes.iter().map(|status| {
            let addresses = status.node.addresses(state.ipv6);
            let addresses: Vec<String> =
                addresses.iter().map(|net| net.addr().to_string()).collect();
            json!({
                "name": status.node.name,
                "addresses": addresses,
                "agentRuns": status.hindrance.is_none(),
                "isPlugged": status.is_plugged.unwrap_or(false),
            })
        });
        let findings = self.problems.iter().map(|problem| {
            json!({
                "code": problem.code.as_deref().unwrap_or_default(),
                "severity": word(problem.outcome),
                "subject": problem.subject,
                "problem": problem.what,
                "fix": problem.fix.as_deref().unwrap_or_default(),
            })
        });
        let broken = self.purposely.broken.iter().map(|fault| fault.json());
        let over = self.purposely.over.iter().map(|(fault, _)| fault.json());
        json!({
            "status": word(self.worst()),
            "lab": self.lab.place.name,
            "folder": self.lab.place.folder,
            "since": utc(state.since),
            "datastore": state.datastore,
            "ipv6": state.ipv6,
            "nodes": nodes.collect::<Vec<_>>(),
            "pods": state.pods,
            "pairs": self.matrix.pairs().json(),
            "brokenOnPurpose": broken.collect::<Vec<_>>(),
            "putRight": over.collect::<Vec<_>>(),
            "findings": findings.collect::<Vec<_>>(),
        })
    }

    fn worst(&self) -> Outcome {
        self.problems.first().map_or(Outcome::Fine, |problem| problem.outcome)
    }

    fn text(&self, screen: Screen) -> String {
        let state = &self.lab.state;
        let pairs = self.matrix.pairs();
        let mut text = format!(
            "{} lab {:?}: {}, {}, {}, up since {}\n",
            screen.mark(self.worst()),
            self.lab.place.name,
            count(state.nodes.len(), "node"),
            count(state.pods.len(), "pod"),
            pairs.said(),
            age(seconds_since(state.since)),
        );
        for problem in &self.problems {
            let mark = screen.mark(problem.outcome);
            let code = problem.code.as_ref().map_or(String::new(), |code| format!("  {code}"));
            let _ = writeln!(text, "{mark} {}: {}{code}", problem.subject, problem.what);
        }
        let mark = screen.mark(Outcome::Fine);
        for (fault, how) in &self.purposely.over {
            let _ =
                writeln!(text, "{mark} {}: {}, {how}", fault.target, faults::name(fault.scenario));
        }
        text += &self.fixes();
        if pairs.fine < pairs.all {
            let _ = writeln!(text, "see: margay lab test{}", flag(&self.lab.place.name));
        }
        let rows: Vec<Vec<String>> = self.nodes.iter().map(|status| row(state, status)).collect();
        text + &screen.table(&["NODE", "ADDRESS", "AGENT", "PODS"], &rows)
    }

    /// What puts the problems right, each once, that of the worst first.
    fn fixes(&self) -> String {
        let mut fixes: Vec<&str> = Vec::new();
        for fix in self.problems.iter().filter_map(|problem| problem.fix.as_deref()) {
            if !fixes.contains(&fix) {
                fixes.push(fix);
            }
        }
        let mut text: String =
            fixes.iter().take(FIXES_MAX).map(|fix| format!("fix: {fix}\n")).collect();
        if fixes.len() > FIXES_MAX {
            let _ = writeln!(text, "… and {} more (-o json has all)", fixes.len() - FIXES_MAX);
        }
        text
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Fine => "fine",
        Outcome::Degraded => "degraded",
        Outcome::Broken => "broken",
    }
}

fn row(state: &State, status: &NodeStatus<'_>) -> Vec<String> {
    let pods: Vec<String> = state.pods_of(&status.node.name).map(shown).collect();
    vec![
        status.node.name.clone(),
        status.node.v4().to_string(),
        status.hindrance.as_ref().map_or("running", Hindrance::word).to_owned(),
        pods.join(" "),
    ]
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
