//! The command `label`.

use serde_json::{Map, Value};
use store::resources::Stored;

use super::actions;
use super::session::Session;
use super::stop::Stop;
use super::targets::{Early, targets_named};

/// Sets or removes a label.
pub(crate) fn run(session: &mut Session<'_>) -> Result<(), Stop> {
    let parsed = session.parsed;
    let [kind, name, label, ..] = parsed.words.as_slice() else { return Ok(()) };
    let remove = parsed.is_set("remove");
    let (key, value) = match (remove, label.split_once('=')) {
        (true, _) => (label.as_str(), None),
        (false, Some((key, value))) => (key, Some(value)),
        (false, None) => return Err(Stop::Error(format!("invalid label {label}"))),
    };
    let mut stored = read(session, kind, name)?;
    let labels = labels(&mut stored);
    let had = labels.get(key).and_then(Value::as_str).map(str::to_owned);
    match (value, &had) {
        (None, None) => {
            let words = format!("cannot remove label of {kind} {name}, key {key} does not exist");
            return Err(Stop::Error(words));
        }
        (None, Some(_)) => {
            labels.shift_remove(key);
        }
        (Some(value), Some(old)) if value != old && !parsed.is_set("overwrite") => {
            return Err(Stop::Error(format!(
                "failed to update label of {kind} {name}, key {key} is already present. \
                 please use '--overwrite' to set a new value"
            )));
        }
        (Some(value), _) => {
            labels.insert(key.to_owned(), value.into());
        }
    }
    let client = session.datastore.open()?;
    actions::write_back(client, &stored)
        .map_err(|_| Stop::Error(format!("failed to update {kind} {name}, label not changed")))?;
    match (value, had) {
        (None, _) => writeln!(session.out, "Successfully removed label {key} from {kind} {name}")?,
        (_, Some(_)) => writeln!(session.out, "Successfully updated label {key} on {kind} {name}")?,
        (_, None) => writeln!(session.out, "Successfully set label {key} on {kind} {name}")?,
    }
    Ok(())
}

fn read(session: &Session<'_>, kind: &str, name: &str) -> Result<Stored, Stop> {
    let failed = |stop: Stop| match stop {
        Stop::Error(words) => Stop::Error(format!("failed to get {kind} {name}, error {words}")),
        stop => stop,
    };
    session.check_version().map_err(failed)?;
    let mut target = match targets_named(kind, &[name.to_owned()]) {
        Ok(mut targets) => targets.remove(0),
        Err(Early::File(words) | Early::Plain(words)) => return Err(failed(Stop::Error(words))),
        Err(Early::Stop(stop)) => return Err(stop),
    };
    let client = session.client()?;
    if name.is_empty() {
        return Err(failed(Stop::Error("resource name may not be empty".to_owned())));
    }
    let missing = || Stop::Error(format!("{kind} {name} not found"));
    target.place(session.parsed).map_err(|_| missing())?;
    client.get(&target.name()).map_err(|_| missing())
}

fn labels(stored: &mut Stored) -> &mut Map<String, Value> {
    let metadata = &mut stored.object["metadata"];
    if !metadata["labels"].is_object() {
        metadata["labels"] = Value::Object(Map::new());
    }
    metadata["labels"].as_object_mut().expect("it was made an object above")
}
