//! What create, apply, replace, delete, patch and validate say about what they did.

use api::Kind;

use super::resources::{Action, Outcome, execute};
use super::session::Session;
use super::stop::Stop;
use super::targets::Early;

/// create, apply and validate.
pub(crate) fn write(
    session: &mut Session<'_>,
    action: Action,
    verb: &str,
    done: &str,
) -> Result<(), Stop> {
    let outcome = begun(execute(session, action))?;
    let Outcome { total, handled, errors, .. } = &outcome;
    let errors_text = format!("[{}]", errors.join(" "));
    let quoted = outcome.kind.map(|kind| format!(" '{kind}'")).unwrap_or_default();
    if *total == 0 {
        writeln!(session.out, "No resources specified")?;
        return Ok(());
    }
    if *handled == 0 {
        let what = if *total == 1 { "" } else { " any" };
        let noun = if *total == 1 { "resource" } else { "resources" };
        let text = format!("failed to {verb}{what}{quoted} {noun}: {errors_text}");
        return Err(Stop::Error(text));
    }
    if errors.is_empty() {
        writeln!(session.out, "Successfully {done} {handled}{quoted} resource(s)")?;
        return Ok(());
    }
    if *handled > errors.len() {
        writeln!(
            session.out,
            "Partial success: {done} the first {handled} out of {total}{quoted} resources:"
        )?;
    }
    Err(Stop::Error(format!("hit error: {errors_text}")))
}

/// replace.
pub(crate) fn replace(session: &mut Session<'_>) -> Result<(), Stop> {
    let outcome = begun(execute(session, Action::Replace))?;
    let Outcome { total, handled, errors, .. } = &outcome;
    let quoted = outcome.kind.map(|kind| format!(" '{kind}'")).unwrap_or_default();
    match errors.last() {
        _ if *total == 0 => writeln!(session.out, "No resources specified")?,
        None => {
            writeln!(session.out, "Successfully replaced {handled}{quoted} resource(s)")?;
        }
        Some(error) if *handled == 0 => {
            let what = if *total == 1 { "" } else { " any" };
            let noun = if *total == 1 { "resource" } else { "resources" };
            return Err(Stop::Error(format!("failed to replace{what}{quoted} {noun}: {error}")));
        }
        Some(error) => {
            writeln!(
                session.out,
                "Partial success: replaced the first {handled} out of {total}{quoted} resources:"
            )?;
            return Err(Stop::Error(format!("hit error: {error}")));
        }
    }
    Ok(())
}

/// delete.
pub(crate) fn delete(session: &mut Session<'_>) -> Result<(), Stop> {
    let outcome = begun(execute(session, Action::Delete))?;
    let quoted = outcome.kind.map(|kind| format!(" '{kind}'")).unwrap_or_default();
    if outcome.total == 0 {
        writeln!(session.out, "No resources specified")?;
    } else if outcome.handled > 0 {
        writeln!(session.out, "Successfully deleted {}{quoted} resource(s)", outcome.handled)?;
    }
    if outcome.errors.is_empty() {
        return Ok(());
    }
    let line = |error: &String| format!("Failed to delete{quoted} resource: {error}\n");
    Err(Stop::Error(outcome.errors.iter().map(line).collect()))
}

/// patch.
pub(crate) fn patch(session: &mut Session<'_>) -> Result<(), Stop> {
    let outcome = begun(execute(session, Action::Patch))?;
    if let Some(error) = outcome.errors.last() {
        return Err(Stop::Error(format!("hit error: {error}")));
    }
    let kind = outcome.kind.map(Kind::name).unwrap_or_default();
    writeln!(session.out, "Successfully patched {} '{kind}' resource", outcome.handled)?;
    Ok(())
}

/// An unusable file has its own words in front; the rest is said as it is.
fn begun(result: Result<Outcome, Early>) -> Result<Outcome, Stop> {
    result.map_err(|early| match early {
        Early::File(words) => Stop::Error(format!("failed to execute command: {words}")),
        Early::Plain(words) => Stop::Error(words),
        Early::Stop(stop) => stop,
    })
}
