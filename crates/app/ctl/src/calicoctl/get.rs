//! The command `get`.

use std::io;
use std::ops::ControlFlow;

use api::Kind;
use store::resources::Resources;

use super::actions;
use super::resources::{Action, Refusal, execute};
use super::session::{self, Datastore, Session};
use super::stop::Stop;
use super::targets::{Early, Target, targets};
use crate::output::{self, Format, ListWriter};

/// Prints the objects of the command line.
pub(crate) fn run(session: &mut Session<'_>) -> Result<(), Stop> {
    let parsed = session.parsed;
    let everywhere = parsed.is_set("all-namespaces") || parsed.is_set("all-namespaces-a");
    let with_namespace = everywhere || parsed.text("namespace").is_some();
    let format = Format::parse(parsed.text("output").unwrap_or("ps"), with_namespace)?;
    if let Some(done) = stream(session, &format)? {
        return done;
    }
    let outcome = execute(session, Action::Get).map_err(begun)?;
    let mut as_number = cached_as_number(&session.datastore);
    output::print(&format, &outcome.shown, &mut as_number, session.out)?;
    match outcome.errors.as_slice() {
        [] => Ok(()),
        errors => Err(Stop::Error(errors.join("\n"))),
    }
}

fn begun(early: Early) -> Stop {
    match early {
        Early::File(words) => Stop::Error(format!("failed to execute command: {words}")),
        Early::Plain(words) => Stop::Error(format!("failed to get resources: {words}")),
        Early::Stop(stop) => stop,
    }
}

/// The list of one whole kind is printed as it is read; `None` when that is not what is asked.
/// Tiers are not in the order in which they are printed, and there are few.
fn stream(session: &mut Session<'_>, format: &Format) -> Result<Option<Result<(), Stop>>, Stop> {
    let parsed = session.parsed;
    let is_template = matches!(format, Format::Template(_) | Format::TemplateFile(_));
    if parsed.words.len() != 1 || parsed.text("filename").is_some() || is_template {
        return Ok(None);
    }
    let target = targets(parsed).ok().and_then(|targets| targets.into_iter().next());
    let Some(mut target) = target.filter(|target| target.kind != Kind::Tier) else {
        return Ok(None);
    };
    if target.place(parsed).is_err() {
        return Ok(None);
    }
    session.check_version().map_err(|stop| begun(stop.into()))?;
    let Ok(client) = session.datastore.open() else { return Ok(None) };
    let mut as_number = cached_as_number(&session.datastore);
    Ok(Some(list(client, &target, format, &mut as_number, session.out)))
}

fn list(
    client: &Resources,
    target: &Target,
    format: &Format,
    as_number: output::AsNumber<'_>,
    out: &mut dyn io::Write,
) -> Result<(), Stop> {
    let Some(mut writer) = ListWriter::new(format, target.kind, out)? else { return Ok(()) };
    let mut written = Ok(());
    let name = target.name();
    let namespace = actions::namespace(&name);
    let fields = writer.spec_fields();
    let revision = client.each_part(target.kind, namespace, fields.as_deref(), |stored| {
        written = match stored {
            Ok(stored) => writer.item(stored.object, as_number),
            Err(quarantined) => session::warn(&quarantined),
        };
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    written?;
    match revision {
        Ok(revision) => Ok(writer.finish(revision)?),
        Err(error) => Err(Stop::Error(Refusal::from(error).words())),
    }
}

/// Asks for the AS number once, whatever the number of nodes.
fn cached_as_number(datastore: &Datastore<'_>) -> impl FnMut() -> String {
    let mut known = None;
    move || known.get_or_insert_with(|| datastore.as_number()).clone()
}
