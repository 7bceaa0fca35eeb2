//! Connections that were begun while our tables were not in force.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kernel::conntrack::{Connection, Conntrack};
use kernel::{Netns, Result};
use policy::intent::Intent;
use policy::{Conversations, Packet};

use crate::node::Node;

impl Node {
    /// Forgets the connections of workloads that policy forbids: their next packet is judged as the
    /// first of another.
    pub(crate) fn close_window(&self, intent: &Intent, own: &BTreeSet<IpAddr>) {
        match close(&self.here, intent, own) {
            Ok(0) => {}
            Ok(n) => {
                let n = text::words::count(n, "connection");
                let text = format!("{n} that policy forbids may have begun meanwhile; ended");
                self.events.note("repaired", &text);
            }
            Err(error) => {
                self.note(&format!("connections that policy forbids are not ended: {error}"));
            }
        }
    }
}

fn close(netns: &Netns, intent: &Intent, own: &BTreeSet<IpAddr>) -> Result<usize> {
    let mut conversations = Conversations::new(intent, own);
    let mut all = Conntrack::in_netns(netns)?;
    all.delete_where(|connection| conversations.is_forbidden(&first_packet(connection)))
}

/// How a connection began, as far as is known: of which sort an ICMP message was is not.
fn first_packet(connection: &Connection) -> Packet {
    let Connection { protocol, original, reply, .. } = connection;
    // Where it really goes is where the answers come from.
    let (destination, port) = (reply.source, reply.source_port);
    let is_moved = (original.destination, original.destination_port) != (destination, port);
    let has_ports = (original.source_port, port) != (0, 0);
    Packet {
        source: original.source,
        destination,
        protocol: *protocol,
        ports: has_ports.then_some((original.source_port, port)),
        icmp: None,
        before_nat: is_moved.then_some((original.destination, original.destination_port)),
        is_of_host: false,
    }
}
