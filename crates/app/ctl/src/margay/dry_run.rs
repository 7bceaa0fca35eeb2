//! `--dry-run`: what a write would do, judged against the datastore, and nothing done.

use serde_json::{Value, json};
use store::resources::{Error, Preview, Verb};

use super::arguments::Write;
use super::diff::comparable;
use super::failure::{Failure, next_step};
use super::read_documents::{Input, refusal};
use super::session::{Session, spoken};
use super::structured;
use super::terminal::Mark;

/// Says what would become of each object.
pub(crate) fn run(
    session: &Session,
    verb: Verb,
    write: &Write,
    skips_existing: bool,
) -> Result<bool, Failure> {
    let input = Input::read(&write.files).map_err(Failure::nothing_was_written)?;
    let objects = input.values();
    let mut fates: Vec<(&str, String)> = Vec::new();
    let mut refused = Vec::new();
    let mut help = None;
    for (given, preview) in input.objects.iter().zip(session.resources.preview(&objects)) {
        let name = spoken(&given.name);
        let at = input.place(&given.from, "");
        match (preview, verb) {
            (Ok(Preview { before: None, .. }), Verb::Update) => {
                refused.push(format!("{name} does not exist  ({at})"));
                help = help.or_else(|| Some("margay apply makes what does not exist".to_owned()));
            }
            (Ok(Preview { before: Some(_), .. }), Verb::Create) if skips_existing => {
                fates.push(("skipped", name));
            }
            (Ok(Preview { before: Some(_), .. }), Verb::Create) => {
                refused.push(format!("{name} exists already  ({at})"));
                help = help.or_else(|| next_step(&Error::AlreadyExists(given.name.clone())));
            }
            (Ok(preview), _) => fates.push((fate(preview), name)),
            (Err(error @ Error::Store(_)), _) => return Err(error.into()),
            (Err(error), _) => {
                let (lines, next) = refusal(&input, given, &error);
                refused.extend(lines);
                help = help.or(next);
            }
        }
    }
    if !refused.is_empty() {
        let first = Failure::new("it would be refused; nothing was written");
        return Err(refused.into_iter().fold(first, Failure::detail).help_if(help));
    }
    let text = match write.format.output {
        Some(format) => structured(format, &as_value(&fates)),
        None => as_text(session, &fates),
    };
    session.terminal.page(&text)?;
    Ok(true)
}

/// In the order in which they are said.
const FATES: [&str; 4] = ["created", "changed", "unchanged", "skipped"];

fn fate(preview: Preview) -> &'static str {
    match preview.before.map(comparable) {
        None => FATES[0],
        Some(before) if before != comparable(preview.after) => FATES[1],
        Some(_) => FATES[2],
    }
}

fn counts(fates: &[(&str, String)]) -> impl Iterator<Item = (&'static str, usize)> {
    FATES.into_iter().map(|fate| (fate, fates.iter().filter(|(one, _)| *one == fate).count()))
}

fn as_text(session: &Session, fates: &[(&str, String)]) -> String {
    let mark = session.terminal.mark(Mark::Fine);
    let said = counts(fates).filter(|(_, count)| *count > 0);
    let said: Vec<String> = said.map(|(fate, count)| format!("{count} {fate}")).collect();
    let first = format!("{mark} would be: {}   (dry run, nothing was written)\n", said.join(", "));
    let rest = fates.iter().filter(|(fate, _)| *fate != "unchanged");
    rest.fold(first, |text, (fate, name)| text + &format!("  {fate:8}  {name}\n"))
}

fn as_value(fates: &[(&str, String)]) -> Value {
    let mut answer = json!({"dryRun": true});
    for (fate, count) in counts(fates) {
        answer[fate] = json!(count);
    }
    let written = fates.iter().filter(|(fate, _)| matches!(*fate, "created" | "changed"));
    answer["objects"] = written.map(|(_, name)| json!(name)).collect();
    answer
}
