//! What the user sees: signs, steps with their seconds, tables that fit.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use text::table::cut;
pub(crate) use text::words::{age, count};

use crate::Outcome;
use crate::arguments::{Format, Structured};

const LABEL_WIDTH: usize = 13;
const DETAIL_WIDTH: usize = 37;

/// Standard output, and what it can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// The width in columns; none when the output is not a terminal.
    pub(crate) width: Option<usize>,
    has_colour: bool,
    has_utf8: bool,
    format: Option<Structured>,
}

impl Screen {
    /// Asks the environment and the terminal.
    pub(crate) fn detect(format: Format) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_terminal = io::stdout().is_terminal();
        let size = is_terminal.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten();
        let columns = variable("COLUMNS").and_then(|text| text.parse().ok());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
        let locale = locale.map(|name| name.to_ascii_lowercase());
        Self {
            width: size.map(|size| columns.unwrap_or(usize::from(size.ws_col))).filter(|w| *w > 0),
            has_colour: is_terminal
                && variable("NO_COLOR").is_none()
                && variable("TERM").as_deref() != Some("dumb"),
            has_utf8: locale.is_none_or(|name| name.contains("utf-8") || name.contains("utf8")),
            format: format.output,
        }
    }

    /// Whether programs read the answer, so that nothing else may be printed.
    pub(crate) fn is_structured(self) -> bool {
        self.format.is_some()
    }

    /// The sign of an outcome, coloured where colours show.
    pub(crate) fn mark(self, outcome: Outcome) -> String {
        let (sign, plain, colour) = match outcome {
            Outcome::Fine => ("✓", "ok", 32),
            Outcome::Degraded => ("!", "warn", 33),
            Outcome::Broken => ("✗", "FAIL", 31),
        };
        let sign = if self.has_utf8 { sign } else { plain };
        match self.has_colour {
            true => format!("\x1b[{colour}m{sign}\x1b[0m"),
            false => sign.to_owned(),
        }
    }

    /// Prints text for people; nothing where programs read.
    pub(crate) fn say(self, text: &str) -> io::Result<()> {
        match (self.is_structured(), self.has_utf8) {
            (true, _) => Ok(()),
            (false, true) => write(text),
            (false, false) => write(&text.replace('→', "->").replace('…', "...")),
        }
    }

    /// Prints the answer for programs; nothing where people read.
    pub(crate) fn answer(self, answer: &Value) -> io::Result<()> {
        let text = match self.format {
            Some(Structured::Json) => text::json::to_string_indented(answer) + "\n",
            Some(Structured::Yaml) => text::yaml::to_string(answer),
            None => return Ok(()),
        };
        write(&text)
    }

    /// Begins a step that may take a while.
    pub(crate) fn step(self, label: &str) -> Step {
        let step = Step {
            screen: self,
            label: label.to_owned(),
            began: Instant::now(),
            last: Mutex::new(None),
        };
        step.progress("");
        step
    }

    /// Rows under headings, not wider than the terminal; what does not fit is said.
    pub(crate) fn table(self, headings: &[&str], rows: &[Vec<String>]) -> String {
        let headings: Vec<String> = headings.iter().map(|cell| (*cell).to_owned()).collect();
        let (table, left_out) = text::table::render(&headings, rows, self.width);
        table + &left_out.map_or(String::new(), |line| line + "\n")
    }
}

/// Writes to standard output. A reader who went away has read enough: what a command does must not
/// stop half way because nobody looks on.
fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// A step that runs.
pub(crate) struct Step {
    screen: Screen,
    label: String,
    began: Instant,
    /// When progress was last shown: a terminal need not be told more often than eyes see.
    last: Mutex<Option<Instant>>,
}

impl Step {
    /// Shows what is being waited for, on a terminal only.
    pub(crate) fn progress(&self, what: &str) {
        let Some(width) = self.screen.width else { return };
        let mut last = self.last.lock().expect("no holder of this lock can panic");
        if self.screen.is_structured()
            || last.is_some_and(|at| at.elapsed() < Duration::from_millis(50))
        {
            return;
        }
        *last = Some(Instant::now());
        let line = format!("   {:<LABEL_WIDTH$} {what}", self.label);
        let _ = self.screen.say(&format!("\r\x1b[K{}", cut(&line, width.saturating_sub(1))));
    }

    /// Ends the step without a line of its own.
    pub(crate) fn clear(self) -> io::Result<()> {
        match self.screen.width {
            Some(_) => self.screen.say("\r\x1b[K"),
            None => Ok(()),
        }
    }

    /// Ends the step with a line of its own, and returns its seconds.
    pub(crate) fn done(self, outcome: Outcome, label: &str, detail: &str) -> io::Result<Duration> {
        let took = self.began.elapsed();
        let seconds = seconds(took);
        let mark = self.screen.mark(outcome);
        let line = match detail {
            "" => format!(" {mark} {label:<LABEL_WIDTH$} {seconds}"),
            detail => format!(" {mark} {label:<LABEL_WIDTH$} {detail:<DETAIL_WIDTH$} {seconds}"),
        };
        let start = if self.screen.width.is_some() { "\r\x1b[K" } else { "" };
        self.screen.say(&format!("{start}{line}\n"))?;
        Ok(took)
    }
}

/// A time for people.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
