//! `margay explain`: why traffic is let through or denied, and what a policy does.
//!
//! Everything is read from the datastore and computed as agents compute it, for the nodes of both
//! ends; how far the kernels of those have come their agents have told.

mod ends;
mod hops;
mod interfaces;
mod kernels;
mod policies;
mod screen;
pub(crate) mod suggest;
mod value;
pub(crate) mod world;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use policy::Packet;

use super::arguments::{Format, Place};
use super::complete;
use super::elsewhere;
use super::failure::Failure;
use super::session::Session;
use super::structured;
use super::terminal::Terminal;
use ends::{End, Traffic};
use hops::{Hop, Unknown, Way};
use kernels::Kernel;
use world::World;

pub(crate) use screen::printable_lines;

#[derive(Args, Debug)]
pub(crate) struct ExplainArguments {
    /// Where it comes from: namespace/pod, a pod, an address, a node or a host endpoint; or the
    /// word policy
    #[arg(value_name = "SRC", add = ArgValueCompleter::new(complete::ends))]
    pub(crate) source: String,
    /// Where it goes; or the name of a policy
    #[arg(value_name = "DST", add = ArgValueCompleter::new(complete::ends))]
    pub(crate) destination: Option<String>,
    #[command(flatten)]
    pub(crate) traffic: TrafficArguments,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Which traffic.
#[derive(Args, Debug)]
pub(crate) struct TrafficArguments {
    /// The port it goes to
    #[arg(short, long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// tcp, udp, sctp, icmp (an echo request), udplite, or a number
    #[arg(long, value_name = "P", default_value = "tcp", ignore_case = true)]
    pub(crate) protocol: String,
    /// The port it comes from
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) source_port: Option<u16>,
    /// The namespace of pods and policies without one
    #[arg(short, long, add = ArgValueCompleter::new(complete::namespaces))]
    pub(crate) namespace: Option<String>,
}

impl TrafficArguments {
    fn traffic(&self) -> Traffic<'_> {
        Traffic { port: self.port, source_port: self.source_port, protocol: &self.protocol }
    }
}

/// What there is to say about one packet.
struct Answer<'a> {
    world: &'a World,
    source: End,
    destination: End,
    packet: Packet,
    hops: Vec<Hop>,
    /// Places where nobody knows who decides, and it matters.
    unknown: Vec<Unknown>,
    kernels: Vec<Kernel>,
    arguments: &'a TrafficArguments,
    /// What both ends are called to be found again: an address where one was given.
    words: [String; 2],
}

/// The command.
pub(crate) fn run(
    terminal: Terminal,
    place: &Place,
    arguments: &ExplainArguments,
) -> Result<bool, Failure> {
    let words = [Some(&arguments.source), arguments.destination.as_ref()];
    let Some(destination) = &arguments.destination else {
        // Whoever comes from kubectl asks for a field.
        let words: Vec<String> = words.into_iter().flatten().cloned().collect();
        return Err(elsewhere::explain(&words));
    };
    if arguments.source == "policy" {
        let session = Session::open(place)?;
        return policies::run(terminal, &session, destination, arguments);
    }
    let session = Session::open(place)?;
    let world = World::read(&session)?;
    let mut answers = ask(&world, &arguments.source, destination, &arguments.traffic)?;
    for answer in &mut answers {
        answer.kernels = kernels::kernels(answer);
    }
    match arguments.format.output {
        Some(format) => terminal.page(&structured(format, &value::of_all(&answers)))?,
        None => terminal.page(&terminal.spelled(&screen::of_all(terminal, &answers)))?,
    }
    let is_fine = |answer: &Answer<'_>| {
        answer.verdict() == Verdict::Allowed && answer.kernels.iter().all(Kernel::has_all)
    };
    Ok(answers.iter().all(is_fine))
}

/// Finds both ends, and what happens between them: by each version of IP that both have, what is
/// denied first.
fn ask<'a>(
    world: &'a World,
    source: &str,
    destination: &str,
    arguments: &'a TrafficArguments,
) -> Result<Vec<Answer<'a>>, Failure> {
    let namespace = arguments.namespace.as_deref();
    let ends = [source, destination];
    let [from, to] =
        [ends::find(world, source, namespace)?, ends::find(world, destination, namespace)?];
    let words = |from: &End, to: &End| {
        let word = |(end, typed): (&End, &str)| match net::parse_ip(typed) {
            Some(address) => address.to_string(),
            None => end.name.clone(),
        };
        [word((from, ends[0])), word((to, ends[1]))]
    };
    let of = |source: End, destination: End| -> Result<Answer<'a>, Failure> {
        let packet = ends::packet(&source, &destination, arguments.traffic())?;
        let Way { hops, unknown } = hops::way(world, &source, &destination, &packet);
        let (words, kernels) = (words(&source, &destination), Vec::new());
        Ok(Answer { world, source, destination, packet, hops, unknown, kernels, arguments, words })
    };
    let is_both = |is_ipv4: bool| {
        [&from, &to].iter().all(|end| end.addresses.iter().any(|it| it.is_ipv4() == is_ipv4))
    };
    let versions: Vec<bool> = [true, false].into_iter().filter(|it| is_both(*it)).collect();
    if versions.len() < 2 {
        return Ok(vec![of(from, to)?]);
    }
    let mut answers = Vec::new();
    for is_ipv4 in versions {
        let only = |end: &End| {
            let mut end = end.clone();
            end.addresses.retain(|it| it.is_ipv4() == is_ipv4);
            end
        };
        answers.push(of(only(&from), only(&to))?);
    }
    answers.sort_by_key(Answer::verdict);
    Ok(answers)
}

/// What becomes of the packet, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Denied,
    /// It depends on what nobody has told.
    Unknown,
    Allowed,
}

impl Answer<'_> {
    fn verdict(&self) -> Verdict {
        match hops::denied(&self.hops) {
            Some(_) => Verdict::Denied,
            None if self.unknown.is_empty() => Verdict::Allowed,
            None => Verdict::Unknown,
        }
    }

    /// What was asked, as it can be typed again.
    fn typed(&self) -> String {
        let [source, destination] = self.words.each_ref().map(|it| text::words::shell(it));
        let mut typed = format!("{source} {destination}");
        if let Some(port) = self.arguments.port {
            typed += &format!(" --port {port}");
        }
        if !self.arguments.protocol.eq_ignore_ascii_case("tcp") {
            typed += &format!(" --protocol {}", text::words::shell(&self.arguments.protocol));
        }
        typed
    }
}
