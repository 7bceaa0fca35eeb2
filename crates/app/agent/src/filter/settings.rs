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

/// What the command line says of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) counters: Counters,
    /// Whether denied packets are recorded.
    pub(crate) has_drops: bool,
    /// Whether nobody else may change our tables.
    pub(crate) is_owned: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { counters: Counters::Denials, has_drops: true, is_owned: false }
    }
}

/// The settings of the filter.
pub(crate) fn settings(config: &Config, options: Options) -> Settings {
    Settings {
        table: super::TABLE.to_owned(),
        counters: options.counters,
        denials: options.has_drops.then_some(DENIALS),
        is_owned: options.is_owned,
        ..intent::filter_settings(config)
    }
}
