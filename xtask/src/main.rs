//! Everything scripted in this repository: `cargo xtask help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a build tool talks to its terminal")]

mod corpora;
mod crash_points;
mod fuzz;
mod sim;
mod tidy;
mod verify;
mod vm;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask verify                             everything below; what CI runs
cargo xtask tidy                               rings, licences, the code map, sizes
cargo xtask corpora [--dir DIR] [TOPIC...]     recorded behaviour of real Calico
cargo xtask sim [--seed N | --seeds N] [--bug NAME]
                                               made-up clusters in which everything fails
cargo xtask crash-points                       where tests end a process, step by step
cargo xtask fuzz [--seconds N] [TARGET...]     every decoder on hostile input
cargo xtask vm [TEST...]                       tests of policy on another kernel, which has ip_vs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("corpora") => corpora::command(&arguments[1..]),
        Some(corpora::cni::CHAIN) => corpora::cni::chain_command(&arguments[1..]),
        Some("crash-points") => crash_points::command(),
        Some("fuzz") => fuzz::command(&arguments[1..]),
        Some("sim") => sim::command(&arguments[1..]),
        Some("tidy") => tidy::command(),
        Some("verify") => verify::command(),
        Some("vm") => vm::command(&arguments[1..]),
        _ => {
            println!("{HELP}");
            Ok(true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
