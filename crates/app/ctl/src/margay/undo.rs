//! `margay undo` and `margay history`.

use std::io::{self, Write};

use api::Kind;
use serde_json::json;
use store::resources::Name;

use super::arguments::{Format, Place};
use super::failure::Failure;
use super::history::{self, Change, Entry, History};
use super::session::{Session, with_surroundings};
use super::terminal::{Mark, Terminal};
use super::{structured, table};

/// Takes a write back, the last one unless a number is given.
pub(crate) fn run(session: &Session, number: Option<u64>) -> Result<bool, Failure> {
    let nothing = || Failure::new("there is no write to take back").help("margay history");
    let is_here = is_here(session);
    say_unsettled(&session.history.settle_leftovers(Some(&session.store), &is_here))?;
    let number = match number {
        Some(number) => number,
        None => session.history.newest(&is_here)?.ok_or_else(nothing)?,
    };
    let entry = session.history.read(number)?;
    if !is_here(&entry) {
        let here = session.place();
        let what = match entry.store == here {
            true => format!("write {number} went to another cluster that was at {here} then"),
            false => format!("write {number} went to {}, this is {here}", entry.store),
        };
        return Err(Failure::new(what).help("choose its datastore with --store or --config"));
    }
    let restored = history::to_restore(&session.store, &session.history, number, &entry)?;
    session.recorder.expect_undo(number, &entry);
    let taken_back = history::take_back(&session.resources, number, &entry, &restored);
    let (recorded, changes) = session.recorder.finish(taken_back.is_ok());
    if let Err(failure) = taken_back {
        return Err(match changes.len() {
            0 => failure.why("nothing was taken back"),
            n => failure
                .why(format!("the first {n} objects were taken back, the rest were not"))
                .undo(&recorded.line()),
        });
    }
    let (n, mark) = (changes.len(), session.terminal.mark(Mark::Fine));
    let names: Vec<String> = changes.iter().map(|change| change.name.clone()).collect();
    let notes: Vec<String> = changes.iter().filter_map(not_restored).collect();
    let redo = recorded.line().replacen("undo: ", "redo: ", 1);
    let mut out = io::stdout().lock();
    let listed = if n <= 3 { names.join(", ") } else { format!("{n} objects") };
    writeln!(out, "{mark} write {number} taken back: {listed}")?;
    for note in notes {
        writeln!(out, "note: {note}")?;
    }
    out.write_all(redo.as_bytes())?;
    Ok(true)
}

/// Whether a write went to the datastore of this session.
fn is_here(session: &Session) -> impl Fn(&Entry) -> bool {
    let (here, cluster) = (session.place(), session.cluster());
    move |entry| entry.cluster == cluster && (cluster.is_some() || entry.store == here)
}

/// Names the writes that were killed and of which this datastore does not tell whether they were
/// made.
fn say_unsettled(unsettled: &[(u64, String)]) -> io::Result<()> {
    for (number, why) in unsettled {
        let line = format!("write {number} was cut short, and may have been made: {why}");
        super::get::complain(&line)?;
    }
    Ok(())
}

/// What went with an object when it was deleted, and does not come back with it.
fn not_restored(change: &Change) -> Option<String> {
    let is_back = change.before.is_none() && change.revision.is_some();
    let name = &change.name;
    match Name::at_key(&change.key).filter(|_| is_back)?.kind {
        Kind::Node => Some(format!("the addresses of {name} were released and are not restored")),
        Kind::IpPool => {
            Some(format!("the blocks of {name} were taken from their nodes and are not restored"))
        }
        _ => None,
    }
}

/// Lists the writes that can be taken back, newest first.
pub(crate) fn list(terminal: Terminal, place: &Place, format: Format) -> Result<bool, Failure> {
    let dir = with_surroundings(place, |surroundings| surroundings.state_dir());
    let history = &History::below(dir);
    if history.has_leftovers() {
        let unsettled = match Session::open(place) {
            Ok(session) => history.settle_leftovers(Some(&session.store), is_here(&session)),
            Err(_) => history.settle_leftovers(None, |_| false),
        };
        say_unsettled(&unsettled)?;
    }
    let kept = history.after(0)?;
    let taken_back = history::taken_back(&kept);
    let mut rows = Vec::new();
    let mut entries = Vec::new();
    for (number, entry) in kept.iter().rev() {
        let by = taken_back.get(number);
        let names: Vec<&String> = entry.changes.iter().map(|change| &change.name).collect();
        rows.push(vec![
            number.to_string(),
            entry.time.clone(),
            shortened(&names),
            by.map_or_else(String::new, |by| format!("taken back by {by}")),
            entry.command.clone(),
            entry.store.clone(),
        ]);
        entries.push(json!({
            "number": number,
            "time": entry.time,
            "command": entry.command,
            "store": entry.store,
            "objects": names,
            "undoes": entry.undoes,
            "takenBackBy": by,
        }));
    }
    if let Some(format) = format.output {
        terminal.page(&structured(format, &json!(entries)))?;
        return Ok(true);
    }
    if rows.is_empty() {
        writeln!(
            io::stderr().lock(),
            "no writes yet; those made by margay appear here, to be taken back"
        )?;
        return Ok(true);
    }
    let headings = ["NUMBER", "TIME", "OBJECTS", "STATE", "COMMAND", "STORE"];
    table::show(terminal, &headings, &rows)?;
    Ok(true)
}

fn shortened(names: &[&String]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).clone(),
        [one, other] => format!("{one}, {other}"),
        [one, other, rest @ ..] => format!("{one}, {other} and {} more", rest.len()),
    }
}
