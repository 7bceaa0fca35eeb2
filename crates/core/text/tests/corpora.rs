//! The recorded behaviour of the real tools: what they read, what they print.
//!
//! The corpora are looked for in `MARGAY_CORPORA`, or next to the project.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test reads files, says what it skips, and fails on what it did not expect"
)]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use text::{json, number, patch, template, yaml};

/// The folder, or `None` with the reason printed.
fn corpora() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/corpora");
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../../shared/corpora");
    let folders = match std::env::var_os("MARGAY_CORPORA") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => vec![beside, project],
    };
    let found = folders.iter().find(|folder| folder.is_dir()).cloned();
    if found.is_none() {
        println!("SKIPPED: no corpora at {folders:?}; set MARGAY_CORPORA");
    }
    found
}

fn rows(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn scenarios(corpora: &Path) -> Vec<Value> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(corpora.join("ctl/scenarios"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap())
        .collect()
}

fn scenario(corpora: &Path, name: &str) -> Value {
    scenarios(corpora).into_iter().find(|scenario| scenario["scenario"] == name).unwrap()
}

fn arguments(step: &Value) -> Vec<&str> {
    step["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

/// Whether the step prints in `format`.
fn prints(step: &Value, format: &str) -> bool {
    let words = arguments(step);
    let flag =
        words.windows(2).any(|pair| matches!(pair[0], "-o" | "--output") && pair[1] == format);
    let joined = words.iter().any(|word| {
        *word == format!("-o{format}")
            || *word == format!("--output={format}")
            || *word == format!("-o={format}")
    });
    (flag || joined) && step["help"].is_null()
}

#[test]
fn yaml_output_is_reproduced_to_the_byte() {
    let Some(corpora) = corpora() else { return };
    let mut texts = Vec::new();
    for scenario in scenarios(&corpora) {
        for step in scenario["steps"].as_array().unwrap() {
            let stdout = step["stdout"].as_str().unwrap();
            if prints(step, "yaml") && step["exit"] == 0 && !stdout.is_empty() {
                texts.push((
                    format!("{} {}", scenario["scenario"], step["argv"]),
                    stdout.to_owned(),
                ));
            }
        }
    }
    for store in std::fs::read_dir(corpora.join("etcd-dump")).unwrap() {
        let folder = store.unwrap().path().join("get");
        let Ok(files) = std::fs::read_dir(&folder) else { continue };
        for file in files.map(|file| file.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "yaml") {
                let text = std::fs::read_to_string(&file).unwrap();
                texts.push((file.display().to_string(), text));
            }
        }
    }
    assert!(texts.len() > 100, "only {} outputs found", texts.len());
    for (source, text) in &texts {
        let value = yaml::parse(text.as_bytes()).unwrap();
        assert_eq!(yaml::to_string(&value), *text, "{source}");
    }
    println!("{} YAML outputs reproduced", texts.len());
}

#[test]
fn json_output_is_reproduced_to_the_byte() {
    let Some(corpora) = corpora() else { return };
    let mut count = 0;
    for scenario in scenarios(&corpora) {
        for step in scenario["steps"].as_array().unwrap() {
            let stdout = step["stdout"].as_str().unwrap();
            if prints(step, "json") && step["exit"] == 0 && !stdout.is_empty() {
                let value = json::parse(stdout.as_bytes()).unwrap();
                assert_eq!(json::to_string_indented(&value), stdout, "{}", step["argv"]);
                count += 1;
            }
        }
    }
    assert!(count >= 20, "only {count} outputs found");
    println!("{count} JSON outputs reproduced");
}

/// What the real tool said about the YAML itself, if that was what it refused.
fn yaml_complaint(message: &str) -> Option<&str> {
    let (_, complaint) = message.split_once("error converting YAML to JSON: ")?;
    Some(complaint)
}

/// The first document that cannot be read.
fn refusal(file: &str) -> Option<String> {
    yaml::documents(file.as_bytes()).find_map(Result::err).map(|error| error.go_message())
}

#[test]
fn scalars_become_what_the_store_holds() {
    let Some(corpora) = corpora() else { return };
    let (mut refused, mut labels) = (0, 0);
    for row in rows(&corpora.join("defaults/yaml-scalars.jsonl")) {
        let text = row["yaml"].as_str().unwrap();
        if let Some(complaint) = row["error"].as_str().and_then(yaml_complaint) {
            let refusal = refusal(text);
            // About keys that are null, lists or maps the Go library prints types of its own.
            if complaint.contains("map key") {
                let said = "a map key must be text, a number or a bool, not ";
                assert!(refusal.is_some_and(|message| message.contains(said)), "{text}");
            } else {
                assert_eq!(refusal.as_deref(), Some(complaint), "{text}");
            }
            refused += 1;
            continue;
        }
        let document = yaml::documents(text.as_bytes()).next().unwrap().unwrap();
        let stored = row["stored"].as_object().unwrap().values().next();
        let Some(stored) = stored.and_then(|stored| stored["metadata"]["labels"].as_object())
        else {
            continue;
        };
        for (name, value) in document.value["metadata"]["labels"].as_object().into_iter().flatten()
        {
            let read = if value.is_null() { String::new() } else { number::scalar_text(value) };
            assert_eq!(stored[name], json!(read), "{text}");
            labels += 1;
        }
    }
    assert!(refused >= 3 && labels >= 30, "{refused} {labels}");
    println!("{labels} labels, {refused} refusals");
}

#[test]
fn odd_documents_are_split_and_refused_alike() {
    let Some(corpora) = corpora() else { return };
    let mut count = 0;
    for row in rows(&corpora.join("validation/ctl-validate.jsonl")) {
        let text = row["yaml"].as_str().unwrap();
        let complaint = row["error"].as_str().and_then(yaml_complaint);
        assert_eq!(refusal(text).as_deref(), complaint, "{text}");
        if row["source"] != "document" {
            continue;
        }
        count += 1;
        let values = || yaml::documents(text.as_bytes()).filter_map(Result::ok);
        let valid = row["output"].as_str().and_then(|output| {
            output.strip_prefix("Successfully validated ")?.split(' ').next()?.parse::<usize>().ok()
        });
        if let Some(valid) = valid {
            let items: usize =
                values().map(|document| document.value.as_array().map_or(1, Vec::len)).sum();
            assert_eq!(items, valid, "{text}");
        }
        let emptiness: Vec<_> = values().map(|document| document.emptiness).collect();
        match row["change"].as_str().unwrap() {
            "only-comment" => assert_eq!(emptiness, [Some(yaml::Emptiness::Comments)]),
            "only-sep" => assert_eq!(emptiness, [Some(yaml::Emptiness::Markers)]),
            _ => {}
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn files_of_the_scenarios_are_read_alike() {
    let Some(corpora) = corpora() else { return };
    let mut refused = 0;
    for scenario in scenarios(&corpora) {
        for step in scenario["steps"].as_array().unwrap() {
            let words = arguments(step);
            let file = words.windows(2).find(|pair| pair[0] == "-f").map(|pair| pair[1]);
            let text = match file {
                Some("-") => step["stdin"].as_str(),
                Some(file) => scenario["files"][file].as_str(),
                None => None,
            };
            let Some(text) = text else { continue };
            let stderr = step["stderr"].as_str().unwrap();
            let complaint = yaml_complaint(stderr).and_then(|rest| rest.split("\nError: ").next());
            // Surrogate pairs are read here.
            if text.contains("\\ud83d") {
                assert_eq!(refusal(text), None);
                continue;
            }
            assert_eq!(refusal(text).as_deref(), complaint.map(str::trim_end), "{words:?}\n{text}");
            refused += usize::from(complaint.is_some());
        }
    }
    assert!(refused >= 3, "{refused}");
}

#[test]
fn patches_give_what_the_store_holds() {
    let Some(corpora) = corpora() else { return };
    let scenario = scenario(&corpora, "patch");
    let file = scenario["files"]["a.yaml"].as_str().unwrap();
    let mut objects: Vec<Value> =
        yaml::documents(file.as_bytes()).map(|document| document.unwrap().value).collect();
    let (mut applied, mut invalid, mut compared) = (0, 0, 0);
    for step in scenario["steps"].as_array().unwrap() {
        let words = arguments(step);
        let ["patch" | "get", _, name, ..] = words[..] else { continue };
        let Some(object) = objects.iter_mut().find(|object| object["metadata"]["name"] == name)
        else {
            continue;
        };
        let text = words.windows(2).find(|pair| matches!(pair[0], "-p" | "--patch"));
        let text = text.map_or("", |pair| pair[1]);
        if words[0] == "patch" && step["exit"] == 0 {
            let patch = patch::parse(text.as_bytes()).unwrap();
            *object = patch::strategic(object, &patch).unwrap();
            applied += 1;
        } else if step["stderr"].as_str().unwrap().contains("invalid JSON document") {
            let patch = patch::parse(text.as_bytes());
            let result = patch.and_then(|patch| patch::strategic(object, &patch));
            assert_eq!(result, Err(patch::Error::Document), "{text}");
            invalid += 1;
        } else if prints(step, "yaml") && matches!(name, "node-1" | "node-1-eth0") {
            let stored = yaml::parse(step["stdout"].as_str().unwrap().as_bytes()).unwrap();
            assert_eq!(object["spec"], stored["spec"]);
            assert_eq!(object["metadata"]["labels"], stored["metadata"]["labels"]);
            compared += 1;
        }
    }
    assert!(applied >= 12 && invalid >= 5 && compared == 2, "{applied} {invalid} {compared}");
}

#[test]
fn templates_write_what_calicoctl_wrote() {
    let Some(corpora) = corpora() else { return };
    let scenario = scenario(&corpora, "outputs-templates");
    let file = scenario["files"]["o.yaml"].as_str().unwrap();
    let mut pools: Vec<Value> = yaml::documents(file.as_bytes())
        .map(|document| document.unwrap().value)
        .filter(|object| object["kind"] == "IPPool")
        .collect();
    pools.sort_by_key(|pool| pool["metadata"]["name"].as_str().unwrap().to_owned());
    let call = |_: &str, _: &[Value]| Ok(json!("64512"));
    let context =
        template::Context { functions: &["config"], call: &call, ..template::Context::default() };
    let mut count = 0;
    for step in scenario["steps"].as_array().unwrap() {
        let words = arguments(step);
        let text = words.iter().find_map(|word| match word.strip_prefix("go-template-file=") {
            Some(file) => scenario["files"][file].as_str(),
            None => word.strip_prefix("go-template="),
        });
        let Some(text) = text else { continue };
        let names: Vec<&Value> = pools
            .iter()
            .filter(|pool| words.contains(&pool["metadata"]["name"].as_str().unwrap()))
            .collect();
        let data = match names.as_slice() {
            [] => json!([{"kind": "IPPoolList", "items": pools}]),
            names => json!(names),
        };
        let stderr = step["stderr"].as_str().unwrap();
        // The injection check of the real tool fails on lists and on whole objects.
        if stderr.contains("ApplyInjectionDetection") {
            continue;
        }
        let result = template::Template::parse("get", text, &["config"])
            .map_err(|error| error.to_string())
            .and_then(|template| {
                template.execute(&data, &context).map_err(|failure| failure.error.to_string())
            });
        match result {
            Ok(written) => assert_eq!(step["stdout"], json!(written), "{text}"),
            Err(error) => assert_eq!(stderr.lines().next(), Some(&*format!("Error: {error}"))),
        }
        count += 1;
    }
    assert!(count >= 9, "{count}");
}
