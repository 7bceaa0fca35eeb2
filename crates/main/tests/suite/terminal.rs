//! What people see on a terminal, and what a pipe gets.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::harness::{Place, policy};

/// Runs a command on a terminal of this size and returns what appears on it.
fn on_terminal(mut command: Command, columns: u16, rows: u16, typed: &str) -> (i32, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let open = || File::options().read(true).write(true).open(&name).unwrap();
    let mut child =
        command.stdin(open()).stdout(open()).stderr(open()).env("TERM", "xterm").spawn().unwrap();
    // The terminal ends when the last of its ends is closed, the command's own copies included.
    drop(command);
    let mut master = File::from(master);
    std::io::Write::write_all(&mut master, typed.as_bytes()).unwrap();
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = master.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..len]);
    }
    let code = child.wait().unwrap().code().unwrap();
    (code, String::from_utf8(shown).unwrap().replace("\r\n", "\n"))
}

fn place_with_wide_rows() -> Place {
    let place = Place::embedded();
    let selector = format!("app == \"{}\"", "x".repeat(120));
    let all: String = (0..60)
        .map(|n| policy("shop", &format!("policy-{n}"), n).replace("app == \"web\"", &selector))
        .collect();
    place.give("apply", &all).ok();
    place
}

#[test]
fn tables_fit_the_terminal_and_what_is_cut_says_so() {
    let place = place_with_wide_rows();
    for columns in [46, 80, 132] {
        let command = place.command(&["get", "np", "-A", "-o", "wide"]);
        let (code, shown) = on_terminal(command, columns, 200, "");
        assert_eq!(code, 0);
        assert_eq!(shown.lines().count(), 61, "{shown}");
        let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= usize::from(columns) && shown.contains('…'), "{widest} {shown}");
    }
    let piped = place.margay("get np -A -o wide").ok();
    assert!(!piped.out.contains('…') && piped.out.contains(&"x".repeat(120)));
}

#[test]
fn on_a_narrow_terminal_whole_columns_go_and_names_stay() {
    let place = place_with_wide_rows();
    let command = place.command(&["get", "np", "-A", "-o", "wide"]);
    let (code, shown) = on_terminal(command, 30, 200, "");
    assert_eq!(code, 0);
    assert!(shown.starts_with("NAMESPACE  NAME       TIER\n"), "{shown}");
    assert!(shown.contains("shop       policy-59  default\n"), "{shown}");
    let said = "left out to fit 30 columns: ORDER, SELECTOR   (a pipe shows all: | less -S)\n";
    assert!(shown.ends_with(said), "{shown}");
    let command = place.command(&["get", "np", "-A", "-o", "wide"]);
    let (_, shown) = on_terminal(command, 8, 200, "");
    assert!(shown.contains("  poli"), "{shown}");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let place = Place::embedded();
    place.file("given.yaml", &policy("shop", "web", 1));
    let diff = || place.command(&["diff", "-f", "given.yaml"]);
    let (code, shown) = on_terminal(diff(), 80, 50, "");
    assert!(code == 1 && shown.contains("\u{1b}[32m+ "), "{shown:?}");
    let mut plain = diff();
    plain.env("NO_COLOR", "1");
    let (_, shown) = on_terminal(plain, 80, 50, "");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let piped = place.margay("diff -f given.yaml").code(1);
    assert!(!piped.out.contains('\u{1b}'), "{piped:?}");
    let (_, shown) = on_terminal(place.command(&["apply", "-f", "given.yaml"]), 80, 50, "");
    assert!(shown.starts_with("\u{1b}[32m✓\u{1b}[0m 1 created"), "{shown:?}");
}

#[test]
fn where_utf_8_is_missing_words_stand_for_the_signs() {
    let place = Place::embedded();
    place.file("given.yaml", &policy("shop", "web", 1));
    let mut command = place.command(&["apply", "-f", "given.yaml"]);
    let output = command.env("LC_ALL", "C").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.stdout.starts_with(b"ok 1 created"), "{output:?}");
}

#[test]
fn long_answers_go_through_a_pager_on_a_terminal_only() {
    let place = place_with_wide_rows();
    let pager = place.file("pager", "#!/bin/sh\necho PAGED\ncat >/dev/null\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&pager, mode).unwrap();
    let get = || {
        let mut command = place.command(&["get", "np", "-A"]);
        command.env("PAGER", &pager);
        command
    };
    assert_eq!(on_terminal(get(), 80, 24, "").1, "PAGED\n");
    assert_eq!(on_terminal(get(), 80, 200, "").1.lines().count(), 61, "it fits");
    let piped = get().stderr(Stdio::inherit()).output().unwrap();
    assert!(!String::from_utf8(piped.stdout).unwrap().contains("PAGED"));
    for words in [&["get", "np", "-A", "-o", "yaml"][..], &["get", "np", "-A", "-o", "json"]] {
        let mut command = place.command(words);
        command.env("PAGER", &pager);
        assert_eq!(on_terminal(command, 80, 24, "").1, "PAGED\n", "{words:?}");
    }
    for words in [&["get", "--help"][..], &["--help"], &["help", "get"]] {
        let mut command = place.command(words);
        command.env("PAGER", &pager);
        assert_eq!(on_terminal(command, 80, 10, "").1, "PAGED\n", "{words:?}");
    }
}

#[test]
fn the_history_on_a_narrow_terminal_shows_what_tells_writes_apart() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "db", 1)).ok();
    place.margay("label np db -n shop a=b").ok();
    place.margay("undo").ok();
    let history = |columns| on_terminal(place.command(&["history"]), columns, 24, "");
    let (code, shown) = history(80);
    assert!(code == 0 && !shown.contains('…'), "{shown}");
    for told in ["AGE", "np shop/db", "label np db -n shop a=b", "taken back by 3"] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    assert!(!shown.contains("store.db"), "all went to one: {shown}");
    let (_, shown) = history(40);
    assert!(shown.contains("np shop/db  label"), "{shown}");
    assert!(shown.contains("left out to fit 40 columns: STATE"), "{shown}");
    let time = place.json("history")[0]["time"].as_str().unwrap().to_owned();
    let (_, shown) = history(400);
    assert!(shown.contains(&time) && shown.contains("store.db"), "{shown}");
    // Where they went tells them apart, if not all went to one place.
    let words = ["--store", "b.db", "apply", "given.yaml"];
    place.run(&words).ok();
    let (_, shown) = history(120);
    assert!(shown.contains("STORE"), "{shown}");
}

#[test]
fn a_removal_is_named_and_asked_for() {
    let place = Place::embedded();
    place.give("apply", &policy("shop", "web", 1)).ok();
    let delete = || place.command(&["delete", "np", "web", "-n", "shop"]);
    let (code, shown) = on_terminal(delete(), 80, 24, "n\n");
    assert!(code == 2 && shown.contains("This removes:\n  NetworkPolicy shop/web"), "{shown}");
    assert!(shown.contains("error: nothing was removed"), "{shown}");
    place.margay("get np web -n shop").ok();
    let (code, shown) = on_terminal(delete(), 80, 24, "y\n");
    assert!(code == 0 && shown.contains("1 removed") && shown.contains("undo: "), "{shown}");
    place.margay("get np web -n shop").code(2);
}

#[test]
fn a_write_to_be_confirmed_asks_whether_to_keep_it() {
    for (typed, code, is_kept) in [("y\n", 0, true), ("n\n", 1, false)] {
        let place = Place::embedded();
        let file = place.file("given.yaml", &policy("shop", "web", 1));
        let command = place.command(&["apply", "-f", &file, "--confirm-within", "1h"]);
        let (got, shown) = on_terminal(command, 100, 40, typed);
        assert_eq!(got, code, "{shown}");
        assert!(shown.contains("Keep it? It is taken back in 3600 s"), "{shown}");
        let (kept, gone) = ("write 1 confirmed: it stays", "write 1 taken back");
        assert!(shown.contains(if is_kept { kept } else { gone }), "{shown}");
        assert_eq!(place.margay("get np web -n shop").code == 0, is_kept);
    }
}
