//! Commands that people know from other programs, and what does their work here; and those of
//! ours that another part of the program runs.

use super::failure::Failure;

fn or(words: &[String], example: &str) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["-h" | "--help"] => example.to_owned(),
        _ => words.join(" "),
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

/// Other parts of the program come here only behind a flag that means nothing to them.
pub(crate) fn apart(name: &str, words: &[String]) -> Failure {
    Failure::new(format!("no flag may stand before the word {name}"))
        .help(format!("margay {name} {}", or(words, "--help")))
}

/// `lab` comes here only behind a flag that means nothing to it: it has a datastore of its own.
pub(crate) fn lab(words: &[String]) -> Failure {
    Failure::new("a lab has a datastore of its own; no flag may stand before the word lab")
        .help(format!("margay lab {}", or(words, "--help")))
}
