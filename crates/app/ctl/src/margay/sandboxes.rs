//! `margay sandboxes`: what this node's agent has connected.

use clap::{Args, ValueEnum};
use host::protocol::Inquiry;
use host::report::{Sandbox, Sandboxes};

use super::advice;
use super::agent::Agent;
use super::arguments::Structured;
use super::failure::Failure;
use super::terminal::{Terminal, printable};
use super::{get, structured, table};

/// As much of a container's id as runtimes show.
const SHORT: usize = 12;

#[derive(Args, Debug)]
pub(crate) struct SandboxesArguments {
    #[command(flatten)]
    pub(crate) agent: Agent,
    /// wide for whole ids and more columns; json or yaml instead of a table
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Shape>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    Wide,
    Json,
    Yaml,
}

/// The command.
pub(crate) fn run(terminal: Terminal, arguments: &SandboxesArguments) -> Result<bool, Failure> {
    let answer: Sandboxes = match arguments.agent.does_without() {
        Some(layout) => advice::sandboxes(&layout),
        None => arguments.agent.ask(&Inquiry::Sandboxes)?,
    };
    let format = match arguments.output {
        Some(Shape::Json) => Structured::Json,
        Some(Shape::Yaml) => Structured::Yaml,
        Some(Shape::Wide) | None => {
            show(terminal, &answer, arguments.output.is_some())?;
            return Ok(true);
        }
    };
    let value = serde_json::to_value(&answer).map_err(|error| Failure::new(error.to_string()))?;
    terminal.page(&structured(format, &value))?;
    Ok(true)
}

fn show(terminal: Terminal, answer: &Sandboxes, is_wide: bool) -> Result<(), Failure> {
    if answer.sandboxes.is_empty() {
        get::complain(&format!("no sandboxes on {}", printable(&answer.node)))?;
        return Ok(());
    }
    let mut headings = vec!["CONTAINER", "POD", "INTERFACE", "ADDRESSES", "PHASE", "NETWORK"];
    if is_wide {
        headings.extend(["INSIDE", "ENDPOINT", "NETNS"]);
    }
    let rows: Vec<Vec<String>> =
        answer.sandboxes.iter().map(|sandbox| row(sandbox, is_wide)).collect();
    Ok(table::show(terminal, &headings, &rows)?)
}

fn row(sandbox: &Sandbox, is_wide: bool) -> Vec<String> {
    let container = match is_wide {
        true => sandbox.container.clone(),
        // What runtimes make up is cut as they cut it; other ids are names.
        false if sandbox.container.chars().all(|c| c.is_ascii_hexdigit()) => {
            sandbox.container.chars().take(SHORT).collect()
        }
        false => sandbox.container.clone(),
    };
    let pod = match (&sandbox.namespace, &sandbox.pod) {
        (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
        _ => "-".to_owned(),
    };
    let mut cells = vec![
        container,
        pod,
        sandbox.interface.clone(),
        sandbox.addresses.join(","),
        sandbox.phase.clone(),
        sandbox.network.clone(),
    ];
    if is_wide {
        let more = [&sandbox.container_interface, &sandbox.endpoint, &sandbox.netns];
        cells.extend(more.map(Clone::clone));
    }
    cells.iter().map(|cell| printable(cell).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_wide_ones_whole() {
        let sandbox = Sandbox { container: "0123456789abcdef".into(), ..Sandbox::default() };
        assert_eq!(row(&sandbox, false)[..2], ["0123456789ab", "-"]);
        assert_eq!(row(&sandbox, true)[0], "0123456789abcdef");
        assert_eq!(row(&sandbox, true).len(), 9);
        let named = Sandbox { container: "0123456789-n2-db".into(), ..Sandbox::default() };
        assert_eq!(row(&named, false)[0], "0123456789-n2-db");
    }
}
