//! How Calico prints old style rules and policies.
//!
//! Both take canonical values, as [`super::value::parse`] gives them.

use serde_json::Value;

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Text as it is, anything else as JSON.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn joined(values: &[Value], separator: &str) -> String {
    values.iter().map(bare).collect::<Vec<_>>().join(separator)
}

/// Text in quotes as Go's source code has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_ascii_control() => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

/// The matches of a rule on one side, `src` or `dst`.
fn side(rule: &Value, side: &str) -> Vec<String> {
    let mut words = Vec::new();
    for not in ["", "!"] {
        let name = |field: &str| format!("{not}{side}_{field}");
        let mut say = |what: &str, value: String| {
            if !value.is_empty() {
                words.extend([format!("{not}{what}"), value]);
            }
        };
        say("ports", joined(items(rule, &name("ports")), ","));
        say("tag", text(rule, &name("tag")).to_owned());
        let selector = text(rule, &name("selector"));
        say("selector", if selector.is_empty() { String::new() } else { quoted(selector) });
        let mut nets = items(rule, &name("nets")).to_vec();
        nets.extend(rule.get(name("net")).cloned());
        say("cidr", joined(&nets, ","));
    }
    words
}

fn http(rule: &Value) -> Vec<String> {
    let mut words = Vec::new();
    let Some(http) = rule.get("http") else { return words };
    let methods = items(http, "methods");
    if !methods.is_empty() {
        words.extend(["httpMethods".to_owned(), format!("[{}]", joined(methods, " "))]);
    }
    let paths = items(http, "paths").iter();
    let paths: Vec<String> = paths
        .map(|path| format!("{{Exact:{} Prefix:{}}}", text(path, "exact"), text(path, "prefix")))
        .collect();
    if !paths.is_empty() {
        words.extend(["httpPaths".to_owned(), format!("[{}]", paths.join(" "))]);
    }
    words
}

/// A rule in a line: `Allow TCP from ports 1234 to tag web`.
pub fn rule_text(rule: &Value) -> String {
    let action = match text(rule, "action") {
        "" => "Allow",
        action => action,
    };
    let mut words = vec![action.to_owned()];
    for (field, mark) in [("protocol", ""), ("!protocol", "!")] {
        words.extend(rule.get(field).map(|protocol| format!("{mark}{}", bare(protocol))));
    }
    for (field, word) in [
        ("icmp_type", "type"),
        ("icmp_code", "code"),
        ("!icmp_type", "!type"),
        ("!icmp_code", "!code"),
    ] {
        if let Some(number) = rule.get(field) {
            words.extend([word.to_owned(), bare(number)]);
        }
    }
    let mut to = side(rule, "dst");
    to.extend(http(rule));
    for (word, matches) in [("from", side(rule, "src")), ("to", to)] {
        if !matches.is_empty() {
            words.push(word.to_owned());
            words.extend(matches);
        }
    }
    words.join(" ")
}

/// A policy in a line.
pub fn policy_text(policy: &Value) -> String {
    let rules =
        |field: &str| items(policy, field).iter().map(rule_text).collect::<Vec<_>>().join(";");
    let flag = |field: &str| policy.get(field).and_then(Value::as_bool).unwrap_or_default();
    let mut parts = Vec::new();
    let tier = text(policy, "tier");
    if !tier.is_empty() {
        parts.push(format!("tier:{tier}"));
    }
    if let Some(order) = policy.get("order").and_then(Value::as_f64) {
        // Go prints plain digits from 1e-4 up to 1e21.
        let written = match order.abs() < 1e-4 && order != 0.0 {
            true => text::number::general(order),
            false => text::number::json_form(order),
        };
        parts.push(format!("order:{written}"));
    }
    parts.extend([
        format!("selector:{}", quoted(text(policy, "selector"))),
        format!("inbound:{}", rules("inbound_rules")),
        format!("outbound:{}", rules("outbound_rules")),
        format!("untracked:{}", flag("untracked")),
        format!("pre_dnat:{}", flag("pre_dnat")),
        format!("apply_on_forward:{}", flag("apply_on_forward")),
        format!("types:{}", joined(items(policy, "types"), ";")),
    ]);
    let hints = items(policy, "performance_hints");
    if !hints.is_empty() {
        parts.push(format!("performance_hints:[{}]", joined(hints, " ")));
    }
    let staged = text(policy, "staged_action");
    if !staged.is_empty() {
        parts.push(format!("staged_action:{staged}"));
    }
    parts.join(",")
}
