//! Ranges of addresses, and what is left of them without others.

use std::net::IpAddr;

use net::Cidr;

/// A range of addresses of one family, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    is_ipv4: bool,
    pub(crate) first: u128,
    pub(crate) last: u128,
}

impl Span {
    pub(crate) fn of(cidr: Cidr) -> Self {
        let (first, bits) = match cidr.masked().address() {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let rest = u32::from(bits - cidr.prefix_len());
        let host_bits = u128::MAX.checked_shr(128 - rest).unwrap_or(0);
        Self { is_ipv4: cidr.is_ipv4(), first, last: first | host_bits }
    }

    pub(crate) fn size(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    fn covers(self, other: Self) -> bool {
        self.is_ipv4 == other.is_ipv4 && self.first <= other.first && other.last <= self.last
    }

    /// What is left of it without the other.
    fn minus(self, other: Self) -> impl Iterator<Item = Self> {
        let is_apart =
            self.is_ipv4 != other.is_ipv4 || other.last < self.first || self.last < other.first;
        let before =
            (!is_apart && self.first < other.first).then(|| Self { last: other.first - 1, ..self });
        let after =
            (!is_apart && other.last < self.last).then(|| Self { first: other.last + 1, ..self });
        is_apart.then_some(self).into_iter().chain(before).chain(after)
    }
}

pub(crate) fn without(spans: Vec<Span>, holes: impl Iterator<Item = Cidr>) -> Vec<Span> {
    holes
        .map(Span::of)
        .fold(spans, |spans, hole| spans.into_iter().flat_map(|span| span.minus(hole)).collect())
}

pub(crate) fn total(spans: &[Span]) -> u128 {
    spans.iter().fold(0_u128, |sum, span| sum.saturating_add(span.size()))
}

/// Addresses that no automatic assignment may give out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reserved(pub(crate) Vec<Cidr>);

impl Reserved {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|cidr| cidr.contains(address))
    }

    /// Whether the reservations cover the prefix, together or one of them alone.
    pub(crate) fn cover(&self, cidr: Cidr) -> bool {
        without(vec![Span::of(cidr)], self.0.iter().copied()).is_empty()
    }

    /// The last address of the largest reservation that covers the prefix alone.
    pub(crate) fn end_of_cover(&self, cidr: Cidr) -> Option<u128> {
        let wanted = Span::of(cidr);
        let whole = self.0.iter().map(|cidr| Span::of(*cidr)).filter(|it| it.covers(wanted));
        whole.map(|it| it.last).max()
    }
}
