//! Asks pods whether they answer: ICMP, TCP and UDP, many at once, from the namespace of the
//! calling thread.
//!
//! An answer counts only if it comes from the pod that was asked: TCP and UDP answers carry its
//! name.

mod flight;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec};
use serde::Serialize;

use flight::{Flight, Progress};

/// Questions on their way at the same time, from one pod.
pub(crate) const WINDOW: usize = 48;
/// When a question without an answer is asked again. TCP does so by itself.
const RESEND: Duration = Duration::from_millis(200);

/// How a pod is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    Icmp,
    Tcp,
    Udp,
}

impl Protocol {
    pub(crate) const ALL: [Self; 3] = [Self::Icmp, Self::Tcp, Self::Udp];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Icmp => "ICMP",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// One question: a pod at one of its addresses.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) pod: String,
    pub(crate) address: IpAddr,
    pub(crate) protocol: Protocol,
}

/// The time that the answer took, or what came instead.
pub(crate) type Answer = Result<Duration, String>;

/// Asks everything and returns the answers in the order of the questions; each question is given
/// up after `patience`.
pub(crate) fn ask(questions: &[Question], patience: Duration) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = vec![None; questions.len()];
    let mut waiting: VecDeque<usize> = (0..questions.len()).collect();
    let mut flights: Vec<(usize, Flight)> = Vec::new();
    loop {
        while flights.len() < WINDOW
            && let Some(at) = waiting.pop_front()
        {
            match Flight::start(&questions[at]) {
                Ok(flight) => flights.push((at, flight)),
                Err(error) => answers[at] = Some(Err(spoken(&error))),
            }
        }
        if flights.is_empty() {
            break;
        }
        wait(&flights);
        flights.retain_mut(|(at, flight)| {
            let answer = settle(flight, patience);
            let is_open = answer.is_none();
            answers[*at] = answer;
            is_open
        });
    }
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err("not asked".into()))).collect()
}

/// Waits until something came in, or the next resend is due.
fn wait(flights: &[(usize, Flight)]) {
    let mut waited: Vec<PollFd<'_>> = flights.iter().map(|(_, flight)| flight.poll()).collect();
    let now = Instant::now();
    let next = flights.iter().map(|(_, flight)| flight.resend_at).min().unwrap_or(now);
    let timeout = next.saturating_duration_since(now).min(RESEND) + Duration::from_millis(1);
    let timeout = Timespec::try_from(timeout).ok();
    // An interrupted wait is a short one.
    let _ = rustix::event::poll(&mut waited, timeout.as_ref());
}

fn settle(flight: &mut Flight, patience: Duration) -> Option<Answer> {
    match flight.advance() {
        Ok(Progress::Answered) => return Some(Ok(flight.began.elapsed())),
        Ok(Progress::Stranger(name)) => return Some(Err(format!("{name} answers"))),
        Ok(Progress::Waiting) => {}
        Err(error) => return Some(Err(spoken(&error))),
    }
    if flight.began.elapsed() >= patience {
        return Some(Err("no answer".to_owned()));
    }
    if Instant::now() >= flight.resend_at {
        flight.resend_at = Instant::now() + RESEND;
        if let Err(error) = flight.send() {
            return Some(Err(spoken(&error)));
        }
    }
    None
}

/// The system's words without its number.
fn spoken(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests;
