//! Validation: calls of the validator, and whole documents through `validate`.
//!
//! The verdict must be the same. When it is "no", the same fields must be blamed for the same
//! reasons, as a set; where the reason is a Go library's own wording, the field alone counts.

use std::collections::BTreeSet;
use std::path::Path;

use api::Problem;

use super::{Outcome, Row};

mod calls;
mod documents;

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let mut rows = calls::run(&dir.join("validator-calls.jsonl"))?;
    rows.extend(documents::run(&dir.join("ctl-validate.jsonl"))?);
    Ok(rows)
}

/// What is blamed: the field with its value, and the reason unless it is a Go library's own
/// wording.
type Blame = BTreeSet<(String, Option<String>)>;

fn blame(field: &str, value: Option<&str>, reason: &str) -> (String, Option<String>) {
    // A rule that cannot be evaluated, a selector's or a conversion's error: library wording.
    const LIBRARY: [&str; 3] = [
        "network address parse error",
        "no such key: ",
        "conversion to stagednetworkpolicy failed",
    ];
    let is_library = LIBRARY.iter().any(|start| reason.starts_with(start));
    // Of a whole spec Go prints memory addresses.
    let is_printable = !is_library && !reason.starts_with("Spec fields");
    let value = value.filter(|_| is_printable).map(|value| format!(" = '{value}'"));
    (format!("{field}{}", value.unwrap_or_default()), (!is_library).then(|| reason.to_owned()))
}

fn our_blame(problems: &[Problem]) -> Blame {
    problems
        .iter()
        .map(|problem| {
            let value = problem.calico.value.as_deref();
            blame(&problem.calico.field, value, &problem.calico.reason)
        })
        .collect()
}

/// Compares what we blame with what the real program blamed.
fn compare(problems: &[Problem], recorded: &Blame) -> Outcome {
    let ours = our_blame(problems);
    if ours == *recorded {
        return Outcome::Passed;
    }
    let missing: Vec<_> = recorded.difference(&ours).collect();
    let extra: Vec<_> = ours.difference(recorded).collect();
    Outcome::Failed(format!("not blamed {missing:?}, blamed without cause {extra:?}"))
}
