//! Durations with the reading and printing rules of Go's `time` package.

use std::fmt;
use std::str::FromStr;

use crate::wire::{Unreadable, serde_as_text};

const SECOND: u64 = 1_000_000_000;
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];
/// The magnitude of the most negative duration, one more than of the longest positive one.
const MAGNITUDE_MAX: u64 = 1 << 63;

/// A signed span of time in nanoseconds, as Go's `time.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanoseconds: i64,
}

impl Duration {
    /// A span of so many nanoseconds.
    pub const fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self { nanoseconds }
    }

    /// A span of so many seconds; the longest span there is when they do not fit.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { nanoseconds: seconds.saturating_mul(1_000_000_000) }
    }

    /// The span in nanoseconds.
    pub const fn nanoseconds(self) -> i64 {
        self.nanoseconds
    }

    /// The span in seconds, with fractions.
    #[expect(clippy::cast_precision_loss, reason = "a float of seconds is what is asked for")]
    pub fn seconds(self) -> f64 {
        let second = 1_000_000_000;
        let fraction = (self.nanoseconds % second) as f64 / 1e9;
        (self.nanoseconds / second) as f64 + fraction
    }

    /// The span as the standard library's type; `None` when it is negative.
    pub fn to_std(self) -> Option<std::time::Duration> {
        u64::try_from(self.nanoseconds).ok().map(std::time::Duration::from_nanos)
    }
}

/// Splits off leading digits.
fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The nanoseconds of a fraction of a unit. Digits beyond the precision of 63 bits count for
/// nothing, and the product goes through a float, exactly as in Go: stored values depend on it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go computes in floats; the result is less than the unit"
)]
fn fraction(digits: &str, unit: u64) -> u64 {
    let mut value = 0_u64;
    let mut scale = 1_f64;
    for digit in digits.bytes().map(|byte| u64::from(byte - b'0')) {
        let longer = (value <= (MAGNITUDE_MAX - 1) / 10).then(|| value * 10 + digit);
        match longer.filter(|longer| *longer <= MAGNITUDE_MAX) {
            Some(longer) => value = longer,
            None => break,
        }
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// Reads one `number unit` from the front; gives the nanoseconds and the rest.
fn term(text: &str) -> Option<(u64, &str)> {
    let (whole, rest) = digits(text);
    let (part, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let unit = UNITS.iter().find(|(known, _)| *known == name)?.1;
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let sum = whole.checked_mul(unit)?.checked_add(fraction(part, unit))?;
    (sum <= MAGNITUDE_MAX).then_some((sum, rest))
}

fn parse(text: &str) -> Option<Duration> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(Duration::default());
    }
    if rest.is_empty() {
        return None;
    }
    let mut magnitude = 0_u64;
    while !rest.is_empty() {
        let (nanoseconds, after) = term(rest)?;
        magnitude = magnitude.checked_add(nanoseconds).filter(|sum| *sum <= MAGNITUDE_MAX)?;
        rest = after;
    }
    let signed = if is_negative { -i128::from(magnitude) } else { i128::from(magnitude) };
    i64::try_from(signed).ok().map(Duration::from_nanoseconds)
}

/// Reads a sequence of decimal numbers with units, such as `1h15m30.918s` or `-1.5h`.
impl FromStr for Duration {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        parse(text).ok_or_else(|| {
            Unreadable(format!("invalid duration ({text}), need a number with a unit, as in 1m30s"))
        })
    }
}

/// Writes `value / 10^decimals`, without zeros at the end of the fraction.
fn write_decimal(
    formatter: &mut fmt::Formatter<'_>,
    value: u64,
    decimals: usize,
    unit: &str,
) -> fmt::Result {
    let scale = 10_u64.pow(u32::try_from(decimals).unwrap_or(0));
    write!(formatter, "{}", value / scale)?;
    let fraction = format!("{:0decimals$}", value % scale);
    let significant = fraction.trim_end_matches('0');
    if !significant.is_empty() {
        write!(formatter, ".{significant}")?;
    }
    formatter.write_str(unit)
}

impl fmt::Display for Duration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.nanoseconds.unsigned_abs();
        if self.nanoseconds < 0 {
            formatter.write_str("-")?;
        }
        match magnitude {
            0 => formatter.write_str("0s"),
            1..1_000 => write_decimal(formatter, magnitude, 0, "ns"),
            1_000..1_000_000 => write_decimal(formatter, magnitude, 3, "\u{b5}s"),
            1_000_000..SECOND => write_decimal(formatter, magnitude, 6, "ms"),
            _ => {
                let minutes = magnitude / (60 * SECOND);
                if minutes >= 60 {
                    write!(formatter, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(formatter, "{}m", minutes % 60)?;
                }
                write_decimal(formatter, magnitude % (60 * SECOND), 9, "s")
            }
        }
    }
}

serde_as_text!(Duration);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, printed: &str) {
        let ours = text.parse::<Duration>().map(|duration| duration.to_string());
        assert_eq!(ours, Ok(printed.to_owned()), "{text}");
    }

    #[test]
    fn printed_as_go_prints() {
        check("0", "0s");
        check("-0", "0s");
        check("15m", "15m0s");
        check("1.5s", "1.5s");
        check("500us", "500µs");
        check("500μs", "500µs");
        check("1h", "1h0m0s");
        check("90s", "1m30s");
        check("100h1ns", "100h0m0.000000001s");
        check("-1.5h", "-1h30m0s");
        check("1.0015ms", "1.0015ms");
        check("+.5s", "500ms");
        check("1.s", "1s");
        check("3m3s500ms", "3m3.5s");
    }

    #[test]
    fn fractions_finer_than_the_precision_count_for_nothing() {
        check("0.3333333333333333333h", "20m0s");
        check("0.9223372036854775807h", "55m20.413933267s");
        check("0.100000000000000000000h", "6m0s");
        check("9007199254.740993ms", "2501h59m59.254740993s");
    }

    #[test]
    fn the_ends_of_the_range() {
        check("9223372036854775807ns", "2562047h47m16.854775807s");
        check("-9223372036854775808ns", "-2562047h47m16.854775808s");
        check("-9223372036854775.808us", "-2562047h47m16.854775808s");
    }

    #[test]
    fn what_is_not_a_duration() {
        for text in [
            "",
            "3",
            "-",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "1d",
            "1s ",
            " 1s",
            "1S",
            "--1s",
            "1.2.3s",
            "9223372036854775808ns",
            "9223372036854776us",
            "3000000h",
            "99999999999999999999s",
            "0x1s",
            "1e3s",
            "1é",
        ] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }

    #[test]
    fn json_is_text_only() {
        assert_eq!(serde_json::from_str("\"1m30s\"").ok(), Some(Duration::from_seconds(90)));
        assert!(serde_json::from_str::<Duration>("90").is_err());
        assert_eq!(
            serde_json::to_string(&Duration::from_seconds(90)).ok(),
            Some("\"1m30s\"".into())
        );
    }
}
