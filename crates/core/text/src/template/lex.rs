//! Cuts a template into text and the tokens of its actions.

/// A token, with the byte offset where it starts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Text(String),
    /// `{{`
    Open,
    /// `}}`
    Close,
    /// `.` on its own.
    Dot,
    /// `.Name`
    Field(String),
    /// `$` or `$name`
    Variable(String),
    /// A keyword, function or constant.
    Word(String),
    /// A number as written.
    Number(String),
    /// A string, without its quotes.
    Quoted(String),
    /// A character constant.
    Char(char),
    Pipe,
    Declare,
    Assign,
    Comma,
    ParenOpen,
    ParenClose,
    /// Blanks between words, which decide whether a field continues a chain.
    Space,
    End,
}

/// A complaint and where it is.
pub(super) struct Complaint {
    pub(super) at: usize,
    pub(super) message: String,
}

fn complain<T>(at: usize, message: impl Into<String>) -> Result<T, Complaint> {
    Err(Complaint { at, message: message.into() })
}

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Complaint> {
    let mut lexer = Lexer { text, at: 0, out: Vec::new(), parens: 0 };
    let mut trim_next = false;
    loop {
        let rest = &text[lexer.at..];
        let open = rest.find("{{");
        let mut plain = &rest[..open.unwrap_or(rest.len())];
        let start = lexer.at;
        lexer.at += plain.len();
        let trims_before = open.is_some() && is_left_trim(&text[lexer.at + 2..]);
        if trim_next {
            plain = plain.trim_start_matches(BLANKS);
        }
        if trims_before {
            plain = plain.trim_end_matches(BLANKS);
        }
        if !plain.is_empty() {
            lexer.out.push(Token { at: start, kind: Kind::Text(plain.to_owned()) });
        }
        if open.is_none() {
            break;
        }
        let action = lexer.at;
        lexer.at += if trims_before { 4 } else { 2 };
        trim_next = match lexer.comment(action)? {
            Some(trim) => trim,
            None => lexer.action(action)?,
        };
    }
    lexer.push(Kind::End);
    Ok(lexer.out)
}

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// `- ` after `{{`.
fn is_left_trim(rest: &str) -> bool {
    rest.starts_with('-') && rest[1..].starts_with(BLANKS)
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    out: Vec<Token>,
    parens: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn push(&mut self, kind: Kind) {
        self.out.push(Token { at: self.at, kind });
    }

    fn take(&mut self, kind: Kind, length: usize) {
        self.push(kind);
        self.at += length;
    }

    /// A comment fills its whole action.
    fn comment(&mut self, action: usize) -> Result<Option<bool>, Complaint> {
        let Some(body) = self.rest().strip_prefix("/*") else { return Ok(None) };
        let Some(end) = body.find("*/") else { return complain(action, "unclosed comment") };
        self.at += 2 + end + 2;
        let trims = self.rest().starts_with(BLANKS) && self.rest()[1..].starts_with("-}}");
        if trims {
            self.at += 4;
        } else if self.rest().starts_with("}}") {
            self.at += 2;
        } else {
            return complain(action, "comment ends before closing delimiter");
        }
        Ok(Some(trims))
    }

    /// The tokens up to `}}`; whether that trims what follows.
    fn action(&mut self, start: usize) -> Result<bool, Complaint> {
        self.out.push(Token { at: start, kind: Kind::Open });
        self.parens = 0;
        loop {
            let rest = self.rest();
            let trims = rest.starts_with(BLANKS) && rest[1..].starts_with("-}}");
            if trims || rest.starts_with("}}") {
                if self.parens > 0 {
                    return complain(self.at, "unclosed left paren");
                }
                self.take(Kind::Close, if trims { 4 } else { 2 });
                return Ok(trims);
            }
            let Some(c) = rest.chars().next() else {
                return complain(start, "unclosed action");
            };
            self.token(c, rest)?;
        }
    }

    fn token(&mut self, c: char, rest: &'t str) -> Result<(), Complaint> {
        let next = rest[c.len_utf8()..].chars().next();
        match c {
            ' ' | '\t' | '\r' | '\n' => {
                let blanks = rest.len() - rest.trim_start_matches(BLANKS).len();
                // The blank before a trim marker belongs to the marker.
                let kept = if rest[blanks..].starts_with("-}}") { blanks - 1 } else { blanks };
                self.take(Kind::Space, kept.max(1));
            }
            ':' if next == Some('=') => self.take(Kind::Declare, 2),
            ':' => return complain(self.at, "expected :="),
            '=' => self.take(Kind::Assign, 1),
            '|' => self.take(Kind::Pipe, 1),
            ',' => self.take(Kind::Comma, 1),
            '"' => self.quoted()?,
            '`' => match rest[1..].find('`') {
                Some(end) => self.take(Kind::Quoted(rest[1..=end].to_owned()), end + 2),
                None => return complain(self.at, "unterminated raw quoted string"),
            },
            '\'' => self.character()?,
            '(' => {
                self.parens += 1;
                self.take(Kind::ParenOpen, 1);
            }
            ')' => {
                if self.parens == 0 {
                    return complain(self.at, "unexpected right paren");
                }
                self.parens -= 1;
                self.take(Kind::ParenClose, 1);
            }
            '$' => {
                let length = 1 + word_length(&rest[1..]);
                self.take(Kind::Variable(rest[..length].to_owned()), length);
            }
            '.' if next.is_none_or(|c| !c.is_ascii_digit()) => match word_length(&rest[1..]) {
                0 => self.take(Kind::Dot, 1),
                length => self.take(Kind::Field(rest[1..=length].to_owned()), length + 1),
            },
            '+' | '-' | '.' | '0'..='9' => self.number(rest)?,
            c if c.is_alphanumeric() || c == '_' => {
                let length = word_length(rest);
                self.take(Kind::Word(rest[..length].to_owned()), length);
            }
            c => return complain(self.at, format!("unexpected \"{c}\" in command")),
        }
        Ok(())
    }

    fn number(&mut self, rest: &'t str) -> Result<(), Complaint> {
        let mut end = 1;
        let bytes = rest.as_bytes();
        let hex = rest.trim_start_matches(['+', '-']).to_ascii_lowercase().starts_with("0x");
        while let Some(byte) = bytes.get(end) {
            let exponent_sign = matches!(byte, b'+' | b'-')
                && !hex
                && matches!(bytes.get(end - 1), Some(b'e' | b'E'));
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || exponent_sign) {
                break;
            }
            end += 1;
        }
        let number = &rest[..end];
        if super::parse::number(number).is_none() {
            return complain(self.at, format!("bad number syntax: {}", super::go_quote(number)));
        }
        self.take(Kind::Number(number.to_owned()), end);
        Ok(())
    }

    fn quoted(&mut self) -> Result<(), Complaint> {
        let start = self.at;
        let mut out = String::new();
        let mut rest = self.rest()[1..].char_indices();
        while let Some((at, c)) = rest.next() {
            match c {
                '"' => {
                    self.take(Kind::Quoted(out), at + 2);
                    return Ok(());
                }
                '\n' => break,
                '\\' => match escape(&mut rest, '"') {
                    Some(c) => out.push(c),
                    None => return complain(start, "invalid syntax"),
                },
                c => out.push(c),
            }
        }
        complain(start, "unterminated quoted string")
    }

    fn character(&mut self) -> Result<(), Complaint> {
        let start = self.at;
        let mut rest = self.rest()[1..].char_indices();
        let c = match rest.next() {
            Some((_, '\\')) => escape(&mut rest, '\''),
            Some((_, c)) if c != '\'' && c != '\n' => Some(c),
            _ => None,
        };
        match (c, rest.next()) {
            (Some(c), Some((at, '\''))) => {
                self.take(Kind::Char(c), at + 2);
                Ok(())
            }
            _ => complain(start, "unterminated character constant"),
        }
    }
}

/// What follows a backslash in a string.
fn escape(rest: &mut std::str::CharIndices<'_>, quote: char) -> Option<char> {
    let (_, c) = rest.next()?;
    let mut digits = |count: usize, radix: u32, first: u32| {
        let mut code = first;
        for _ in 0..count {
            code = code.checked_mul(radix)?.checked_add(rest.next()?.1.to_digit(radix)?)?;
        }
        char::from_u32(code)
    };
    match c {
        'a' => Some('\u{7}'),
        'b' => Some('\u{8}'),
        'f' => Some('\u{c}'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\u{b}'),
        '\\' => Some('\\'),
        'x' => digits(2, 16, 0),
        'u' => digits(4, 16, 0),
        'U' => digits(8, 16, 0),
        '0'..='7' => digits(2, 8, c.to_digit(8)?),
        c if c == quote => Some(c),
        _ => None,
    }
}

fn word_length(rest: &str) -> usize {
    rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
}
