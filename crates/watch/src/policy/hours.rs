//! The hours in which data may move, by the wall clock of a time zone: what is allowed is decided by what a clock on the
//! wall shows, also on the days on which it is set forward or back.

use crate::Time;
use jiff::civil;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;

/// Minutes of a day.
const DAY: u16 = 24 * 60;
/// Days that are looked ahead for a time at which moving is allowed: one for each range, and one that the clock skips.
const AHEAD: i64 = 3;

/// From one time of day up to another, which may be that of the next day: "22:00-06:00".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Minutes after midnight, below 24 hours.
    start: u16,
    /// Minutes after midnight, up to 24 hours; before the start where it is on the next day.
    end: u16,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let minutes = |text: &str| -> Option<u16> {
            let (hour, minute) = text.trim().split_once(':')?;
            let number = |text: &str| -> Option<u16> {
                let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
                digits.then(|| text.parse().ok()).flatten()
            };
            let (hour, minute) = (number(hour)?, number(minute)?);
            let all = hour * 60 + minute;
            (minute < 60 && all <= DAY).then_some(all)
        };
        let (start, end) = text.split_once('-')?;
        let range = Self { start: minutes(start)?, end: minutes(end)? };
        (range.start != range.end && range.start < DAY).then_some(range)
    }

    fn contains(self, minute: u16) -> bool {
        if self.start < self.end {
            (self.start..self.end).contains(&minute)
        } else {
            minute >= self.start || minute < self.end
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [start, end] = [self.start, self.end].map(|m| format!("{:02}:{:02}", m / 60, m % 60));
        write!(f, "{start}-{end}")
    }
}

impl<'de> Deserialize<'de> for Range {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        let wrong =
            || D::Error::custom("two different times of a day, for example \"22:00-06:00\"");
        Self::parse(&text).ok_or_else(wrong)
    }
}

/// A time zone by its name in the tz database.
#[derive(Clone, Debug)]
pub struct Zone(pub TimeZone);

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(from)?;
        let unknown = |_| {
            let what = "no time zone of this machine; say for example \"Europe/Berlin\" or \"UTC\" (package tzdata)";
            D::Error::custom(format!("{:?} is {what}", &*name))
        };
        TimeZone::get(&name).map(Self).map_err(unknown)
    }
}

/// When data may move.
#[derive(Clone, Debug)]
pub struct Hours {
    /// At any time if empty.
    pub ranges: Vec<Range>,
    /// The zone of the wall clock.
    pub zone: TimeZone,
}

impl Hours {
    /// Whether moving is allowed at `time`.
    pub fn allow(&self, time: Time) -> bool {
        self.ranges.is_empty() || self.shows(time.timestamp())
    }

    fn shows(&self, at: Timestamp) -> bool {
        let wall = at.to_zoned(self.zone.clone());
        let minute =
            u16::from(wall.hour().unsigned_abs()) * 60 + u16::from(wall.minute().unsigned_abs());
        self.ranges.iter().any(|range| range.contains(minute))
    }

    /// The first time at or after `time` at which moving is allowed; `None` if there is none within some days.
    pub fn next(&self, time: Time) -> Option<Time> {
        if self.allow(time) {
            return Some(time);
        }
        let at = time.timestamp();
        let today = at.to_zoned(self.zone.clone()).date();
        // The clock may be set back into a range, or forward past its start: these instants begin it, too.
        let turns = self.zone.following(at).take(1).map(|turn| turn.timestamp());
        let starts = self.ranges.iter().flat_map(|range| {
            (0..AHEAD).filter_map(|day| self.start(*range, today.checked_add(day.days()).ok()?))
        });
        let first = turns.chain(starts).filter(|start| *start > at && self.shows(*start)).min();
        first.map(|first| Time::from_ms(first.as_millisecond()))
    }

    /// When a range begins on a day; a time that the clock skips is as long after the gap as it is after its begin.
    fn start(&self, range: Range, day: civil::Date) -> Option<Timestamp> {
        let [hour, minute] = [range.start / 60, range.start % 60].map(|n| n as i8);
        let wall = day.at(hour, minute, 0, 0).to_zoned(self.zone.clone()).ok()?;
        Some(wall.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn hours(zone: &str, ranges: &[&str]) -> Hours {
        let ranges = ranges.iter().map(|text| Range::parse(text).unwrap()).collect();
        Hours { ranges, zone: TimeZone::get(zone).unwrap() }
    }

    fn at(text: &str) -> Time {
        Time::from_ms(text.parse::<Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn only_times_of_a_day_are_a_range() {
        for text in ["22:00-06:00", "00:00-24:00", " 08:30 - 09:00 "] {
            assert!(Range::parse(text).is_some(), "{text}");
        }
        for text in [
            "",
            "22-06",
            "22:00",
            "24:00-06:00",
            "22:60-23:00",
            "25:00-26:00",
            "1:00-2:00",
            "08:00-08:00",
            "+1:00-02:00",
        ] {
            assert!(Range::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_range_over_midnight_is_allowed_on_both_days() {
        let night = hours("UTC", &["22:00-06:00"]);
        let allowed = ["2026-11-28T22:00:00Z", "2026-11-28T23:59:59Z", "2026-11-29T05:59:59Z"];
        assert!(allowed.iter().all(|t| night.allow(at(t))));
        let not = ["2026-11-28T21:59:59Z", "2026-11-29T06:00:00Z"];
        assert!(!not.iter().any(|t| night.allow(at(t))));
        assert_eq!(night.next(at("2026-11-29T06:00:00Z")), Some(at("2026-11-29T22:00:00Z")));
        assert_eq!(night.next(at("2026-11-29T05:00:00Z")), Some(at("2026-11-29T05:00:00Z")));
    }

    /// In Berlin the clock went from 2 to 3 on 2026-03-29 and from 3 back to 2 on 2026-10-25.
    #[test]
    fn the_clock_on_the_wall_decides_when_it_is_set() {
        let berlin = hours("Europe/Berlin", &["02:00-04:00"]);
        // An hour that does not exist is none that is allowed: the range begins with the first one that does.
        assert_eq!(berlin.next(at("2026-03-29T00:30:00Z")), Some(at("2026-03-29T01:00:00Z")));
        assert!(!berlin.allow(at("2026-03-29T02:00:00Z")), "04:00 there");
        // An hour that exists twice is allowed twice.
        assert!(
            berlin.allow(at("2026-10-25T00:30:00Z")) && berlin.allow(at("2026-10-25T01:30:00Z"))
        );
        // A range that is skipped as a whole is the next day's.
        let gap = hours("Europe/Berlin", &["02:15-02:45"]);
        assert_eq!(gap.next(at("2026-03-28T23:00:00Z")), Some(at("2026-03-30T00:15:00Z")));
        // Set back into a range that is over.
        let back = hours("Europe/Berlin", &["02:00-02:30"]);
        assert_eq!(back.next(at("2026-10-25T00:40:00Z")), Some(at("2026-10-25T01:00:00Z")));
    }

    /// Whatever the zone and the range, the next time is allowed, and none before it is.
    #[test]
    fn the_next_time_is_the_first_one() {
        for zone in ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns"] {
            for ranges in [&["01:00-02:15"][..], &["23:30-00:30", "12:00-12:01"], &["02:00-24:00"]]
            {
                let hours = hours(zone, ranges);
                for n in 0..600u64 {
                    let time = at("2026-01-01T00:00:00Z").after(Duration::from_secs(n * 52_711));
                    let next = hours.next(time).unwrap();
                    assert!(hours.allow(next), "{zone} {time}");
                    let minutes = next.since(time).as_secs() / 60;
                    let between = (0..minutes).map(|m| time.after(Duration::from_secs(m * 60)));
                    let early = between.filter(|t| hours.allow(*t)).min();
                    assert_eq!(early, None, "{zone} {ranges:?} {time}: not {next}");
                }
            }
        }
    }
}
