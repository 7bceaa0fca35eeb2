//! The commands on resources: what calicoctl's create, apply, replace, delete, get, patch and
//! validate have in common.
//!
//! Each goes through the same steps in the same order (version, documents or names, datastore,
//! then object by object), because the first step that fails decides what the user reads.

use api::Kind;
use serde_json::Value;
use store::resources::{Error, Resources, Together, Verb};

use super::actions;
use super::arguments::Parsed;
use super::session::Session;
use super::targets::{Early, Target, targets};
use crate::output::Shown;

/// What to do with each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Apply,
    Create,
    Replace,
    Delete,
    Get,
    Patch,
    Validate,
}

/// What became of the objects.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many there were.
    pub(crate) total: usize,
    /// How many calicoctl counts as done.
    pub(crate) handled: usize,
    /// Their kind, if it was one.
    pub(crate) kind: Option<Kind>,
    /// What was read.
    pub(crate) shown: Vec<Shown>,
    /// Why some were not done.
    pub(crate) errors: Vec<String>,
}

/// Does the action with every object of the command line.
pub(crate) fn execute(session: &mut Session<'_>, action: Action) -> Result<Outcome, Early> {
    let parsed = session.parsed;
    if action != Action::Validate {
        session.check_version()?;
    }
    let targets = targets(parsed)?;
    if targets.is_empty() {
        return Ok(Outcome::default());
    }
    let client = match action {
        Action::Validate => None,
        _ => Some(session.client()?),
    };
    let mut outcome = Outcome { total: targets.len(), ..Outcome::default() };
    let first = targets.first().map(|target| target.kind);
    outcome.kind = first.filter(|&first| targets.iter().all(|target| target.kind == first));
    if let (Some(client), Action::Apply | Action::Create | Action::Replace) = (client, action) {
        // As in calicoctl: whoever may not initialise the datastore may still write to it.
        let _ = client.initialise();
    }
    if parsed.words.iter().skip(1).any(String::is_empty) {
        return Err(Early::Plain("resource name may not be empty".to_owned()));
    }
    for done in done(parsed, client, targets, action) {
        outcome.count(parsed, action, done);
    }
    Ok(outcome)
}

/// What became of each object: what was read, or why it was not done.
enum Done {
    Shown(Option<Shown>),
    /// It was not even tried.
    Misplaced(String),
    Refused(Refusal),
}

fn done(
    parsed: &Parsed,
    client: Option<&Resources>,
    targets: Vec<Target>,
    action: Action,
) -> Vec<Done> {
    let place = |mut target: Target| target.place(parsed).map(|()| target);
    let placed = targets.into_iter().map(place);
    let shown = |result: Result<Option<Shown>, Refusal>| match result {
        Ok(shown) => Done::Shown(shown),
        Err(refusal) => Done::Refused(refusal),
    };
    match (client, action) {
        (Some(client), Action::Apply | Action::Create | Action::Replace) => {
            write_all(client, placed.collect(), action)
        }
        _ => placed
            .map(|target| match (target, client) {
                (Err(words), _) => Done::Misplaced(words),
                (Ok(target), None) => shown(actions::validate(&target).map(|()| None)),
                (Ok(target), Some(client)) => shown(actions::act(client, &target, action, parsed)),
            })
            .collect(),
    }
}

/// Hands the client all objects at once: many small writes become few large ones.
fn write_all(
    client: &Resources,
    targets: Vec<Result<Target, String>>,
    action: Action,
) -> Vec<Done> {
    let mut objects = Vec::with_capacity(targets.len());
    let mut done = Vec::with_capacity(targets.len());
    for target in targets {
        done.push(match target {
            Err(words) => Some(Done::Misplaced(words)),
            Ok(target) => match actions::refused(client, &target, action) {
                Some(refusal) => Some(Done::Refused(refusal)),
                None => {
                    objects.push(target.object);
                    None
                }
            },
        });
    }
    let written = client.write_all(client_verb(action), &objects, Together::EachForItself);
    let mut written = written.into_iter().map(|written| match written {
        Ok(_) => Done::Shown(None),
        Err(error) => Done::Refused(error.into()),
    });
    done.into_iter()
        .map(|done| done.or_else(|| written.next()).unwrap_or(Done::Shown(None)))
        .collect()
}

impl Outcome {
    fn count(&mut self, parsed: &Parsed, action: Action, done: Done) {
        match done {
            Done::Shown(shown) => {
                self.handled += 1;
                let export = parsed.is_set("export") && parsed.words.len() > 1;
                self.shown.extend(shown.map(|shown| if export { exported(shown) } else { shown }));
            }
            Done::Misplaced(words) => self.errors.push(words),
            Done::Refused(refusal) => {
                let skip = refusal.is_skipped(parsed);
                // calicoctl counts an object that it could not replace or patch as done.
                if skip || matches!(action, Action::Replace | Action::Patch) {
                    self.handled += 1;
                }
                if !skip {
                    self.errors.push(refusal.words());
                }
            }
        }
    }
}

/// Why an object was not done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The client refused.
    Client(Box<Error>),
    /// We did, in Calico's words.
    Words(String),
}

impl Refusal {
    /// Whether the user asked not to mind.
    fn is_skipped(&self, parsed: &Parsed) -> bool {
        match self {
            Self::Client(error) => {
                (error.is_already_exists() && parsed.is_set("skip-exists"))
                    || (error.is_not_found() && parsed.is_set("skip-not-exists"))
            }
            Self::Words(_) => false,
        }
    }

    /// Calico's words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Client(error) => error.calico(),
            Self::Words(words) => words.clone(),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Client(Box::new(error))
    }
}

impl From<String> for Refusal {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

/// Without what belongs to this cluster only.
fn exported(shown: Shown) -> Shown {
    let Shown::Object(kind, mut object) = shown else { return shown };
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            metadata.shift_remove(field);
        }
    }
    Shown::Object(kind, object)
}

/// The verb of the client for an action that writes.
pub(crate) fn client_verb(action: Action) -> Verb {
    match action {
        Action::Create => Verb::Create,
        Action::Apply => Verb::Apply,
        _ => Verb::Update,
    }
}
