//! `margay status`: how this node is, what is wrong, and what to type.

use std::fmt::Write as _;

use clap::Args;
use host::protocol::Inquiry;
use host::report::{Applied, Finding, Severity, Status};
use serde_json::Value;
use text::words::count;

use super::advice;
use super::agent::{Agent, ago};
use super::arguments::Format;
use super::failure::{BROKEN, DIFFERENT, Failure};
use super::setup::layout::Layout;
use super::structured;
use super::terminal::{Mark, Terminal, printable_line};

/// Problems of one part that are shown one by one.
const SHOWN_MAX: usize = 10;

#[derive(Args, Debug)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) agent: Agent,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The command; the exit code.
pub(crate) fn run(terminal: Terminal, arguments: &StatusArguments) -> Result<u8, Failure> {
    if let Some(layout) = arguments.agent.does_without() {
        return alone(terminal, arguments, &layout);
    }
    let (status, is_answered) = match arguments.agent.ask::<Status>(&Inquiry::Status) {
        Ok(status) => (status, true),
        Err(silence) => {
            let findings = vec![silence.finding()];
            (Status { status: Severity::Broken, findings, ..Status::default() }, false)
        }
    };
    let text = match (arguments.format.output, is_answered) {
        (Some(format), true) => structured(format, &value(&status)?),
        (Some(format), false) => structured(format, &without(&status, &[])?),
        (None, true) => screen(terminal, &status),
        (None, false) => silence(terminal, &status.findings),
    };
    terminal.page(&text)?;
    Ok(exit_code(status.status))
}

fn exit_code(severity: Severity) -> u8 {
    match severity {
        Severity::Fine => 0,
        Severity::Degraded => DIFFERENT,
        Severity::Broken => BROKEN,
    }
}

/// The answer of a host that was set up to do without an agent.
fn alone(terminal: Terminal, arguments: &StatusArguments, layout: &Layout) -> Result<u8, Failure> {
    let status = advice::status(layout);
    let text = match arguments.format.output {
        Some(format) => structured(format, &without(&status, &["node", "sandboxes"])?),
        None if !status.findings.is_empty() => silence(terminal, &status.findings),
        None => format!(
            "{} fine on {}: set up without an agent, each call of the plugin does the work \
             itself; {}\nnext: podman run --network {} IMAGE      (margay setup adds an agent, \
             which repairs what others break)\n",
            terminal.mark(Mark::Fine),
            status.node,
            count(status.sandboxes.values().sum(), "sandbox"),
            layout.network
        ),
    };
    terminal.page(&text)?;
    Ok(exit_code(status.status))
}

fn value(status: &Status) -> Result<Value, Failure> {
    serde_json::to_value(status).map_err(|error| Failure::new(error.to_string()))
}

/// The verdict, and these fields. What nobody said is not there: zeros would be lies.
fn without(status: &Status, known: &[&str]) -> Result<Value, Failure> {
    let mut value = value(status)?;
    if let Some(object) = value.as_object_mut() {
        object.retain(|name, _| {
            name == "status" || name == "findings" || known.contains(&name.as_str())
        });
    }
    Ok(value)
}

/// The line for bare `margay`; none if nothing says that there is an agent.
pub(crate) fn line(terminal: Terminal) -> Option<String> {
    let agent = Agent::usual();
    if let Some(layout) = agent.does_without() {
        let n = advice::sandboxes(&layout).sandboxes.len();
        return Some(format!("none, as set up; {}", count(n, "sandbox")));
    }
    if !agent.socket().exists() && advice::layout(&agent.run_dir).is_none() {
        return None;
    }
    Some(match agent.ask::<Status>(&Inquiry::Status) {
        Ok(status) => {
            let n = status.sandboxes.values().sum();
            let verdict = verdict(&status);
            let mark = terminal.mark(mark(status.status));
            let since = ago(&status.since);
            format!("running {since}, {}, status {mark} {verdict}", count(n, "sandbox"))
        }
        Err(silence) => {
            let mark = terminal.mark(Mark::Broken);
            format!("{mark} {}      ({})", silence.what, silence.fix)
        }
    })
}

fn silence(terminal: Terminal, findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = terminal.mark(Mark::Broken);
        let _ = writeln!(text, "{mark} {}   {}", finding.problem, finding.code);
        let _ = writeln!(text, "fix: {}", finding.fix);
    }
    text
}

fn screen(terminal: Terminal, status: &Status) -> String {
    let mark_of = |severity| terminal.mark(mark(severity));
    let mut text = format!("{} {} on {}", mark_of(status.status), verdict(status), status.node);
    if status.findings.is_empty() {
        let n = status.sandboxes.values().sum();
        let _ = write!(text, ": {}", count(n, "sandbox"));
    }
    text.push('\n');
    let problems = problems(&status.findings);
    let longest = problems.iter().map(|(_, problem)| problem.chars().count()).max().unwrap_or(0);
    for (finding, problem) in &problems {
        let (cause, mark) = (&finding.cause, mark_of(finding.severity));
        let _ = writeln!(text, "{cause:<10} {mark}  {problem:<longest$}  {}", finding.code);
    }
    for (cause, severity, detail) in details(status) {
        if !status.findings.iter().any(|finding| finding.cause == cause) {
            let _ = writeln!(text, "{cause:<10} {}  {detail}", mark_of(severity));
        }
    }
    let mut fixes: Vec<(&str, &str)> = Vec::new();
    for (finding, _) in problems.iter().filter(|(finding, _)| !finding.fix.is_empty()) {
        if !fixes.iter().any(|(fix, _)| *fix == finding.fix) {
            fixes.push((&finding.fix, &finding.code));
        }
    }
    for (fix, code) in &fixes {
        let about = if fixes.len() > 1 { format!("      {code}") } else { String::new() };
        let _ = writeln!(text, "fix: {}{about}", printable_line(fix));
    }
    for note in &status.notes {
        let _ = writeln!(text, "note: {}", printable_line(note));
    }
    text
}

/// The findings that are shown, and their lines: of very many of one code, the first.
fn problems(findings: &[Finding]) -> Vec<(&Finding, String)> {
    let mut shown: Vec<(&Finding, String)> = Vec::new();
    for finding in findings {
        let alike = |other: &&Finding| other.code == finding.code;
        let n_before = shown.iter().filter(|(other, _)| alike(other)).count();
        if n_before < SHOWN_MAX {
            shown.push((finding, printable_line(&finding.problem).into_owned()));
        } else if n_before == SHOWN_MAX {
            let more = findings.iter().filter(alike).count() - SHOWN_MAX;
            shown.push((finding, format!("… and {more} more      (-o json shows all)")));
        }
    }
    shown
}

fn verdict(status: &Status) -> String {
    let n = |severity| status.findings.iter().filter(|it| it.severity == severity).count();
    match (n(Severity::Broken), n(Severity::Degraded)) {
        (0, 0) => "fine".to_owned(),
        (0, degraded) => format!("{degraded} degraded"),
        (broken, 0) => format!("{broken} broken"),
        (broken, degraded) => format!("{broken} broken, {degraded} degraded"),
    }
}

/// What there is to say about each part when nothing is wrong with it. What is said from memory is
/// not said to be fine.
fn details(status: &Status) -> [(&'static str, Severity, String); 6] {
    let repaired = |n: u64| match n {
        0 => String::new(),
        n => format!(", {n} repaired (margay events)"),
    };
    let phases: Vec<String> = status
        .sandboxes
        .iter()
        .filter(|(phase, _)| phase.as_str() != "ready")
        .map(|(phase, n)| format!(", {n} {phase}"))
        .collect();
    let ready = status.sandboxes.get("ready").copied().unwrap_or_default();
    let agent = format!(
        "{}, since {}, {} ready{}",
        status.version,
        ago(&status.since),
        count(ready, "sandbox"),
        phases.concat()
    );
    let store = format!("{}, revision {}", status.store.place, status.store.revision);
    let fresh = if status.as_of.is_some() { Severity::Degraded } else { Severity::Fine };
    let applied = |part: &Applied| match (&status.as_of, part.is_applied) {
        (Some(_), false) => (Severity::Degraded, ", left as it is until the datastore answers"),
        _ => (Severity::Fine, ""),
    };
    let (routes_stand, left) = applied(&status.routes);
    let routes = &status.routes;
    let routes = format!("{} in the kernel{}{left}", routes.count, repaired(routes.repaired));
    let (filter_stands, left) = applied(&status.filter);
    let filter = &status.filter;
    let policy = match status.policy_revision {
        0 => String::new(),
        revision => format!(", policy of revision {revision}"),
    };
    let interfaces = count(filter.count, "interface");
    let filter = format!("{interfaces}{}{policy}{left}", repaired(filter.repaired));
    [
        ("AGENT", Severity::Fine, agent),
        ("STORE", Severity::Fine, store),
        ("IPAM", fresh, addresses(status)),
        ("ROUTES", routes_stand, routes),
        ("FILTER", filter_stands, filter),
        ("KERNEL", Severity::Fine, format!("Linux {}", status.kernel)),
    ]
}

/// The addresses of the node, and as of when if not of now.
fn addresses(status: &Status) -> String {
    let reserve = match status.ipam.reserve {
        0 => String::new(),
        n => format!(", {n} in reserve"),
    };
    let ipam = match (status.ipam.pools, status.ipam.blocks) {
        (_, _) if status.as_of.as_deref() == Some("") => {
            return "not known: the datastore has never answered here".to_owned();
        }
        (0, _) => "no pools".to_owned(),
        (pools, None) => format!("{}, blocks not known yet{reserve}", count(pools, "pool")),
        (_, Some(0)) => "no block yet, the first sandbox claims one".to_owned(),
        (_, Some(blocks)) => {
            let used = status.ipam.used.unwrap_or_default();
            let all = status.ipam.addresses.unwrap_or_default();
            format!("{used}/{all} addresses in {}{reserve}", count(blocks, "block"))
        }
    };
    match &status.as_of {
        Some(time) => format!("{ipam}; as of {time}, {} ago", ago(time)),
        None => ipam,
    }
}

fn mark(severity: Severity) -> Mark {
    match severity {
        Severity::Fine => Mark::Fine,
        Severity::Degraded => Mark::Degraded,
        Severity::Broken => Mark::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(code: &str, severity: Severity, problem: &str, fix: &str) -> Finding {
        let [code, problem, fix] = [code, problem, fix].map(str::to_owned);
        Finding { code, severity, cause: "ROUTES".to_owned(), problem, fix }
    }

    #[test]
    fn the_first_line_answers_and_problems_come_before_what_is_fine() {
        let findings = vec![
            finding("MG-ROUTE-002", Severity::Broken, "10.0.0.1/32 is foreign", "ip route show"),
            finding("MG-DATA-001", Severity::Degraded, "x \u{1b}[31m", "margay get"),
        ];
        let status =
            Status { status: Severity::Broken, node: "n1".into(), findings, ..Status::default() };
        let shown = screen(Terminal::detect(), &status);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "✗ 1 broken, 1 degraded on n1");
        assert_eq!(lines[1], "ROUTES     ✗  10.0.0.1/32 is foreign  MG-ROUTE-002");
        assert!(lines[2].starts_with("ROUTES     !  x \\u{1b}[31m "), "{shown}");
        assert!(lines[3].starts_with("AGENT      ✓  "), "{shown}");
        assert!(!shown.contains("ROUTES     ✓"), "{shown}");
        assert_eq!(
            lines[8..],
            ["fix: ip route show      MG-ROUTE-002", "fix: margay get      MG-DATA-001"]
        );
    }

    #[test]
    fn very_many_of_a_code_are_counted() {
        let many: Vec<Finding> = (0..15)
            .map(|n| finding("MG-ROUTE-001", Severity::Broken, &format!("route {n}"), ""))
            .collect();
        let shown = problems(&many);
        assert_eq!(shown.len(), 11);
        assert!(shown[10].1.starts_with("… and 5 more"));
    }
}
