//! Scalars: plain, quoted, and blocks.

use std::borrow::Cow;

use super::cursor::Mark;
use super::{Result, Scanner};

/// Blanks and line ends within a scalar, until it is known what they come to.
#[derive(Default)]
struct Gap {
    blanks: String,
    first_break: String,
    more_breaks: String,
    /// A line end was among them.
    broken: bool,
}

impl Gap {
    /// A single line end becomes a blank; of more, all but the first stay.
    fn fold_into(&mut self, out: &mut String) {
        if !self.broken {
            out.push_str(&self.blanks);
        } else if !self.first_break.starts_with('\n') {
            out.push_str(&self.first_break);
            out.push_str(&self.more_breaks);
        } else if self.more_breaks.is_empty() {
            out.push(' ');
        } else {
            out.push_str(&self.more_breaks);
        }
        *self = Self::default();
    }
}

impl<'t> Scanner<'t> {
    /// Takes blanks and line ends. In a plain scalar tabs must not stand for indentation.
    fn gap(&mut self, gap: &mut Gap, indent: Option<(i64, Mark)>) -> Result<()> {
        loop {
            if self.cursor.is_blank() {
                if let Some((indent, start)) = indent
                    && gap.broken
                    && self.column() < indent
                    && self.cursor.byte(0) == Some(b'\t')
                {
                    let problem = "found a tab character that violates indentation";
                    return Err(self.cursor.complaint(start, problem));
                }
                if let Some(blank) = self.cursor.skip_char()
                    && !gap.broken
                {
                    gap.blanks.push(blank);
                }
            } else if self.cursor.is_break() {
                if gap.broken {
                    self.cursor.take_break(&mut gap.more_breaks);
                } else {
                    gap.blanks.clear();
                    self.cursor.take_break(&mut gap.first_break);
                    gap.broken = true;
                }
            } else {
                return Ok(());
            }
        }
    }

    fn column(&self) -> i64 {
        i64::try_from(self.cursor.mark.column).unwrap_or(i64::MAX)
    }

    pub(super) fn plain(&mut self) -> Result<Cow<'t, str>> {
        let start = self.cursor.mark;
        let indent = self.indent + 1;
        let mut whole: Cow<'t, str> = Cow::Borrowed("");
        let mut gap = Gap::default();
        loop {
            if self.cursor.at_document_marker() || self.cursor.byte(0) == Some(b'#') {
                break;
            }
            let word = self.plain_word();
            if word.is_empty() {
                break;
            }
            if whole.is_empty() {
                whole = Cow::Borrowed(word);
            } else {
                let whole = whole.to_mut();
                gap.fold_into(whole);
                whole.push_str(word);
            }
            self.cursor.skip_text(word);
            gap = Gap::default();
            if !self.cursor.is_blank() && !self.cursor.is_break() {
                break;
            }
            self.gap(&mut gap, Some((indent, start)))?;
            if !self.in_flow() && self.column() < indent {
                break;
            }
        }
        if gap.broken {
            self.key_allowed = true;
        }
        Ok(whole)
    }

    /// The part of a plain scalar that is on this line.
    fn plain_word(&self) -> &'t str {
        let rest = self.cursor.rest();
        let mut end = 0;
        loop {
            // Blanks belong to the scalar only if it goes on after them.
            let blanks = match rest.as_bytes().get(end) {
                Some(b' ' | b'\t') if end > 0 => {
                    rest[end..].bytes().take_while(|b| matches!(b, b' ' | b'\t')).count()
                }
                _ => 0,
            };
            let at = end + blanks;
            let Some(byte) = rest.as_bytes().get(at) else { break };
            let ends = match byte {
                b' ' | b'\t' | b'\n' | b'\r' => true,
                0xc2 | 0xe2 => self.cursor.is_gap(at),
                b':' => self.cursor.is_gap(at + 1),
                b'#' => blanks > 0,
                b',' | b'?' | b'[' | b']' | b'{' | b'}' => self.in_flow(),
                _ => false,
            };
            if ends {
                break;
            }
            end = at + 1;
        }
        &rest[..end]
    }

    pub(super) fn quoted(&mut self, quote: u8) -> Result<Cow<'t, str>> {
        let start = self.cursor.mark;
        self.cursor.skip(1);
        let mut out: Cow<'t, str> = Cow::Borrowed("");
        loop {
            if self.cursor.at_document_marker() {
                let problem = "found unexpected document indicator";
                return Err(self.cursor.complaint(start, problem));
            }
            let mut gap = Gap::default();
            loop {
                let piece = self.quoted_piece(quote);
                match &mut out {
                    Cow::Borrowed("") => out = Cow::Borrowed(piece),
                    out => out.to_mut().push_str(piece),
                }
                self.cursor.skip_text(piece);
                match self.cursor.byte(0) {
                    None => {
                        let problem = "found unexpected end of stream";
                        return Err(self.cursor.complaint(start, problem));
                    }
                    Some(b'\'') if quote == b'\'' && self.cursor.byte(1) == Some(b'\'') => {
                        self.cursor.skip(2);
                        out.to_mut().push('\'');
                    }
                    Some(byte) if byte == quote => {
                        self.cursor.skip(1);
                        return Ok(out);
                    }
                    Some(b'\\') if quote == b'"' => {
                        self.cursor.skip(1);
                        if self.cursor.is_break() {
                            self.cursor.skip_break();
                            gap.broken = true;
                            break;
                        }
                        let c = self.escaped(start)?;
                        out.to_mut().push(c);
                    }
                    Some(_) => break,
                }
            }
            let escaped_break = gap.broken;
            self.gap(&mut gap, None)?;
            if escaped_break {
                // Only the line ends after the escaped one count.
                out.to_mut().push_str(&gap.more_breaks);
            } else {
                gap.fold_into(out.to_mut());
            }
        }
    }

    /// The part of a quoted scalar up to the next blank, line end, quote or backslash.
    fn quoted_piece(&self, quote: u8) -> &'t str {
        let rest = self.cursor.rest();
        let mut end = 0;
        while let Some(byte) = rest.as_bytes().get(end) {
            let ends = match byte {
                b' ' | b'\t' => !self.blank_inside(end, quote),
                b'\n' | b'\r' => true,
                0xc2 | 0xe2 => self.cursor.is_gap(end),
                b'\\' => quote == b'"',
                byte => *byte == quote,
            };
            if ends {
                break;
            }
            end += 1;
        }
        &rest[..end]
    }

    /// Whether a blank stands between two words of a line: then it is plain text.
    fn blank_inside(&self, at: usize, quote: u8) -> bool {
        let next = self.cursor.byte(at + 1);
        next.is_some_and(|next| next != quote && next != b'\\') && !self.cursor.is_gap(at + 1)
    }

    /// What follows a backslash.
    fn escaped(&mut self, start: Mark) -> Result<char> {
        let digits = match self.cursor.byte(0) {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => 0,
        };
        if digits > 0 {
            self.cursor.skip(1);
            let rest = self.cursor.rest();
            let hex = rest.get(..digits).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
            let Some(hex) = hex else {
                let problem = "did not find expected hexdecimal number";
                return Err(self.cursor.complaint(start, problem));
            };
            let code = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
            let Some(c) = code else {
                let problem = "found invalid Unicode character escape code";
                return Err(self.cursor.complaint(start, problem));
            };
            self.cursor.skip(digits);
            return Ok(c);
        }
        let c = match self.cursor.byte(0) {
            Some(b'0') => '\0',
            Some(b'a') => '\u{7}',
            Some(b'b') => '\u{8}',
            Some(b't' | b'\t') => '\t',
            Some(b'n') => '\n',
            Some(b'v') => '\u{b}',
            Some(b'f') => '\u{c}',
            Some(b'r') => '\r',
            Some(b'e') => '\u{1b}',
            Some(b' ') => ' ',
            Some(b'"') => '"',
            Some(b'\'') => '\'',
            Some(b'/') => '/',
            Some(b'\\') => '\\',
            Some(b'N') => '\u{85}',
            Some(b'_') => '\u{a0}',
            Some(b'L') => '\u{2028}',
            Some(b'P') => '\u{2029}',
            _ => {
                let problem = "found unknown escape character";
                return Err(self.cursor.complaint(start, problem));
            }
        };
        self.cursor.skip(1);
        Ok(c)
    }

    pub(super) fn block_scalar(&mut self, literal: bool) -> Result<Cow<'t, str>> {
        let start = self.cursor.mark;
        self.cursor.skip(1);
        let (chomp, increment) = self.block_header(start)?;
        let around = self.indent.max(0);
        let mut indent = increment.map_or(0, |increment| around + increment);
        let mut breaks = String::new();
        self.block_breaks(&mut indent, &mut breaks, start)?;
        let mut out = String::new();
        let mut line_end = String::new();
        let mut blank_before = false;
        while self.column() == indent && self.cursor.byte(0).is_some() {
            let blank = self.cursor.is_blank();
            let folds = !literal && line_end.starts_with('\n') && !blank_before && !blank;
            if !folds {
                out.push_str(&line_end);
            } else if breaks.is_empty() {
                out.push(' ');
            }
            line_end.clear();
            out.push_str(&breaks);
            breaks.clear();
            blank_before = blank;
            let line = self.cursor.rest_of_line();
            out.push_str(line);
            self.cursor.skip_text(line);
            self.cursor.take_break(&mut line_end);
            self.block_breaks(&mut indent, &mut breaks, start)?;
        }
        if chomp != Some(b'-') {
            out.push_str(&line_end);
        }
        if chomp == Some(b'+') {
            out.push_str(&breaks);
        }
        Ok(Cow::Owned(out))
    }

    /// The indicators after `|` or `>`, in either order, and the rest of that line.
    fn block_header(&mut self, start: Mark) -> Result<(Option<u8>, Option<i64>)> {
        let (mut chomp, mut increment) = (None, None);
        for _ in 0..2 {
            match self.cursor.byte(0) {
                Some(byte @ (b'+' | b'-')) if chomp.is_none() => chomp = Some(byte),
                Some(b'0') if increment.is_none() => {
                    let problem = "found an indentation indicator equal to 0";
                    return Err(self.cursor.complaint(start, problem));
                }
                Some(byte @ b'1'..=b'9') if increment.is_none() => {
                    increment = Some(i64::from(byte - b'0'));
                }
                _ => break,
            }
            self.cursor.skip(1);
        }
        while self.cursor.is_blank() {
            self.cursor.skip(1);
        }
        if self.cursor.byte(0) == Some(b'#') {
            self.cursor.skip_line();
        }
        if !self.cursor.is_gap(0) {
            let problem = "did not find expected comment or line break";
            return Err(self.cursor.complaint(start, problem));
        }
        if self.cursor.is_break() {
            self.cursor.skip_break();
        }
        Ok((chomp, increment))
    }

    /// Takes indentation and empty lines; finds out the indentation if it is not known.
    fn block_breaks(&mut self, indent: &mut i64, breaks: &mut String, start: Mark) -> Result<()> {
        let mut widest = 0;
        loop {
            let open = |column: i64, indent: i64| indent == 0 || column < indent;
            while open(self.column(), *indent) && self.cursor.byte(0) == Some(b' ') {
                self.cursor.skip(1);
            }
            widest = widest.max(self.column());
            if open(self.column(), *indent) && self.cursor.byte(0) == Some(b'\t') {
                let problem = "found a tab character where an indentation space is expected";
                return Err(self.cursor.complaint(start, problem));
            }
            if !self.cursor.is_break() {
                break;
            }
            self.cursor.take_break(breaks);
        }
        if *indent == 0 {
            *indent = widest.max(self.indent + 1).max(1);
        }
        Ok(())
    }
}
