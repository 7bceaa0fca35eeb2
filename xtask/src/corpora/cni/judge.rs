//! Compares what was seen after a call with the recording, with what varies masked.

use serde_json::{Map, Value, json};

use super::{classes, items, text};
use crate::corpora::Outcome;

/// The Node that is looked for when nothing names one, on the host of the recordings.
const RECORDED_HOST: &str = "Node(vm)";

/// What became of a call.
pub(super) struct Verdict {
    /// Of the row.
    pub(super) outcome: Outcome,
    /// The class of a difference that later calls of the chain start from.
    pub(super) leaves_other_state: Option<&'static str>,
}

/// One of the things that are compared, in both forms.
pub(super) struct Facet {
    pub(super) name: &'static str,
    pub(super) ours: Value,
    pub(super) theirs: Value,
}

/// A call that we answer otherwise than the recording.
pub(super) struct Call<'a> {
    pub(super) recorded: &'a Value,
    pub(super) seen: &'a Value,
    /// Earlier calls of the chain, as recorded.
    pub(super) prior: &'a [&'a Value],
    /// The recorded exit code; none for a call that was never answered.
    pub(super) exit: Option<i64>,
    /// What differs.
    pub(super) differing: Vec<&'a Facet>,
}

impl Call<'_> {
    pub(super) fn command(&self) -> &str {
        text(&self.recorded["env"], "CNI_COMMAND")
    }

    /// Whether something differs, and nothing but these and our routes.
    pub(super) fn differs_in(&self, names: &[&str]) -> bool {
        let others = self.differing.iter().filter(|facet| !classes::is_routes_only(facet));
        others.into_iter().all(|facet| names.contains(&facet.name))
    }

    pub(super) fn differing_in(&self, name: &str) -> bool {
        self.differing.iter().any(|facet| facet.name == name)
    }

    pub(super) fn our_answer(&self) -> Value {
        as_json(self.seen)
    }

    pub(super) fn their_answer(&self) -> Value {
        as_json(self.recorded)
    }

    pub(super) fn our_message(&self) -> String {
        text(&self.our_answer(), "msg").to_owned()
    }

    pub(super) fn their_message(&self) -> String {
        text(&self.their_answer(), "msg").to_owned()
    }
}

fn as_json(answer: &Value) -> Value {
    serde_json::from_str(text(answer, "stdout")).unwrap_or_default()
}

/// Judges one call. `aftermath` is the class of an earlier difference in the chain.
pub(super) fn judge(
    recorded: &Value,
    seen: &Value,
    prior: &[&Value],
    aftermath: Option<&'static str>,
) -> Verdict {
    let all = [
        Facet { name: "exit", ours: seen["exit"].clone(), theirs: recorded["exit"].clone() },
        facet("stdout", seen, recorded, printed),
        facet("container_state", seen, recorded, state),
        facet("host_state", seen, recorded, state),
        facet("etcd_after", seen, recorded, changes),
    ];
    let differing: Vec<&Facet> = all.iter().filter(|it| it.ours != it.theirs).collect();
    if differing.is_empty() {
        return Verdict { outcome: Outcome::Passed, leaves_other_state: None };
    }
    let exit = recorded["exit"].as_i64();
    let call = Call { recorded, seen, prior, exit, differing };
    let own_class = classes::class(&call);
    if let Some(wrong) = own_class.and_then(|class| classes::wrong(class, &call)) {
        let outcome = Outcome::Failed(format!("{wrong}: {}", text(seen, "stdout")));
        return Verdict { outcome, leaves_other_state: None };
    }
    match own_class.or(aftermath) {
        Some(class) => {
            let has_other_state = !call.differs_in(&["exit", "stdout"]);
            Verdict {
                outcome: Outcome::Differs(class),
                leaves_other_state: has_other_state.then_some(class),
            }
        }
        None => {
            let told: Vec<String> = call.differing.iter().map(|facet| difference(facet)).collect();
            Verdict { outcome: Outcome::Failed(told.join("\n    ")), leaves_other_state: None }
        }
    }
}

fn facet(name: &'static str, seen: &Value, recorded: &Value, form: fn(&Value) -> Value) -> Facet {
    Facet { name, ours: form(&seen[name]), theirs: form(&recorded[name]) }
}

fn difference(facet: &Facet) -> String {
    let mut lines = Vec::new();
    describe(facet.name, &facet.ours, &facet.theirs, &mut lines);
    lines.join("\n    ")
}

/// Names the places where two values differ.
fn describe(place: &str, ours: &Value, theirs: &Value, lines: &mut Vec<String>) {
    match (ours, theirs) {
        _ if ours == theirs => {}
        (Value::Object(left), Value::Object(right)) => {
            let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let of = |map: &Map<String, Value>| map.get(name).cloned().unwrap_or_default();
                describe(&format!("{place}.{name}"), &of(left), &of(right), lines);
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            for item in left.iter().filter(|item| !right.contains(item)) {
                lines.push(format!("{place}: ours only {item}"));
            }
            for item in right.iter().filter(|item| !left.contains(item)) {
                lines.push(format!("{place}: recorded only {item}"));
            }
        }
        _ => lines.push(format!("{place}: ours {ours}, recorded {theirs}")),
    }
}

/// Standard output: as JSON where it is, without the container's hardware address.
fn printed(value: &Value) -> Value {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let text = value.as_str().unwrap_or_default();
    let text = &text.replace(&format!("Node({})", host.trim().to_lowercase()), RECORDED_HOST);
    let read = serde_json::from_str(text);
    let mut value: Value = read.unwrap_or_else(|_| text.trim_end().into());
    for interface in list_mut(&mut value, "interfaces") {
        mask(interface, "mac");
    }
    value
}

fn list_mut<'v>(value: &'v mut Value, field: &str) -> impl Iterator<Item = &'v mut Value> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn mask(object: &mut Value, field: &str) {
    if object.get(field).is_some() {
        object[field] = "…".into();
    }
}

/// Links, routes and settings, without what time and chance add.
fn state(value: &Value) -> Value {
    if value.is_null() {
        return Value::Null;
    }
    let links: Map<String, Value> = items(value, "links")
        .iter()
        .map(|link| {
            let mut form = link.clone();
            let is_hosts = text(link, "mac") == "ee:ee:ee:ee:ee:ee";
            if !is_hosts {
                mask(&mut form, "mac");
            }
            if let Some(fields) = form.as_object_mut() {
                fields.remove("state");
            }
            if let Some(addresses) = form.get_mut("addresses").and_then(Value::as_array_mut) {
                addresses.retain(|it| {
                    let it = it.as_str().unwrap_or_default();
                    is_hosts || !it.ends_with("scope link")
                });
            }
            (text(link, "name").to_owned(), form)
        })
        .collect();
    let mut routes: Vec<Value> = items(value, "routes").to_vec();
    routes.sort_by_key(Value::to_string);
    json!({ "links": links, "routes": routes, "sysctls": value["sysctls"] })
}

/// The keys that a call changed, with their values as JSON.
fn changes(value: &Value) -> Value {
    let pairs = value.as_array().into_iter().flatten();
    let changed: Map<String, Value> = pairs
        .map(|pair| {
            let key = pair[0].as_str().unwrap_or_default().to_owned();
            let stored = pair[1].as_str().map_or(Value::Null, |text| {
                serde_json::from_str(text).unwrap_or_else(|_| text.into())
            });
            (key, stored_form(stored))
        })
        .collect();
    Value::Object(changed)
}

fn stored_form(mut value: Value) -> Value {
    for field in ["uid", "creationTimestamp"] {
        if value.get("metadata").is_some() {
            mask(&mut value["metadata"], field);
        }
    }
    if value.get("spec").is_some() {
        mask(&mut value["spec"], "mac");
    }
    mask(&mut value, "affinity_claim_time");
    for attribute in list_mut(&mut value, "attributes") {
        if attribute.get("secondary").is_some() {
            mask(&mut attribute["secondary"], "timestamp");
        }
    }
    if let Some(sequence) = value.get("sequenceNumber").and_then(Value::as_u64) {
        value["sequenceNumber"] = 0.into();
        let each = value.get_mut("sequenceNumberForAllocation").and_then(Value::as_object_mut);
        for (_, number) in each.into_iter().flatten() {
            let before = sequence.saturating_sub(number.as_u64().unwrap_or_default());
            *number = before.into();
        }
    }
    value
}
