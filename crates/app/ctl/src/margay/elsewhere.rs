//! Commands that people know from other programs, and what does their work here.

use super::failure::Failure;

fn or(words: &[String], example: &str) -> String {
    match words.is_empty() {
        true => example.to_owned(),
        false => words.join(" "),
    }
}

/// `describe`: everything there is to see is in the document.
pub(crate) fn describe(words: &[String]) -> Failure {
    Failure::new("there is no command describe")
        .help(format!("margay get {} -o yaml", or(words, "KIND NAME")))
}

/// `explain`: fields are explained by help.
pub(crate) fn explain(words: &[String]) -> Failure {
    Failure::new("there is no command explain")
        .help(format!("margay help field {}", or(words, "IPPool.spec.cidr")))
}
