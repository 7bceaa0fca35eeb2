//! The time of day, as text for people and programs.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, as RFC 3339 in UTC with whole seconds.
pub(crate) fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(0);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| String::new(), |time| time.to_string())
}
