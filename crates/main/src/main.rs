//! The multi-call binary: the name it is called by chooses the program.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().peekable();
    let called = arguments.next().unwrap_or_default();
    if is_calicoctl(&called) {
        return ctl::calicoctl::run(arguments);
    }
    if arguments.peek().is_some_and(|first| first == "calicoctl") {
        arguments.next();
        return ctl::calicoctl::run(arguments);
    }
    ctl::margay::run(std::iter::once(called).chain(arguments).collect())
}

fn is_calicoctl(called: &OsString) -> bool {
    Path::new(called).file_name() == Some(OsStr::new("calicoctl"))
}
