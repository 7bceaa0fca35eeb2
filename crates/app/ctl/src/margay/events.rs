//! `margay events`: what happened on this node, and what its agent did about it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use host::events::{self, Event, Wanted};
use host::protocol::Inquiry;
use host::report::Events;
use serde_json::Value;

use super::agent::{Agent, Silence, now};
use super::arguments::{Format, Structured};
use super::failure::Failure;
use super::terminal::{self, Terminal, printable_line};
use super::{get, structured};

/// How often the agent is asked for more.
const POLL: Duration = Duration::from_millis(500);
const DAY: u64 = 86_400;

#[derive(Args, Debug)]
pub(crate) struct EventsArguments {
    /// Only those that name this: a pod, an address, an interface, or a sort such as repaired
    pub(crate) object: Option<String>,
    /// Go on, and show every new event; with -o json as one line each
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only those of so long ago or less: 90s, 15m, 1h, 2d
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) since: Option<u64>,
    #[command(flatten)]
    pub(crate) agent: Agent,
    /// The agent's folder, in which the events are read when it does not answer
    #[arg(long, env = "MARGAY_STATE_DIR", default_value = "/var/lib/margay", value_name = "DIR")]
    #[arg(hide_env_values = true, value_hint = clap::ValueHint::DirPath)]
    pub(crate) state_dir: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// A span of time in seconds: Go's form, or a number of days.
fn span(text: &str) -> Result<u64, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    if let Some(days) = days {
        return days.checked_mul(DAY).ok_or_else(|| "too long ago".to_owned());
    }
    let parsed = text.parse::<net::Duration>().ok().and_then(net::Duration::to_std);
    parsed.map(|span| span.as_secs()).ok_or_else(|| "such as 90s, 15m, 1h or 2d".to_owned())
}

/// The command.
pub(crate) fn run(terminal: Terminal, arguments: &EventsArguments) -> Result<bool, Failure> {
    let since = arguments.since.map(|span| {
        let start = now().saturating_sub(span);
        api::schema::utc(i64::try_from(start).unwrap_or(i64::MAX))
    });
    let mut wanted = Wanted { after: 0, since, about: arguments.object.clone() };
    let mut answer = match arguments.agent.ask::<Events>(&Inquiry::Events(wanted.clone())) {
        Ok(answer) => answer,
        Err(silence) => left_behind(arguments, &wanted, silence)?,
    };
    if !arguments.follow {
        print(terminal, arguments, &answer)?;
        return Ok(true);
    }
    let mut is_silent = false;
    loop {
        follow(arguments.format.output, &answer)?;
        wanted.after = answer.events.last().map_or(wanted.after, |event| event.number);
        answer.events.clear();
        terminal::rest(POLL)?;
        match arguments.agent.ask::<Events>(&Inquiry::Events(wanted.clone())) {
            Ok(more) => {
                answer = more;
                is_silent = false;
            }
            Err(silence) if !is_silent => {
                get::complain(&format!("{}; waiting for it", silence.what))?;
                is_silent = true;
            }
            Err(_) => {}
        }
    }
}

/// What an agent wrote down before it went away.
fn left_behind(
    arguments: &EventsArguments,
    wanted: &Wanted,
    silence: Silence,
) -> Result<Events, Failure> {
    let path = arguments.state_dir.join("events.jsonl");
    if !path.exists() {
        return Err(silence.into());
    }
    get::complain(&format!("{}; read from {}", silence.what, path.display()))?;
    Ok(Events { node: String::new(), events: events::read(&path, wanted) })
}

fn print(terminal: Terminal, arguments: &EventsArguments, answer: &Events) -> Result<(), Failure> {
    let text = match arguments.format.output {
        Some(format) => structured(format, &value(answer)?),
        None if answer.events.is_empty() => {
            get::complain(&nothing(arguments, &answer.node))?;
            return Ok(());
        }
        None => answer.events.iter().map(|event| line(&answer.node, event, now())).collect(),
    };
    Ok(terminal.page(&text)?)
}

/// That there is nothing, and of what.
fn nothing(arguments: &EventsArguments, node: &str) -> String {
    let place = if node.is_empty() { String::new() } else { format!(" on {node}") };
    let time = if arguments.since.is_some() { " in that time" } else { "" };
    match &arguments.object {
        Some(object) => {
            let object = printable_line(object).into_owned();
            format!("no event names {object}{place}{time}; margay events shows all there are")
        }
        None => format!("no events{place}{time}"),
    }
}

fn follow(format: Option<Structured>, answer: &Events) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for event in &answer.events {
        let text = match format {
            Some(Structured::Json) => text::json::to_string(&value(event)?) + "\n",
            Some(Structured::Yaml) => format!("---\n{}", text::yaml::to_string(&value(event)?)),
            None => line(&answer.node, event, now()),
        };
        out.write_all(text.as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn value(answer: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(answer).map_err(|error| Failure::new(error.to_string()))
}

/// One event. The date is left out for those of today; times are in UTC.
fn line(node: &str, event: &Event, now: u64) -> String {
    let today = api::schema::utc(i64::try_from(now).unwrap_or(i64::MAX));
    let is_today = event.time.get(..10) == today.get(..10);
    let time = event.time.trim_end_matches('Z').replacen('T', " ", 1);
    let time = if is_today { time.get(11..).unwrap_or(&time).to_owned() } else { time };
    let node = if node.is_empty() { String::new() } else { format!("{node}  ") };
    let line = format!("{time}  {node}{:<10} {}", event.sort, event.text);
    format!("{}\n", printable_line(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_gos_and_days() {
        assert_eq!(
            ["90s", "15m", "1h30m", "2d"].map(|it| span(it).unwrap()),
            [90, 900, 5400, 172_800]
        );
        assert!(span("yesterday").is_err());
        assert!(span("-1h").is_err());
        assert!(span("99999999999999999d").is_err());
    }

    #[test]
    fn the_date_is_shown_for_other_days_only() {
        let (sort, text) = ("repaired".to_owned(), "a\nb".to_owned());
        let event = Event { number: 1, time: "1970-01-02T03:04:05Z".to_owned(), sort, text };
        assert_eq!(line("n1", &event, DAY), "03:04:05  n1  repaired   a\\nb\n");
        assert_eq!(line("", &event, 0), "1970-01-02 03:04:05  repaired   a\\nb\n");
    }
}
