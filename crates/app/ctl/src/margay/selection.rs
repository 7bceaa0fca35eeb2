//! `-l`: objects by their labels, in our selectors or as kubectl has them.

use std::fmt;

use model::selector::Selector;
use serde_json::Value;

use super::failure::Failure;

/// The objects whose labels are asked for; all without a selector.
pub(crate) struct Selection(Option<Selector>);

impl Selection {
    /// Reads what was typed: a selector (`app == "web"`), or kubectl's form (`app=web,!old`).
    pub(crate) fn read(typed: Option<&str>) -> Result<Self, Failure> {
        let Some(typed) = typed else { return Ok(Self(None)) };
        let parsed = typed.parse::<Selector>().or_else(|why| {
            let translated = translate(typed).and_then(|text| text.parse().ok());
            translated.ok_or_else(|| {
                Failure::new(format!("\"{typed}\" is not a selector, -l"))
                    .why(why.to_string())
                    .help("-l 'app == \"web\" && has(tier)', or -l app=web,tier,!old")
            })
        })?;
        Ok(Self(Some(parsed)))
    }

    /// Whether no labels are asked for.
    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the labels of an object are those asked for.
    pub(crate) fn takes(&self, object: &Value) -> bool {
        let Some(selector) = &self.0 else { return true };
        selector.matches(|label| object["metadata"]["labels"][label].as_str())
    }
}

/// Behind the words "no nodes".
impl fmt::Display for Selection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(selector) => write!(formatter, " with the labels {}", selector.canonical()),
            None => Ok(()),
        }
    }
}

/// kubectl's equality form as a selector; none if it is something else.
fn translate(typed: &str) -> Option<String> {
    let one = |requirement: &str| {
        let requirement = requirement.trim();
        let pair = |operator: &str| {
            let (key, value) = requirement.split_once(operator)?;
            let value = value.trim();
            (!value.contains(['"', '=', ' '])).then(|| (key.trim().to_owned(), value.to_owned()))
        };
        if let Some((key, value)) = pair("!=") {
            return Some(format!("{key} != \"{value}\""));
        }
        if let Some((key, value)) = pair("==").or_else(|| pair("=")) {
            return Some(format!("{key} == \"{value}\""));
        }
        match requirement.strip_prefix('!') {
            Some(key) => Some(format!("!has({})", key.trim())),
            None => Some(format!("has({requirement})")),
        }
    };
    let all: Option<Vec<String>> = typed.split(',').map(one).collect();
    all.map(|all| all.join(" && "))
}
