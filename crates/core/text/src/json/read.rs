//! Reads JSON texts, for stored values and as the short way for YAML documents.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A text that is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct Error {
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let message = text.strip_suffix(&place).unwrap_or(&text).to_owned();
        Self { line: error.line(), column: error.column(), message }
    }
}

/// Reads one JSON value and nothing after it. Objects and lists may nest 127 levels deep. A
/// name that occurs twice counts with its last value. Bytes that are not UTF-8, and halves of
/// surrogate pairs, become U+FFFD.
pub fn parse(text: &[u8]) -> Result<Value, Error> {
    match serde_json::from_slice(text) {
        Ok(value) => Ok(value),
        Err(error) => {
            let mended = without_lone_surrogates(&String::from_utf8_lossy(text));
            serde_json::from_str(&mended).map_err(|_| error.into())
        }
    }
}

/// Replaces escapes of surrogates that have no partner.
fn without_lone_surrogates(text: &str) -> String {
    let unit = |at: usize| {
        let hex = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(hex, 16).ok()
    };
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        let escape = at + found;
        out.push_str(&text[at..escape]);
        let length = match (unit(escape), unit(escape + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.push('\u{fffd}');
                at = escape + 6;
                continue;
            }
            _ => 1 + text[escape + 1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&text[escape..escape + length]);
        at = escape + length;
    }
    out.push_str(&text[at..]);
    out
}

/// Reads a document that is JSON, if YAML would read it in the same way.
///
/// Names given twice, and numbers on which the two differ, are refused; the caller then takes
/// the YAML way.
pub(crate) fn parse_as_yaml(text: &str) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        if number == 0.0 && number.is_sign_negative() {
            return Err(E::custom("-0 is an integer in YAML"));
        }
        let number = Number::from_f64(number).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Strict)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(Strict)?;
            if fields.insert(name, value).is_some() {
                return Err(serde::de::Error::custom("a name occurs twice"));
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn broken_characters_are_replaced() {
        for (text, expected) in [
            (&br#""a\ud800b""#[..], "a\u{fffd}b"),
            (br#""\udc00\ud83d\ude00\ud83d""#, "\u{fffd}\u{1f600}\u{fffd}"),
            (br#""\\ud800 \ud800""#, "\\ud800 \u{fffd}"),
            (b"\"a\xffb\"", "a\u{fffd}b"),
        ] {
            assert_eq!(parse(text), Ok(json!(expected)));
        }
    }

    #[test]
    fn the_last_of_two_values_counts() {
        assert_eq!(parse(br#"{"a": 1, "b": 2, "a": 3}"#), Ok(json!({"a": 3, "b": 2})));
    }

    #[test]
    fn errors_name_their_place() {
        let error = parse(b"{\n \"a\": x}").unwrap_err();
        assert_eq!(error.to_string(), "line 2, column 7: expected value");
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
