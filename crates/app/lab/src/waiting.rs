//! Says what is waited for, when a wait takes longer than people expect.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Waits that are shorter than this are not worth a word.
const UNNOTICED: Duration = Duration::from_secs(1);

/// Does something that may take a while, at most as long as `limit` says. After a second people are
/// told what is waited for: on a terminal in a line that counts, and is gone when the work is done;
/// elsewhere once. It goes to standard error, so that the answer may go anywhere.
pub(crate) fn patiently<T>(what: &str, limit: Duration, work: impl FnOnce() -> T) -> T {
    let is_terminal = io::stderr().is_terminal();
    let limit = limit.as_secs();
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let began = Instant::now();
            let is_over = || is_done.recv_timeout(UNNOTICED) != Err(RecvTimeoutError::Timeout);
            if is_over() {
                return;
            }
            if !is_terminal {
                let _ = writeln!(io::stderr().lock(), "{what} (up to {limit} s)");
                return;
            }
            loop {
                let seconds = began.elapsed().as_secs();
                let line = format!("{what} ({seconds} s of {limit} s)");
                let _ = write!(io::stderr().lock(), "\r\x1b[K   {}", fitting(&line));
                if is_over() {
                    break;
                }
            }
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        });
        let result = work();
        drop(done);
        result
    })
}

/// A line that wraps could not be taken back.
fn fitting(line: &str) -> String {
    let width = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    match usize::from(width) {
        0 => line.to_owned(),
        width => text::table::cut(line, width.saturating_sub(4)),
    }
}
