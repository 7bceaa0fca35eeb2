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
    if let [code] = words
        && host::codes::find(code).is_some()
    {
        return Failure::new(format!("{code} is a code, not an end of traffic"))
            .help(format!("margay help {code}"));
    }
    Failure::new("explain wants to know where traffic comes from and where it goes, or a policy")
        .help(format!(
            "fields are explained by margay help field {}",
            or(words, "IPPool.spec.cidr")
        ))
}

/// What does the work of a flag that other programs have.
pub(crate) fn flag(verb: &str, flag: &str) -> Option<&'static str> {
    let flag = flag.split_once('=').map_or(flag, |(name, _)| name);
    Some(match (verb, flag) {
        ("delete", "--dry-run") => "without --yes, delete names what would go, and asks first",
        ("undo", "--dry-run") => "margay history shows what a write changed; undo can be undone",
        ("patch" | "label" | "edit", "--dry-run") => "margay undo takes the change back",
        ("delete", "--all" | "-l" | "--selector" | "-A" | "--all-namespaces") => {
            "delete wants names; margay get KIND -A -l app=web -o custom-columns=NAME lists them"
        }
        ("delete", "--ignore-not-found") => "margay delete --skip-not-exists",
        ("label", "--list") => "margay get KIND NAME -o yaml shows the labels",
        ("label", "--all" | "-l" | "--selector" | "-A" | "--all-namespaces") => {
            "one object at a time: margay label KIND NAME key=value"
        }
        ("label", word) if !word.starts_with('-') => {
            "one label at a time: margay label KIND NAME key=value"
        }
        ("get", "--sort-by") => "margay get KIND -o json | jq '.items | sort_by(.spec.order)'",
        ("get", "--show-labels" | "-L" | "--label-columns") => {
            "margay get KIND -o yaml shows the labels; -l app=web chooses by them"
        }
        ("get", "--no-headers") => "margay get KIND | tail -n +2",
        ("get", "--field-selector") => "margay get KIND NAME, or by labels: -l app=web",
        ("get", "--watch-only") => "margay get KIND -w",
        ("apply" | "create" | "replace" | "delete" | "diff", "-k" | "--kustomize") => {
            "kubectl kustomize FOLDER | margay apply -f -"
        }
        (
            "apply" | "create" | "replace" | "delete" | "diff" | "patch" | "label",
            "--server-side" | "--force" | "--force-conflicts" | "--field-manager" | "--validate"
            | "--record" | "--save-config" | "--wait" | "--now" | "--cascade" | "--grace-period",
        ) => "leave it out: margay checks everything, and writes at once",
        ("version", "--short") => "margay version --client",
        _ => return None,
    })
}

/// What does the work of a command that other programs have.
pub(crate) fn command(name: &str) -> Option<String> {
    Some(match name {
        "annotate" => {
            r#"margay patch KIND NAME -p '{"metadata":{"annotations":{"key":"value"}}}'"#.to_owned()
        }
        "rollout" | "rollback" => "margay undo takes the last write back".to_owned(),
        "config" => "margay alone says which datastore is used; --config FILE chooses".to_owned(),
        "attach" | "auth" | "cordon" | "cp" | "drain" | "exec" | "expose" | "logs"
        | "port-forward" | "scale" | "taint" | "top" | "uncordon" => {
            format!("pods and nodes are kept by Kubernetes: kubectl {name}")
        }
        _ => return None,
    })
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
