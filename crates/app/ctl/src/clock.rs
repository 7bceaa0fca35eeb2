//! The time of day, as text for people and programs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, as RFC 3339 in UTC with whole seconds.
pub(crate) fn now() -> String {
    after(Duration::ZERO)
}

/// So long after now, in the same form.
pub(crate) fn after(span: Duration) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.saturating_add(span).as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| String::new(), |time| time.to_string())
}
