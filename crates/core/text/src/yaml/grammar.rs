//! Builds events from tokens: which scalar, list or map begins and ends where.

use std::borrow::Cow;

use super::error::{Error, Problem};
use super::scan::{Complaint, Kind, Mark, Scanner};

/// What happens in a document.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event<'t> {
    DocumentStart,
    DocumentEnd,
    ListStart {
        anchor: Option<&'t str>,
    },
    MapStart {
        anchor: Option<&'t str>,
    },
    /// The end of a list or a map.
    End,
    Alias(&'t str),
    Scalar(Text<'t>),
}

/// A scalar as it stands in the document.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Text<'t> {
    pub(super) text: Cow<'t, str>,
    pub(super) plain: bool,
    pub(super) anchor: Option<&'t str>,
    /// In its long form.
    pub(super) tag: Option<String>,
}

/// What is to come next.
#[derive(Debug, Clone, Copy)]
enum State {
    Start,
    Content,
    DocumentEnd,
    /// A block list, and where it began.
    BlockList(Mark),
    /// A list under a key, not indented.
    Indentless,
    BlockMapKey(Mark),
    BlockMapValue,
    FlowList {
        start: Mark,
        first: bool,
    },
    /// A map of one entry in a flow list.
    PairKey,
    PairValue,
    PairEnd,
    FlowMapKey {
        start: Mark,
        first: bool,
    },
    FlowMapValue {
        empty: bool,
    },
    Done,
}

/// The events of a document, up to the first complaint.
pub(super) struct Events<'t> {
    scanner: Scanner<'t>,
    state: State,
    /// What to go on with when the list or map at hand ends.
    outer: Vec<State>,
    tags: Vec<(&'t str, &'t str)>,
    first: bool,
}

type Step<'t> = Result<(Event<'t>, Mark), Complaint>;

pub(super) fn events(text: &str) -> Events<'_> {
    Events {
        scanner: Scanner::new(text),
        state: State::Start,
        outer: Vec::new(),
        tags: Vec::new(),
        first: true,
    }
}

impl Complaint {
    /// As an error in a file in which the document starts on `first_line`.
    pub(super) fn in_file(&self, first_line: usize) -> Error {
        let Self { at, context, problem, in_token } = *self;
        let mut error =
            Error::new(first_line + at.line, at.column + 1, Problem::Syntax(problem.to_owned()));
        // The Go library counts from one in complaints about tokens only, and leaves out what
        // would be line zero.
        error.document_line = match at.line {
            0 => context.line,
            line => line + usize::from(in_token),
        };
        error
    }
}

fn complaint<T>(context: Mark, problem: &'static str, at: Mark) -> Result<T, Complaint> {
    Err(Complaint { at, context, problem, in_token: false })
}

fn empty<'t>(at: Mark) -> (Event<'t>, Mark) {
    let text = Text { text: Cow::Borrowed(""), plain: true, anchor: None, tag: None };
    (Event::Scalar(text), at)
}

impl<'t> Iterator for Events<'t> {
    type Item = Step<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = match self.state {
            State::Done => return None,
            State::Start => match self.start() {
                Ok(None) => return None,
                Ok(Some(event)) => Ok(event),
                Err(complaint) => Err(complaint),
            },
            State::Content => self.content(),
            State::DocumentEnd => self.document_end(),
            State::BlockList(start) => self.block_list(start),
            State::Indentless => self.indentless(),
            State::BlockMapKey(start) => self.block_map_key(start),
            State::BlockMapValue => self.block_map_value(),
            State::FlowList { start, first } => self.flow_list(start, first),
            State::PairKey => self.pair_key(),
            State::PairValue => self.pair_value(),
            State::PairEnd => self.pair_end(),
            State::FlowMapKey { start, first } => self.flow_map_key(start, first),
            State::FlowMapValue { empty } => self.flow_map_value(empty),
        };
        if step.is_err() {
            self.state = State::Done;
        }
        Some(step)
    }
}

impl<'t> Events<'t> {
    /// The kind of the next token and its place.
    fn peek(&mut self) -> Result<(&Kind<'t>, Mark), Complaint> {
        let token = self.scanner.peek()?;
        Ok((&token.kind, token.at))
    }

    fn back(&mut self) {
        self.state = self.outer.pop().unwrap_or(State::Done);
    }

    /// Ends the list or map at hand with its closing token.
    fn close(&mut self) -> Step<'t> {
        let token = self.scanner.take()?;
        self.back();
        Ok((Event::End, token.at))
    }

    fn start(&mut self) -> Result<Option<(Event<'t>, Mark)>, Complaint> {
        if !self.first {
            while *self.peek()?.0 == Kind::DocumentEnd {
                self.scanner.take()?;
            }
        }
        self.tags.clear();
        let (kind, at) = self.peek()?;
        let marked = matches!(kind, Kind::Directive(_) | Kind::DocumentStart);
        let ended = *kind == Kind::DocumentEnd;
        if *kind == Kind::StreamEnd {
            self.state = State::Done;
            return Ok(None);
        }
        if self.first && ended {
            return complaint(at, "did not find expected node content", at);
        }
        if self.first && !marked {
            self.first = false;
            self.outer.push(State::DocumentEnd);
            self.state = State::Content;
            return Ok(Some((Event::DocumentStart, at)));
        }
        self.first = false;
        while let Kind::Directive(directive) = *self.peek()?.0 {
            self.tags.extend(directive);
            self.scanner.take()?;
        }
        let (kind, found) = self.peek()?;
        if *kind != Kind::DocumentStart {
            return complaint(Mark::default(), "did not find expected <document start>", found);
        }
        self.scanner.take()?;
        self.outer.push(State::DocumentEnd);
        self.state = State::Content;
        Ok(Some((Event::DocumentStart, at)))
    }

    fn content(&mut self) -> Step<'t> {
        let (kind, at) = self.peek()?;
        if matches!(
            kind,
            Kind::Directive(_) | Kind::DocumentStart | Kind::DocumentEnd | Kind::StreamEnd
        ) {
            self.back();
            return Ok(empty(at));
        }
        self.node(true, false)
    }

    fn document_end(&mut self) -> Step<'t> {
        let (kind, at) = self.peek()?;
        if *kind == Kind::DocumentEnd {
            self.scanner.take()?;
        }
        self.state = State::Start;
        Ok((Event::DocumentEnd, at))
    }

    /// A scalar, an alias, or the start of a list or map. When it is complete, the state on top
    /// of `outer` goes on.
    fn node(&mut self, block: bool, indentless: bool) -> Step<'t> {
        let (mut anchor, mut tag, mut start) = (None, None, None);
        let (kind, at) = self.peek()?;
        if let Kind::Alias(name) = *kind {
            self.scanner.take()?;
            self.back();
            return Ok((Event::Alias(name), at));
        }
        loop {
            let (kind, at) = self.peek()?;
            match *kind {
                Kind::Anchor(name) if anchor.is_none() => anchor = Some(name),
                Kind::Tag(handle, suffix) if tag.is_none() => tag = Some((handle, suffix, at)),
                _ => break,
            }
            start.get_or_insert(at);
            self.scanner.take()?;
        }
        let start = start.unwrap_or(at);
        let tag = match tag {
            Some((handle, suffix, at)) => Some(self.long_tag(handle, suffix, start, at)?),
            None => None,
        };
        let (kind, at) = self.peek()?;
        let (event, state) = match kind {
            Kind::BlockEntry if indentless => {
                self.state = State::Indentless;
                return Ok((Event::ListStart { anchor }, start));
            }
            Kind::FlowListStart => {
                (Event::ListStart { anchor }, State::FlowList { start: at, first: true })
            }
            Kind::FlowMapStart => {
                (Event::MapStart { anchor }, State::FlowMapKey { start: at, first: true })
            }
            Kind::BlockList if block => (Event::ListStart { anchor }, State::BlockList(at)),
            Kind::BlockMap if block => (Event::MapStart { anchor }, State::BlockMapKey(at)),
            _ => return self.leaf(anchor, tag, start),
        };
        self.scanner.take()?;
        self.state = state;
        Ok((event, start))
    }

    /// A scalar, which may be left out after an anchor or a tag.
    fn leaf(&mut self, anchor: Option<&'t str>, tag: Option<String>, start: Mark) -> Step<'t> {
        let (kind, at) = self.peek()?;
        let mut text = Text { text: Cow::Borrowed(""), plain: true, anchor, tag };
        if matches!(kind, Kind::Scalar { .. }) {
            if let Kind::Scalar { text: found, plain } = self.scanner.take()?.kind {
                text.text = found;
                text.plain = plain;
            }
        } else if anchor.is_none() && text.tag.is_none() {
            return complaint(start, "did not find expected node content", at);
        }
        self.back();
        Ok((Event::Scalar(text), start))
    }

    fn long_tag(
        &self,
        handle: &str,
        suffix: &str,
        start: Mark,
        at: Mark,
    ) -> Result<String, Complaint> {
        if handle.is_empty() {
            return Ok(suffix.to_owned());
        }
        let declared = self.tags.iter().rev().find(|(known, _)| *known == handle);
        let prefix = match (declared, handle) {
            (Some((_, prefix)), _) => prefix,
            (None, "!") => "!",
            (None, "!!") => "tag:yaml.org,2002:",
            (None, _) => return complaint(start, "found undefined tag handle", at),
        };
        Ok(format!("{prefix}{suffix}"))
    }

    /// A node that goes on with `state`.
    fn node_then(&mut self, state: State, block: bool, indentless: bool) -> Step<'t> {
        self.outer.push(state);
        self.node(block, indentless)
    }

    fn block_list(&mut self, start: Mark) -> Step<'t> {
        let (kind, at) = self.peek()?;
        match kind {
            Kind::BlockEntry => {
                self.scanner.take()?;
                let (kind, next) = self.peek()?;
                if matches!(kind, Kind::BlockEntry | Kind::BlockEnd) {
                    return Ok(empty(next));
                }
                self.node_then(State::BlockList(start), true, false)
            }
            Kind::BlockEnd => self.close(),
            _ => complaint(start, "did not find expected '-' indicator", at),
        }
    }

    fn indentless(&mut self) -> Step<'t> {
        let (kind, at) = self.peek()?;
        if *kind != Kind::BlockEntry {
            self.back();
            return Ok((Event::End, at));
        }
        self.scanner.take()?;
        let (kind, next) = self.peek()?;
        if matches!(kind, Kind::BlockEntry | Kind::Key | Kind::Value | Kind::BlockEnd) {
            return Ok(empty(next));
        }
        self.node_then(State::Indentless, true, false)
    }

    fn block_map_key(&mut self, start: Mark) -> Step<'t> {
        let (kind, at) = self.peek()?;
        match kind {
            Kind::Key => {
                self.scanner.take()?;
                self.outer.push(State::BlockMapKey(start));
                let (kind, next) = self.peek()?;
                if matches!(kind, Kind::Key | Kind::Value | Kind::BlockEnd) {
                    self.state = State::BlockMapValue;
                    return Ok(empty(next));
                }
                self.node_then(State::BlockMapValue, true, true)
            }
            Kind::Value => {
                self.outer.push(State::BlockMapKey(start));
                self.state = State::BlockMapValue;
                Ok(empty(at))
            }
            Kind::BlockEnd => self.close(),
            _ => complaint(start, "did not find expected key", at),
        }
    }

    fn block_map_value(&mut self) -> Step<'t> {
        let (kind, at) = self.peek()?;
        if *kind != Kind::Value {
            self.back();
            return Ok(empty(at));
        }
        self.scanner.take()?;
        let (kind, next) = self.peek()?;
        if matches!(kind, Kind::Key | Kind::Value | Kind::BlockEnd) {
            self.back();
            return Ok(empty(next));
        }
        self.node(true, true)
    }

    fn flow_list(&mut self, start: Mark, first: bool) -> Step<'t> {
        let (mut kind, mut at) = self.peek()?;
        if *kind != Kind::FlowListEnd {
            if !first {
                if *kind != Kind::FlowEntry {
                    return complaint(start, "did not find expected ',' or ']'", at);
                }
                self.scanner.take()?;
                (kind, at) = self.peek()?;
            }
            if *kind == Kind::Key {
                self.scanner.take()?;
                self.outer.push(State::FlowList { start, first: false });
                self.state = State::PairKey;
                return Ok((Event::MapStart { anchor: None }, at));
            }
            if *kind != Kind::FlowListEnd {
                return self.node_then(State::FlowList { start, first: false }, false, false);
            }
        }
        self.close()
    }

    fn pair_key(&mut self) -> Step<'t> {
        let (kind, at) = self.peek()?;
        if matches!(kind, Kind::Value | Kind::FlowEntry | Kind::FlowListEnd) {
            self.state = State::PairValue;
            return Ok(empty(at));
        }
        self.node_then(State::PairValue, false, false)
    }

    fn pair_value(&mut self) -> Step<'t> {
        let (kind, mut at) = self.peek()?;
        if *kind == Kind::Value {
            self.scanner.take()?;
            let (kind, next) = self.peek()?;
            if !matches!(kind, Kind::FlowEntry | Kind::FlowListEnd) {
                return self.node_then(State::PairEnd, false, false);
            }
            at = next;
        }
        self.state = State::PairEnd;
        Ok(empty(at))
    }

    fn pair_end(&mut self) -> Step<'t> {
        let at = self.peek()?.1;
        self.back();
        Ok((Event::End, at))
    }

    fn flow_map_key(&mut self, start: Mark, first: bool) -> Step<'t> {
        let (mut kind, at) = self.peek()?;
        if *kind != Kind::FlowMapEnd {
            if !first {
                if *kind != Kind::FlowEntry {
                    return complaint(start, "did not find expected ',' or '}'", at);
                }
                self.scanner.take()?;
                kind = self.peek()?.0;
            }
            let again = State::FlowMapKey { start, first: false };
            if *kind == Kind::Key {
                self.scanner.take()?;
                self.outer.push(again);
                let (kind, at) = self.peek()?;
                if !matches!(kind, Kind::Value | Kind::FlowEntry | Kind::FlowMapEnd) {
                    return self.node_then(State::FlowMapValue { empty: false }, false, false);
                }
                self.state = State::FlowMapValue { empty: false };
                return Ok(empty(at));
            }
            if *kind != Kind::FlowMapEnd {
                self.outer.push(again);
                return self.node_then(State::FlowMapValue { empty: true }, false, false);
            }
        }
        self.close()
    }

    fn flow_map_value(&mut self, no_value: bool) -> Step<'t> {
        let (kind, mut at) = self.peek()?;
        if !no_value && *kind == Kind::Value {
            self.scanner.take()?;
            let (kind, next) = self.peek()?;
            if !matches!(kind, Kind::FlowEntry | Kind::FlowMapEnd) {
                return self.node(false, false);
            }
            at = next;
        }
        self.back();
        Ok(empty(at))
    }
}
