//! Documents from files, with every problem of all of them said at once and where it stands.

use std::collections::BTreeSet;
use std::path::Path;

use api::{Kind, Problem};
use serde_json::Value;
use store::resources::{Error, Name};

use super::arguments::Files;
use super::failure::{Failure, listing, next_step};
use super::session::{DEFAULT_NAMESPACE, spoken};
use crate::documents::{Calico, Documents, Loaded, Origin};

/// An object of a document, named and in its namespace.
pub(crate) struct Given {
    pub(crate) name: Name,
    pub(crate) object: Value,
    pub(crate) from: (usize, Origin),
}

/// All objects of the files, and the files for saying where something stands.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) objects: Vec<Given>,
    files: Vec<Documents>,
}

/// Whether a field is another one, or inside it.
fn is_within(field: &str, other: &str) -> bool {
    let rest = field.strip_prefix(other);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl Input {
    /// Reads files, or says everything that is wrong with them.
    pub(crate) fn read(files: &Files) -> Result<Self, Failure> {
        let mut input = Self::default();
        let mut faults = Vec::new();
        for path in files.filename.iter().chain(&files.bare) {
            let mut documents = Documents::read_with_lists(path, files.recursive);
            let is_empty = |calico: &Calico| matches!(calico, Calico::Empty(_));
            documents.faults.retain(|fault| !(files.skip_empty && is_empty(&fault.calico)));
            // Those of an object are said together with its other problems.
            let of_files = documents.faults.iter().filter(|fault| fault.object.is_none());
            faults.extend(of_files.map(ToString::to_string));
            let is_bare = documents.objects.is_empty() && documents.faults.is_empty();
            if is_bare && documents.partial.is_empty() && !files.skip_empty {
                let hint =
                    if path.is_dir() && !files.recursive { " (-R looks below it)" } else { "" };
                faults.push(format!("{}: no documents here{hint}", path.display()));
            }
            let loaded = std::mem::take(&mut documents.objects);
            let partial = std::mem::take(&mut documents.partial);
            input.files.push(documents);
            for (one, problems) in partial {
                faults.extend(input.describe_partial(one, problems));
            }
            for one in loaded {
                input.add(one, files.namespace.as_deref(), &mut faults);
            }
        }
        if faults.is_empty() {
            return Ok(input);
        }
        // Who has to go back to the documents wants to do so once.
        for given in &input.objects {
            let problems = model::validate::validate(given.name.kind, &given.object);
            if !problems.is_empty() {
                faults.extend(input.describe(given, &problems));
            }
        }
        let first = Failure::new("the documents cannot be used");
        Err(faults.into_iter().fold(first, Failure::detail))
    }

    /// The objects themselves, in order.
    pub(crate) fn values(&self) -> Vec<&Value> {
        self.objects.iter().map(|given| &given.object).collect()
    }

    fn add(&mut self, loaded: Loaded, namespace: Option<&str>, faults: &mut Vec<String>) {
        let Loaded { kind, mut object, origin } = loaded;
        let from = (self.files.len() - 1, origin);
        let given = object["metadata"]["namespace"].as_str().unwrap_or("").to_owned();
        if kind.is_namespaced() {
            match (given.as_str(), namespace) {
                ("", asked) => {
                    let asked = asked.unwrap_or(DEFAULT_NAMESPACE);
                    set_namespace(&mut object, asked);
                }
                (given, Some(asked)) if given != asked => faults.push(format!(
                    "{}: {kind}: metadata.namespace is {given}, but -n says {asked}",
                    self.place(&from, "metadata.namespace")
                )),
                _ => {}
            }
        }
        self.objects.push(Given { name: Name::of(kind, &object), object, from });
    }

    fn describe_partial(&self, loaded: Loaded, mut problems: Vec<Problem>) -> Vec<String> {
        let Loaded { kind, object, origin } = loaded;
        let broken: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
        // What could not be read is missing now; that it is missing is no second problem.
        let is_new = |problem: &Problem| {
            let is_part =
                |it: &String| is_within(&problem.path, it) || is_within(it, &problem.path);
            !broken.iter().any(is_part)
        };
        problems.extend(model::validate::validate(kind, &object).into_iter().filter(is_new));
        let from = (self.files.len() - 1, origin);
        self.describe(&Given { name: Name::of(kind, &object), object, from }, &problems)
    }

    /// Where a field of an object stands: `policy.yaml:9`.
    pub(crate) fn place(&self, from: &(usize, Origin), field: &str) -> String {
        let Some(documents) = self.files.get(from.0) else { return String::new() };
        let file = documents.file(&from.1);
        match documents.position(&from.1, field) {
            Some(position) => format!("{file}:{}", position.line),
            None => file.to_owned(),
        }
    }

    fn line(&self, from: &(usize, Origin), field: &str) -> usize {
        let documents = self.files.get(from.0);
        let position = documents.and_then(|documents| documents.position(&from.1, field));
        position.map_or(0, |position| position.line)
    }

    /// The lines that say what is wrong with one object.
    pub(crate) fn describe(&self, given: &Given, problems: &[Problem]) -> Vec<String> {
        let at = self.place(&given.from, "");
        let name = match given.name.name.as_str() {
            "" => format!("{} without a name", given.name.kind),
            _ => spoken(&given.name),
        };
        let title = format!("{name} ({at}) is not valid");
        let mut problems = once_each(problems);
        // Whoever mends them goes through the file from top to bottom.
        problems.sort_by_cached_key(|problem| self.line(&given.from, &problem.path));
        let lines = problems
            .into_iter()
            .map(|problem| format!("  {problem}  ({})", self.place(&given.from, &problem.path)));
        std::iter::once(title).chain(lines).collect()
    }
}

/// The lines that say why a write of an object is refused, and what to do about it. The rules
/// about the object alone are asked as well: what the store has against it comes first there,
/// and would hide them.
pub(crate) fn refusal(
    input: &Input,
    given: &Given,
    error: &Error,
) -> (Vec<String>, Option<String>) {
    if let Error::Invalid { problems, .. } = error {
        let problems = all_problems(given.name.kind, &given.object, problems);
        return (input.describe(given, &problems), field_help(given.name.kind, &problems));
    }
    let (name, text) = (spoken(&given.name), error.to_string());
    let at = input.place(&given.from, "");
    let mut lines = vec![match text.starts_with(&name) {
        true => format!("{text}  ({at})"),
        false => format!("{name} ({at}): {text}"),
    }];
    let problems = model::validate::validate(given.name.kind, &given.object);
    if !problems.is_empty() {
        lines.extend(input.describe(given, &problems));
    }
    let help = match error {
        Error::NotFound(missing) if *missing == given.name => {
            Some("margay apply makes what does not exist".to_owned())
        }
        Error::NotFound(missing) => Some(format!(
            "make the {} first; {} shows those there are",
            missing.kind,
            listing(missing)
        )),
        error => next_step(error),
    };
    (lines, help)
}

/// The problems of an object by itself, and behind them those that other objects are part of.
pub(crate) fn all_problems(kind: Kind, object: &Value, found: &[Problem]) -> Vec<Problem> {
    let mut all = model::validate::validate(kind, object);
    let paths: BTreeSet<String> = all.iter().map(|problem| problem.path.clone()).collect();
    let is_new = |problem: &&Problem| is_between(problem) || !paths.contains(&problem.path);
    all.extend(found.iter().filter(is_new).cloned());
    all
}

/// Whether it is about two objects: then it stands beside what is wrong with the field itself.
pub(crate) fn is_between(problem: &Problem) -> bool {
    problem.message.contains(" overlaps ")
}

/// Where the field of the first of the problems is explained, or the last on the way to it that
/// there is.
pub(crate) fn field_help(kind: Kind, problems: &[Problem]) -> Option<String> {
    let known = super::explain_field::known_part(kind, &problems.first()?.path);
    Some(match known.as_str() {
        "" => format!("margay help field {kind}"),
        known => format!("margay help field {kind}.{known}"),
    })
}

/// Calico reports some faults twice, in two naming schemes; people need each once.
pub(crate) fn once_each(problems: &[Problem]) -> Vec<&Problem> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<&Problem> = Vec::new();
    for problem in problems {
        // Rules about a whole spec share its path, and each says something else.
        let is_of_many = matches!(problem.path.as_str(), "" | "spec" | "metadata");
        let message = if is_of_many || is_between(problem) { problem.message.as_str() } else { "" };
        if seen.insert((problem.path.as_str(), message)) {
            kept.push(problem);
        }
    }
    kept
}

fn set_namespace(object: &mut Value, namespace: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        // Calico writes the name first and the namespace behind it.
        let at = usize::from(metadata.contains_key("name"));
        metadata.shift_insert(at, "namespace".to_owned(), namespace.into());
    }
}

/// The files of a command that also takes a kind and names.
pub(crate) fn files(
    filename: &[impl AsRef<Path>],
    recursive: bool,
    namespace: Option<&str>,
) -> Files {
    Files {
        filename: filename.iter().map(|path| path.as_ref().to_owned()).collect(),
        bare: Vec::new(),
        recursive,
        skip_empty: false,
        namespace: namespace.map(str::to_owned),
    }
}
