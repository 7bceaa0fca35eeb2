//! What several targets share.

use serde_json::Value;

/// Whether two values are the same to a reader that knows one sort of number only, as 1.0 is
/// written as 1.
pub fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64() == right.as_f64()
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(a, b)| same(a, b))
        }
        (Value::Object(left), Value::Object(right)) => {
            let found = |(name, value): (&String, &Value)| {
                right.get(name).is_some_and(|other| same(value, other))
            };
            left.len() == right.len() && left.iter().all(found)
        }
        _ => left == right,
    }
}

/// The input in two parts, at its first NUL.
pub fn halves(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|&byte| byte == 0) {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, b"{}"),
    }
}
