//! `lab up` in two processes: one builds, one watches over it.
//!
//! Building is ended by a signal at any point, so the builder cannot tidy up after itself. The
//! process that the user started waits for it, and removes what an interrupted builder left:
//! nothing that was written down is needed for that (see `down`).
//!
//! A builder can die between making a process and that process becoming an agent. Such a child
//! holds the builder's lock for a moment and carries no mark of the lab yet, so it is found by
//! descent: whatever the builder leaves behind becomes a child of the watcher.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::process::{Child, Command, ExitCode};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

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
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Runs a builder with these words, and tidies up if it is interrupted.
pub(crate) fn run(place: &Place, words: &[OsString]) -> Result<ExitCode, Failure> {
    if let Some(outer) = processes::surrounding() {
        let what = format!("lab {:?} cannot be made from inside of another lab", place.name);
        return Err(Failure::new(what)
            .why(format!("this is the inside of {}", outer.display()))
            .help("leave it first (exit)"));
    }
    let failed = |error: io::Error| Failure::new("the builder cannot be run").why(error);
    let stays = ignores_hangup(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    let ending = ENDING.into_iter().filter(|signal| !stays || *signal != Signal::SIGHUP);
    let awaited: SigSet = ending.chain([Signal::SIGCHLD]).collect();
    // Blocked before the builder starts: neither its end nor a signal can be missed.
    awaited.thread_block().map_err(|errno| failed(errno.into()))?;
    // By who cannot be interrupted: a folder without the note that it is ours would stay.
    place.make_base()?;
    let watcher = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(watcher)).map_err(|errno| failed(errno.into()))?;
    let mut builder = Command::new(processes::own_binary()?);
    builder.arg(COMMAND).arg(watcher.to_string()).args(words);
    let mut builder = builder.spawn().map_err(failed)?;
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

/// What the builder does first: it may be interrupted, and does not outlive its watcher. Returns
/// the words of the command.
pub(crate) fn begin(words: &[OsString]) -> Result<&[OsString], Failure> {
    let failed = |error: io::Error| Failure::new("the builder cannot be set up").why(error);
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(|errno| failed(errno.into()))?;
    let Some((watcher, words)) = words.split_first() else {
        return Err(Failure::new("who watches?"));
    };
    // One that died before this process asked to be told of it.
    let parent = rustix::process::getppid().map(|pid| pid.to_string());
    if parent.is_none_or(|parent| *watcher != *parent) {
        return Err(Failure::new("nobody watches over this builder any more"));
    }
    SigSet::all().thread_unblock().map_err(|errno| failed(errno.into()))?;
    Ok(words)
}

/// Whether the user wants the command to outlive the terminal (`nohup`): waiting for the signal
/// would override that. An interrupt is not asked about: shells ignore it for whatever they start
/// in the background, and who sends one all the same means it.
fn ignores_hangup(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (Signal::SIGHUP as i32 - 1)) != 0)
}

/// Does something short that a signal must not cut in two; one that comes meanwhile takes effect
/// after it.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let ending: SigSet = ENDING.into_iter().collect();
    let before = ending.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let done = work();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    done
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
    let is_built = || State::read(place).is_ok_and(|read| read.is_some_and(|it| it.is_built));
    // The last that a builder remembers: what it has started by then is the lab's.
    if is_built() {
        return Ok(Left::Lab);
    }
    processes::end_children()?;
    if !place.base.exists() {
        return Ok(Left::Nothing);
    }
    let Some(lock) = place.try_lock()? else { return Ok(Left::Others) };
    if is_built() {
        return Ok(Left::Lab);
    }
    down::remove(place)?;
    place.forget(&lock);
    Ok(Left::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_status() {
        assert!(ignores_hangup("SigBlk:\t0\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001006\n"));
        assert!(!ignores_hangup("what a strange kernel"));
    }
}
