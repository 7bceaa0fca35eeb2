//! The JSON patch: a list of operations on paths.

use serde_json::Value;

use super::Error;

/// Applies the operations in order and gives the result; the target stays as it was on error.
pub fn operations(target: &Value, patch: &Value) -> Result<Value, Error> {
    let Value::Array(operations) = patch else { return Err(Error::Document) };
    let mut result = target.clone();
    let mut budget = COPIED_VALUES;
    for (index, operation) in operations.iter().enumerate() {
        let text = |name: &str| operation.get(name).and_then(Value::as_str);
        apply(&mut result, operation, &mut budget).map_err(|reason| Error::Operation {
            index,
            operation: text("op").unwrap_or("?").to_owned(),
            path: text("path").unwrap_or("?").to_owned(),
            reason,
        })?;
    }
    Ok(result)
}

/// Values that the operations of one patch may copy or move, all together.
const COPIED_VALUES: usize = 1_000_000;

/// Levels that a value may be nested.
const DEPTH: usize = crate::yaml::limits::DEPTH;

fn apply(document: &mut Value, operation: &Value, budget: &mut usize) -> Result<(), String> {
    let text = |name: &str| {
        operation
            .get(name)
            .and_then(Value::as_str)
            .ok_or_else(|| format!("the operation needs the text field \"{name}\""))
    };
    let value = || {
        operation
            .get("value")
            .cloned()
            .ok_or_else(|| "the operation needs the field \"value\"".to_owned())
    };
    let path = Path::parse(text("path")?)?;
    match text("op")? {
        "add" => {
            let value = value()?;
            fits(path.0.len(), measure(&value).1)?;
            path.add(document, value)
        }
        "remove" => path.remove(document).map(drop),
        "replace" => {
            let value = value()?;
            fits(path.0.len(), measure(&value).1)?;
            *path.find_mut(document)? = value;
            Ok(())
        }
        "test" => {
            let wanted = value()?;
            let found = path.find_mut(document)?;
            if same(found, &wanted) {
                Ok(())
            } else {
                Err(format!("the value is {found}, not {wanted}"))
            }
        }
        "copy" => {
            let value = Path::parse(text("from")?)?.find_mut(document)?;
            spend(budget, value, path.0.len())?;
            let value = value.clone();
            path.add(document, value)
        }
        "move" => {
            let from = Path::parse(text("from")?)?;
            if path.0.len() > from.0.len() && path.0.starts_with(&from.0) {
                return Err("a value cannot be moved into itself".to_owned());
            }
            let value = from.remove(document)?;
            spend(budget, &value, path.0.len())?;
            path.add(document, value)
        }
        other => Err(format!(
            "unknown operation {other}; known are add, remove, replace, move, copy and test"
        )),
    }
}

/// Copies may double a document again and again: both size and depth are bounded.
fn spend(budget: &mut usize, value: &Value, level: usize) -> Result<(), String> {
    let (count, depth) = measure(value);
    fits(level, depth)?;
    *budget = budget
        .checked_sub(count)
        .ok_or_else(|| format!("the patch copies more than {COPIED_VALUES} values"))?;
    Ok(())
}

/// Refuses a value that is too deep for the level it goes to.
fn fits(level: usize, depth: usize) -> Result<(), String> {
    if level + depth > DEPTH {
        return Err(format!("the result is nested more than {DEPTH} levels deep"));
    }
    Ok(())
}

/// How many values there are in a value, and on how many levels.
fn measure(value: &Value) -> (usize, usize) {
    let add = |(count, depth): (usize, usize), inner: &Value| {
        let (more, below) = measure(inner);
        (count + more, depth.max(below + 1))
    };
    match value {
        Value::Array(items) => items.iter().fold((1, 1), add),
        Value::Object(fields) => fields.values().fold((1, 1), add),
        Value::String(text) => (1 + text.len() / 64, 0),
        _ => (1, 0),
    }
}

/// Equal as JSON values: numbers by value, objects in any order.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| same(a, b)))
        }
        _ => left == right,
    }
}

/// A JSON pointer.
struct Path(Vec<String>);

impl Path {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let Some(steps) = text.strip_prefix('/') else {
            return Err(format!("the path {text} must start with /"));
        };
        Ok(Self(steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect()))
    }

    fn find_mut<'d>(&self, document: &'d mut Value) -> Result<&'d mut Value, String> {
        let mut at = document;
        for step in &self.0 {
            at = match at {
                Value::Object(fields) => fields.get_mut(step),
                Value::Array(items) => index(step, items.len()).and_then(|at| items.get_mut(at)),
                _ => None,
            }
            .ok_or_else(|| format!("there is no \"{step}\" on the path"))?;
        }
        Ok(at)
    }

    /// The value around the path's last step, and that step.
    fn around<'d>(&self, document: &'d mut Value) -> Result<(&'d mut Value, &str), String> {
        let (last, before) = self.0.split_last().ok_or("the path is the whole document")?;
        let around = Path(before.to_vec()).find_mut(document)?;
        Ok((around, last))
    }

    fn add(&self, document: &mut Value, value: Value) -> Result<(), String> {
        if self.0.is_empty() {
            *document = value;
            return Ok(());
        }
        let (around, last) = self.around(document)?;
        match around {
            Value::Object(fields) => drop(fields.insert(last.to_owned(), value)),
            Value::Array(items) if last == "-" => items.push(value),
            Value::Array(items) => {
                let length = items.len();
                let at = index(last, length + 1)
                    .ok_or_else(|| format!("\"{last}\" is no place in a list of {length}"))?;
                items.insert(at, value);
            }
            _ => return Err(format!("\"{last}\" would be inside of a plain value")),
        }
        Ok(())
    }

    fn remove(&self, document: &mut Value) -> Result<Value, String> {
        let (around, last) = self.around(document)?;
        match around {
            Value::Object(fields) => fields.shift_remove(last),
            Value::Array(items) => index(last, items.len()).map(|at| items.remove(at)),
            _ => None,
        }
        .ok_or_else(|| format!("there is no \"{last}\" on the path"))
    }
}

/// A list index below `limit`, without sign or leading zeros.
fn index(step: &str, limit: usize) -> Option<usize> {
    let canonical = step == "0" || !step.starts_with(['0', '+']);
    step.parse().ok().filter(|at| canonical && *at < limit)
}
