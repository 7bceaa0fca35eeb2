//! What a YAML scalar stands for, by the rules of YAML 1.1 as goyaml v2 applies them.

use serde_json::{Number, Value};

use crate::number;

/// A scalar after its text was looked at.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Number(Number),
    /// `.inf` and `.nan`: in Go's spelling.
    NotFinite(&'static str),
    Text,
    /// Text that would be taken for a point in time.
    Timestamp,
}

impl Scalar {
    /// The tag in its short form, for messages.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Scalar::Null => "!!null",
            Scalar::Bool(_) => "!!bool",
            Scalar::Number(number) if number.is_f64() => "!!float",
            Scalar::Number(_) => "!!int",
            Scalar::NotFinite(_) => "!!float",
            Scalar::Text => "!!str",
            Scalar::Timestamp => "!!timestamp",
        }
    }

    /// The value, given the text it was read from.
    pub(crate) fn into_value(self, text: &str) -> Result<Value, &'static str> {
        match self {
            Scalar::Null => Ok(Value::Null),
            Scalar::Bool(flag) => Ok(Value::Bool(flag)),
            Scalar::Number(number) => Ok(Value::Number(number)),
            Scalar::NotFinite(spelling) => Err(spelling),
            Scalar::Text | Scalar::Timestamp => Ok(Value::String(text.to_owned())),
        }
    }
}

/// Looks at a plain scalar.
pub(crate) fn plain(text: &str) -> Scalar {
    match text.as_bytes().first() {
        None => Scalar::Null,
        Some(b'+' | b'-' | b'0'..=b'9') => word(text).unwrap_or_else(|| numeric(text)),
        Some(b'.') => word(text).unwrap_or_else(|| float(text).unwrap_or(Scalar::Text)),
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => {
            word(text).unwrap_or(Scalar::Text)
        }
        Some(_) => Scalar::Text,
    }
}

/// Words with a fixed meaning. Each comes in three spellings at most: `yes`, `Yes`, `YES`.
fn word(text: &str) -> Option<Scalar> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => Scalar::Null,
        ".nan" | ".NaN" | ".NAN" => Scalar::NotFinite("NaN"),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::NotFinite("+Inf"),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::NotFinite("-Inf"),
        _ => return None,
    })
}

fn float(text: &str) -> Option<Scalar> {
    number::parse_float(text).and_then(Number::from_f64).map(Scalar::Number)
}

fn numeric(text: &str) -> Scalar {
    if is_timestamp(text) {
        return Scalar::Timestamp;
    }
    let bare: std::borrow::Cow<'_, str> =
        if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    if let Some(integer) = number::parse_integer(&bare) {
        return Scalar::Number(integer);
    }
    float(&bare).unwrap_or(Scalar::Text)
}

/// Looks at a scalar with a tag in its long form; `Err` holds the message.
pub(crate) fn tagged(tag: &str, text: &str) -> Result<Value, String> {
    let Some(short) = tag.strip_prefix("tag:yaml.org,2002:") else {
        return Ok(Value::String(text.to_owned()));
    };
    let refuse = |found: &str| format!("cannot decode {found} `{text}` as a !!{short}");
    match short {
        "str" => return Ok(Value::String(text.to_owned())),
        "binary" => return binary(text),
        "bool" | "int" | "float" | "null" | "timestamp" => {}
        _ => return Ok(Value::String(text.to_owned())),
    }
    let scalar = plain(text);
    let fits = match (&scalar, short) {
        (Scalar::Number(number), "float") => {
            let float = number.as_f64().and_then(Number::from_f64);
            return float.map(Value::Number).ok_or_else(|| refuse("!!int"));
        }
        _ => scalar.tag().strip_prefix("!!") == Some(short),
    };
    if !fits {
        return Err(refuse(scalar.tag()));
    }
    scalar.into_value(text).map_err(|spelling| format!("the number {spelling} cannot be stored"))
}

fn binary(text: &str) -> Result<Value, String> {
    use base64::Engine;
    let joined: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(joined)
        .map_err(|_| "!!binary value contains invalid base64 data".to_owned())?;
    Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Whether the text is a date, or a date with a time, that Go's parser takes.
pub(crate) fn is_timestamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || bytes[4] != b'-' || !bytes[..4].iter().all(u8::is_ascii_digit) {
        return false;
    }
    timestamp_parts(text).is_some()
}

fn timestamp_parts(text: &str) -> Option<()> {
    let year = text.get(..4)?.parse::<u32>().ok()?;
    let (month, rest) = short_number(text.get(5..)?, 1..=12)?;
    let (day, rest) = short_number(rest.strip_prefix('-')?, 1..=31)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if day > days {
        return None;
    }
    if rest.is_empty() {
        return Some(());
    }
    let zoned = rest.starts_with(['T', 't']);
    let rest = if zoned { &rest[1..] } else { rest.strip_prefix(' ')?.trim_start_matches(' ') };
    let (_, rest) = short_number(rest, 0..=23)?;
    let (_, rest) = short_number(rest.strip_prefix(':')?, 0..=59)?;
    let (_, rest) = short_number(rest.strip_prefix(':')?, 0..=59)?;
    let rest = match rest.strip_prefix(['.', ',']) {
        Some(fraction) if fraction.starts_with(|c: char| c.is_ascii_digit()) => {
            fraction.trim_start_matches(|c: char| c.is_ascii_digit())
        }
        _ => rest,
    };
    let complete = if zoned { rest == "Z" || is_offset(rest) } else { rest.is_empty() };
    complete.then_some(())
}

/// One or two digits.
fn short_number(text: &str, range: std::ops::RangeInclusive<u32>) -> Option<(u32, &str)> {
    let count = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let number = text.get(..count)?.parse().ok()?;
    range.contains(&number).then(|| (number, &text[count..]))
}

/// `+hh:mm` or `-hh:mm`.
fn is_offset(text: &str) -> bool {
    let bytes = text.as_bytes();
    let two = |at: usize| text.get(at..at + 2).and_then(|digits| digits.parse::<u32>().ok());
    bytes.len() == 6
        && matches!(bytes[0], b'+' | b'-')
        && bytes[3] == b':'
        && two(1).is_some_and(|hours| hours <= 24)
        && two(4).is_some_and(|minutes| minutes < 60)
}
