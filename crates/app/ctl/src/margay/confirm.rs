//! Writes made with `--confirm-within`, and `margay confirm`.
//!
//! A process of its own watches over such a write, because the one who made it may be cut off by
//! it: when the time is up and nobody has confirmed, it takes the write back, and tries until the
//! datastore lets it.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::json;

use super::arguments::{Place, Structured};
use super::failure::Failure;
use super::history::{self, History};
use super::session::{Session, with_surroundings};
use super::terminal::{Mark, Terminal};
use super::{structured, undo, wait};

/// How often the one who watches looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it pauses before it tries again to take a write back.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long it tries.
const PATIENCE: Duration = Duration::from_secs(3600);

/// How a write is confirmed.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Confirmation {
    /// Take the write back unless it is confirmed in this time (60s, 5m), here or by margay confirm
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub(crate) confirm_within: Option<Duration>,
}

/// Nobody confirms anything in no time.
fn some_time(text: &str) -> Result<Duration, String> {
    let time = wait::span(text)?;
    let none = || "that is no time to confirm anything; such as 60s or 5m".to_owned();
    (!time.is_zero()).then_some(time).ok_or_else(none)
}

impl Confirmation {
    /// Refuses what could not be taken back, before anything is written.
    pub(crate) fn check(self, session: &Session) -> Result<(), Failure> {
        match self.confirm_within.is_some() && !session.history.has_place() {
            true => Err(Failure::new("nothing was written: it could not be taken back")
                .why("there is no HOME to keep the history in")
                .help("MARGAY_STATE_DIR=FOLDER")),
            false => Ok(()),
        }
    }
}

/// A write that is watched over.
pub(crate) struct Watched {
    number: u64,
    within: Duration,
    guard: Child,
}

/// How the waiting for a confirmation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Kept,
    TakenBack,
    Neither,
}

impl Watched {
    /// Starts the one who watches over a write; it is at its post when this returns.
    pub(crate) fn start(session: &Session, number: u64, within: Duration) -> Result<Self, Failure> {
        let unwatched = |error: io::Error| {
            Failure::new(format!("write {number} is made, and nobody watches over it"))
                .why(error.to_string())
                .undo(&format!("undo: {}\n", session.history.undo_command(number)))
        };
        let until = crate::clock::after(within);
        session.history.await_confirmation(number, &until).map_err(unwatched)?;
        match start_guard(session, number, within) {
            Ok(guard) => Ok(Self { number, within, guard }),
            Err(error) => {
                let _ = session.history.decide(number);
                Err(unwatched(error))
            }
        }
    }

    /// Waits for a confirmation, typed here or given elsewhere; false if the write was taken back.
    /// How it ended is said to `out`.
    pub(crate) fn wait(
        mut self,
        session: &Session,
        out: &mut dyn io::Write,
    ) -> Result<bool, Failure> {
        let Self { number, within, .. } = self;
        let command = session.history.confirm_command(number);
        let seconds = wait::words(within);
        let mut is_typing = io::stdin().is_terminal();
        let question = match is_typing {
            true => {
                format!("Keep it? It is taken back in {seconds}; from elsewhere: {command}\n[y/N] ")
            }
            false => format!("waiting for {command}; it is taken back in {seconds}\n"),
        };
        io::stderr().lock().write_all(question.as_bytes())?;
        let ended = loop {
            if let Some(status) = self.guard.try_wait()? {
                break match status.code() {
                    Some(0) => Ended::Kept,
                    Some(1) => Ended::TakenBack,
                    _ => Ended::Neither,
                };
            }
            if !is_typing {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            match typed()? {
                Typed::Nothing => {}
                Typed::Gone => is_typing = false,
                Typed::Line(line) => {
                    let is_yes = matches!(line.as_str(), "y" | "Y" | "yes");
                    let is_ours = session.history.decide(number)?;
                    match (is_ours, is_yes) {
                        (true, true) => break Ended::Kept,
                        (true, false) => {
                            return undo::run(session, Some(number), out).map(|_| false);
                        }
                        (false, _) => {}
                    }
                }
            }
        };
        said(session, (number, within), ended, out)
    }
}

/// Says how it ended.
fn said(
    session: &Session,
    (number, within): (u64, Duration),
    ended: Ended,
    out: &mut dyn io::Write,
) -> Result<bool, Failure> {
    match ended {
        Ended::Kept => {
            let mark = session.terminal.mark(Mark::Fine);
            writeln!(out, "{mark} write {number} confirmed: it stays")?;
        }
        Ended::TakenBack => {
            let (mark, time) = (session.terminal.mark(Mark::Broken), wait::words(within));
            writeln!(out, "{mark} not confirmed within {time}: write {number} is taken back")?;
            let kept = session.history.kept()?.entries;
            if let Some(by) = history::taken_back(&kept).get(&number) {
                writeln!(out, "redo: {}", session.history.undo_command(*by))?;
            }
        }
        Ended::Neither => {
            let what = format!("write {number} is not confirmed, and could not be taken back");
            return Err(Failure::new(what).help(session.history.undo_command(number)));
        }
    }
    Ok(ended == Ended::Kept)
}

/// What came from the keyboard.
enum Typed {
    Nothing,
    Line(String),
    /// Nobody is there any more.
    Gone,
}

/// Looks at the keyboard for a moment.
fn typed() -> io::Result<Typed> {
    let stdin = io::stdin();
    let time = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
    let n_ready = {
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        match rustix::event::poll(&mut waiting, Some(&time)) {
            Err(rustix::io::Errno::INTR) => 0,
            other => other?,
        }
    };
    if n_ready == 0 {
        return Ok(Typed::Nothing);
    }
    let mut line = String::new();
    match stdin.lock().read_line(&mut line) {
        Ok(0) | Err(_) => Ok(Typed::Gone),
        Ok(_) => Ok(Typed::Line(line.trim().to_owned())),
    }
}

fn start_guard(session: &Session, number: u64, within: Duration) -> io::Result<Child> {
    let mut guard = Command::new(std::env::current_exe()?);
    guard.args(&session.flags);
    guard.arg("undo-unless-confirmed").arg(number.to_string());
    guard.arg(format!("{}ms", within.as_millis()));
    guard.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = guard.spawn()?;
    let mut word = [0];
    let out = child.stdout.take();
    match out.map(|mut out| out.read_exact(&mut word)) {
        Some(Ok(())) => Ok(child),
        _ => {
            let _ = child.kill();
            let _ = child.wait();
            Err(io::Error::other("the process that would take it back did not start"))
        }
    }
}

/// Watches over a write: takes it back when the time is up and nobody has confirmed it. True if it
/// stays.
pub(crate) fn guard(place: &Place, number: u64, within: Duration) -> Result<bool, Failure> {
    // It outlives the terminal that the write was typed on, and whoever typed it.
    rustix::process::setsid().map_err(io::Error::from)?;
    let end = Instant::now() + within;
    let history = here(place);
    {
        let mut out = io::stdout().lock();
        out.write_all(b"\n")?;
        out.flush()?;
    }
    while Instant::now() < end {
        if history.unconfirmed_until(number).is_none() {
            return Ok(true);
        }
        std::thread::sleep(LOOK_EVERY.min(end.saturating_duration_since(Instant::now())));
    }
    if !history.decide(number)? {
        return Ok(true);
    }
    let given_up = Instant::now() + PATIENCE;
    loop {
        let undone = Session::open(place)
            .and_then(|session| undo::run(&session, Some(number), &mut io::sink()));
        let is_undone = history::taken_back(&history.kept()?.entries).contains_key(&number);
        match undone {
            // Somebody else may have taken it back, and nobody reads what is said here.
            Err(_) if is_undone => return Ok(false),
            Ok(_) => return Ok(false),
            Err(failure) if Instant::now() > given_up => return Err(failure),
            Err(_) => std::thread::sleep(RETRY_PAUSE),
        }
    }
}

/// Keeps a write, the last one that waits for it unless a number is given.
pub(crate) fn run(
    terminal: Terminal,
    place: &Place,
    number: Option<u64>,
    format: Option<Structured>,
) -> Result<bool, Failure> {
    let history = here(place);
    let none = || Failure::new("no write is to be confirmed").help("margay history");
    let number = match number {
        Some(number) => number,
        None => history.unconfirmed()?.pop().ok_or_else(none)?,
    };
    if !history.decide(number)? {
        let by = history::taken_back(&history.kept()?.entries).get(&number).copied();
        return Err(match by {
            Some(by) => Failure::new(format!("write {number} was taken back, by write {by}"))
                .help(format!("{} makes it again", history.undo_command(by))),
            None => Failure::new(format!("write {number} is not to be confirmed"))
                .help("margay history"),
        });
    }
    let answer = match format {
        Some(format) => structured(format, &json!({ "write": number, "isKept": true })),
        None => format!("{} write {number} confirmed: it stays\n", terminal.mark(Mark::Fine)),
    };
    io::stdout().lock().write_all(answer.as_bytes())?;
    Ok(true)
}

fn here(place: &Place) -> History {
    History::below(with_surroundings(place, |surroundings| surroundings.state_dir()))
}
