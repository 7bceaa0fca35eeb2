//! Cuts a document into YAML's tokens.
//!
//! Whether a scalar is a key shows only at the colon after it, so tokens wait in a queue until
//! no key can begin at the first of them. Indentation becomes tokens as well.

mod cursor;
mod scalars;

use std::borrow::Cow;
use std::collections::VecDeque;

use cursor::Cursor;
pub(super) use cursor::{Complaint, Mark};

/// A token and where it starts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind<'t>,
    pub(super) at: Mark,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind<'t> {
    StreamEnd,
    /// `%TAG` with handle and prefix; `%YAML` has neither.
    Directive(Option<(&'t str, &'t str)>),
    DocumentStart,
    DocumentEnd,
    BlockList,
    BlockMap,
    BlockEnd,
    FlowListStart,
    FlowListEnd,
    FlowMapStart,
    FlowMapEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'t str),
    Anchor(&'t str),
    /// Handle and suffix.
    Tag(&'t str, &'t str),
    Scalar {
        text: Cow<'t, str>,
        plain: bool,
    },
}

/// A place where a key without question mark may have begun.
#[derive(Debug, Clone, Copy)]
struct SimpleKey {
    at: Mark,
    /// Number of its token, counted from the first of the document.
    token: usize,
    /// A block map goes on here, so there must be a key.
    required: bool,
}

/// Longer keys need a question mark.
const SIMPLE_KEY_BYTES: usize = 1024;

/// Beyond this the reader has long refused the document.
const FLOW_LEVELS: usize = 10_000;

pub(super) struct Scanner<'t> {
    cursor: Cursor<'t>,
    queue: VecDeque<Token<'t>>,
    taken: usize,
    ended: bool,
    indent: i64,
    indents: Vec<i64>,
    key_allowed: bool,
    /// One place per flow level, the block level first.
    keys: Vec<Option<SimpleKey>>,
    /// How many of them are set.
    open_keys: usize,
}

type Result<T> = std::result::Result<T, Complaint>;

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            cursor: Cursor::new(text),
            queue: VecDeque::new(),
            taken: 0,
            ended: false,
            indent: -1,
            indents: Vec::new(),
            key_allowed: true,
            keys: vec![None],
            open_keys: 0,
        }
    }

    /// The next token, which stays. After the end of the stream it is that end again.
    pub(super) fn peek(&mut self) -> Result<&Token<'t>> {
        while !self.ended && (self.queue.is_empty() || self.key_may_start_queue()?) {
            self.fetch()?;
        }
        if self.queue.is_empty() {
            let at = self.cursor.mark;
            self.queue.push_back(Token { kind: Kind::StreamEnd, at });
        }
        Ok(&self.queue[0])
    }

    pub(super) fn take(&mut self) -> Result<Token<'t>> {
        let at = self.peek()?.at;
        self.taken += 1;
        Ok(self.queue.pop_front().unwrap_or(Token { kind: Kind::StreamEnd, at }))
    }

    fn in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    /// Whether the first token in the queue may yet turn out to be a key.
    fn key_may_start_queue(&mut self) -> Result<bool> {
        // From the inside, and only as far as there are keys: levels may be many.
        let mut left = self.open_keys;
        for level in (0..self.keys.len()).rev() {
            if left == 0 {
                break;
            }
            if let Some(key) = self.keys[level] {
                left -= 1;
                if key.token <= self.taken {
                    return Ok(key.token == self.taken && self.usable_key(level)?.is_some());
                }
            }
        }
        Ok(false)
    }

    /// The key of a level, unless it is too far back.
    fn usable_key(&mut self, level: usize) -> Result<Option<SimpleKey>> {
        let Some(key) = self.keys.get(level).copied().flatten() else { return Ok(None) };
        let now = self.cursor.mark;
        if key.at.line < now.line || key.at.index + SIMPLE_KEY_BYTES < now.index {
            if key.required {
                return Err(self.missing_colon(key));
            }
            self.keys[level] = None;
            self.open_keys -= 1;
            return Ok(None);
        }
        Ok(Some(key))
    }

    fn missing_colon(&self, key: SimpleKey) -> Complaint {
        self.cursor.complaint(key.at, "could not find expected ':'")
    }

    /// Notes that a key may begin here.
    fn save_key(&mut self) -> Result<()> {
        let column = i64::try_from(self.cursor.mark.column).unwrap_or(i64::MAX);
        let required = !self.in_flow() && self.indent == column;
        if self.key_allowed {
            self.drop_key()?;
            let token = self.taken + self.queue.len();
            let key = SimpleKey { at: self.cursor.mark, token, required };
            if let Some(slot) = self.keys.last_mut() {
                *slot = Some(key);
                self.open_keys += 1;
            }
        }
        Ok(())
    }

    fn drop_key(&mut self) -> Result<()> {
        let Some(key) = self.keys.last_mut().and_then(Option::take) else { return Ok(()) };
        self.open_keys -= 1;
        if key.required {
            return Err(self.missing_colon(key));
        }
        Ok(())
    }

    /// Opens a block list or map if the column is further in than the one around.
    fn roll(&mut self, column: usize, token: Option<usize>, kind: Kind<'t>, at: Mark) {
        let column = i64::try_from(column).unwrap_or(i64::MAX);
        if self.in_flow() || self.indent >= column {
            return;
        }
        self.indents.push(self.indent);
        self.indent = column;
        let place = token.map_or(self.queue.len(), |token| token.saturating_sub(self.taken));
        self.queue.insert(place.min(self.queue.len()), Token { kind, at });
    }

    /// Closes the block lists and maps that are further in than the column.
    fn unroll(&mut self, column: i64) {
        if self.in_flow() {
            return;
        }
        while self.indent > column {
            self.queue.push_back(Token { kind: Kind::BlockEnd, at: self.cursor.mark });
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn push(&mut self, kind: Kind<'t>, at: Mark) {
        self.queue.push_back(Token { kind, at });
    }

    fn fetch(&mut self) -> Result<()> {
        self.skip_to_token();
        let at = self.cursor.mark;
        self.unroll(i64::try_from(at.column).unwrap_or(i64::MAX));
        let Some(byte) = self.cursor.byte(0) else {
            return self.fetch_end();
        };
        if at.column == 0 && byte == b'%' {
            return self.fetch_directive();
        }
        if self.cursor.at_document_marker() {
            return self.fetch_document_marker(byte == b'-');
        }
        let gap = self.cursor.is_gap(1);
        match byte {
            b'[' => self.fetch_flow_start(Kind::FlowListStart),
            b'{' => self.fetch_flow_start(Kind::FlowMapStart),
            b']' => self.fetch_flow_end(Kind::FlowListEnd),
            b'}' => self.fetch_flow_end(Kind::FlowMapEnd),
            b',' => {
                self.drop_key()?;
                self.key_allowed = true;
                self.single(Kind::FlowEntry)
            }
            b'-' if gap => self.fetch_entry(),
            b'?' if gap || self.in_flow() => self.fetch_question(),
            b':' if gap || self.in_flow() => self.fetch_value(),
            b'*' | b'&' => {
                self.save_key()?;
                self.key_allowed = false;
                let name = self.anchor()?;
                self.push(if byte == b'*' { Kind::Alias(name) } else { Kind::Anchor(name) }, at);
                Ok(())
            }
            b'!' => {
                self.save_key()?;
                self.key_allowed = false;
                let (handle, suffix) = self.tag()?;
                self.push(Kind::Tag(handle, suffix), at);
                Ok(())
            }
            b'|' | b'>' if !self.in_flow() => {
                self.drop_key()?;
                self.key_allowed = true;
                let text = self.block_scalar(byte == b'|')?;
                self.push(Kind::Scalar { text, plain: false }, at);
                Ok(())
            }
            b'\'' | b'"' => {
                self.save_key()?;
                self.key_allowed = false;
                let text = self.quoted(byte)?;
                self.push(Kind::Scalar { text, plain: false }, at);
                Ok(())
            }
            _ if self.starts_plain(byte) => {
                self.save_key()?;
                self.key_allowed = false;
                let text = self.plain()?;
                self.push(Kind::Scalar { text, plain: true }, at);
                Ok(())
            }
            _ => {
                let problem = "found character that cannot start any token";
                Err(self.cursor.complaint(at, problem))
            }
        }
    }

    fn starts_plain(&self, byte: u8) -> bool {
        match byte {
            b'-' => !matches!(self.cursor.byte(1), Some(b' ' | b'\t')),
            b'?' | b':' => !self.in_flow() && !self.cursor.is_gap(1),
            b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\''
            | b'"' | b'%' | b'@' | b'`' | b' ' | b'\t' => false,
            _ => true,
        }
    }

    /// Skips blanks, comments and line ends. Tabs only where no key could begin.
    fn skip_to_token(&mut self) {
        loop {
            match self.cursor.byte(0) {
                Some(b' ') => self.cursor.skip(1),
                Some(b'\t') if self.in_flow() || !self.key_allowed => self.cursor.skip(1),
                Some(b'#') => self.cursor.skip_line(),
                Some(_) if self.cursor.is_break() => {
                    self.cursor.skip_break();
                    if !self.in_flow() {
                        self.key_allowed = true;
                    }
                }
                _ => return,
            }
        }
    }

    /// A token of one character.
    fn single(&mut self, kind: Kind<'t>) -> Result<()> {
        let at = self.cursor.mark;
        self.cursor.skip(1);
        self.push(kind, at);
        Ok(())
    }

    fn fetch_end(&mut self) -> Result<()> {
        if self.cursor.mark.column != 0 {
            self.cursor.mark.column = 0;
            self.cursor.mark.line += 1;
        }
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.ended = true;
        self.push(Kind::StreamEnd, self.cursor.mark);
        Ok(())
    }

    fn fetch_document_marker(&mut self, start: bool) -> Result<()> {
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.push(if start { Kind::DocumentStart } else { Kind::DocumentEnd }, self.cursor.mark);
        self.cursor.skip(3);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: Kind<'t>) -> Result<()> {
        self.save_key()?;
        if self.keys.len() > FLOW_LEVELS {
            return Err(self.cursor.complaint(self.cursor.mark, "exceeded max depth"));
        }
        self.keys.push(None);
        self.key_allowed = true;
        self.single(kind)
    }

    fn fetch_flow_end(&mut self, kind: Kind<'t>) -> Result<()> {
        self.drop_key()?;
        if self.in_flow() {
            self.keys.pop();
        }
        self.key_allowed = false;
        self.single(kind)
    }

    fn fetch_entry(&mut self) -> Result<()> {
        if !self.in_flow() {
            let at = self.cursor.mark;
            if !self.key_allowed {
                let problem = "block sequence entries are not allowed in this context";
                return Err(self.cursor.complaint(at, problem));
            }
            self.roll(at.column, None, Kind::BlockList, at);
        }
        self.drop_key()?;
        self.key_allowed = true;
        self.single(Kind::BlockEntry)
    }

    fn fetch_question(&mut self) -> Result<()> {
        if !self.in_flow() {
            let at = self.cursor.mark;
            if !self.key_allowed {
                let problem = "mapping keys are not allowed in this context";
                return Err(self.cursor.complaint(at, problem));
            }
            self.roll(at.column, None, Kind::BlockMap, at);
        }
        self.drop_key()?;
        self.key_allowed = !self.in_flow();
        self.single(Kind::Key)
    }

    fn fetch_value(&mut self) -> Result<()> {
        let level = self.keys.len() - 1;
        if let Some(key) = self.usable_key(level)? {
            let place = key.token.saturating_sub(self.taken).min(self.queue.len());
            self.queue.insert(place, Token { kind: Kind::Key, at: key.at });
            self.roll(key.at.column, Some(key.token), Kind::BlockMap, key.at);
            self.keys[level] = None;
            self.open_keys -= 1;
            self.key_allowed = false;
        } else {
            if !self.in_flow() {
                let at = self.cursor.mark;
                if !self.key_allowed {
                    let problem = "mapping values are not allowed in this context";
                    return Err(self.cursor.complaint(at, problem));
                }
                self.roll(at.column, None, Kind::BlockMap, at);
            }
            self.key_allowed = !self.in_flow();
        }
        self.single(Kind::Value)
    }

    fn fetch_directive(&mut self) -> Result<()> {
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        let at = self.cursor.mark;
        let line = self.cursor.rest_of_line();
        let content = line.split(" #").next().unwrap_or(line);
        let mut words = content.split([' ', '\t']).filter(|word| !word.is_empty());
        let kind = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("%YAML"), Some("1.1" | "1.2"), None, _) => Kind::Directive(None),
            (Some("%YAML"), ..) => {
                return Err(self.cursor.complaint(at, "found incompatible YAML document"));
            }
            (Some("%TAG"), Some(handle), Some(prefix), None) if handle.starts_with('!') => {
                Kind::Directive(Some((handle, prefix)))
            }
            (name, ..) => {
                let name = name.unwrap_or("").trim_start_matches('%');
                let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                let problem = if !name.starts_with(letter) {
                    "could not find expected directive name"
                } else if !name.chars().all(letter) {
                    "found unexpected non-alphabetical character"
                } else {
                    "found unknown directive name"
                };
                return Err(self.cursor.complaint(at, problem));
            }
        };
        self.cursor.skip_line();
        self.push(kind, at);
        Ok(())
    }

    fn anchor(&mut self) -> Result<&'t str> {
        let start = self.cursor.mark;
        self.cursor.skip(1);
        let name = self.cursor.take_while(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let ends = self.cursor.is_gap(0)
            || matches!(
                self.cursor.byte(0),
                Some(b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`')
            );
        if name.is_empty() || !ends {
            let problem = "did not find expected alphabetic or numeric character";
            return Err(self.cursor.complaint(start, problem));
        }
        Ok(name)
    }

    /// Handle and suffix; both are empty for the tag `!`.
    fn tag(&mut self) -> Result<(&'t str, &'t str)> {
        let start = self.cursor.mark;
        let uri = |b: u8| b.is_ascii_alphanumeric() || b"-_;/?:@&=+$,.!~*'()[]%".contains(&b);
        if self.cursor.byte(1) == Some(b'<') {
            self.cursor.skip(2);
            let suffix = self.cursor.take_while(uri);
            if suffix.is_empty() {
                return Err(self.cursor.complaint(start, "did not find expected tag URI"));
            }
            if self.cursor.byte(0) != Some(b'>') {
                return Err(self.cursor.complaint(start, "did not find the expected '>'"));
            }
            self.cursor.skip(1);
            return self.end_of_tag(start, "", suffix);
        }
        let tag = self.cursor.take_while(uri);
        match tag.get(1..).and_then(|rest| rest.find('!')) {
            Some(end)
                if tag[1..=end]
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') =>
            {
                let (handle, suffix) = tag.split_at(end + 2);
                if suffix.is_empty() {
                    return Err(self.cursor.complaint(start, "did not find expected tag URI"));
                }
                self.end_of_tag(start, handle, suffix)
            }
            _ if tag.len() == 1 => self.end_of_tag(start, "", "!"),
            _ => self.end_of_tag(start, "!", &tag[1..]),
        }
    }

    fn end_of_tag(
        &self,
        start: Mark,
        handle: &'t str,
        suffix: &'t str,
    ) -> Result<(&'t str, &'t str)> {
        if self.cursor.is_gap(0) {
            return Ok((handle, suffix));
        }
        Err(self.cursor.complaint(start, "did not find expected whitespace or line break"))
    }
}
