//! The strategic merge patch.

use serde_json::{Map, Value};

use super::Error;

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// How a list merges, by its place.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Metadata,
    Elsewhere,
}

/// Applies `patch` to `target` and gives the result.
pub fn strategic(target: &Value, patch: &Value) -> Result<Value, Error> {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            Ok(Value::Object(merge_map(target.clone(), patch, Place::Root)?))
        }
        _ => Err(Error::Document),
    }
}

type Fields = Map<String, Value>;

fn merge_map(mut target: Fields, patch: &Fields, place: Place) -> Result<Fields, Error> {
    match patch.get(PATCH) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => {
            let mut replaced = patch.clone();
            replaced.shift_remove(PATCH);
            return Ok(replaced);
        }
        Some(Value::String(directive)) if directive == "delete" => return Ok(Fields::new()),
        Some(Value::String(directive)) if directive == "merge" => {}
        Some(other) => {
            let message = format!("unknown patch type found: {other} in $patch");
            return Err(Error::Directive(message));
        }
    }
    retain_keys(&mut target, patch)?;
    for (name, change) in patch {
        if name == PATCH || name == RETAIN || name.starts_with(ORDER) {
            continue;
        }
        if let Some(list) = name.strip_prefix(DELETE) {
            delete_items(&mut target, list, change)?;
        } else if change.is_null() {
            target.shift_remove(name);
        } else {
            merge_field(&mut target, name, change, place)?;
        }
    }
    for (name, order) in patch {
        if let Some(list) = name.strip_prefix(ORDER) {
            set_order(&mut target, list, order)?;
        }
    }
    Ok(target)
}

fn merge_field(target: &mut Fields, name: &str, change: &Value, place: Place) -> Result<(), Error> {
    let inner = match (place, name) {
        (Place::Root, "metadata") => Place::Metadata,
        _ => Place::Elsewhere,
    };
    let Some(current) = target.get_mut(name) else {
        target.insert(name.to_owned(), without_directives(change));
        return Ok(());
    };
    match (current, change) {
        (Value::Object(fields), Value::Object(patch)) => {
            *fields = merge_map(std::mem::take(fields), patch, inner)?;
        }
        (Value::Array(items), Value::Array(changes)) if place == Place::Metadata => match name {
            "finalizers" => {
                for change in changes.iter().filter(|change| !change.is_null()) {
                    if !items.contains(change) {
                        items.push(change.clone());
                    }
                }
            }
            "ownerReferences" => merge_by_key(items, changes, "uid")?,
            _ => items.clone_from(changes),
        },
        (current, change) => *current = change.clone(),
    }
    Ok(())
}

/// Merges lists of maps whose items are told apart by the field `key`.
fn merge_by_key(items: &mut Vec<Value>, changes: &[Value], key: &str) -> Result<(), Error> {
    for change in changes {
        let (Some(patch), Some(id)) = (change.as_object(), change.get(key)) else {
            return Err(Error::Directive(format!(
                "a list item in the patch needs the field {key}"
            )));
        };
        let at = items.iter().position(|item| item.get(key) == Some(id));
        match (patch.get(PATCH).and_then(Value::as_str), at) {
            (Some("delete"), Some(at)) => drop(items.remove(at)),
            (Some("delete"), None) => {}
            (_, Some(at)) => {
                if let Some(Value::Object(fields)) = items.get_mut(at) {
                    *fields = merge_map(std::mem::take(fields), patch, Place::Elsewhere)?;
                }
            }
            (_, None) => items.push(without_directives(change)),
        }
    }
    Ok(())
}

/// Drops the fields that `$retainKeys` does not name.
fn retain_keys(target: &mut Fields, patch: &Fields) -> Result<(), Error> {
    let Some(retain) = patch.get(RETAIN) else { return Ok(()) };
    let names: Option<Vec<&str>> =
        retain.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let Some(names) = names else {
        return Err(Error::Directive("$retainKeys must be a list of field names".to_owned()));
    };
    let unlisted =
        patch.keys().find(|name| !name.starts_with('$') && !names.contains(&name.as_str()));
    if let Some(name) = unlisted {
        let message = format!("$retainKeys must name every field of the patch; {name} is missing");
        return Err(Error::Directive(message));
    }
    target.retain(|name, _| names.contains(&name.as_str()));
    Ok(())
}

fn delete_items(target: &mut Fields, list: &str, change: &Value) -> Result<(), Error> {
    let Some(unwanted) = change.as_array() else {
        return Err(Error::Directive(format!("{DELETE}{list} must be a list")));
    };
    if let Some(Value::Array(items)) = target.get_mut(list) {
        items.retain(|item| !unwanted.contains(item));
    }
    Ok(())
}

/// Puts the items that `order` names into that order; others keep their place among them.
fn set_order(target: &mut Fields, list: &str, order: &Value) -> Result<(), Error> {
    let Some(order) = order.as_array() else {
        return Err(Error::Directive(format!("{ORDER}{list} must be a list")));
    };
    let Some(Value::Array(items)) = target.get_mut(list) else { return Ok(()) };
    if items.iter().chain(order).any(|item| item.is_object() || item.is_array()) {
        return Ok(());
    }
    let before = items.clone();
    let old_place = |item: &Value| before.iter().position(|other| other == item);
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        std::mem::take(items).into_iter().partition(|item| order.contains(item));
    named.sort_by_key(|item| order.iter().position(|other| other == item));
    let mut others = others.into_iter().peekable();
    for item in named {
        while let Some(other) = others.next_if(|other| old_place(other) < old_place(&item)) {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others);
    Ok(())
}

/// A value that is new: nothing to delete in it, nothing to direct.
fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, field)| {
                let directive = matches!(name.as_str(), PATCH | RETAIN)
                    || name.starts_with(DELETE)
                    || name.starts_with(ORDER);
                !directive && !field.is_null()
            });
            Value::Object(
                kept.map(|(name, field)| (name.clone(), without_directives(field))).collect(),
            )
        }
        other => other.clone(),
    }
}
