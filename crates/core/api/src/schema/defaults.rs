//! The defaults of the CRD schemas, as a Kubernetes API server fills them in.

use serde_json::{Map, Value};

use super::{Object, Shape};

const MAX_DEPTH: usize = 64;

/// Fills in the defaults of every object that is present, at every depth; an object that is not
/// there is not made for the sake of the defaults in it. Fields stay in Calico's order.
pub fn apply_defaults(object: &'static Object, value: &mut Value) {
    fill_object(object, value, MAX_DEPTH);
}

/// Whether [`apply_defaults`] has anything to fill in.
pub fn lacks_default(object: &'static Object, value: &Value) -> bool {
    object_lacks(object, value, MAX_DEPTH)
}

fn object_lacks(object: &'static Object, value: &Value, depth: usize) -> bool {
    let Value::Object(fields) = value else { return false };
    let Some(depth) = depth.checked_sub(1) else { return false };
    let mut defaults = object.fields.iter().filter(|field| field.default.is_some());
    if defaults.any(|field| fields.get(field.name).is_none_or(Value::is_null)) {
        return true;
    }
    // Fewer fields are there than could be.
    fields.iter().any(|(name, value)| {
        let field = object.fields.iter().find(|field| field.name == name);
        field.is_some_and(|field| lacks(field.shape, value, depth))
    })
}

fn lacks(shape: Shape, value: &Value, depth: usize) -> bool {
    match (shape, value) {
        (Shape::Object(object), value) => object_lacks(object, value, depth),
        (Shape::List(item), Value::Array(items)) if depth > 0 => {
            items.iter().any(|value| lacks(*item, value, depth - 1))
        }
        (Shape::Map(item), Value::Object(entries)) if depth > 0 => {
            entries.values().any(|value| lacks(*item, value, depth - 1))
        }
        _ => false,
    }
}

fn fill_object(object: &'static Object, value: &mut Value, depth: usize) {
    let Value::Object(fields) = value else { return };
    let Some(depth) = depth.checked_sub(1) else { return };
    let is_missing = |name: &str| fields.get(name).is_none_or(Value::is_null);
    let mut missing = object.fields.iter().filter(|f| f.default.is_some() && is_missing(f.name));
    if missing.next().is_some() {
        *fields = with_defaults(object, std::mem::take(fields));
    }
    for field in object.fields.iter().filter(|field| field.shape.object().is_some()) {
        if let Some(value) = fields.get_mut(field.name) {
            fill(field.shape, value, depth);
        }
    }
}

fn with_defaults(object: &Object, mut given: Map<String, Value>) -> Map<String, Value> {
    let mut filled = Map::new();
    for field in object.fields {
        let value = given.shift_remove(field.name);
        let default = || field.default.and_then(|json| serde_json::from_str(json).ok());
        let value = match value {
            None | Some(Value::Null) => default().or(value),
            given => given,
        };
        if let Some(value) = value {
            filled.insert(field.name.to_owned(), value);
        }
    }
    filled.extend(given);
    filled
}

fn fill(shape: Shape, value: &mut Value, depth: usize) {
    match (shape, value) {
        (Shape::Object(object), value) => fill_object(object, value, depth),
        (Shape::List(item), Value::Array(items)) if depth > 0 => {
            items.iter_mut().for_each(|value| fill(*item, value, depth - 1));
        }
        (Shape::Map(item), Value::Object(entries)) if depth > 0 => {
            entries.values_mut().for_each(|value| fill(*item, value, depth - 1));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Field;

    static RULE: Object =
        Object { name: "Rule", fields: &[Field::new("log", "Log", Shape::Bool).default("true")] };

    static SPEC: Object = Object {
        name: "Spec",
        fields: &[
            Field::new("name", "Name", Shape::Text),
            Field::new("rules", "Rules", Shape::List(&Shape::Object(&RULE))),
            Field::new("named", "Named", Shape::Map(&Shape::Object(&RULE))),
            Field::new("base", "Base", Shape::Object(&RULE)).default(r#"{"log":false}"#),
        ],
    };

    #[test]
    fn an_object_lacks_a_default_exactly_if_filling_it_in_changes_it() {
        let full = json!({"log": false});
        for (value, is_lacking) in [
            (json!({}), true),
            (json!({"base": null}), true),
            (json!({"base": {}}), true),
            (json!({"base": full}), false),
            (json!({"base": full, "name": null, "rules": null}), false),
            (json!({"base": full, "rules": [full, {}]}), true),
            (json!({"base": full, "rules": [full], "named": {"a": {"log": null}}}), true),
            (json!({"base": full, "rules": [full, 7], "named": {"a": full, "b": []}}), false),
            (json!([]), false),
        ] {
            let mut filled = value.clone();
            apply_defaults(&SPEC, &mut filled);
            assert_eq!((lacks_default(&SPEC, &value), filled != value), (is_lacking, is_lacking));
            assert!(!lacks_default(&SPEC, &filled), "{filled}");
        }
    }
}
