//! The checks that Calico's own validator makes on single fields, by the tags of the tables.
//!
//! The tags are read as the Go validator reads them: in order, up to the first that fails;
//! `omitempty` ends the list for a value that is not there, `dive` goes on with the items.
//! Lists without `dive` are not looked into, and what Calico stores must stay storable.

use api::schema::{Field, Keep, Object, Shape};
use api::{CalicoError, Problem};
use net::Port;
use serde_json::{Map, Value};

use super::path::{self, Path};

mod tags;

const MAX_DEPTH: usize = 32;

/// What the tags have against an object, or a part of one.
pub fn check_fields(object: &'static Object, value: &Value) -> Vec<Problem> {
    let mut search = Search { problems: Vec::new() };
    search.object(object, value, &Path::of(""), MAX_DEPTH);
    search.problems
}

struct Search {
    problems: Vec<Problem>,
}

/// A value on its way through the tags of its field.
struct Subject<'a> {
    value: &'a Value,
    shape: Shape,
    /// Whether Go holds a pointer to it, so that zero is a value as well.
    is_pointer: bool,
    path: Path<'a>,
    /// The field in Calico's words: the Go name, with the index of an item.
    go_name: Path<'a>,
}

impl Search {
    fn object(&mut self, object: &'static Object, value: &Value, path: &Path<'_>, depth: usize) {
        let none = Map::new();
        let fields = value.as_object().unwrap_or(&none);
        for field in object.fields {
            let value = path::field(fields, field.name).unwrap_or(&Value::Null);
            if value.is_null() && passes_absent(field.checks) {
                continue;
            }
            let subject = Subject {
                value,
                shape: field.shape,
                is_pointer: is_pointer(field),
                path: path.field(field.name),
                go_name: Path::of(field.go_name),
            };
            self.check(&subject, field.checks, depth);
        }
    }

    fn check(&mut self, subject: &Subject<'_>, checks: &str, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let mut rest = checks;
        while !rest.is_empty() {
            let (check, after) = split_at(rest, b',');
            match check {
                "omitempty" if !has_value(subject) => return,
                "omitempty" => {}
                "dive" => return self.items(subject, after, depth),
                check => {
                    if let Some(message) = tags::broken(check, subject.value) {
                        self.fault(subject, check, message);
                        return;
                    }
                }
            }
            rest = after;
        }
        match subject.shape {
            Shape::Object(object) if subject.value.is_object() => {
                self.object(object, subject.value, &subject.path, depth);
            }
            Shape::Port => self.port(subject),
            _ => {}
        }
    }

    fn items(&mut self, list: &Subject<'_>, checks: &str, depth: usize) {
        let (Shape::List(item), Value::Array(items)) = (list.shape, list.value) else { return };
        for (index, value) in items.iter().enumerate() {
            let subject = Subject {
                value,
                shape: *item,
                is_pointer: false,
                path: list.path.index(index),
                go_name: list.go_name.index(index),
            };
            self.check(&subject, checks, depth);
        }
    }

    /// A port is a struct in Go, whose name has a tag of its own.
    fn port(&mut self, subject: &Subject<'_>) {
        let Some(text) = subject.value.as_str() else { return };
        if let (Ok(Port::Name(_)), Some(message)) =
            (text.parse(), tags::broken("portName", subject.value))
        {
            let name = Subject { go_name: Path::of("PortName"), ..*subject };
            let message = range_meant(text).unwrap_or(message);
            self.fault(&name, "portName", message);
        }
    }

    fn fault(&mut self, subject: &Subject<'_>, check: &str, message: String) {
        let tag = check.split_once('=').map_or(check, |(tag, _)| tag);
        let go_name = &subject.go_name;
        let calico = CalicoError {
            field: go_name.to_string(),
            value: Some(go_text(subject)),
            reason: format!("Reason: failed to validate Field: {go_name} because of Tag: {tag} "),
        };
        self.problems.push(Problem::invalid(subject.path.to_string(), message, calico));
    }
}

/// What to say to somebody who writes a range as other programs do.
fn range_meant(text: &str) -> Option<String> {
    let (first, last) = text.split_once('-')?;
    let (low, high) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
    Some(match low <= high {
        true => format!("\"{text}\" is no range of ports; did you mean \"{low}:{high}\"?"),
        false => format!("\"{text}\" is no range of ports: one goes up, such as \"{high}:{low}\""),
    })
}

/// Whether the tags have nothing to ask of a value that is not there. Most values are not.
fn passes_absent(checks: &str) -> bool {
    matches!(split_at(checks, b',').0, "" | "omitempty" | "dive")
}

/// What stands before the first `mark` and after it. The tags are so short that looking at each
/// byte is faster than the searches of the standard library.
fn split_at(text: &str, mark: u8) -> (&str, &str) {
    let at = text.bytes().position(|byte| byte == mark);
    at.and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?))).unwrap_or((text, ""))
}

fn is_pointer(field: &Field) -> bool {
    match field.keep {
        Keep::Given => true,
        Keep::AlwaysNull => !matches!(field.shape, Shape::List(_) | Shape::Map(_)),
        Keep::NonZero | Keep::Always => false,
    }
}

/// Whether Go's `omitempty` sees a value. Lists and maps count when they are there at all.
fn has_value(subject: &Subject<'_>) -> bool {
    match subject.value {
        Value::Null => false,
        Value::Array(_) | Value::Object(_) => true,
        _ if subject.is_pointer => true,
        Value::Bool(set) => *set,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
    }
}

/// The value as Go prints it.
fn go_text(subject: &Subject<'_>) -> String {
    match (subject.value, subject.shape) {
        (Value::Null, Shape::List(_)) => "[]".to_owned(),
        (Value::Null, Shape::Map(_)) => "map[]".to_owned(),
        (Value::Null, _) if subject.is_pointer => "<nil>".to_owned(),
        (Value::Null, Shape::Int { .. } | Shape::Float | Shape::AsNumber) => "0".to_owned(),
        (Value::Null, Shape::Bool) => "false".to_owned(),
        (Value::Null, _) => String::new(),
        (value, _) => plain(value),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use api::Kind;
    use api::schema::object_for;
    use serde_json::json;

    use super::*;

    fn found(kind: Kind, value: &Value) -> Vec<(String, String, Option<String>)> {
        check_fields(object_for(kind), value)
            .into_iter()
            .map(|problem| (problem.to_string(), problem.calico.field, problem.calico.value))
            .collect()
    }

    #[test]
    fn items_are_named_with_their_index() {
        let policy = json!({"spec": {"ingress": [
            {"action": "Allow", "source": {"nets": ["10.0.0.0/8"], "notNets": ["bogus"]}},
        ]}});
        let message = "spec.ingress[0].source.notNets[0]: \"bogus\" is not an IP address or a \
                       CIDR without host bits, such as 10.0.0.0/8";
        let expected = (message.to_owned(), "NotNets[0]".to_owned(), Some("bogus".to_owned()));
        assert_eq!(found(Kind::GlobalNetworkPolicy, &policy), [expected]);
    }

    #[test]
    fn an_absent_value_is_checked_unless_it_may_be_empty() {
        let endpoint = json!({"spec": {"node": "a"}});
        let fields: Vec<String> =
            found(Kind::WorkloadEndpoint, &endpoint).into_iter().map(|fault| fault.1).collect();
        assert_eq!(fields, ["InterfaceName"]);
    }

    #[test]
    fn a_pointer_to_zero_is_a_value() {
        let felix = json!({"spec": {"bpfMapSizeConntrackCleanupQueue": 0}});
        let fault = &found(Kind::FelixConfiguration, &felix)[0];
        assert_eq!(fault.1, "BPFMapSizeConntrackCleanupQueue");
        assert_eq!(found(Kind::FelixConfiguration, &json!({"spec": {}})), []);
    }

    #[test]
    fn names_of_ports_have_a_check_of_their_own() {
        let felix = json!({"spec": {"natPortRange": "-bad"}});
        assert_eq!(found(Kind::FelixConfiguration, &felix)[0].1, "PortName");
        let felix = json!({"spec": {"natPortRange": "1:5"}});
        assert_eq!(found(Kind::FelixConfiguration, &felix), []);
    }

    #[test]
    fn lists_without_dive_are_not_looked_into() {
        let node = json!({"spec": {"addresses": [{"address": "bogus"}]}});
        assert_eq!(found(Kind::Node, &node), []);
    }
}
