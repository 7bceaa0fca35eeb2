//! `cargo xtask crash-points`: every place where tests end a process, as a kill -9 might.

use ipam::repair;
use sandbox::{life, upgrade};

/// The journeys, and the names of their steps. That each is ended before and after every step, and
/// goes on or back from there, is what the tests named show.
pub(crate) fn command() -> anyhow::Result<bool> {
    let journeys: [(&str, Vec<&str>, &str); 3] = [
        (
            "a sandbox: ADD, DEL, outages, adoption",
            life::Step::ALL.into_iter().map(life::Step::name).collect(),
            "cargo test -p main --test node -- crash_points reserve adoption",
        ),
        (
            "margay ipam repair",
            repair::Step::ALL.into_iter().map(repair::Step::name).collect(),
            "cargo test -p main --test suite -- addresses",
        ),
        (
            "margay ipam upgrade",
            upgrade::Step::ALL.into_iter().map(upgrade::Step::name).collect(),
            "cargo test -p main --test suite -- upgrade",
        ),
    ];
    for (journey, steps, test) in journeys {
        println!("{journey}      # {test}");
        for step in steps {
            println!("  before-{step:<8}  after-{step}");
        }
    }
    Ok(true)
}
