//! The rules of the house that a machine can check: rings, licences, the code map, sizes.
//!
//! Each rule returns its violations as lines; `cargo xtask tidy` and the test below print them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

/// What core crates may use beside each other: pure code without I/O, clock or randomness.
const CORE_DEPENDENCIES: &[&str] = &[
    "base64",
    "ipnet",
    "regex",
    "serde",
    "serde_json",
    "serde_path_to_error",
    "sha1",
    "sha2",
    "sha3",
    "thiserror",
];

/// Licences we accept; an expression passes when one of its alternatives is made of these.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// `cargo xtask tidy`; true when there is nothing to say.
pub(crate) fn command() -> anyhow::Result<bool> {
    let violations = violations(&project_root())?;
    for line in &violations {
        println!("tidy: {line}");
    }
    Ok(violations.is_empty())
}

/// The root of the repository.
pub(crate) fn project_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}

fn violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = metadata(root)?;
    let mut lines = rings(&metadata, root);
    lines.extend(licences(&metadata));
    lines.extend(code_map(&metadata, root)?);
    for file in rust_files(root)? {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("while reading {}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        lines.extend(sizes(&name, &text));
    }
    Ok(lines)
}

fn metadata(root: &Path) -> anyhow::Result<Value> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--all-features"])
        .current_dir(root)
        .output()
        .context("while running cargo metadata")?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("while reading cargo metadata")
}

/// A crate of ours: its name and its folder below the root.
fn members(metadata: &Value, root: &Path) -> BTreeMap<String, String> {
    let ids = metadata["workspace_members"].as_array().cloned().unwrap_or_default();
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    packages
        .iter()
        .filter(|package| ids.contains(&package["id"]))
        .filter_map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str()?);
            let folder = manifest.parent()?.strip_prefix(root).ok()?.display().to_string();
            Some((package["name"].as_str()?.to_owned(), folder))
        })
        .collect()
}

/// The folder is the ring: core uses core, edges never meet, apps never meet.
fn rings(metadata: &Value, root: &Path) -> Vec<String> {
    let members = members(metadata, root);
    let ring = |name: &str| -> &str {
        let folder = members.get(name).map_or("", String::as_str);
        folder.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or("")
    };
    let mut lines = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or("");
        if !members.contains_key(name) {
            continue;
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or("");
            let for_tests = dependency["kind"] == "dev";
            let allowed = match (ring(name), ring(on), members.contains_key(on)) {
                ("core", to, true) => to == "core",
                ("core", _, false) => for_tests || CORE_DEPENDENCIES.contains(&on),
                ("edge" | "app", "app", true) => false,
                ("edge", "edge", true) => false,
                ("main", to, true) => to == "app" || for_tests,
                _ => true,
            };
            if !allowed {
                lines.push(format!("ring: {name} ({}) may not depend on {on}", members[name]));
            }
        }
    }
    lines
}

fn licences(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| {
            let name = package["name"].as_str().unwrap_or("");
            let Some(licence) = package["license"].as_str() else {
                return Some(format!("licence: {name} names none"));
            };
            (!is_accepted(licence)).then(|| format!("licence: {name} is {licence}"))
        })
        .collect()
}

/// Reads an SPDX expression as alternatives of conjunctions; parentheses only group.
fn is_accepted(expression: &str) -> bool {
    let flat = expression.replace(['(', ')'], " ").replace('/', " OR ");
    let conjunctions: Vec<&str> = flat.split(" AND ").collect();
    conjunctions.iter().all(|part| part.split(" OR ").any(|one| LICENCES.contains(&one.trim())))
}

/// ARCHITECTURE.md names every crate by its folder, and only paths that exist.
fn code_map(metadata: &Value, root: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md"))
        .context("while reading ARCHITECTURE.md")?;
    let mut lines = Vec::new();
    for (name, folder) in members(metadata, root) {
        if !text.contains(&format!("`{folder}`")) {
            lines.push(format!("code map: ARCHITECTURE.md does not name {name} as `{folder}`"));
        }
    }
    let ticked = text.split('`').skip(1).step_by(2);
    for path in ticked.filter(|span| looks_like_a_path(span)) {
        if !root.join(path.trim_end_matches('/')).exists() {
            lines.push(format!("code map: ARCHITECTURE.md names `{path}`, which does not exist"));
        }
    }
    Ok(lines)
}

fn looks_like_a_path(span: &str) -> bool {
    const ROOTS: &[&str] =
        &["crates/", "xtask", "docs/", "bench", "fuzz", "sim", "tests/", ".ci/", ".cargo/"];
    let plain = span.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
    plain && (ROOTS.iter().any(|start| span.starts_with(start)) || span.ends_with(".md"))
}

fn rust_files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])
        .current_dir(root)
        .output()
        .context("while running git ls-files")?;
    let listed = String::from_utf8(output.stdout).context("while reading git ls-files")?;
    Ok(listed.lines().map(|line| root.join(line)).filter(|path| path.exists()).collect())
}

/// Sizes of a file, its functions and its lines. An exception is a comment `tidy: REASON` in the
/// file's head (file length) or right above the function.
fn sizes(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let is_test_file = name.contains("/tests/") || name.ends_with("/tests.rs");
    let code = lines.iter().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(lines.len());
    let excused = lines.iter().take(30).any(|line| line.starts_with("//! tidy: "));
    if !is_test_file && !excused && code > FILE_LINES_MAX {
        found.push(format!("size: {name} has {code} lines, over {FILE_LINES_MAX}"));
    }
    let is_table =
        |at: usize| lines[..at].iter().rev().take(8).any(|line| line.contains("rustfmt::skip"));
    let mut in_table = false;
    for (index, line) in lines.iter().enumerate() {
        in_table = if line.starts_with(']') || line.starts_with('}') { false } else { in_table };
        in_table |= line.contains("rustfmt::skip") || (in_table && is_table(index));
        if line.chars().count() > COLUMNS_MAX && !in_table && !line.contains('"') {
            found.push(format!("size: {name}:{} is over {COLUMNS_MAX} columns", index + 1));
        }
    }
    if !is_test_file {
        found.extend(long_functions(name, &lines[..code]));
    }
    found
}

fn long_functions(name: &str, lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let is_function = code.split_once("fn ").is_some_and(|(before, _)| {
            before.split_whitespace().all(|word| {
                word.starts_with("pub") || ["const", "async", "unsafe", "crate)"].contains(&word)
            })
        });
        if !is_function {
            continue;
        }
        let end = lines[start..].iter().position(|candidate| {
            candidate.len() > indent
                && candidate[indent..].starts_with('}')
                && candidate[..indent].trim().is_empty()
        });
        let length = end.map_or(0, |end| end + 1);
        let excused = lines[..start].iter().rev().take(12).any(|above| above.contains("tidy: "));
        if length > FUNCTION_LINES_MAX && !excused {
            found.push(format!(
                "size: {name}:{} is a function of {length} lines, over {FUNCTION_LINES_MAX}",
                start + 1
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_passes_when_an_alternative_is_accepted() {
        assert!(is_accepted("MIT OR GPL-3.0-only"));
        assert!(is_accepted("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_accepted("MIT AND GPL-3.0-only"));
        assert!(!is_accepted("MPL-2.0"));
    }

    #[test]
    fn a_long_function_is_found_and_a_reason_excuses_it() {
        let body = "    let x = 1;\n".repeat(FUNCTION_LINES_MAX);
        let text = format!("fn f() {{\n{body}}}\n");
        assert_eq!(sizes("a.rs", &text).len(), 1);
        assert_eq!(sizes("a.rs", &format!("// tidy: a flat table\n{text}")).len(), 0);
    }
}
