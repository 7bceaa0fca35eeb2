//! What the packet filter takes from Felix's parameters, and who hears of denied packets.

use host::marks::{DENIALS_AT_ONCE, DENIALS_GROUP};
use model::felix::Config;
use policy::render::{Counters, Listeners, Rate, Settings};

/// How many denied packets each rule tells of, of each source and of all: enough to see what is
/// wrong, too few to be felt.
const DENIALS: Listeners = Listeners {
    group: DENIALS_GROUP,
    n_bytes: 128,
    rate: Rate { n_packets: 5, per_seconds: 1, burst: DENIALS_AT_ONCE },
    rate_of_all: Rate { n_packets: 50, per_seconds: 1, burst: 200 },
};

/// What the filter tells of the packets that it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Telling {
    pub(crate) counters: Counters,
    /// Whether denied packets are recorded.
    pub(crate) has_drops: bool,
}

impl Default for Telling {
    fn default() -> Self {
        Self { counters: Counters::Denials, has_drops: true }
    }
}

/// The settings of the filter.
pub(crate) fn settings(config: &Config, telling: Telling) -> Settings {
    Settings {
        table: super::TABLE.to_owned(),
        counters: telling.counters,
        denials: telling.has_drops.then_some(DENIALS),
        ..intent::filter_settings(config)
    }
}
