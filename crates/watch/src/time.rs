//! Points in time, by the clock of the machine, which may be set back.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt;
use std::time::Duration;

/// Milliseconds since 1970, between the years -9999 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(i64);

impl Time {
    /// A day: the length of a budget's window.
    pub const DAY: Duration = Duration::from_secs(24 * 3600);

    /// The present time.
    pub fn now() -> Self {
        Self(Timestamp::now().as_millisecond())
    }

    /// From milliseconds since 1970; the nearest time where there is none.
    pub fn from_ms(ms: i64) -> Self {
        Self(ms.clamp(Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond()))
    }

    /// Milliseconds since 1970.
    pub fn ms(self) -> i64 {
        self.0
    }

    /// This long after it.
    pub fn after(self, length: Duration) -> Self {
        Self::from_ms(self.0.saturating_add(ms_of(length)))
    }

    /// This long before it.
    pub fn before(self, length: Duration) -> Self {
        Self::from_ms(self.0.saturating_sub(ms_of(length)))
    }

    /// The time from `earlier` to this one; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub(crate) fn timestamp(self) -> Timestamp {
        Timestamp::from_millisecond(self.0).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// As text, to the second, in a time zone.
    pub fn in_zone(self, zone: &TimeZone) -> String {
        self.timestamp().to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
    }
}

fn ms_of(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.timestamp().strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_out_of_bounds() {
        for ms in [i64::MIN, -1, 0, i64::MAX] {
            let time = Time::from_ms(ms);
            assert!(!time.after(Duration::MAX).to_string().is_empty());
            assert!(!time.before(Duration::MAX).to_string().is_empty());
        }
        assert_eq!(Time::from_ms(0).after(Time::DAY).to_string(), "1970-01-02T00:00:00Z");
        assert_eq!(Time::from_ms(5).since(Time::from_ms(7)), Duration::ZERO);
    }
}
