//! `margay ipam repair`: shows what would mend the records of addresses, asks, and does it.

mod backup;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write};

use host::fault;
use ipam::check::Findings;
use ipam::repair::{RepairPlan, Step, Unit};
use serde_json::json;
use store::inventory::{self, Mended, Taken};

use super::super::arguments::RepairArguments;
use super::super::failure::{DIFFERENT, Failure};
use super::super::session::Session;
use super::super::structured;
use super::super::terminal::{Mark, printable_line};
use super::check::{self, told};
use backup::Backup;

/// How often it is planned anew because somebody changed something meanwhile.
const ROUNDS_MAX: usize = 5;
/// So many lines of a plan are shown; `-o json` has all.
const LINES_MAX: usize = 200;

/// The command.
pub(crate) fn run(session: &Session, arguments: &RepairArguments) -> Result<u8, Failure> {
    if arguments.undo {
        return backup::undo(session, arguments.yes);
    }
    let (taken, plan) = plan(session, arguments)?;
    if let Some(format) = arguments.format.output {
        if !arguments.plan && !arguments.yes {
            return Err(Failure::new("-o json needs --plan or --yes"));
        }
        let mended = match arguments.plan {
            true => None,
            false => Some(mend(session, arguments, &taken, &plan)?),
        };
        session.terminal.page(&structured(format, &answer(&plan, mended.as_ref())))?;
        return Ok(exit(arguments, &plan, mended.as_ref()));
    }
    if plan.units.is_empty() {
        let mark = session.terminal.mark(match plan.left.problems.is_empty() {
            true => Mark::Fine,
            false => Mark::Degraded,
        });
        session.terminal.page(&format!("{mark} nothing to mend\n{}", left(&plan.left)))?;
        return Ok(exit(arguments, &plan, None));
    }
    let mut text = format!("to do, {}:\n", text::words::count(n_records(&plan), "record"));
    text += &shown(&plan.units);
    text += &left(&plan.left);
    if arguments.plan {
        text += match arguments.witnesses.all_nodes {
            true => "fix: margay ipam repair --all-nodes\n",
            false => "fix: margay ipam repair\n",
        };
        session.terminal.page(&text)?;
        return Ok(exit(arguments, &plan, None));
    }
    io::stdout().lock().write_all(text.as_bytes())?;
    if !arguments.yes {
        ask()?;
    }
    let mended = mend(session, arguments, &taken, &plan)?;
    let fine = session.terminal.mark(Mark::Fine);
    let mut text = format!("{fine} {} mended\n", text::words::count(mended.records, "record"));
    if mended.is_open {
        text += "note: somebody changed records meanwhile: margay ipam repair finds the rest\n";
    }
    if plan.left.problems.iter().any(|it| it.kept.is_none()) {
        text += "next: margay ipam repair --plan      (more can be mended now)\n";
    }
    if mended.records > 0 {
        text += "undo: margay ipam repair --undo\n";
    }
    session.terminal.page(&text)?;
    Ok(exit(arguments, &plan, Some(&mended)))
}

/// What was done.
struct Done {
    records: usize,
    /// Something is left to do, because it changed meanwhile.
    is_open: bool,
}

fn exit(arguments: &RepairArguments, plan: &RepairPlan, done: Option<&Done>) -> u8 {
    let has_work = arguments.plan && !plan.units.is_empty();
    let is_open = done.is_some_and(|done| done.is_open);
    match has_work || is_open || !plan.left.problems.is_empty() {
        true => DIFFERENT,
        false => 0,
    }
}

fn plan(session: &Session, arguments: &RepairArguments) -> Result<(Taken, RepairPlan), Failure> {
    let mut taken = check::take(session, &arguments.witnesses)?;
    let mut read = |key: &str| {
        let (entry, _) = session.store.get(key)?;
        Ok::<_, store::Error>(entry.map(|entry| (entry.value, entry.mod_revision)))
    };
    let plan = taken.inventory.repair(check::reach(&arguments.witnesses), &mut read)?;
    Ok((taken, plan))
}

/// Carries the plan out. What changed meanwhile is planned again, but no more is done than was
/// shown.
fn mend(
    session: &Session,
    arguments: &RepairArguments,
    taken: &Taken,
    first: &RepairPlan,
) -> Result<Done, Failure> {
    let shown: BTreeSet<&str> = keys(&first.units).collect();
    let mut backup = Backup::begin(session)?;
    let mut records = 0;
    let mut step = |taken: &Taken, plan: &RepairPlan| -> Result<Mended, Failure> {
        let mut before = |changes: &[&ipam::repair::Change]| {
            fault::point("before", Step::Keep.name());
            backup.keep(changes)?;
            fault::point("after", Step::Keep.name());
            fault::point("before", Step::Mend.name());
            Ok(())
        };
        let mut after = |_: usize, changes: &[&ipam::repair::Change], _: i64| {
            fault::point("after", Step::Mend.name());
            records += changes.len();
        };
        Ok(inventory::mend(&session.store, taken, plan, &mut before, &mut after)?)
    };
    let mut mended = step(taken, first)?;
    let mut is_open = first.is_stale;
    for _ in 1..ROUNDS_MAX {
        if mended.conflicts == 0 && !is_open {
            break;
        }
        let (taken, mut again) = plan(session, arguments)?;
        let n_all = again.units.len();
        again.units.retain(|unit| unit.changes.iter().all(|it| shown.contains(it.key.as_str())));
        is_open = again.is_stale || again.units.len() < n_all;
        if again.units.is_empty() {
            mended.conflicts = 0;
            break;
        }
        mended = step(&taken, &again)?;
    }
    Ok(Done { records, is_open: is_open || mended.conflicts > 0 })
}

fn keys(units: &[Unit]) -> impl Iterator<Item = &str> {
    units.iter().flat_map(|unit| &unit.changes).map(|change| change.key.as_str())
}

fn n_records(plan: &RepairPlan) -> usize {
    keys(&plan.units).count()
}

fn shown(units: &[Unit]) -> String {
    let lines: Vec<&String> = units.iter().flat_map(|unit| &unit.notes).collect();
    let mut text = String::new();
    for line in lines.iter().take(LINES_MAX) {
        let _ = writeln!(text, "  {}", printable_line(line));
    }
    if lines.len() > LINES_MAX {
        let more = lines.len() - LINES_MAX;
        let _ = writeln!(text, "  … and {more} more (all: -o json)");
    }
    text
}

/// What stays wrong, and why.
fn left(findings: &Findings) -> String {
    if findings.problems.is_empty() {
        return String::new();
    }
    let n = text::words::count(findings.problems.len(), "problem");
    let mut text = format!("left, {n}:\n");
    for problem in findings.problems.iter().take(LINES_MAX) {
        let why = problem.kept.as_deref().unwrap_or("the next repair can mend it");
        let _ = writeln!(text, "  {}  ({why})", printable_line(&told(problem)));
    }
    text
}

fn answer(plan: &RepairPlan, done: Option<&Done>) -> serde_json::Value {
    let unit = |unit: &Unit| {
        let keys: Vec<&str> = unit.changes.iter().map(|it| it.key.as_str()).collect();
        json!({"notes": unit.notes, "keys": keys, "frees": unit.frees})
    };
    json!({
        "units": plan.units.iter().map(unit).collect::<Vec<_>>(),
        "left": check::report(&plan.left),
        "done": done.map(|done| json!({"records": done.records, "open": done.is_open})),
    })
}

fn ask() -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::new("nothing was changed: nobody is there to ask").help("add --yes"));
    }
    let mut stream = io::stderr().lock();
    stream.write_all(b"Go on? [y/N] ")?;
    stream.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was changed")),
    }
}
