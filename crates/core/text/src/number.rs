//! Numbers as Go spells and reads them.
//!
//! Three spellings exist side by side: the shortest `%g` form (YAML output, tables and
//! templates: `1e+06`), the same form rounded to 32 bits (a bare number that lands in a text
//! field), and the JSON form (plain digits below 1e21). A float that is whole stays a float in
//! a [`Value`], because `1000000` and `1e6` become different texts; [`as_integer`] reads both.

use std::fmt::Write;

use serde_json::{Number, Value};

/// The text that a bool or number becomes when the field it lands in holds text.
///
/// `1.50` gives `1.5`, `1e3` gives `1000`, `1e6` gives `1e+06`, `yes` gives `true`. Floats pass
/// through 32 bits, as in the YAML library of Kubernetes. Other values have no such text and
/// give their JSON form.
pub fn scalar_text(value: &Value) -> String {
    match value {
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => match float_of(number) {
            Some(float) => general_32(float),
            None => number.to_string(),
        },
        Value::String(text) => text.clone(),
        other => crate::json::to_string(other),
    }
}

/// The whole number that `number` stands for, also when it was written as `80.0` or `8e1`.
pub fn as_integer(number: &Number) -> Option<i128> {
    if let Some(small) = number.as_i64() {
        return Some(i128::from(small));
    }
    if let Some(large) = number.as_u64() {
        return Some(i128::from(large));
    }
    let float = number.as_f64()?;
    // Go prints whole floats below 1e21 without an exponent, so they read as integers again.
    #[expect(clippy::cast_possible_truncation, reason = "below 1e21, which an i128 holds")]
    (float.fract() == 0.0 && float.abs() < 1e21).then_some(float as i128)
}

/// Turns every whole float within 64 bits into an integer, as a pass through JSON text would.
pub fn settle_integers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(settled) = as_integer(number).and_then(Number::from_i128) {
                *number = settled;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_integers),
        Value::Object(fields) => fields.values_mut().for_each(settle_integers),
        _ => {}
    }
}

/// A whole number read with Go's prefixes: `0x`, `0o`, `0b`, and a leading zero for octal.
///
/// Values above `i64::MAX` are kept as long as 64 bits hold them.
pub(crate) fn parse_integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = |prefix: &str| {
        let head = digits.get(..2)?;
        (digits.len() > 2 && head.eq_ignore_ascii_case(prefix)).then(|| &digits[2..])
    };
    let (radix, digits) = if let Some(rest) = lower("0x") {
        (16, rest)
    } else if let Some(rest) = lower("0o") {
        (8, rest)
    } else if let Some(rest) = lower("0b") {
        (2, rest)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    if !digits.bytes().next()?.is_ascii_alphanumeric() {
        return None;
    }
    let size = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        let signed = 0_i64.checked_sub_unsigned(size)?;
        return Some(Number::from(signed));
    }
    // A plus sign is for signed numbers only, so it caps the value at 63 bits.
    let explicit_sign = text.starts_with('+');
    (!explicit_sign || i64::try_from(size).is_ok()).then(|| Number::from(size))
}

/// A float in YAML's decimal grammar; `None` also when it is out of range.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits_only = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if !digits_only(whole) || !digits_only(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if digits.is_empty() || !digits_only(digits) {
            return None;
        }
    }
    text.parse::<f64>().ok().filter(|float| float.is_finite())
}

/// The float in `number`, if it is one.
pub(crate) fn float_of(number: &Number) -> Option<f64> {
    if number.is_f64() { number.as_f64() } else { None }
}

/// The shortest `%g` form: an exponent below 1e-4 and from 1e6 on (`1e+06`, `1.2345678e+07`),
/// which is what YAML output, tables and templates show.
pub fn general(float: f64) -> String {
    match special(float) {
        Some(text) => text.to_owned(),
        None => general_digits(&format!("{float:e}")),
    }
}

/// [`general`] after rounding to 32 bits.
pub fn general_32(float: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "rounding is the purpose")]
    let narrow = float as f32;
    match special(f64::from(narrow)) {
        Some(text) => text.to_owned(),
        None => general_digits(&format!("{narrow:e}")),
    }
}

/// The form of a float in JSON: plain digits from 1e-6 up to 1e21, else with an exponent.
pub fn json_form(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return format!("{float}");
    }
    let short = format!("{float:e}");
    match short.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => short,
    }
}

fn special(float: f64) -> Option<&'static str> {
    if float.is_nan() {
        Some("NaN")
    } else if float.is_infinite() {
        Some(if float > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        None
    }
}

/// Lays out the shortest digits (`-1.25e3`) the way `%g` does.
fn general_digits(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let mut out = String::from(sign);
    if !(-4..6).contains(&exponent) {
        out.push_str(mantissa);
        let mark = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{mark}{:02}", exponent.abs());
    } else if exponent < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', usize::try_from(-exponent - 1).unwrap_or(0)));
        out.push_str(&digits);
    } else {
        let whole = usize::try_from(exponent + 1).unwrap_or(0);
        if whole >= digits.len() {
            out.push_str(&digits);
            out.extend(std::iter::repeat_n('0', whole - digits.len()));
        } else {
            out.push_str(&digits[..whole]);
            out.push('.');
            out.push_str(&digits[whole..]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_form_switches_to_exponents_from_six_digits_on() {
        for (float, text) in [
            (100_000.0, "100000"),
            (1e6, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (123_456_789.125, "1.23456789125e+08"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5, "-2.5"),
            (0.0, "0"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(general(float), text);
        }
    }

    #[test]
    fn text_fields_see_numbers_rounded_to_32_bits() {
        assert_eq!(scalar_text(&serde_json::json!(123_456_789.125)), "1.2345679e+08");
        assert_eq!(scalar_text(&serde_json::json!(u64::MAX)), "18446744073709551615");
        assert_eq!(scalar_text(&serde_json::json!(true)), "true");
    }

    #[test]
    fn json_form_uses_exponents_only_at_the_ends() {
        for (float, text) in
            [(1e20, "100000000000000000000"), (1e21, "1e+21"), (1e-6, "0.000001"), (1e-7, "1e-7")]
        {
            assert_eq!(json_form(float), text);
        }
    }

    #[test]
    fn integers_take_prefixes() {
        let read = |text: &str| parse_integer(text).map(|number| number.to_string());
        assert_eq!(read("0100").as_deref(), Some("64"));
        assert_eq!(read("0x1F").as_deref(), Some("31"));
        assert_eq!(read("-0b11").as_deref(), Some("-3"));
        assert_eq!(read("-9223372036854775808").as_deref(), Some("-9223372036854775808"));
        assert_eq!(read("18446744073709551615").as_deref(), Some("18446744073709551615"));
        for refused in ["", "-", "0x", "08", "1e3", "--1", "+-1", "18446744073709551616"] {
            assert_eq!(read(refused), None, "{refused}");
        }
    }
}
