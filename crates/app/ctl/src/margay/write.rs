//! The commands that change the datastore. Each keeps what was there before, and says how to take
//! it back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, IsTerminal, Write as _};
use std::time::{Duration, Instant};

use api::{Kind, Problem};
use serde_json::{Value, json};
use store::resources::{Applied, Error, Name, Together, Verb, Written};

use super::arguments::{Delete, Label, Patch, PatchType, Structured, Write};
use super::confirm::{Confirmation, Watched};
use super::failure::{Failure, next_step};
use super::read_documents::{Given, Input, all_problems, field_help, files, once_each, refusal};
use super::realised;
use super::recorder::Recorded;
use super::session::{Session, kind_of, name_of, spoken};
use super::terminal::Mark;

/// Creates, applies or replaces the objects of documents: all of them, or none.
pub(crate) fn documents(
    session: &Session,
    verb: Verb,
    write: &Write,
    skips_existing: bool,
) -> Result<bool, Failure> {
    if write.is_dry() {
        return super::dry_run::run(session, verb, write, skips_existing);
    }
    let input = Input::read(&write.files).map_err(Failure::nothing_was_written)?;
    let confirmation = write.confirmation;
    confirmation.check(session)?;
    let mut account = Account { no_wait: write.no_wait, confirmation, ..Account::default() };
    let mut pending: Vec<&Given> = input.objects.iter().collect();
    refuse_before_first_write(session, &input, &mut account)?;
    if !account.refused.is_empty() {
        return account.finish(session, write.format.output);
    }
    session.resources.initialise().map_err(Failure::from)?;
    loop {
        let objects: Vec<&Value> = pending.iter().map(|given| &given.object).collect();
        let results = session.resources.write_all(verb, &objects, Together::AllOrNothing);
        let n_skipped_before = account.n_skipped;
        let mut untried = Vec::new();
        for (given, result) in pending.into_iter().zip(results) {
            match result {
                Err(Error::NotAttempted(_)) => untried.push(given),
                Err(error) if skips_existing && error.is_already_exists() => {
                    account.n_skipped += 1;
                }
                Ok(written) => account.add(written),
                Err(error) => account.refuse(&input, given, &error),
            }
        }
        // What was held up only by objects that are to be skipped gets another turn.
        let is_in_the_way = account.n_skipped > n_skipped_before && account.refused.is_empty();
        if untried.is_empty() || !is_in_the_way {
            account.n_untried = untried.len();
            return account.finish(session, write.format.output);
        }
        pending = untried;
    }
}

/// A store that was never written gets its first objects (tiers, cluster information) only when
/// what is to be written is good.
fn refuse_before_first_write(
    session: &Session,
    input: &Input,
    account: &mut Account,
) -> Result<(), Failure> {
    let cluster = name_of(Kind::ClusterInformation, None, "default");
    match session.resources.get(&cluster) {
        Err(error) if error.is_not_found() => {}
        Err(error @ Error::Store(_)) => return Err(error.into()),
        _ => return Ok(()),
    }
    let objects = input.values();
    for (given, preview) in input.objects.iter().zip(session.resources.preview(&objects)) {
        match preview {
            Ok(_) => account.n_untried += 1,
            Err(error) => account.refuse(input, given, &error),
        }
    }
    if account.refused.is_empty() {
        account.n_untried = 0;
    }
    Ok(())
}

/// What became of the objects of one command.
#[derive(Default)]
struct Account {
    /// What became of each object, by its name; one that is given twice is one.
    written: BTreeMap<String, Applied>,
    /// Those that are given more than once.
    repeated: BTreeSet<String>,
    n_removed: usize,
    n_skipped: usize,
    n_untried: usize,
    revision: i64,
    is_removal: bool,
    /// Whether an object that is still there lost something that belongs to it.
    is_unfinished: bool,
    /// Whether the answer to a write was lost.
    is_uncertain: bool,
    changed: Vec<String>,
    refused: Vec<String>,
    help: Option<String>,
    no_wait: bool,
    confirmation: Confirmation,
}

impl Account {
    fn add(&mut self, written: Written) {
        self.revision = self.revision.max(written.revision);
        let name = spoken(&written.name);
        let was = self.written.get(&name).copied();
        if was.is_some() {
            self.repeated.insert(name.clone());
        }
        let is_changed = |applied| applied != Applied::Unchanged;
        if is_changed(written.applied) && !was.is_some_and(is_changed) {
            self.changed.push(name.clone());
        }
        self.written.insert(name, was.filter(|was| is_changed(*was)).unwrap_or(written.applied));
    }

    fn refuse(&mut self, input: &Input, given: &Given, error: &Error) {
        self.is_uncertain |= is_lost(error);
        let (lines, help) = refusal(input, given, error);
        self.refused.extend(lines);
        self.help = self.help.take().or(help);
    }

    fn counts(&self) -> [(usize, &'static str); 5] {
        let n = |wanted| self.written.values().filter(|applied| **applied == wanted).count();
        [
            (n(Applied::Created), "created"),
            (n(Applied::Changed), "changed"),
            (self.n_removed, "removed"),
            (n(Applied::Unchanged), "unchanged"),
            (self.n_skipped, "skipped"),
        ]
    }

    fn summary(&self) -> String {
        let counts = self.counts().into_iter().filter(|(count, _)| *count > 0);
        counts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    }

    fn finish(self, session: &Session, format: Option<Structured>) -> Result<bool, Failure> {
        let done = !self.changed.is_empty() || self.is_unfinished;
        let (began, realisable) = (Instant::now(), session.recorder.realisable());
        let recorded = session.record_changes();
        let watched = match (self.confirmation.confirm_within, recorded.number()) {
            (Some(within), Some(number)) => Some(Watched::start(session, number, within)?),
            _ => None,
        };
        if self.refused.is_empty() {
            let waits = format.is_none() && !self.no_wait;
            let realised = waits.then(|| realised::soon(session, &realisable, began)).flatten();
            let is_fine =
                self.report(session, format, &recorded, realised).map_err(
                    |failure| match done {
                        true => failure
                            .after_the_write(&self.summary())
                            .undo(&recorded.line(&session.history)),
                        false => failure,
                    },
                )?;
            return match watched {
                // What a program reads from standard output is one document.
                Some(watched) if format.is_some() => watched.wait(session, &mut io::stderr()),
                Some(watched) => watched.wait(session, &mut io::stdout()),
                None => Ok(is_fine),
            };
        }
        let verb = if self.is_removal { "removed" } else { "written" };
        let is_uncertain = self.is_uncertain && !matches!(recorded, Recorded::Nothing);
        let what = match (done, self.n_untried) {
            _ if is_uncertain && self.summary().is_empty() => {
                format!("it is not certain whether anything was {verb}")
            }
            _ if is_uncertain => {
                format!("it is not certain what more was {verb} than: {}", self.summary())
            }
            (false, 0) => format!("nothing was {verb}"),
            (false, 1) => format!("nothing was {verb}, 1 good object was left alone too"),
            (false, n) => format!("nothing was {verb}, {n} good objects were left alone too"),
            (true, _) if self.summary().is_empty() => format!("only a part was {verb}"),
            (true, _) => format!("only a part was {verb}: {}", self.summary()),
        };
        let failure = self.refused.into_iter().fold(Failure::new(what), Failure::detail);
        Err(failure.help_if(self.help).undo(&recorded.line(&session.history)))
    }

    fn report(
        &self,
        session: &Session,
        format: Option<Structured>,
        recorded: &Recorded,
        realised: Option<String>,
    ) -> Result<bool, Failure> {
        let mut out = io::stdout().lock();
        if let Some(format) = format {
            let counts = self.counts().into_iter().map(|(count, word)| (word, json!(count)));
            let rest = [
                ("revision", json!(self.revision)),
                ("objects", json!(self.changed)),
                ("undo", json!(recorded.number())),
            ];
            let answer: Value =
                counts.chain(rest).map(|(name, value)| (name.to_owned(), value)).collect();
            out.write_all(super::structured(format, &answer).as_bytes())?;
            return Ok(true);
        }
        let mark = session.terminal.mark(Mark::Fine);
        let revision = Some(self.revision).filter(|revision| *revision != 0);
        let revision = revision.map(|revision| format!("revision {revision}"));
        let more: Vec<String> = revision.into_iter().chain(realised).collect();
        match (self.summary().as_str(), more.is_empty()) {
            ("", _) => writeln!(out, "{mark} nothing to do")?,
            (summary, true) => writeln!(out, "{mark} {summary}")?,
            (summary, false) => writeln!(out, "{mark} {summary}   ({})", more.join("; "))?,
        }
        for name in &self.repeated {
            writeln!(out, "note: {name} is given more than once; the last one counts")?;
        }
        out.write_all(recorded.line(&session.history).as_bytes())?;
        Ok(true)
    }
}

/// Removes objects by name or by documents.
pub(crate) fn delete(session: &Session, delete: &Delete) -> Result<bool, Failure> {
    let mut names: Vec<Name> = match &delete.meant.kind {
        Some(kind) => {
            let kind = kind_of(kind)?;
            let namespace = delete.meant.namespace.as_deref();
            delete.meant.names.iter().map(|name| name_of(kind, namespace, name)).collect()
        }
        None => {
            let files = files(
                &delete.meant.filename,
                delete.meant.recursive,
                delete.meant.namespace.as_deref(),
            );
            Input::read(&files)?.objects.into_iter().map(|given| given.name).collect()
        }
    };
    // What is given twice goes once.
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.key()));
    if names.is_empty() {
        return Err(Failure::new("no names given").help("margay delete KIND NAME…, or -f FILE"));
    }
    let (no_wait, confirmation) = (delete.no_wait, delete.confirmation);
    confirmation.check(session)?;
    let mut account = Account { is_removal: true, no_wait, confirmation, ..Account::default() };
    if !delete.skip_not_exists {
        for name in &names {
            let missing = session.resources.get(name).err().filter(Error::is_not_found);
            account.refused.extend(missing.map(|error| error.to_string()));
        }
        if !account.refused.is_empty() {
            account.help = Some("--skip-not-exists passes over what is not there".to_owned());
            account.n_untried = names.len() - account.refused.len();
            return account.finish(session, None);
        }
    }
    confirm(delete, &names)?;
    // A tier can go only after the policies in it.
    names.sort_by_key(|name| name.kind == Kind::Tier);
    for name in names {
        match session.resources.delete(&name, None) {
            Ok(_) => {
                account.n_removed += 1;
                account.changed.push(spoken(&name));
            }
            Err(error) if delete.skip_not_exists && error.is_not_found() => account.n_skipped += 1,
            Err(error) => {
                account.is_unfinished |= matches!(error, Error::Unfinished { .. });
                account.is_uncertain |= is_lost(&error);
                account.refused.push(error.to_string());
                account.help = account.help.or_else(|| next_step(&error));
            }
        }
    }
    account.finish(session, None)
}

/// Asks on a terminal; elsewhere a removal must have been meant.
fn confirm(delete: &Delete, names: &[Name]) -> Result<(), Failure> {
    if delete.yes {
        return Ok(());
    }
    ask(&names.iter().map(spoken).collect::<Vec<_>>())
}

/// Asks whether all of this may go; where nobody can be asked, that is an error.
pub(crate) fn ask(list: &[String]) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(list.iter().fold(
            Failure::new("nothing was removed: nobody is there to ask").help("add --yes"),
            Failure::detail,
        ));
    }
    let mut error_stream = io::stderr().lock();
    // In one piece, so that what is typed meanwhile does not show up in the middle of it.
    let question = format!("This removes:\n  {}\nGo on? [y/N] ", list.join("\n  "));
    error_stream.write_all(question.as_bytes())?;
    error_stream.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was removed")),
    }
}

/// Changes some fields of one object.
pub(crate) fn patch(session: &Session, patch: &Patch) -> Result<bool, Failure> {
    let name = name_of(kind_of(&patch.one.kind)?, patch.one.namespace.as_deref(), &patch.one.name);
    let given = text::yaml::parse(patch.patch.as_bytes())
        .map_err(|error| Failure::new("the patch cannot be read, -p").why(error.to_string()))
        .map_err(|failure| {
            failure.help("-p '{\"spec\":{\"natOutgoing\":true}}', in JSON or YAML")
        })?;
    edit(session, &name, (patch.confirmation, patch.no_wait), |object| {
        let patched = match patch.kind_of_patch {
            PatchType::Strategic => text::patch::strategic(object, &given),
            PatchType::Merge => {
                let mut merged = object.clone();
                text::patch::merge(&mut merged, &given);
                Ok(merged)
            }
            PatchType::Json => text::patch::operations(object, &given),
        };
        patched.map_err(|error| {
            Failure::new(format!("the patch does not fit, {}", spoken(&name)))
                .why(error.to_string())
                .help(match patch.kind_of_patch {
                    PatchType::Json => format!(
                        "paths are those of the object: margay get {} {} -o json",
                        name.kind.plural(),
                        name.name
                    ),
                    _ => "--type merge or --type json reads the patch in another way".to_owned(),
                })
        })
    })
}

/// Sets or removes a label of one object.
pub(crate) fn label(session: &Session, label: &Label) -> Result<bool, Failure> {
    let name = name_of(kind_of(&label.one.kind)?, label.one.namespace.as_deref(), &label.one.name);
    edit(session, &name, (label.confirmation, label.no_wait), |object| {
        let mut object = object.clone();
        let labels = object["metadata"]
            .as_object_mut()
            .map(|metadata| metadata.entry("labels").or_insert_with(|| json!({})))
            .and_then(Value::as_object_mut)
            .ok_or_else(|| Failure::new("the object has no metadata"))?;
        let removed = label.label.strip_suffix('-').filter(|key| !key.contains('='));
        if let Some(key) = removed.or(label.remove.then_some(label.label.as_str())) {
            return match labels.shift_remove(key) {
                Some(_) => Ok(object),
                None => Err(Failure::new(format!("{} has no label {key}", spoken(&name)))),
            };
        }
        let (key, value) = label.label.split_once('=').ok_or_else(|| {
            Failure::new(format!("\"{}\" is not a label", label.label))
                .help("key=value, or key- to remove it")
        })?;
        match labels.get(key).and_then(Value::as_str) {
            Some(old) if old != value && !label.overwrite => {
                Err(Failure::new(format!("{} has the label {key}={old} already", spoken(&name)))
                    .help("--overwrite to change it"))
            }
            _ => {
                labels.insert(key.to_owned(), value.into());
                Ok(object)
            }
        }
    })
}

/// Reads, changes and writes one object back at the revision that was read; tries again when
/// somebody else wrote in between.
fn edit(
    session: &Session,
    name: &Name,
    (confirmation, no_wait): (Confirmation, bool),
    change: impl Fn(&Value) -> Result<Value, Failure>,
) -> Result<bool, Failure> {
    const ATTEMPTS_MAX: u64 = 20;
    confirmation.check(session)?;
    for attempt in 1.. {
        let stored = session.resources.get(name).map_err(Failure::from)?;
        let changed = change(&stored.object)?;
        let decoded = super::decode_user(name.kind, changed)
            .map_err(|problems| would_be_invalid(name, &problems))?;
        let is_another = decoded["kind"] != name.kind.name();
        if is_another || Name::of(name.kind, &decoded) != *name {
            return Err(Failure::new(format!("{} stays under its kind and name", spoken(name)))
                .why("kind, metadata.name and metadata.namespace cannot be changed")
                .help("margay create for a new object, margay delete for the old one"));
        }
        match session.resources.write(Verb::Update, &decoded) {
            Ok(written) => {
                let mut account = Account { confirmation, no_wait, ..Account::default() };
                account.add(written);
                return account.finish(session, None);
            }
            Err(Error::Conflict(_)) if attempt < ATTEMPTS_MAX => {
                // Those who edit at the same time must not come back at the same time.
                let own_ms = u64::from(std::process::id()) % 7;
                std::thread::sleep(Duration::from_millis(attempt * 2 + own_ms));
            }
            Err(Error::Invalid { problems, .. }) => {
                let mut problems = all_problems(name.kind, &decoded, &problems);
                let kept = model::validate::rules::check_update_rules;
                problems.extend(kept(name.kind, &stored.object, &decoded));
                return Err(would_be_invalid(name, &problems));
            }
            Err(error) => return Err(failed(session, error)),
        }
    }
    unreachable!("the loop ends by returning")
}

/// Whether nobody knows if a write was made.
fn is_lost(error: &Error) -> bool {
    match error {
        Error::Store(error) => matches!(error, store::Error::Uncertain(_)),
        Error::Unfinished { cause, .. } => is_lost(cause),
        _ => false,
    }
}

/// A write that failed, with how to take back what it may have done.
pub(crate) fn failed(session: &Session, error: Error) -> Failure {
    Failure::from(error).undo(&session.record_changes().line(&session.history))
}

/// Writes one object over the stored one, unless somebody changed that since it was read.
pub(crate) fn replace_one(session: &Session, name: &Name, object: Value) -> Result<bool, Failure> {
    match session.resources.write(Verb::Update, &object) {
        Ok(written) => {
            let mut account = Account::default();
            account.add(written);
            account.finish(session, None)
        }
        Err(Error::Invalid { problems, .. }) => {
            Err(would_be_invalid(name, &all_problems(name.kind, &object, &problems)))
        }
        Err(error) => Err(failed(session, error)),
    }
}

fn would_be_invalid(name: &Name, problems: &[Problem]) -> Failure {
    let first = Failure::new(format!("{} would not be valid; nothing was written", spoken(name)));
    let lines = once_each(problems).into_iter().map(ToString::to_string);
    lines.fold(first, Failure::detail).help_if(field_help(name.kind, problems))
}
