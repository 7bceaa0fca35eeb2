//! What the packet filter takes from Felix's parameters, and who hears of denied packets.

use host::marks::{DENIALS_AT_ONCE, DENIALS_GROUP};
use model::felix::Config;
use policy::render::{Listeners, Rate, Settings};

/// How many denied packets each rule tells of, of each source and of all: enough to see what is
/// wrong, too few to be felt.
const DENIALS: Listeners = Listeners {
    group: DENIALS_GROUP,
    n_bytes: 128,
    rate: Rate { n_packets: 5, per_seconds: 1, burst: DENIALS_AT_ONCE },
    rate_of_all: Rate { n_packets: 50, per_seconds: 1, burst: 200 },
};

/// The settings of the filter.
pub(crate) fn settings(config: &Config) -> Settings {
    Settings {
        table: super::TABLE.to_owned(),
        denials: Some(DENIALS),
        ..intent::filter_settings(config)
    }
}
