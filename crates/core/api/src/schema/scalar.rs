//! Reading single values: text, numbers, times and the types that take both.

use net::{AsNumber, Duration, Port, Unreadable, parse_decimal};
use serde_json::{Number, Value};
use text::number::as_integer;

use super::decode::Mode;
use super::go_words;
use super::{Field, Keep, Shape};

/// Why a value was refused: in our words and in Go's.
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn new(message: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { message: message.into(), reason: reason.into() }
    }
}

/// Whether [`read`] would give the value back as it is, so that it need not be copied.
pub(super) fn is_final(shape: Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Text | Shape::StrictText | Shape::IntOrText, Value::String(_)) => true,
        (Shape::Protocol | Shape::Dscp, Value::String(text)) => parse_decimal::<u8>(text).is_none(),
        (Shape::Bool, Value::Bool(_)) => true,
        _ => false,
    }
}

/// `Err(None)` says that the JSON type is wrong, which the caller words with its path.
pub(super) fn read(shape: Shape, value: &Value, mode: Mode) -> Result<Value, Option<Fault>> {
    match shape {
        Shape::Text => text(value, mode).map(Value::from).ok_or(None),
        Shape::StrictText => value.as_str().map(Value::from).ok_or(None),
        Shape::Bool => value.as_bool().map(Value::from).ok_or(None),
        Shape::Int { min, max } => whole(value, mode, min, max).ok_or(None),
        Shape::Float => float(value).ok_or(None),
        Shape::Port => port(value, mode),
        Shape::Protocol | Shape::Dscp => number_or_name(value, mode),
        Shape::AsNumber => as_number(value, mode),
        Shape::Duration => duration(value),
        Shape::Time => time(value),
        Shape::IntOrText => match value {
            Value::String(_) => Ok(value.clone()),
            _ => whole(value, mode, i32::MIN.into(), i32::MAX as u64).ok_or(None),
        },
        Shape::Object(_) | Shape::List(_) | Shape::Map(_) | Shape::Any => Ok(value.clone()),
    }
}

/// A plain (not pointer) duration in Go refuses `null`; everything else reads it as nothing.
pub(super) fn refuses_null(field: &Field) -> bool {
    matches!(field.shape, Shape::Duration) && field.keep == Keep::Always
}

/// Text, and in a person's document the text that a YAML number or boolean stands for.
fn text(value: &Value, mode: Mode) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) if mode == Mode::User => {
            Some(text::number::scalar_text(value))
        }
        _ => None,
    }
}

/// A YAML float without a fraction reaches Go as a whole number; a stored `1.0` does not.
fn whole(value: &Value, mode: Mode, min: i64, max: u64) -> Option<Value> {
    let number = value.as_number()?;
    let whole = as_integer(number).filter(|_| mode == Mode::User || !number.is_f64())?;
    if whole < i128::from(min) || whole > i128::from(max) {
        return None;
    }
    let signed = i64::try_from(whole).map(Value::from);
    signed.or_else(|_| u64::try_from(whole).map(Value::from)).ok()
}

/// Go reads every number as a 64-bit float and writes whole ones without a fraction.
fn float(value: &Value) -> Option<Value> {
    let number = value.as_number()?;
    let float = Number::from_f64(number.as_f64()?)?;
    let whole = as_integer(&float).and_then(Number::from_i128);
    Some(Value::Number(whole.unwrap_or(float)))
}

fn port(value: &Value, mode: Mode) -> Result<Value, Option<Fault>> {
    let Value::String(text) = value else {
        return whole(value, mode, 0, u16::MAX.into()).ok_or(None);
    };
    let port: Port = text.parse().map_err(|error: Unreadable| {
        let want = "is not a port from 0 to 65535, a range such as 80:90, or a port name";
        Some(Fault::new(format!("\"{text}\" {want}"), error.to_string()))
    })?;
    Ok(match port {
        Port::Numbers { first, last } if first == last => Value::from(first),
        port => Value::from(port.to_string()),
    })
}

fn number_or_name(value: &Value, mode: Mode) -> Result<Value, Option<Fault>> {
    match value {
        Value::String(text) => {
            Ok(parse_decimal::<u8>(text).map_or_else(|| value.clone(), Value::from))
        }
        _ => whole(value, mode, 0, u8::MAX.into()).ok_or(None),
    }
}

fn as_number(value: &Value, mode: Mode) -> Result<Value, Option<Fault>> {
    let Value::String(text) = value else {
        return whole(value, mode, 0, u32::MAX.into()).ok_or(None);
    };
    let number: AsNumber = text.parse().map_err(|error: Unreadable| {
        let message = format!("\"{text}\" is not an AS number, such as 64512 or 1.10");
        Some(Fault::new(message, error.to_string()))
    })?;
    Ok(Value::from(number.0))
}

fn duration(value: &Value) -> Result<Value, Option<Fault>> {
    let text = match value {
        Value::String(text) => text.as_str(),
        Value::Null => "",
        _ => return Err(None),
    };
    match text.parse::<Duration>() {
        Ok(duration) => Ok(Value::from(duration.to_string())),
        Err(_) => Err(Some(Fault::new(
            format!("\"{text}\" is not a duration, such as 90s or 1h30m"),
            go_words::duration(text),
        ))),
    }
}

/// Kubernetes writes times in UTC and whole seconds, and the year 1 as nothing.
fn time(value: &Value) -> Result<Value, Option<Fault>> {
    let text = value.as_str().ok_or(None)?;
    match super::time::in_utc(text) {
        Some(written) if written == "0001-01-01T00:00:00Z" => Ok(Value::Null),
        Some(written) => Ok(Value::from(written)),
        None => Err(Some(Fault::new(
            format!("\"{text}\" is not a time, such as 2006-01-02T15:04:05Z"),
            format!("parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": cannot parse"),
        ))),
    }
}

/// What a field takes, for `expected …`.
pub(super) fn noun(shape: Shape) -> String {
    match shape {
        Shape::Text | Shape::StrictText => "text".to_owned(),
        Shape::Bool => "true or false".to_owned(),
        Shape::Int { min, max } if i128::from(max) - i128::from(min) > i128::from(u32::MAX) => {
            "a whole number".to_owned()
        }
        Shape::Int { min, max } => format!("a whole number from {min} to {max}"),
        Shape::Float => "a number".to_owned(),
        Shape::Port => "a port from 0 to 65535, a range such as \"80:90\" or a name".to_owned(),
        Shape::Protocol => "a protocol name or a number from 0 to 255".to_owned(),
        Shape::AsNumber => "an AS number, such as 64512 or \"1.10\"".to_owned(),
        Shape::Dscp => "a DSCP name or a number from 0 to 255".to_owned(),
        Shape::Duration => "a duration, such as 90s".to_owned(),
        Shape::Time => "a time, such as 2006-01-02T15:04:05Z".to_owned(),
        Shape::IntOrText => "a whole number or text".to_owned(),
        Shape::Object(_) => "an object".to_owned(),
        Shape::List(_) => "a list".to_owned(),
        Shape::Map(_) => "an object".to_owned(),
        Shape::Any => "anything".to_owned(),
    }
}

/// What stands there instead, for `found …`.
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => {
            let short: String = text.chars().take(40).collect();
            let dots = if short.len() < text.len() { "…" } else { "" };
            format!("the text \"{short}{dots}\"")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
