//! What the output goes to: its width, whether it shows colours, and a pager for long texts.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// The most of one line of a complaint that anybody reads.
const LINE_MAX: usize = 400;

/// Text from outside for a person's screen: control characters are spelled out, so that nobody's
/// object can write over the terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let spell = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    Cow::Owned(text.chars().map(spell).collect())
}

/// The same for one line, of bearable length.
pub(crate) fn printable_line(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LINE_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", printable(&text[..end]))),
        None => printable(text),
    }
}

/// How a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Fine,
    Degraded,
    Broken,
}

/// A colour of the terminal, used only where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Green,
    Yellow,
    Red,
    Bold,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
            Self::Bold => "\x1b[1m",
        }
    }
}

/// The properties of standard output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    /// The width in columns; none when the output is not a terminal.
    pub(crate) width: Option<usize>,
    height: Option<usize>,
    has_colour: bool,
    has_utf8: bool,
}

impl Terminal {
    /// Asks the environment and the terminal.
    pub(crate) fn detect() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_terminal = io::stdout().is_terminal();
        let size = is_terminal.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten();
        let columns = variable("COLUMNS").and_then(|text| text.parse().ok());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
        let speaks_utf8 = locale.is_none_or(|name| {
            let name = name.to_ascii_lowercase();
            name.contains("utf-8") || name.contains("utf8")
        });
        Self {
            width: size.map(|size| columns.unwrap_or(usize::from(size.ws_col))).filter(|w| *w > 0),
            height: size.map(|size| usize::from(size.ws_row)),
            has_colour: is_terminal
                && variable("NO_COLOR").is_none()
                && variable("TERM").as_deref() != Some("dumb"),
            has_utf8: speaks_utf8,
        }
    }

    /// The sign of a mark, coloured where colours show.
    pub(crate) fn mark(self, mark: Mark) -> String {
        let (sign, plain, colour) = match mark {
            Mark::Fine => ("✓", "ok", Colour::Green),
            Mark::Degraded => ("!", "warn", Colour::Yellow),
            Mark::Broken => ("✗", "FAIL", Colour::Red),
        };
        self.paint(colour, if self.has_utf8 { sign } else { plain })
    }

    /// A line for a screen, in signs that it can show.
    pub(crate) fn spelled<'t>(self, text: &'t str) -> Cow<'t, str> {
        match self.has_utf8 {
            true => Cow::Borrowed(text),
            false => Cow::Owned(text.replace('→', "->").replace('×', "x").replace('…', "...")),
        }
    }

    /// The text in a colour, or as it is.
    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        match self.has_colour {
            true => format!("{}{text}\x1b[0m", colour.code()),
            false => text.to_owned(),
        }
    }

    /// Whether colours show.
    pub(crate) fn has_colour(self) -> bool {
        self.has_colour
    }

    /// Writes the text, through a pager if it is longer than the screen.
    pub(crate) fn page(self, text: &str) -> io::Result<()> {
        let is_long = self.height.is_some_and(|height| text.lines().count() >= height);
        if let Some(mut pager) = is_long.then(start_pager).flatten() {
            let input = pager.stdin.take();
            // A pager that is closed early has read enough: that is no error.
            let _ = input.map(|mut input| input.write_all(text.as_bytes()));
            pager.wait()?;
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

fn start_pager() -> Option<Child> {
    let named = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    let mut words = named.split_whitespace();
    let program = words.next().filter(|program| *program != "cat")?;
    Command::new(program).args(words).env("LESS", "FRSX").stdin(Stdio::piped()).spawn().ok()
}

/// Waits between two looks at something that is followed; an error once nobody reads any more, so
/// that a closed pipe is noticed although there is nothing to print.
pub(crate) fn rest(time: Duration) -> io::Result<()> {
    let output = io::stdout();
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match rustix::event::poll(&mut polled, Some(&time)) {
        Ok(0) | Err(Errno::INTR) => Ok(()),
        Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
        Err(error) => Err(error.into()),
    }
}
