//! `margay undo` and `margay history`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Instant;

use api::Kind;
use serde_json::json;
use store::resources::{Name, Restored};

use super::agent::ago;
use super::arguments::{Format, Place};
use super::failure::Failure;
use super::history::{self, Change, Entry, History, Kept, take_back};
use super::recorder::Recorded;
use super::session::{Session, with_surroundings};
use super::terminal::{Mark, Terminal};
use super::{realised, structured, table};

/// What to do about a write to another datastore.
const ELSEWHERE: &str = "choose its datastore with --store or --config";

/// Kinds with longer names go by their aliases where room is scarce.
const READABLE_KIND: usize = 8;

/// Takes a write back, the last one unless a number is given.
pub(crate) fn run(
    session: &Session,
    number: Option<u64>,
    out: &mut dyn Write,
) -> Result<bool, Failure> {
    let nothing = || Failure::new("there is no write to take back").help("margay history");
    let (here, cluster) = (session.place(), session.cluster()?);
    let is_here =
        |entry: &Entry| entry.cluster == cluster && (cluster.is_some() || entry.store == here);
    let is_told_here = |entry: &Entry| entry.is_told_by(&here, cluster.as_deref());
    let open = session.history.settle_leftovers(Ok(&session.store), is_told_here);
    let newest = |before: u64| session.history.newest(before, is_here, &open);
    let (number, is_named) = match number {
        Some(number) => (number, true),
        None => (newest(u64::MAX)?.ok_or_else(nothing)?, false),
    };
    let entry = session.history.read(number)?;
    if let Some((_, why)) = open.iter().find(|(open, _)| *open == number) {
        let elsewhere = (!is_told_here(&entry)).then_some(ELSEWHERE.to_owned());
        return Err(Failure::new(format!("write {number} was cut short, and may have been made"))
            .why(why)
            .help_if(elsewhere));
    }
    if entry.under_way {
        return Err(Failure::new(format!("write {number} has not ended")));
    }
    if !is_here(&entry) {
        let what = match entry.store == here {
            true => format!("write {number} went to another cluster that was at {here} then"),
            false => format!("write {number} went to {}, this is {here}", entry.store),
        };
        return Err(Failure::new(what).help(ELSEWHERE));
    }
    if let Some(by) = history::taken_back(&session.history.kept()?.entries).get(&number) {
        let again = format!("{} makes it again", session.history.undo_command(*by));
        let what = format!("write {number} was taken back already, by write {by}");
        return Err(Failure::new(what).help(again));
    }
    let (restored, stays) =
        take_back::to_restore(&session.store, &session.history, number, &entry)?;
    if restored.is_empty() {
        // Whoever named a write wants that one; whoever named none wants to get on.
        let next = if is_named { None } else { newest(number)? };
        let next = next.map(|next| {
            format!("{} takes back the one before", session.history.undo_command(next))
        });
        return Err(nothing_to_take_back(number, stays).help_if(next));
    }
    take_back_here(session, number, &entry, (restored, stays), out)
}

/// There is nothing left of a write, or nothing that is known to be of it.
fn nothing_to_take_back(number: u64, stays: Vec<String>) -> Failure {
    let what = match stays.is_empty() {
        true => format!("there is nothing to take back: all is as it was before write {number}"),
        false => format!("nothing is known to be as write {number} left it"),
    };
    stays.into_iter().fold(Failure::new(what), Failure::detail)
}

fn take_back_here(
    session: &Session,
    number: u64,
    entry: &Entry,
    (restored, stays): (Vec<Restored>, Vec<String>),
    out: &mut dyn Write,
) -> Result<bool, Failure> {
    session.recorder.expect_undo(number, entry, restored.len());
    let taken_back = take_back::take_back(&session.resources, number, entry, &restored);
    let (began, realisable) = (Instant::now(), session.recorder.realisable());
    let (recorded, changes) = session.recorder.finish(taken_back.is_ok());
    let cleared = match taken_back {
        Ok(cleared) => cleared,
        Err(failure) => return Err(not_whole(session, failure, &recorded, changes.len())),
    };
    let (n, mark) = (changes.len(), session.terminal.mark(Mark::Fine));
    let names: Vec<String> = changes.iter().map(|change| change.name.clone()).collect();
    let uncertain =
        entry.uncertain.iter().map(|why| format!("write {number} is not certain: {why}"));
    let notes = uncertain
        .chain(stays.into_iter().map(|stays| format!("left alone: {stays}")))
        .chain(not_restored(session, &changes)?)
        .chain(cleared.done)
        .chain(cleared.left);
    let listed = if n <= 3 { names.join(", ") } else { format!("{n} objects") };
    let redo = recorded.line(&session.history).replacen("undo: ", "redo: ", 1);
    let notes: String = notes.map(|note| format!("note: {note}\n")).collect();
    let realised = realised::soon(session, &realisable, began);
    let realised = realised.map_or(String::new(), |it| format!("   ({it})"));
    let answer = format!("{mark} write {number} taken back: {listed}{realised}\n{notes}{redo}");
    out.write_all(answer.as_bytes()).map_err(|error| {
        Failure::from(error).after_the_write(&format!("write {number} taken back")).undo(&redo)
    })?;
    Ok(true)
}

/// Says how far a taking back came.
fn not_whole(session: &Session, failure: Failure, recorded: &Recorded, n: usize) -> Failure {
    match (recorded, n) {
        (Recorded::Uncertain(_, why), _) => {
            failure.why(format!("it is not certain what was taken back: {why}"))
        }
        (_, 0) => failure.why("nothing was taken back"),
        (_, n) => failure
            .why(format!(
                "the first {n} objects were taken back, the rest were not; margay undo goes on"
            ))
            .undo(&recorded.line(&session.history)),
    }
}

/// What went with objects when they were deleted, and did not come back with them.
fn not_restored(session: &Session, changes: &[Change]) -> Result<Vec<String>, Failure> {
    let is_back = |it: &&Change| it.before.is_none() && it.revision.is_some();
    let mut names: Vec<Name> =
        changes.iter().filter(is_back).filter_map(|it| Name::at_key(&it.key)).collect();
    names.retain(|it| matches!(it.kind, Kind::Node | Kind::WorkloadEndpoint | Kind::IpPool));
    let mut notes = Vec::new();
    if names.is_empty() {
        return Ok(notes);
    }
    let unheld: Vec<String> =
        session.resources.unheld_addresses(&names)?.iter().map(ToString::to_string).collect();
    if !unheld.is_empty() {
        notes.push(format!(
            "released addresses do not come back, and may be given to others: {}; start what uses \
             them again",
            shortened(&unheld)
        ));
    }
    for pool in names.iter().filter(|it| it.kind == Kind::IpPool) {
        let left = session.resources.blocks_without_node(pool)?;
        let left: Vec<String> = left.iter().map(ToString::to_string).collect();
        if !left.is_empty() {
            notes.push(format!(
                "blocks of {} stay without a node: {}; their addresses stay in use, and nodes take \
                 new blocks as they need them",
                pool.spoken(),
                shortened(&left)
            ));
        }
    }
    Ok(notes)
}

/// Lists the writes that can be taken back, newest first.
pub(crate) fn list(terminal: Terminal, place: &Place, format: Format) -> Result<bool, Failure> {
    let dir = with_surroundings(place, |surroundings| surroundings.state_dir());
    let history = &History::below(dir);
    let open = match history.has_leftovers() {
        true => settled(history, place),
        false => Vec::new(),
    };
    let Kept { entries: kept, unreadable } = history.kept()?;
    let taken_back = history::taken_back(&kept);
    let mut writes = Vec::new();
    let mut entries = Vec::new();
    for (number, entry) in kept.iter().rev() {
        let by = taken_back.get(number);
        let left_open = open.iter().find(|(open, _)| open == number).map(|(_, why)| why);
        let uncertain = entry.uncertain.as_ref().or(left_open);
        let names: Vec<String> = entry.changes.iter().map(|change| change.name.clone()).collect();
        let until = history.unconfirmed_until(*number).filter(|_| by.is_none());
        let mut state = state(entry, uncertain, by, &taken_back);
        if let Some(until) = &until {
            let command = history.confirm_command(*number);
            state = format!("to be confirmed until {until}: {command}");
        }
        writes.push(Listed { number: *number, entry, objects: shortened(&names), state });
        entries.push(json!({
            "number": number,
            "time": entry.time,
            "command": entry.command,
            "store": entry.store,
            "objects": names,
            "undoes": entry.undoes,
            "isPart": entry.is_part,
            "isUnderWay": entry.under_way && left_open.is_none(),
            "notCertain": uncertain,
            "takenBackBy": by,
            "unconfirmedUntil": until,
        }));
    }
    let is_fine = unreadable.is_empty();
    for (_, failure) in unreadable {
        write!(io::stderr().lock(), "{failure}")?;
    }
    if let Some(format) = format.output {
        terminal.page(&structured(format, &json!(entries)))?;
        return Ok(is_fine);
    }
    if writes.is_empty() && is_fine {
        writeln!(
            io::stderr().lock(),
            "no writes yet; those made by margay appear here, to be taken back"
        )?;
        return Ok(true);
    }
    show_writes(terminal, &writes)?;
    Ok(is_fine)
}

/// A write as it is listed.
struct Listed<'e> {
    number: u64,
    entry: &'e Entry,
    objects: String,
    state: String,
}

/// Everything, where there is room for it. Else what the writes have in common gives way to what
/// tells them apart.
fn show_writes(terminal: Terminal, writes: &[Listed<'_>]) -> io::Result<()> {
    let whole = |it: &Listed<'_>| {
        let Listed { number, entry, objects, state } = it;
        let (time, command, store) = (&entry.time, &entry.command, &entry.store);
        [&number.to_string(), time, objects, state, command, store].map(String::clone).to_vec()
    };
    let rows: Vec<Vec<String>> = writes.iter().map(whole).collect();
    let headings = ["NUMBER", "TIME", "OBJECTS", "STATE", "COMMAND", "STORE"];
    if table::fits(terminal, &headings, &rows) {
        return table::show(terminal, &headings, &rows);
    }
    let is_one_store = writes.windows(2).all(|two| two[0].entry.store == two[1].entry.store);
    let short = |it: &Listed<'_>| {
        let command = &it.entry.command;
        let command = command.strip_prefix("margay ").unwrap_or(command).to_owned();
        let age = ago(&it.entry.time);
        let names: Vec<String> = it.entry.changes.iter().map(short_name).collect();
        let mut cells = vec![it.number.to_string(), age, shortened(&names), command];
        cells.extend([it.state.clone(), it.entry.store.clone()]);
        cells
    };
    let rows: Vec<Vec<String>> = writes.iter().map(short).collect();
    let headings = ["NUMBER", "AGE", "OBJECTS", "COMMAND", "STATE", "STORE"];
    let n_shown = headings.len() - usize::from(is_one_store);
    table::show(terminal, &headings[..n_shown], &rows)
}

/// The object of a change, with its kind as people type it.
fn short_name(change: &Change) -> String {
    let Some(name) = Name::at_key(&change.key) else { return change.name.clone() };
    let kind = name.kind.aliases().iter().min_by_key(|alias| alias.len());
    let kind = kind.filter(|_| name.kind.name().len() > READABLE_KIND);
    let kind = kind.map_or_else(|| name.kind.name().to_lowercase(), |alias| (*alias).to_owned());
    match name.namespace.as_str() {
        "" => format!("{kind} {}", name.name),
        namespace => format!("{kind} {namespace}/{}", name.name),
    }
}

/// Settles what killed writers left; those that stay open, and why.
fn settled(history: &History, place: &Place) -> Vec<(u64, String)> {
    let asked = Session::open(place).and_then(|session| {
        let cluster = session.cluster()?;
        Ok((session, cluster))
    });
    match asked {
        Ok((session, cluster)) => {
            let here = session.place();
            let is_here = |entry: &Entry| entry.is_told_by(&here, cluster.as_deref());
            history.settle_leftovers(Ok(&session.store), is_here)
        }
        Err(failure) => history.settle_leftovers(Err(failure.what().to_owned()), |_| false),
    }
}

/// What there is to know of an entry, in a few words.
fn state(
    entry: &Entry,
    uncertain: Option<&String>,
    by: Option<&u64>,
    taken_back: &BTreeMap<u64, u64>,
) -> String {
    let part = entry.undoes.filter(|_| entry.is_part).map(|undone| {
        let part = format!("took back a part of {undone}");
        match taken_back.contains_key(&undone) {
            true => part,
            false => format!("{part}; margay undo {undone} goes on"),
        }
    });
    let words = [
        by.map(|by| format!("taken back by {by}")),
        part,
        uncertain.map(|why| format!("not certain: {why}")),
        (entry.under_way && uncertain.is_none()).then(|| "under way".to_owned()),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn shortened(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [one, other] => format!("{one}, {other}"),
        [one, other, rest @ ..] => format!("{one}, {other} and {} more", rest.len()),
    }
}
