//! `lab list`.

use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::Format;
use crate::failure::Failure;
use crate::lab::flag;
use crate::place::Place;
use crate::screen::{Screen, age};
use crate::state::{State, utc};
use crate::status::seconds_since;

/// The command.
pub(crate) fn run(format: Format) -> Result<Outcome, Failure> {
    let screen = Screen::detect(format);
    let mut rows = Vec::new();
    let mut labs = Vec::new();
    let mut unfinished = Vec::new();
    for place in Place::all()? {
        // A lab that cannot be read is still one that can be removed.
        let state = State::read(&place).ok().flatten().filter(|state| state.is_built);
        let cell = |of: &dyn Fn(&State) -> String| state.as_ref().map_or("-".to_owned(), of);
        rows.push(vec![
            place.name.clone(),
            cell(&|state| state.nodes.len().to_string()),
            cell(&|state| state.pods.len().to_string()),
            cell(&|state| age(seconds_since(state.since))),
            place.folder.display().to_string(),
        ]);
        labs.push(as_json(&place, state.as_ref()));
        if state.is_none() {
            unfinished.push(place);
        }
    }
    screen.answer(&json!({"labs": labs}))?;
    match rows.is_empty() {
        true => screen.say("there is no lab; margay lab up makes one\n")?,
        false => screen.say(&screen.table(&["NAME", "NODES", "PODS", "AGE", "FOLDER"], &rows))?,
    }
    for place in unfinished {
        let (mark, name, flag) = (screen.mark(Outcome::Degraded), &place.name, flag(&place.name));
        screen.say(&format!(
            "{mark} lab {name:?} was never finished: margay lab up{flag} builds it anew, \
             margay lab down{flag} removes it\n"
        ))?;
    }
    Ok(Outcome::Fine)
}

fn as_json(place: &Place, state: Option<&State>) -> Value {
    let mut lab = json!({
        "name": place.name,
        "folder": place.folder,
        "isBuilt": state.is_some(),
    });
    if let Some(state) = state {
        lab["since"] = utc(state.since).into();
        lab["datastore"] = state.datastore.name().into();
        lab["ipv6"] = state.ipv6.into();
        lab["nodes"] = state.nodes.len().into();
        lab["pods"] = state.pods.len().into();
    }
    lab
}
