//! Numbers in the literal forms of Go.

/// Reads an integer as Go's `strconv.ParseInt` with base 0 does: a sign, then `0x`, `0o`,
/// `0b`, a leading zero for octal, or decimal; `_` may stand between digits.
pub(super) fn parse_int(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    i64::try_from(sign * i128::from(parse_uint(digits)?)).ok()
}

/// Reads an integer without a sign, otherwise as [`parse_int`].
pub(super) fn parse_uint(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, lower.get(2..)?),
        Some("0o") => (8, lower.get(2..)?),
        Some("0b") => (2, lower.get(2..)?),
        Some(start) if start.starts_with('0') => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    // A prefix counts as a digit: `0x_1` is well formed. A decimal has none.
    let digits = match radix {
        10 => digits,
        _ => digits.strip_prefix('_').unwrap_or(digits),
    };
    if !are_underscores_between_digits(digits) {
        return None;
    }
    let plain = digits.replace('_', "");
    if !plain.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    u64::from_str_radix(&plain, radix).ok()
}

/// Reads a decimal float as Go's `strconv.ParseFloat` does. Go's hexadecimal floats are not
/// read: nobody writes a setting that way.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned.eq_ignore_ascii_case("nan") && unsigned.len() < text.len() {
        return None;
    }
    if !are_underscores_between_digits(unsigned) {
        return None;
    }
    let number: f64 = text.replace('_', "").parse().ok()?;
    let has_digits = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    // A number too large for a float is an error; the word `inf` is a value.
    (number.is_finite() || !has_digits).then_some(number)
}

fn are_underscores_between_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').all(|(index, _)| {
        let is_digit =
            |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_hexdigit);
        is_digit(index.checked_sub(1)) && is_digit(Some(index + 1))
    })
}

/// Prints a float as Go's `%v` does: with an exponent below 0.0001 and from a million on.
pub(super) fn print_float(number: f64) -> String {
    let magnitude = number.abs();
    if number == 0.0 || (1e-4..1e6).contains(&magnitude) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => match exponent.strip_prefix('-') {
            Some(digits) => format!("{mantissa}e-{digits:0>2}"),
            None => format!("{mantissa}e+{exponent:0>2}"),
        },
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_literal_forms_of_go() {
        for (text, value) in [
            ("0", 0),
            ("010", 8),
            ("0x10", 16),
            ("0X_1f", 31),
            ("0b11", 3),
            ("0o17", 15),
            ("1_000", 1000),
            ("0_7", 7),
            ("+5", 5),
            ("-0x1", -1),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse_int(text), Some(value), "{text}");
        }
        for text in [
            "",
            "-",
            "0x",
            "08",
            "_1",
            "1_",
            "1__0",
            "1.5",
            " 5",
            "1e3",
            "--1",
            "+-1",
            "0x+1",
            "9223372036854775808",
            "é",
            "0é",
        ] {
            assert_eq!(parse_int(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_decimal() {
        for (text, value) in
            [("5.", 5.0), (".5", 0.5), ("1e3", 1000.0), ("+7", 7.0), ("1_0", 10.0), ("-1", -1.0)]
        {
            assert_eq!(parse_float(text), Some(value), "{text}");
        }
        assert_eq!(parse_float("-Inf"), Some(f64::NEG_INFINITY));
        for text in ["", "5s", "1,5", " 5", "0x10", "1e400", "-nan", "_1", "1_.5", "e5", "."] {
            assert_eq!(parse_float(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_printed_as_go_prints() {
        for (number, text) in [
            (3600.0, "3600"),
            (0.5, "0.5"),
            (0.0, "0"),
            (1e-9, "1e-09"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (999_999.5, "999999.5"),
            (3.6e6, "3.6e+06"),
            (1_234_567.0, "1.234567e+06"),
            (-1e21, "-1e+21"),
        ] {
            assert_eq!(print_float(number), text);
        }
    }
}
