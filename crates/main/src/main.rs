//! The multi-call binary: the name it is called by chooses the program.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().peekable();
    let called = arguments.next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let first = arguments.peek().map(|first| first.to_string_lossy().into_owned());
    match (name.as_str(), first.as_deref()) {
        ("calicoctl", _) => ctl::calicoctl::run(arguments),
        ("calico-ipam", _) if is_upgrade() => ctl::margay::upgrade(arguments),
        ("calico" | "calico-ipam", _) => agent::plugin::run(&name, arguments),
        (_, Some("calicoctl")) => ctl::calicoctl::run(arguments.skip(1)),
        (_, Some("cni")) => agent::plugin::run("calico", arguments.skip(1)),
        (_, Some("agent")) => {
            let own = OsString::from("margay agent");
            agent::run(std::iter::once(own).chain(arguments.skip(1)).collect())
        }
        _ => {
            let words: Vec<OsString> = std::iter::once(called).chain(arguments).collect();
            lab::run(&words).unwrap_or_else(|| {
                ctl::margay::run(words, &[agent::command_line, lab::command_line])
            })
        }
    }
}

/// Whether the address manager is to move what another one gave out, as Calico's init container
/// asks for it.
fn is_upgrade() -> bool {
    let is_flag = |word: &OsString, name: &str| {
        let word = word.to_string_lossy();
        word.strip_prefix("--").or_else(|| word.strip_prefix('-')) == Some(name)
    };
    let mut words = std::env::args_os().skip(1);
    words.any(|word| is_flag(&word, "upgrade") || is_flag(&word, "upgrade=true"))
}
