//! `margay explain`: why traffic is let through or denied, and what a policy does.
//!
//! Everything is read from the datastore and computed as agents compute it, for the nodes of both
//! ends; how far the kernels of those have come their agents have told.

mod ends;
mod hops;
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
use hops::Hop;
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
    kernels: Vec<Kernel>,
    arguments: &'a TrafficArguments,
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
    let mut answer = ask(&world, &arguments.source, destination, &arguments.traffic)?;
    answer.kernels = kernels::kernels(&session, &answer);
    let text = match arguments.format.output {
        Some(format) => structured(format, &value::value(&answer)),
        None => screen::text(terminal, &answer),
    };
    terminal.page(&text)?;
    let is_in_force = answer.kernels.iter().all(Kernel::has_all);
    Ok(hops::denied(&answer.hops).is_none() && is_in_force)
}

/// Finds both ends, and what happens between them.
fn ask<'a>(
    world: &'a World,
    source: &str,
    destination: &str,
    arguments: &'a TrafficArguments,
) -> Result<Answer<'a>, Failure> {
    let namespace = arguments.namespace.as_deref();
    let source = ends::find(world, source, namespace)?;
    let destination = ends::find(world, destination, namespace)?;
    let packet = ends::packet(&source, &destination, arguments.traffic())?;
    let hops = hops::hops(world, &source, &destination, &packet);
    Ok(Answer { world, source, destination, packet, hops, kernels: Vec::new(), arguments })
}

impl Answer<'_> {
    /// What was asked, as it can be typed again.
    fn typed(&self) -> String {
        let end = |end: &End| text::words::shell(&end.name);
        let mut typed = format!("{} {}", end(&self.source), end(&self.destination));
        if let Some(port) = self.arguments.port {
            typed += &format!(" --port {port}");
        }
        if !self.arguments.protocol.eq_ignore_ascii_case("tcp") {
            typed += &format!(" --protocol {}", text::words::shell(&self.arguments.protocol));
        }
        typed
    }
}
