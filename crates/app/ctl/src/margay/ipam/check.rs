//! `margay ipam check`: what is wrong with the records of addresses, a line for each sort.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ipam::check::{Class, Findings, Problem, Reach};
use serde_json::{Value, json};
use store::inventory::{self, Taken};

use super::super::arguments::{CheckArguments, Structured, Witnesses};
use super::super::failure::{BROKEN, DIFFERENT, Failure};
use super::super::session::Session;
use super::super::terminal::{Mark, Terminal, printable_line};
use super::super::{get, structured};
use super::live;

/// How often it is said how far the reading has come.
const PROGRESS: Duration = Duration::from_secs(1);

/// Reads everything about addresses, and asks this host, if it is a node.
pub(super) fn take(session: &Session, witnesses: &Witnesses) -> Result<Taken, Failure> {
    let start = Instant::now();
    let mut said = start;
    let mut each = |count: usize| {
        if count.is_multiple_of(256) && said.elapsed() > PROGRESS {
            said = Instant::now();
            let seconds = start.elapsed().as_secs();
            let _ = get::complain(&format!("reading: {} records, {seconds} s", grouped(count)));
        }
    };
    let mut taken = inventory::take(&session.store, &mut each)?;
    // What lives here is asked last: whatever came meanwhile is seen to live.
    if let Some(live) = live::witness(&witnesses.agent, &witnesses.state_dir) {
        taken.inventory.witness(live);
    }
    Ok(taken)
}

/// How far witnesses are believed.
pub(super) fn reach(witnesses: &Witnesses) -> Reach {
    Reach { all_nodes: witnesses.all_nodes, now: store::ipam::now() }
}

/// The command.
pub(crate) fn run(session: &Session, arguments: &CheckArguments) -> Result<u8, Failure> {
    let taken = take(session, &arguments.witnesses)?;
    let findings = taken.inventory.check(reach(&arguments.witnesses));
    let format = match arguments.output.as_deref() {
        Some("json") => Some(Structured::Json),
        Some("yaml") => Some(Structured::Yaml),
        Some(file) => {
            let report = text::json::to_string_indented(&report(&findings)) + "\n";
            std::fs::write(Path::new(file), report).map_err(|error| {
                Failure::new(format!("the report cannot be written, {file}")).why(error.to_string())
            })?;
            None
        }
        None => None,
    };
    let text = match format {
        Some(format) => structured(format, &report(&findings)),
        None => {
            let mut text = screen(session.terminal, &findings, arguments.show_problem_ips);
            if arguments.show_all_ips {
                let held = taken.inventory.held().map(|it| format!("  {it}\n"));
                text += &held.collect::<String>();
            }
            text
        }
    };
    session.terminal.page(&text)?;
    Ok(code(&findings))
}

/// The exit code: whether something may break, or is only out of order.
pub(super) fn code(findings: &Findings) -> u8 {
    match findings.problems.first() {
        None => 0,
        Some(worst) if worst.class.is_grave() => BROKEN,
        Some(_) => DIFFERENT,
    }
}

/// As `-o json` has it.
pub(super) fn report(findings: &Findings) -> Value {
    let problem = |it: &Problem| {
        json!({
            "class": it.class.name(),
            "code": it.class.code(),
            "key": it.key,
            "address": it.address.map(|it| it.to_string()),
            "node": it.node,
            "problem": it.text,
            "kept": it.kept,
        })
    };
    json!({
        "blocks": findings.blocks,
        "addresses": findings.addresses,
        "handles": findings.handles,
        "endpoints": findings.endpoints,
        "problems": findings.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

fn screen(terminal: Terminal, findings: &Findings, shows_each: bool) -> String {
    let extent = format!(
        "{} blocks, {} addresses, {} endpoints",
        grouped(findings.blocks),
        grouped(findings.addresses),
        grouped(findings.endpoints)
    );
    let mark = |mark| terminal.mark(mark);
    if findings.problems.is_empty() {
        return format!("{} no problems in {extent}\n", mark(Mark::Fine));
    }
    let is_grave = code(findings) == BROKEN;
    let sign = mark(if is_grave { Mark::Broken } else { Mark::Degraded });
    let n = text::words::count(findings.problems.len(), "problem");
    let mut text = format!("{sign} {n} in {extent}\n");
    for (class, problems) in findings.by_class() {
        text += &line(class, &problems);
        for problem in problems.iter().filter(|_| shows_each) {
            let _ = writeln!(text, "    {}", printable_line(&told(problem)));
        }
    }
    let by_hand = findings.problems.iter().filter(|it| it.kept.is_some()).count();
    if by_hand < findings.problems.len() {
        text += "fix: margay ipam repair --plan\n";
    }
    if by_hand > 0 {
        let n = text::words::count(by_hand, "problem");
        let _ = writeln!(text, "note: repair leaves {n}; margay ipam repair --plan says why");
    }
    if !shows_each && findings.problems.len() > findings.by_class().len() {
        text += "list: margay ipam check --show-problem-ips\n";
    }
    text
}

/// One sort of problem: how many, on which nodes, the first of them.
pub(super) fn line(class: Class, problems: &[&Problem]) -> String {
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    for problem in problems {
        if let Some(node) = problem.node.as_deref() {
            *nodes.entry(node).or_default() += 1;
        }
    }
    let mut nodes: Vec<_> = nodes.into_iter().collect();
    nodes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let listed: Vec<String> =
        nodes.iter().take(3).map(|(node, count)| format!("{node} {count}")).collect();
    let more = if nodes.len() > 3 { ", …" } else { "" };
    let example = problems.first().map(|it| told(it)).unwrap_or_default();
    let what = match problems.len() {
        1 => example,
        n if listed.is_empty() => format!("{}, such as {example}", grouped(n)),
        n => format!("{} ({}{more}), such as {example}", grouped(n), listed.join(", ")),
    };
    let name = class.name().to_ascii_uppercase();
    format!("{name:<22}  {}  {}\n", printable_line(&what), class.code())
}

/// A problem in one line.
pub(super) fn told(problem: &Problem) -> String {
    let place = match problem.address {
        Some(address) => address.to_string(),
        None => spoken_key(&problem.key),
    };
    format!("{place}: {}", problem.text)
}

/// A key for people: `block 10.0.0.0/26`, `WorkloadEndpoint shop/n1-…`.
fn spoken_key(key: &str) -> String {
    let below = |prefix: &str| key.strip_prefix(prefix);
    if let Some((_, network)) =
        below("/calico/ipam/v2/assignment/").and_then(|it| it.rsplit_once('/'))
    {
        format!("block {}", network.replacen('-', "/", 1))
    } else if let Some(handle) = below("/calico/ipam/v2/handle/") {
        format!("handle {handle}")
    } else if let Some(name) = below("/calico/resources/v3/projectcalico.org/workloadendpoints/") {
        format!("endpoint {name}")
    } else {
        key.rsplit_once("projectcalico.org/").map_or(key, |(_, rest)| rest).to_owned()
    }
}

/// `9871` as `9,871`.
pub(in crate::margay) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!(["7", "999", "1,000", "300,000"], [7, 999, 1000, 300_000].map(grouped));
    }

    #[test]
    fn keys_are_told_in_words() {
        let block = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26";
        assert_eq!(spoken_key(block), "block 10.0.0.0/26");
        assert_eq!(spoken_key("/calico/ipam/v2/handle/net.c0"), "handle net.c0");
    }
}
