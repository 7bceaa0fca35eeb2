//! A place in the text, and the steps from there.

/// A place: line and column in characters, index in bytes, all from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) struct Mark {
    pub(in super::super) line: usize,
    pub(in super::super) column: usize,
    pub(in super::super) index: usize,
}

/// What is wrong with the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Complaint {
    /// Where it shows.
    pub(in super::super) at: Mark,
    /// Where the thing began that went wrong.
    pub(in super::super) context: Mark,
    pub(in super::super) problem: &'static str,
    /// Found in a token, rather than in the order of tokens.
    pub(in super::super) in_token: bool,
}

pub(super) struct Cursor<'t> {
    text: &'t str,
    pub(super) mark: Mark,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, mark: Mark::default() }
    }

    pub(super) fn complaint(&self, context: Mark, problem: &'static str) -> Complaint {
        Complaint { at: self.mark, context, problem, in_token: true }
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.mark.index..).unwrap_or("")
    }

    /// The byte that many bytes ahead.
    pub(super) fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.mark.index + ahead).copied()
    }

    /// The length of a line end that many bytes ahead; 0 if there is none.
    fn break_length(&self, ahead: usize) -> usize {
        let bytes = self.text.as_bytes().get(self.mark.index + ahead..).unwrap_or(&[]);
        match bytes {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            [b'\r', ..] => 1,
            [0xc2, 0x85, ..] => 2,
            [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
            _ => 0,
        }
    }

    pub(super) fn is_break(&self) -> bool {
        self.break_length(0) > 0
    }

    /// A blank, a line end or the end of the text.
    pub(super) fn is_gap(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            None | Some(b' ' | b'\t' | b'\n' | b'\r') => true,
            Some(0xc2 | 0xe2) => self.break_length(ahead) > 0,
            Some(_) => false,
        }
    }

    pub(super) fn is_blank(&self) -> bool {
        matches!(self.byte(0), Some(b' ' | b'\t'))
    }

    pub(super) fn at_document_marker(&self) -> bool {
        self.mark.column == 0
            && (self.rest().starts_with("---") || self.rest().starts_with("..."))
            && self.is_gap(3)
    }

    /// Goes on by ASCII characters.
    pub(super) fn skip(&mut self, count: usize) {
        self.mark.index += count;
        self.mark.column += count;
    }

    /// Goes on over text without line ends.
    pub(super) fn skip_text(&mut self, text: &str) {
        self.mark.index += text.len();
        self.mark.column += if text.is_ascii() { text.len() } else { text.chars().count() };
    }

    pub(super) fn skip_char(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.mark.index += c.len_utf8();
        self.mark.column += 1;
        Some(c)
    }

    pub(super) fn skip_break(&mut self) {
        self.mark.index += self.break_length(0);
        self.mark.column = 0;
        self.mark.line += 1;
    }

    /// Takes a line end; all but the two separators count as `\n`.
    pub(super) fn take_break(&mut self, out: &mut String) {
        let length = self.break_length(0);
        if length == 0 {
            return;
        }
        match self.rest().get(..3) {
            Some(separator) if length == 3 => out.push_str(separator),
            _ => out.push('\n'),
        }
        self.skip_break();
    }

    /// The text up to the next line end.
    pub(super) fn rest_of_line(&self) -> &'t str {
        let rest = self.rest();
        let mut from = 0;
        while let Some(at) = rest.as_bytes()[from..]
            .iter()
            .position(|byte| matches!(byte, b'\n' | b'\r' | 0xc2 | 0xe2))
        {
            if self.break_length(from + at) > 0 {
                return &rest[..from + at];
            }
            from += at + 1;
        }
        rest
    }

    pub(super) fn skip_line(&mut self) {
        let line = self.rest_of_line();
        self.skip_text(line);
    }

    /// Takes ASCII bytes.
    pub(super) fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.bytes().position(|b| !b.is_ascii() || !wanted(b)).unwrap_or(rest.len());
        self.skip(end);
        &rest[..end]
    }
}
