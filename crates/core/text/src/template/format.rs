//! Values as text: Go's `%v` and the verbs of `printf`.

use std::fmt::Write;

use serde_json::Value;

use super::limits;
use crate::number;

/// Widths and precisions beyond this are refused, as in Go.
const WIDEST: usize = 1_000_000;

/// No float has more digits behind its point than this.
const FRACTION_MAX: usize = 1_100;

/// The `%v` form.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => match number::float_of(number) {
            Some(float) => number::general(float),
            None => number.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| name.as_str());
            let fields: Vec<String> =
                fields.iter().map(|(name, field)| format!("{name}:{}", plain(field))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// The Go type that a value would have.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A text in Go's double quotes.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            '\u{80}'..='\u{a0}'
            | '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}'
            | '\u{feff}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e000}'..='\u{f8ff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// One `%` directive.
#[derive(Default)]
struct Directive {
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// More text than a template may write; a few words of `printf` can ask for it.
pub(super) struct TooLong;

/// Go's `Sprintf`.
pub(super) fn sprintf(format: &str, arguments: &[&Value]) -> Result<String, TooLong> {
    let mut out = String::new();
    let mut arguments_left = arguments.iter();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = Directive::default();
        while let Some(flag) = rest.next_if(|c| "+-# 0".contains(*c)) {
            match flag {
                '+' => directive.plus = true,
                '-' => directive.minus = true,
                '#' => directive.sharp = true,
                ' ' => directive.space = true,
                _ => directive.zero = true,
            }
        }
        let mut bad_width = false;
        let mut digits = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut number = None;
            while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
                rest.next();
                let sum = number.unwrap_or(0_usize) * 10 + digit as usize;
                bad_width |= sum > WIDEST;
                number = Some(sum.min(WIDEST + 1));
            }
            number
        };
        directive.width = digits(&mut rest);
        if rest.next_if_eq(&'.').is_some() {
            directive.precision = Some(digits(&mut rest).unwrap_or(0));
        }
        if bad_width {
            out.push_str("%!(BADWIDTH)");
            directive.width = None;
            directive.precision = None;
        }
        match rest.next() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(verb) => match arguments_left.next() {
                None => {
                    let _ = write!(out, "%!{verb}(MISSING)");
                }
                Some(argument) => directive.put(&mut out, verb, argument)?,
            },
        }
    }
    let extra: Vec<String> = arguments_left
        .map(|argument| match argument {
            Value::Null => "<nil>".to_owned(),
            argument => format!("{}={}", type_name(argument), plain(argument)),
        })
        .collect();
    if !extra.is_empty() {
        let _ = write!(out, "%!(EXTRA {})", extra.join(", "));
    }
    Ok(out)
}

/// So many zeros.
fn zeros(count: usize) -> impl Iterator<Item = char> {
    std::iter::repeat_n('0', count)
}

impl Directive {
    fn put(&self, out: &mut String, verb: char, argument: &Value) -> Result<(), TooLong> {
        if out.len() > limits::OUTPUT {
            return Err(TooLong);
        }
        if verb == 'T' {
            self.pad(out, type_name(argument));
            return Ok(());
        }
        let text = match argument {
            Value::Number(number) => match number::float_of(number) {
                Some(float) => self.float(verb, float),
                None => self.integer(verb, number.as_i64(), number.as_u64()),
            },
            Value::String(text) => self.text(verb, text),
            Value::Bool(flag) if matches!(verb, 'v' | 't') => Some(flag.to_string()),
            Value::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(' ');
                    }
                    self.put(out, verb, item)?;
                }
                out.push(']');
                return Ok(());
            }
            Value::Object(_) if matches!(verb, 'v' | 's') => Some(plain(argument)),
            Value::Null if verb == 'v' => Some("<nil>".to_owned()),
            _ => None,
        };
        match (text, argument) {
            (Some(text), _) => self.pad(out, &text),
            (None, Value::Null) => {
                let _ = write!(out, "%!{verb}(<nil>)");
            }
            (None, argument) => {
                let _ = write!(out, "%!{verb}({}={})", type_name(argument), plain(argument));
            }
        }
        Ok(())
    }

    fn text(&self, verb: char, text: &str) -> Option<String> {
        let cut: String = match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.to_owned(),
        };
        Some(match verb {
            'v' if self.sharp => quote(&cut),
            'v' | 's' => cut,
            'q' if self.sharp && !cut.contains('`') => format!("`{cut}`"),
            'q' => quote(&cut),
            'x' => cut.bytes().fold(String::new(), |out, byte| out + &format!("{byte:02x}")),
            'X' => cut.bytes().fold(String::new(), |out, byte| out + &format!("{byte:02X}")),
            _ => return None,
        })
    }

    fn integer(&self, verb: char, signed: Option<i64>, unsigned: Option<u64>) -> Option<String> {
        let negative = signed.is_some_and(|number| number < 0);
        let size = signed.map(i64::unsigned_abs).or(unsigned)?;
        let scalar = || u32::try_from(size).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
        let digits = match verb {
            'v' | 'd' => size.to_string(),
            'b' => format!("{}{size:b}", if self.sharp { "0b" } else { "" }),
            'o' => format!("{}{size:o}", if self.sharp { "0" } else { "" }),
            'O' => format!("0o{size:o}"),
            'x' => format!("{}{size:x}", if self.sharp { "0x" } else { "" }),
            'X' => format!("{}{size:X}", if self.sharp { "0X" } else { "" }),
            'c' => return Some(scalar().to_string()),
            'q' => return Some(format!("'{}'", scalar().escape_default())),
            'U' => return Some(format!("U+{size:04X}")),
            _ => return None,
        };
        let digits = match self.precision {
            Some(precision) => {
                zeros(precision.saturating_sub(digits.len())).chain(digits.chars()).collect()
            }
            None => digits,
        };
        Some(format!("{}{digits}", self.sign(negative)))
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    fn float(&self, verb: char, float: f64) -> Option<String> {
        let size = float.abs();
        // Rust's own formatting takes 16 bits of precision; the rest can only be zeros.
        let precision = self.precision.unwrap_or(6);
        let (precision, more) =
            (precision.min(FRACTION_MAX), precision.saturating_sub(FRACTION_MAX));
        let digits = match verb {
            'v' | 'g' | 'G' if self.precision.is_none() => number::general(size),
            'v' | 'g' | 'G' => {
                // The given number of significant digits, without zeros at the end.
                let shown = format!("{size:.*e}", precision.max(1) - 1);
                number::general(shown.parse().unwrap_or(size))
            }
            'f' | 'F' => format!("{size:.precision$}").chars().chain(zeros(more)).collect(),
            'e' | 'E' => {
                let shown = format!("{size:.precision$e}");
                let (mantissa, exponent) = shown.split_once('e')?;
                let exponent: i32 = exponent.parse().ok()?;
                let sign = if exponent < 0 { '-' } else { '+' };
                let mantissa: String = mantissa.chars().chain(zeros(more)).collect();
                format!("{mantissa}e{sign}{:02}", exponent.abs())
            }
            _ => return None,
        };
        let digits = if verb.is_uppercase() { digits.to_uppercase() } else { digits };
        Some(format!("{}{digits}", self.sign(float.is_sign_negative() && float != 0.0)))
    }

    fn pad(&self, out: &mut String, text: &str) {
        let missing = self.width.unwrap_or(0).saturating_sub(text.chars().count());
        if self.minus {
            out.push_str(text);
            out.extend(std::iter::repeat_n(' ', missing));
        } else if self.zero && self.precision.is_none() {
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+', ' '])));
            out.push_str(sign);
            out.extend(std::iter::repeat_n('0', missing));
            out.push_str(digits);
        } else {
            out.extend(std::iter::repeat_n(' ', missing));
            out.push_str(text);
        }
    }
}
