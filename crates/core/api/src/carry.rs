//! Carrying what we do not understand from a stored object over to its next version.
//!
//! Whoever wrote the stored object may know fields that our tables lack. An update must not drop
//! them: fields of objects are matched by name; items of lists by their known content, wherever
//! they moved to, and else by position as long as the list has kept its length.

use serde_json::{Map, Value};

use crate::schema::{Field, Object, Shape};

/// Deeper than any table; what lies deeper is left as it is.
const DEPTH_MAX: usize = 64;

/// Adds to `new` the fields of `stored` that the table does not know.
pub fn carry_unknown(table: &Object, stored: &Value, new: &mut Value) {
    carry_object(table, stored, new, 0);
}

/// Takes away the fields that the table does not know.
pub fn strip_unknown(table: &Object, value: &mut Value) {
    strip_object(table, value, 0);
}

fn field<'a>(table: &'a Object, name: &str) -> Option<&'a Field> {
    table.fields.iter().find(|field| field.name == name)
}

fn carry_object(table: &Object, stored: &Value, new: &mut Value, depth: usize) {
    let (Some(stored), Some(new)) = (stored.as_object(), new.as_object_mut()) else { return };
    if depth >= DEPTH_MAX {
        return;
    }
    for (name, old) in stored {
        match field(table, name) {
            Some(field) => {
                if let Some(value) = new.get_mut(name) {
                    carry(&field.shape, old, value, depth + 1);
                } else {
                    carry_into_absent(field, old, new, depth + 1);
                }
            }
            None if !new.contains_key(name) => {
                new.insert(name.clone(), old.clone());
            }
            None => {}
        }
    }
}

/// A nested object that the new version leaves out comes back only for what is unknown in it.
fn carry_into_absent(field: &Field, old: &Value, new: &mut Map<String, Value>, depth: usize) {
    let Shape::Object(table) = field.shape else { return };
    let mut rest = Value::Object(Map::new());
    carry_object(table, old, &mut rest, depth);
    if rest.as_object().is_some_and(|fields| !fields.is_empty()) {
        new.insert(field.name.to_owned(), rest);
    }
}

fn carry(shape: &Shape, stored: &Value, new: &mut Value, depth: usize) {
    match shape {
        Shape::Object(table) => carry_object(table, stored, new, depth),
        Shape::List(item) => carry_list(item, stored, new, depth),
        Shape::Map(item) => {
            let (Some(stored), Some(new)) = (stored.as_object(), new.as_object_mut()) else {
                return;
            };
            for (name, value) in new {
                if let Some(old) = stored.get(name) {
                    carry(item, old, value, depth + 1);
                }
            }
        }
        _ => {}
    }
}

fn carry_list(item: &Shape, stored: &Value, new: &mut Value, depth: usize) {
    let (Some(stored), Some(new)) = (stored.as_array(), new.as_array_mut()) else { return };
    if depth >= DEPTH_MAX || !matches!(item, Shape::Object(_) | Shape::List(_) | Shape::Map(_)) {
        return;
    }
    let known: Vec<Value> = stored.iter().map(|old| stripped(item, old, depth)).collect();
    let mut taken = vec![false; stored.len()];
    let mut partner = vec![None; new.len()];
    let same_place = |index: usize, value: &Value| known.get(index) == Some(value);
    for (index, value) in new.iter().enumerate() {
        if same_place(index, value) {
            (taken[index], partner[index]) = (true, Some(index));
        }
    }
    for (index, value) in new.iter().enumerate() {
        if partner[index].is_none() {
            let moved = (0..known.len()).find(|&old| !taken[old] && known[old] == *value);
            if let Some(old) = moved {
                (taken[old], partner[index]) = (true, Some(old));
            }
        }
    }
    let keeps_length = stored.len() == new.len();
    for (index, value) in new.iter_mut().enumerate() {
        let by_position = (keeps_length && !taken[index]).then_some(index);
        if let Some(old) = partner[index].or(by_position) {
            carry(item, &stored[old], value, depth + 1);
        }
    }
}

fn stripped(shape: &Shape, value: &Value, depth: usize) -> Value {
    let mut value = value.clone();
    strip(shape, &mut value, depth);
    value
}

fn strip(shape: &Shape, value: &mut Value, depth: usize) {
    match (shape, value) {
        (Shape::Object(table), value) => strip_object(table, value, depth + 1),
        (Shape::List(item), Value::Array(items)) if depth < DEPTH_MAX => {
            items.iter_mut().for_each(|value| strip(item, value, depth + 1));
        }
        (Shape::Map(item), Value::Object(items)) if depth < DEPTH_MAX => {
            items.values_mut().for_each(|value| strip(item, value, depth + 1));
        }
        _ => {}
    }
}

fn strip_object(table: &Object, value: &mut Value, depth: usize) {
    let Some(fields) = value.as_object_mut() else { return };
    if depth >= DEPTH_MAX {
        return;
    }
    fields.retain(|name, _| field(table, name).is_some());
    for (name, value) in fields {
        if let Some(field) = field(table, name) {
            strip(&field.shape, value, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RULE: Object = Object {
        name: "Rule",
        fields: &[
            Field::new("action", "Action", Shape::Text),
            Field::new("source", "Source", Shape::Object(&PEER)),
        ],
    };
    const PEER: Object =
        Object { name: "Peer", fields: &[Field::new("selector", "Selector", Shape::Text)] };
    const SPEC: Object = Object {
        name: "Spec",
        fields: &[
            Field::new("order", "Order", Shape::Float),
            Field::new("ingress", "Ingress", Shape::List(&Shape::Object(&RULE))),
            Field::new("nets", "Nets", Shape::List(&Shape::Text)),
            Field::new("peer", "Peer", Shape::Object(&PEER)),
        ],
    };

    fn check(stored: Value, mut new: Value, expected: Value) {
        carry_unknown(&SPEC, &stored, &mut new);
        assert_eq!(new, expected);
    }

    #[test]
    fn unknown_fields_survive_and_known_ones_do_not() {
        check(
            json!({"order": 1, "nets": ["a"], "later": {"x": 1}}),
            json!({"order": 2}),
            json!({"order": 2, "later": {"x": 1}}),
        );
    }

    #[test]
    fn what_the_new_version_says_wins() {
        check(json!({"later": 1}), json!({"later": 2}), json!({"later": 2}));
    }

    #[test]
    fn an_object_left_out_comes_back_for_its_unknown_fields_only() {
        check(
            json!({"peer": {"selector": "a", "later": 1}}),
            json!({}),
            json!({"peer": {"later": 1}}),
        );
        check(json!({"peer": {"selector": "a"}}), json!({}), json!({}));
    }

    #[test]
    fn items_are_found_again_where_they_moved_to() {
        check(
            json!({"ingress": [{"action": "Allow", "later": 1}, {"action": "Deny"}]}),
            json!({"ingress": [{"action": "Log"}, {"action": "Deny"}, {"action": "Allow"}]}),
            json!({"ingress": [{"action": "Log"}, {"action": "Deny"}, {"action": "Allow", "later": 1}]}),
        );
    }

    #[test]
    fn a_changed_item_keeps_its_unknown_fields_in_a_list_of_the_same_length() {
        check(
            json!({"ingress": [{"action": "Allow", "source": {"selector": "a", "later": 1}}, {"action": "Deny"}]}),
            json!({"ingress": [{"action": "Allow", "source": {"selector": "b"}}, {"action": "Deny"}]}),
            json!({"ingress": [{"action": "Allow", "source": {"selector": "b", "later": 1}}, {"action": "Deny"}]}),
        );
    }

    #[test]
    fn a_changed_item_of_a_list_of_another_length_is_a_new_one() {
        check(
            json!({"ingress": [{"action": "Allow", "later": 1}]}),
            json!({"ingress": [{"action": "Log"}, {"action": "Deny"}]}),
            json!({"ingress": [{"action": "Log"}, {"action": "Deny"}]}),
        );
    }

    #[test]
    fn mismatched_types_are_left_alone() {
        check(json!({"ingress": 7, "peer": []}), json!({"ingress": []}), json!({"ingress": []}));
    }
}
