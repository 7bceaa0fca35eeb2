//! `margay get -w`: a view that follows, for people as rows under a table, for programs as one
//! line of JSON a change.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use api::Kind;
use serde_json::{Value, json};
use store::Store;
use store::resources::{Name, Quarantined, ResourceEvent, Stored};
use text::table::Layout;

use super::arguments::Get;
use super::failure::Failure;
use super::get::{Asked, Table, complain, exported, quarantine_line, unprintable};
use super::read_documents::once_each;
use super::session::{Session, spoken};
use super::terminal;
use crate::output::{self, Format, Shown};

/// How long one wait for the next event lasts; the watch itself goes on for ever.
const WAIT: Duration = Duration::from_secs(1);

/// How long an outage that was spoken of goes on in silence.
const SAY_AGAIN: Duration = Duration::from_secs(5);

/// Follows the objects of a kind until somebody stops it: the present ones first, then a line (or
/// a document) a change. A store that goes away is said once, and gone on with when it returns.
pub(super) fn follow(session: &Session, get: &Get, asked: &Asked<'_>) -> Result<bool, Failure> {
    let &Asked { kind, namespace, ref selection } = asked;
    // A watch waits for what will come, and must not miss where it comes.
    if let Store::Sqlite(store) = &session.store {
        store.create().map_err(|error| Failure::new(error.to_string()))?;
    }
    let mut view = View::new(session, get, kind)?;
    let mut watch = session.resources.watch(kind, namespace);
    let mut outage = Outage::default();
    let is_wanted =
        |name: &Name| get.meant.names.is_empty() || get.meant.names.contains(&name.name);
    // Those shown last with the labels asked for: one that loses them is gone from this view.
    let mut selected = BTreeSet::new();
    loop {
        let Some(event) = watch.next(WAIT) else {
            terminal::rest(Duration::ZERO)?;
            continue;
        };
        if !matches!(event, ResourceEvent::Disconnected { .. })
            && let Some(endpoint) = outage.is_over()
        {
            complain(&format!("{endpoint} answers again"))?;
        }
        match event {
            ResourceEvent::Put(stored) if is_wanted(&stored.name) => match stored.judged() {
                Ok(stored) if selection.takes(&stored.object) => {
                    if !selection.is_everything() {
                        selected.insert(stored.name.clone());
                    }
                    view.put(stored)?;
                }
                Ok(stored) if selected.remove(&stored.name) => {
                    view.deleted(&stored.name, stored.revision)?;
                }
                Ok(_) => {}
                Err(bad) => view.unusable(&bad)?,
            },
            ResourceEvent::Deleted { name, revision } if is_wanted(&name) => {
                if selected.remove(&name) || selection.is_everything() {
                    view.deleted(&name, revision)?;
                }
            }
            ResourceEvent::Quarantined(bad) if bad.name.as_ref().is_none_or(is_wanted) => {
                view.unusable(&bad)?;
            }
            ResourceEvent::Put(_)
            | ResourceEvent::Deleted { .. }
            | ResourceEvent::Quarantined(_) => {}
            ResourceEvent::InSync(revision) => view.in_sync(revision)?,
            ResourceEvent::Disconnected { endpoint, error, since } => {
                if outage.is_to_be_said(&endpoint, since, Instant::now()) {
                    let seconds = since.elapsed().as_secs();
                    complain(&format!("waiting for {endpoint}: {error}, {seconds} s"))?;
                }
            }
        }
    }
}

/// When an outage was last spoken of. Each attempt to connect fails anew; people need the fact, and
/// then a sign of life.
#[derive(Default)]
struct Outage {
    said: Option<Instant>,
    /// What does not answer, while it does not.
    endpoint: Option<String>,
}

impl Outage {
    /// Who answers again, once.
    fn is_over(&mut self) -> Option<String> {
        self.endpoint.take()
    }

    fn is_to_be_said(&mut self, endpoint: &str, since: Instant, now: Instant) -> bool {
        self.endpoint = Some(endpoint.to_owned());
        let is_known = self.said.is_some_and(|said| said >= since && now - said < SAY_AGAIN);
        if !is_known {
            self.said = Some(now);
        }
        !is_known
    }
}

/// How changes are shown: rows under the first table, or one document each.
struct View<'s> {
    session: &'s Session,
    format: Format,
    table: Option<Table>,
    /// Set once the table of what was there at the beginning has been shown.
    layout: Option<Layout>,
    is_synced: bool,
    kind: Kind,
    export: bool,
}

impl<'s> View<'s> {
    fn new(session: &'s Session, get: &Get, kind: Kind) -> Result<Self, Failure> {
        let with_namespace =
            kind.is_namespaced() && (get.all_namespaces || get.meant.namespace.is_some());
        let format =
            Format::parse(&get.output, with_namespace).map_err(super::get::unknown_format)?;
        let table = match &format {
            Format::Table(headings) => Some(Table::new(kind, headings)?),
            _ => None,
        };
        Ok(Self {
            session,
            format,
            table,
            layout: None,
            is_synced: false,
            kind,
            export: get.export,
        })
    }

    fn put(&mut self, stored: Stored) -> Result<(), Failure> {
        let mut as_number = || self.session.as_number();
        if let Some(table) = &mut self.table {
            table.add(&stored.object, &mut as_number);
            return match self.is_synced && self.layout.is_none() {
                true => self.start_table(),
                false => self.flush_rows(),
            };
        }
        let kind = stored.name.kind;
        let object = exported(stored, self.export);
        if matches!(self.format, Format::Json) {
            return emit_line(&json!({"type": "put", "object": object}));
        }
        let mut out = Vec::new();
        if matches!(self.format, Format::Yaml) {
            out.extend_from_slice(b"---\n");
        }
        let shown = [Shown::Object(kind, object)];
        output::print(&self.format, &shown, &mut as_number, &mut out).map_err(unprintable)?;
        emit(&out)
    }

    fn deleted(&mut self, name: &Name, revision: i64) -> Result<(), Failure> {
        match &self.format {
            Format::Json => emit_line(&json!({
                "type": "removed",
                "object": reference(name),
                "revision": revision,
            })),
            Format::Yaml => emit(format!("---\n# {} removed\n", spoken(name)).as_bytes()),
            _ => emit(format!("{} removed\n", spoken(name)).as_bytes()),
        }
    }

    /// Whoever acts on the changes must not go on with what the object was before.
    fn unusable(&mut self, bad: &Quarantined) -> Result<(), Failure> {
        if matches!(self.format, Format::Json) {
            let problems = once_each(&bad.problems).into_iter().map(ToString::to_string);
            emit_line(&json!({
                "type": "unusable",
                "object": bad.name.as_ref().map(reference),
                "key": bad.key,
                "problems": problems.collect::<Vec<_>>(),
            }))?;
        }
        complain(&quarantine_line(self.session.terminal, bad))?;
        Ok(())
    }

    fn in_sync(&mut self, revision: i64) -> Result<(), Failure> {
        if matches!(self.format, Format::Json) {
            return emit_line(&json!({"type": "synced", "revision": revision}));
        }
        if self.layout.is_some() {
            return Ok(());
        }
        self.is_synced = true;
        match &self.table {
            // The headings wait for the first row, to be as wide as it needs.
            Some(table) if table.rows.is_empty() => {
                complain(&format!("no {} yet", self.kind.plural()))?;
            }
            _ => self.start_table()?,
        }
        Ok(())
    }

    /// Shows the headings, as wide as the rows so far need, and these rows.
    fn start_table(&mut self) -> Result<(), Failure> {
        let Some(table) = &self.table else { return Ok(()) };
        let headings = table.headings();
        let mut layout = Layout::new(&headings, self.session.terminal.width);
        layout.fit(&table.rows);
        let mut text = String::new();
        layout.write(&mut text, &headings);
        left_out_line(&layout, &headings)?;
        self.layout = Some(layout);
        emit(text.as_bytes())?;
        self.flush_rows()
    }

    /// Before the table has been shown its rows are collected; afterwards each goes out at once.
    fn flush_rows(&mut self) -> Result<(), Failure> {
        let (Some(table), Some(layout)) = (&mut self.table, &mut self.layout) else {
            return Ok(());
        };
        let rows = std::mem::take(&mut table.rows);
        layout.fit(&rows);
        let mut text = String::new();
        rows.iter().for_each(|row| layout.write(&mut text, row));
        emit(text.as_bytes())
    }
}

fn left_out_line(layout: &Layout, headings: &[String]) -> io::Result<()> {
    layout.left_out(headings).map_or(Ok(()), |line| complain(&line))
}

/// What is left to say of an object that is not there any more.
fn reference(name: &Name) -> Value {
    let mut metadata = json!({"name": name.name});
    if !name.namespace.is_empty() {
        metadata["namespace"] = name.namespace.as_str().into();
    }
    json!({"kind": name.kind.name(), "metadata": metadata})
}

fn emit_line(value: &Value) -> Result<(), Failure> {
    emit((text::json::to_string(value) + "\n").as_bytes())
}

/// Each change goes out whole and at once: whoever reads the other end acts on it.
fn emit(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_said_at_once_and_then_every_five_seconds() {
        let began = Instant::now();
        let after = |ms: u64| began + Duration::from_millis(ms);
        let mut outage = Outage::default();
        let mut said = |ms: u64| outage.is_to_be_said("e", began, after(ms));
        assert_eq!([10, 60, 300, 4_900].map(&mut said), [true, false, false, false]);
        assert_eq!([5_011, 6_000, 10_012].map(&mut said), [true, false, true]);
        // The next one is another.
        assert!(outage.is_to_be_said("e", after(10_500), after(10_600)));
        assert!(!outage.is_to_be_said("e", after(10_500), after(10_700)));
        assert_eq!((outage.is_over().as_deref(), outage.is_over()), (Some("e"), None));
    }
}
