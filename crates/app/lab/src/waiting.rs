//! Says what is waited for, when a wait takes longer than people expect.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Waits that are shorter than this are not worth a word.
const UNNOTICED: Duration = Duration::from_secs(1);

/// Does something that may take a while. After a second a terminal is told what is waited for, and
/// how long; the line is gone when the work is done. It goes to standard error, so that the answer
/// may go anywhere.
pub(crate) fn patiently<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let began = Instant::now();
            let mut is_shown = false;
            while is_done.recv_timeout(UNNOTICED) == Err(RecvTimeoutError::Timeout) {
                let seconds = began.elapsed().as_secs();
                let _ = write!(io::stderr().lock(), "\r\x1b[K   {what} ({seconds} s)");
                is_shown = true;
            }
            if is_shown {
                let _ = write!(io::stderr().lock(), "\r\x1b[K");
            }
        });
        let result = work();
        drop(done);
        result
    })
}
