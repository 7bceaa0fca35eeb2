//! `lab up` in two processes: one builds, one watches over it.
//!
//! Building is ended by a signal at any point, so the builder cannot tidy up after itself. The
//! process that the user started waits for it, and removes what an interrupted builder left:
//! nothing that was written down is needed for that (see `down`).

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{Child, Command, ExitCode};

use nix::sys::signal::{SigSet, Signal};

use crate::BROKEN;
use crate::down;
use crate::failure::Failure;
use crate::lab::flag;
use crate::place::Place;
use crate::processes;
use crate::state::State;

/// The hidden command of the builder.
pub(crate) const COMMAND: &str = "lab-build";

/// Ends the command, as far as users send it.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Runs a builder with these words, and tidies up if it is interrupted.
pub(crate) fn run(place: &Place, words: &[OsString]) -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| Failure::new("the builder cannot be run").why(error);
    let awaited: SigSet = ENDING.into_iter().chain([Signal::SIGCHLD]).collect();
    // Blocked before the builder starts: neither its end nor a signal can be missed.
    awaited.thread_block().map_err(|errno| failed(errno.into()))?;
    let mut builder = Command::new(processes::own_binary()?);
    let mut builder = builder.arg(COMMAND).args(words).spawn().map_err(failed)?;
    loop {
        let signal = awaited.wait().map_err(|errno| failed(errno.into()))?;
        if signal != Signal::SIGCHLD {
            end(&mut builder);
            return Ok(interrupted(place, &spoken(signal)));
        }
        let Some(status) = builder.try_wait().map_err(failed)? else { continue };
        return Ok(match status.code() {
            Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(BROKEN)),
            None => interrupted(place, &status.to_string()),
        });
    }
}

/// What the builder does first: it may be interrupted, and does not outlive its watcher.
pub(crate) fn begin() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new("the builder cannot be set up").why(error);
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(|errno| failed(errno.into()))?;
    SigSet::all().thread_unblock().map_err(|errno| failed(errno.into()))
}

fn end(builder: &mut Child) {
    // One that ended by itself is as dead as it should be.
    let _ = builder.kill();
    let _ = builder.wait();
}

fn spoken(signal: Signal) -> String {
    match signal {
        Signal::SIGINT => "by Ctrl-C".to_owned(),
        other => format!("by {other}"),
    }
}

/// Removes what an interrupted builder left, and says what became of it.
fn interrupted(place: &Place, by: &str) -> ExitCode {
    let name = &place.name;
    let flag = flag(name);
    let failure = Failure::new(format!("lab up was interrupted ({by})"));
    let failure = match left(place) {
        Ok(Left::Nothing) => failure.detail(format!("nothing is left of lab {name:?}")),
        Ok(Left::Lab) => failure
            .detail(format!("lab {name:?} was built before that, and stays"))
            .help(format!("margay lab status{flag}     or: margay lab down{flag}")),
        Ok(Left::Others) => failure.detail(format!(
            "another command is at work on lab {name:?}; nothing of it was touched"
        )),
        Err(why) => failure
            .detail(format!("something is left of lab {name:?}: {}", why.what()))
            .help(format!("margay lab down{flag}")),
    };
    let _ = write!(io::stderr().lock(), "{failure}");
    ExitCode::from(BROKEN)
}

/// What is there after the builder.
enum Left {
    Nothing,
    Lab,
    Others,
}

fn left(place: &Place) -> Result<Left, Failure> {
    if !place.base.exists() {
        return Ok(Left::Nothing);
    }
    let Some(lock) = place.try_lock()? else { return Ok(Left::Others) };
    if State::read(place).is_ok_and(|state| state.is_some_and(|state| state.is_built)) {
        return Ok(Left::Lab);
    }
    down::remove(place)?;
    place.forget(&lock);
    Ok(Left::Nothing)
}
