//! Packets of pods as rules of other programs see them: sets of packets, which get smaller with
//! every question that a rule asks.

use std::net::IpAddr;

use kernel::nft::expression::{Header, Meta, ct_state};
use kernel::nft::{Hook, Source, TableFamily};
use net::Cidr;

use super::ask::{Ask, Question};

/// What of this node the packets of pods pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct World {
    /// What the names of pods' interfaces begin with.
    pub(crate) prefixes: Vec<String>,
    /// The interfaces of pods, and for each prefix one that is still to come.
    pub(crate) pods: Vec<Link>,
    /// The interfaces to other nodes and to the outside.
    pub(crate) uplinks: Vec<Link>,
    /// What pods' addresses are from.
    pub(crate) networks: Vec<Cidr>,
}

/// An interface as rules know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    name: [u8; 16],
    index: u32,
}

impl Link {
    /// By name and number; what is not there yet has number 0.
    pub(crate) fn new(name: &str, index: u32) -> Self {
        let mut padded = [0; 16];
        for (into, byte) in padded.iter_mut().zip(name.bytes()) {
            *into = byte;
        }
        Self { name: padded, index }
    }

    /// Of a pod that is still to come: nobody can name it, but by what its name begins with.
    pub(crate) fn to_come(prefix: &str) -> Self {
        Self::new(&format!("{prefix}\u{7f}"), 0)
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        *self == Self::new(name, self.index)
    }
}

/// Where an address is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Among those of pods: the first and the last, as numbers.
    Pods(u128, u128),
    /// Anywhere else.
    Elsewhere,
}

/// In what packets of a set differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    Input,
    Output,
    Source,
    Destination,
    State,
}

/// A set of packets: every combination of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packets {
    is_ipv4: bool,
    input: Vec<Link>,
    output: Vec<Link>,
    source: Vec<Place>,
    destination: Vec<Place>,
    /// The states of their connections. Those of errors are left out: no rule is about them alone.
    states: Vec<u32>,
}

/// The packets of pods that meet a base chain, by where they come from and go to.
pub(super) fn at(
    world: &World,
    family: TableFamily,
    hook: Hook,
    devices: &[String],
) -> Vec<Packets> {
    let on = |links: &[Link]| -> Vec<Link> {
        let is_its = |link: &&Link| devices.iter().any(|name| link.is_named(name));
        links.iter().filter(is_its).cloned().collect()
    };
    let (pods, uplinks) = (&world.pods, &world.uplinks);
    let none = || vec![Link::default()];
    let ways: Vec<(bool, bool, Vec<Link>, Vec<Link>)> = match hook {
        // What leaves by which interface is not known yet.
        Hook::Prerouting => {
            vec![(true, false, pods.clone(), none()), (false, true, uplinks.clone(), none())]
        }
        Hook::Forward | Hook::Postrouting => vec![
            (true, true, pods.clone(), pods.clone()),
            (true, false, pods.clone(), uplinks.clone()),
            (false, true, uplinks.clone(), pods.clone()),
        ],
        Hook::Ingress => {
            vec![(true, false, on(pods), none()), (false, true, on(uplinks), none())]
        }
        Hook::Egress => vec![(false, true, none(), on(pods)), (true, false, none(), on(uplinks))],
        Hook::Input | Hook::Output => Vec::new(),
    };
    let is_seen = |is_ipv4: bool| {
        let is_used = world.networks.iter().any(|it| it.is_ipv4() == is_ipv4);
        match family {
            TableFamily::Ip if !is_ipv4 => false,
            TableFamily::Ip6 if is_ipv4 => false,
            _ => is_used || world.networks.is_empty(),
        }
    };
    let families = [true, false].into_iter().filter(|it| is_seen(*it));
    let all = families.flat_map(|is_ipv4| ways.iter().map(move |way| (is_ipv4, way)));
    let packets = all.map(|(is_ipv4, (is_from_pod, is_to_pod, input, output))| Packets {
        is_ipv4,
        input: input.clone(),
        output: output.clone(),
        source: places(world, is_ipv4, *is_from_pod),
        destination: places(world, is_ipv4, *is_to_pod),
        states: vec![ct_state::NEW, ct_state::ESTABLISHED],
    });
    packets.filter(|it| !it.input.is_empty() && !it.output.is_empty()).collect()
}

/// Other nodes' pods are behind uplinks, too.
fn places(world: &World, is_ipv4: bool, is_pod: bool) -> Vec<Place> {
    let networks = world.networks.iter().filter(|it| it.is_ipv4() == is_ipv4);
    let mut places: Vec<Place> =
        networks.map(|it| Place::Pods(number(it.network()), number(it.last()))).collect();
    if !is_pod || places.is_empty() {
        places.push(Place::Elsewhere);
    }
    places
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// What a rule takes of a set of packets.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) packets: Packets,
    /// In what it asked for less than all.
    narrowed: Vec<Dimension>,
    /// Whether it takes only some of these, such as those of a port.
    is_part: bool,
}

impl Taken {
    pub(super) fn all_of(packets: &Packets) -> Self {
        Self { packets: packets.clone(), narrowed: Vec::new(), is_part: false }
    }

    /// Whether nothing is left of the set that it was taken of.
    pub(super) fn is_all(&self) -> bool {
        self.narrowed.is_empty() && !self.is_part
    }

    /// What is left of a set without it; all of it, where that is no set of this sort.
    pub(super) fn rest(&self, of: &Packets) -> Option<Packets> {
        let mut rest = of.clone();
        let (it, mine) = (&mut rest, &self.packets);
        match self.narrowed.as_slice() {
            _ if self.is_part => {}
            [] => return None,
            [Dimension::Input] => it.input.retain(|one| !mine.input.contains(one)),
            [Dimension::Output] => it.output.retain(|one| !mine.output.contains(one)),
            [Dimension::Source] => it.source.retain(|one| !mine.source.contains(one)),
            [Dimension::Destination] => {
                it.destination.retain(|one| !mine.destination.contains(one));
            }
            [Dimension::State] => it.states.retain(|one| !mine.states.contains(one)),
            _ => {}
        }
        Some(rest)
    }

    /// Asks one more question. None if it takes nothing, or nobody can tell.
    pub(super) fn asked(mut self, question: &Question) -> Option<Self> {
        let ask = &question.ask;
        match question.source {
            Source::Meta(Meta::InputName) => {
                self.links(Dimension::Input, |it| ask.takes(&it.name, question.mask.as_ref()))
            }
            Source::Meta(Meta::OutputName) => {
                self.links(Dimension::Output, |it| ask.takes(&it.name, question.mask.as_ref()))
            }
            Source::Meta(Meta::InputIndex) => self.links(Dimension::Input, |it| {
                ask.takes(&it.index.to_ne_bytes(), question.mask.as_ref())
            }),
            Source::Meta(Meta::OutputIndex) => self.links(Dimension::Output, |it| {
                ask.takes(&it.index.to_ne_bytes(), question.mask.as_ref())
            }),
            Source::Meta(Meta::Protocol) => {
                let ethernet: u16 = if self.packets.is_ipv4 { 0x0800 } else { 0x86dd };
                ask.takes(&ethernet.to_be_bytes(), question.mask.as_ref()).then_some(self)
            }
            Source::Meta(Meta::Family) => {
                let family = if self.packets.is_ipv4 { 2 } else { 10 };
                ask.takes(&[family], question.mask.as_ref()).then_some(self)
            }
            Source::Meta(Meta::TransportProtocol) => self.protocols(question),
            Source::Ct(kernel::nft::expression::Ct::State) => {
                let n_before = self.packets.states.len();
                self.packets
                    .states
                    .retain(|it| ask.takes(&it.to_ne_bytes(), question.mask.as_ref()));
                self.after_narrowing(Dimension::State, n_before, |it| it.states.len())
            }
            Source::Payload { header: Header::Network, offset, len } => {
                self.header(question, offset, len)
            }
            Source::Payload { header: Header::Transport, offset, len } => {
                self.transport(question, offset, len)
            }
            Source::Payload { header: Header::Link, .. }
            | Source::Meta(Meta::Mark | Meta::Other(_))
            | Source::Ct(_)
            | Source::Fib { .. } => None,
        }
    }

    fn links(mut self, dimension: Dimension, takes: impl Fn(&Link) -> bool) -> Option<Self> {
        let len = |it: &Packets| match dimension {
            Dimension::Input => it.input.len(),
            _ => it.output.len(),
        };
        let n_before = len(&self.packets);
        match dimension {
            Dimension::Input => self.packets.input.retain(takes),
            _ => self.packets.output.retain(takes),
        }
        self.after_narrowing(dimension, n_before, len)
    }

    fn after_narrowing(
        mut self,
        dimension: Dimension,
        n_before: usize,
        len: impl Fn(&Packets) -> usize,
    ) -> Option<Self> {
        let n = len(&self.packets);
        if n < n_before && !self.narrowed.contains(&dimension) {
            self.narrowed.push(dimension);
        }
        (n > 0).then_some(self)
    }

    /// Pods speak these; what else there is a rule may well be about alone.
    fn protocols(mut self, question: &Question) -> Option<Self> {
        const SPOKEN: [u8; 3] = [6, 17, 132];
        let icmp = if self.packets.is_ipv4 { 1 } else { 58 };
        let takes = |it: &u8| question.ask.takes(&[*it], question.mask.as_ref());
        self.is_part = true;
        SPOKEN.iter().chain([&icmp]).any(takes).then_some(self)
    }

    /// Ports, and the sorts of ICMP messages that are no hygiene: echo, and what is unreachable.
    fn transport(mut self, question: &Question, offset: u32, len: u32) -> Option<Self> {
        let kinds: &[u8] = if self.packets.is_ipv4 { &[8, 0, 3] } else { &[128, 129, 1, 2] };
        let takes = |it: &u8| question.ask.takes(&[*it], question.mask.as_ref());
        let is_meant = match (offset, len) {
            (0, 1) => kinds.iter().any(takes),
            _ => offset + len <= 4 && len >= 2,
        };
        self.is_part = true;
        is_meant.then_some(self)
    }

    fn header(self, question: &Question, offset: u32, len: u32) -> Option<Self> {
        let (source, n_bytes, protocol) =
            if self.packets.is_ipv4 { (12, 4, 9) } else { (8, 16, 6) };
        if (offset, len) == (protocol, 1) {
            return self.protocols(question);
        }
        if (offset, len) == (source, 2 * n_bytes) {
            // Both addresses at once.
            let (first, second) = question.ask.halves(n_bytes)?;
            return self.addresses(Dimension::Source, &first, None, n_bytes)?.addresses(
                Dimension::Destination,
                &second,
                None,
                n_bytes,
            );
        }
        let dimension = match offset {
            _ if len == 0 || len > n_bytes => return None,
            it if it == source => Dimension::Source,
            it if it == source + n_bytes => Dimension::Destination,
            _ => return None,
        };
        let mask = match &question.mask {
            None => None,
            Some(mask) => Some(mask.as_plain()?),
        };
        self.addresses(dimension, &question.ask, mask, n_bytes)
    }

    fn addresses(
        mut self,
        dimension: Dimension,
        ask: &Ask,
        mask: Option<&[u8]>,
        n_bytes: u32,
    ) -> Option<Self> {
        let ranges = ask.ranges(mask, n_bytes)?;
        let places = match dimension {
            Dimension::Source => &mut self.packets.source,
            _ => &mut self.packets.destination,
        };
        let before = std::mem::take(places);
        for place in &before {
            let found = match ask.is_inverted {
                true => outside(place, &ranges),
                false => inside(place, &ranges, n_bytes),
            };
            self.is_part |= found.1;
            places.extend(found.0);
        }
        if *places != before && !self.narrowed.contains(&dimension) {
            self.narrowed.push(dimension);
        }
        (!places.is_empty()).then_some(self)
    }
}

/// The parts of a place inside of ranges. Of what is elsewhere only a rule about everything is
/// taken to speak: one about some address there is not about pods.
fn inside(place: &Place, ranges: &[(u128, u128)], n_bytes: u32) -> (Vec<Place>, bool) {
    let highest = u128::MAX >> (128 - 8 * n_bytes);
    let Place::Pods(first, last) = place else {
        let is_all = ranges.contains(&(0, highest));
        return (is_all.then_some(Place::Elsewhere).into_iter().collect(), false);
    };
    let parts = ranges.iter().map(|(low, high)| (*low.max(first), *high.min(last)));
    let parts = parts.filter(|(low, high)| low <= high);
    (parts.map(|(low, high)| Place::Pods(low, high)).collect(), false)
}

/// The place unless it is inside of a range, and whether a part of it is.
fn outside(place: &Place, ranges: &[(u128, u128)]) -> (Vec<Place>, bool) {
    let Place::Pods(first, last) = place else { return (vec![Place::Elsewhere], true) };
    let is_inside = ranges.iter().any(|(low, high)| low <= first && last <= high);
    let is_touched = ranges.iter().any(|(low, high)| low <= last && first <= high);
    match is_inside {
        true => (Vec::new(), false),
        false => (vec![place.clone()], is_touched),
    }
}
