//! How Go's standard library words what it refuses, for output that matches Calico's.

use serde_json::Value;

use super::Shape;

/// The word of Go's JSON decoder for the value; numbers that do not fit are quoted.
pub(super) fn token(shape: Shape, value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(_) => match shape {
            Shape::Int { .. } | Shape::Port | Shape::Protocol | Shape::Dscp => {
                format!("number {}", text::json::to_string(value))
            }
            _ => "number".to_owned(),
        },
    }
}

/// The Go type that Go's JSON decoder names. Types of enums are plain text in the tables.
pub(super) fn type_name(shape: Shape) -> String {
    match shape {
        Shape::Text | Shape::StrictText | Shape::AsNumber | Shape::Duration | Shape::Time => {
            "string".to_owned()
        }
        Shape::Bool => "bool".to_owned(),
        Shape::Int { min: 0, max } => format!("uint{}", 64 - max.leading_zeros()),
        Shape::Int { min, .. } if min == i64::from(i32::MIN) => "int32".to_owned(),
        Shape::Int { .. } => "int".to_owned(),
        Shape::Float => "float64".to_owned(),
        Shape::Port => "uint16".to_owned(),
        Shape::Protocol | Shape::Dscp => "uint8".to_owned(),
        Shape::IntOrText => "int32".to_owned(),
        Shape::Object(object) if object.name == "ObjectMeta" => "v1.ObjectMeta".to_owned(),
        Shape::Object(object) => format!("v3.{}", object.name),
        Shape::List(Shape::Port) => "[]numorstring.Port".to_owned(),
        Shape::List(Shape::AsNumber) => "[]numorstring.ASNumber".to_owned(),
        Shape::List(item) => format!("[]{}", type_name(*item)),
        Shape::Map(item) => format!("map[string]{}", type_name(*item)),
        Shape::Any => "interface {}".to_owned(),
    }
}

/// Why Go's `time.ParseDuration` refuses the text.
pub(super) fn duration(text: &str) -> String {
    let invalid = || format!("time: invalid duration {}", quoted(text));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    while !rest.is_empty() {
        let is_number = |c: char| c == '.' || c.is_ascii_digit();
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let after = match after.strip_prefix('.') {
            Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
            None => after,
        };
        let number = &rest[..rest.len() - after.len()];
        if number.is_empty() || number == "." {
            return invalid();
        }
        let (unit, next) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        match unit {
            "" => return format!("time: missing unit in duration {}", quoted(text)),
            "ns" | "us" | "\u{b5}s" | "\u{3bc}s" | "ms" | "s" | "m" | "h" => rest = next,
            unit => {
                let unit = quoted(unit);
                return format!("time: unknown unit {unit} in duration {}", quoted(text));
            }
        }
    }
    invalid()
}

/// Bytes that are no printable ASCII are written as `\xNN`.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            0x20..0x80 => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_refused_in_the_words_of_go() {
        assert_eq!(duration("5"), "time: missing unit in duration \"5\"");
        assert_eq!(duration("1h1d"), "time: unknown unit \"d\" in duration \"1h1d\"");
        assert_eq!(duration("s"), "time: invalid duration \"s\"");
        assert_eq!(duration("1s\n"), "time: unknown unit \"s\\x0a\" in duration \"1s\\x0a\"");
        assert_eq!(duration(""), "time: invalid duration \"\"");
    }
}
