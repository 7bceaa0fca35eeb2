//! What the agents of a lab say that policy denied.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use host::drops::Heard;
use host::protocol::Inquiry;
use host::report::Drops;

use crate::agents;
use crate::lab::Lab;
use crate::parallel;
use crate::probe::{Protocol, Question};

/// What was denied lately, and by what.
#[derive(Debug, Default)]
pub(crate) struct Denials(BTreeMap<(IpAddr, IpAddr, Protocol), String>);

impl Denials {
    /// What was denied since a time. Agents that do not answer know of nothing.
    pub(crate) fn read(lab: &Lab, since: SystemTime) -> Self {
        let since = since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs());
        let ask = |node: &crate::state::Node| {
            let inquiry = Inquiry::Drops(Heard::default());
            agents::inquire::<Drops>(lab, &node.name, &inquiry).unwrap_or_default().drops
        };
        let told = parallel::each(&lab.state.nodes, agents::N_ASKED, ask);
        let lately =
            told.into_iter().flatten().filter(|it| it.last >= since && it.packet.is_by_policy());
        let entry = |it: host::drops::Drop| {
            let key = (it.packet.source, it.packet.destination, protocol(it.packet.protocol)?);
            Some((key, it.told.decided.unwrap_or(it.packet.rule)))
        };
        Self(lately.filter_map(entry).collect())
    }

    /// What denied a question of a pod with these addresses.
    pub(crate) fn of(&self, from: &[IpAddr], question: &Question) -> Option<String> {
        let key = |from: &IpAddr| (*from, question.address, question.protocol);
        from.iter().find_map(|from| self.0.get(&key(from)).cloned())
    }
}

fn protocol(number: u8) -> Option<Protocol> {
    match number {
        1 | 58 => Some(Protocol::Icmp),
        6 => Some(Protocol::Tcp),
        17 => Some(Protocol::Udp),
        _ => None,
    }
}
