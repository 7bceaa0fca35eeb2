//! The present time, which is an argument of everything that depends on it.

use api::schema::utc;

const SECOND: u64 = 1_000_000_000;

/// A point in time, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The point in time that many nanoseconds after the start of 1970.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the start of 1970.
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// As blocks keep it: RFC 3339, in UTC and whole seconds.
    pub fn text(self) -> String {
        self.text_before(0)
    }

    /// The time that many seconds earlier, as blocks keep it. Such texts sort by time.
    pub(crate) fn text_before(self, seconds: i64) -> String {
        let now = i64::try_from(self.0 / SECOND).unwrap_or(i64::MAX);
        utc(now.saturating_sub(seconds))
    }
}

/// How long an address that was let go must rest.
#[derive(Clone, Copy, Debug)]
pub struct Cooldown {
    /// The present time.
    pub now: Moment,
    /// The seconds that it must rest; a negative number, which Calico accepts, means none.
    pub seconds: i64,
}

impl Cooldown {
    /// Whether an address that was let go at the time has rested long enough.
    pub(crate) fn is_over(self, released_at: &str) -> bool {
        self.seconds < 0 || *released_at <= *self.now.text_before(self.seconds)
    }
}
