//! Whether a plan is worth carrying out, and if not, why: in time.
//!
//! It is worth it if it moves something and one replay lasts at least [`WORTH_SHARE`] less. If not, the reason is found
//! by arithmetic, in this order:
//!
//! 1. `nothing-fragmented`: no access that was seen crosses a break. `not-seen-enough` instead, if what was not seen lasts more
//!    than [`WORTH_SHARE`] of all.
//! 2. `all-from-cache`: misses were recorded, and of the accesses that cross a break less than a hundredth reached the device.
//!    `not-seen-enough` instead, if not all places were recorded at a time and that may be the reason ([`Thinned`]).
//! 3. `hidden-behind-the-queue` or `device-does-not-care`: even if everything were contiguous, one replay would last less
//!    than [`WORTH_SHARE`] less, or less by no more than where the drive keeps the fragments may matter
//!    ([`Outlook::is_in_doubt`]). It is the queue that hides it if that would not be so with each read by itself.
//! 4. `too-rarely-read`: time could be saved, but no range saves enough for the bytes that it writes.

use crate::file::Summary;
use crate::input::Basis;
use crate::outlook::Outlook;
use crate::survey::Survey;
use fragmend_layout::{Unit, human};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Below this share of the time saved, mending is not worth it.
pub const WORTH_SHARE: f64 = 0.01;
/// Below this share of accesses that reach the device, all come from the cache.
const REACHED_SHARE: f64 = 0.01;

/// Why a plan is not worth carrying out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// No file was considered.
    NoFile,
    /// Ranges are worth moving, and each is longer than the budget.
    OverBudget,
    /// Nothing that was read is fragmented.
    NothingFragmented,
    /// What programs read came from the page cache.
    AllFromCache,
    /// What programs read may have come from the page cache, or was not recorded, or is too little to tell what pays: not all
    /// places were recorded at a time.
    NotSeenEnough,
    /// The requests of a split overlap with those of others in flight.
    HiddenBehindTheQueue,
    /// More requests last hardly longer on this device.
    DeviceDoesNotCare,
    /// What would be saved is less than what moving it costs.
    TooRarelyRead,
}

/// What the verdict depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Case {
    /// One replay of everything.
    pub outlook: Outlook,
    /// What is taken to have reached the device.
    pub basis: Basis,
    /// Seconds that a range must save per GiB.
    pub min_gain_s_per_gib: f64,
    /// Files that could not be considered, and accesses that could not be read.
    pub left_out: u64,
    /// If not all places were recorded at a time.
    pub thinned: Option<Thinned>,
    /// Whether a thinned out recording has too little to tell what pays.
    pub left_to_chance: bool,
}

/// What the devices read while a part of all places was recorded at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thinned {
    /// The part, from 0 to 1.
    share: f64,
    /// Reads of the devices for which no access was recorded: of other files, of metadata, or of places that were not
    /// recorded just then. `None` if the kernel did not count what the devices read.
    unexplained: Option<u64>,
}

impl Thinned {
    /// That of a survey; `None` if all was recorded.
    pub fn of(survey: &Survey) -> Option<Self> {
        let part = survey.part?;
        let share = f64::from(part.places_ppm) / 1e6;
        let accesses = survey.files.iter().flat_map(|file| &file.accesses);
        let reached = accesses.filter(|a| a.is_read_by_device());
        let counts = reached.map(|a| u64::from(a.count)).fold(0, u64::saturating_add);
        // Counts stand for places that were not recorded as well: what was not seen explains nothing.
        let seen = (counts as f64 * share) as u64;
        Some(Self { share, unexplained: part.device_reads.map(|all| all.saturating_sub(seen)) })
    }

    /// Whether so many of these accesses may have reached a device that they do not all come from the page cache.
    fn may_hide(self, asked: u128) -> bool {
        let most = self.unexplained.map_or(f64::INFINITY, |reads| reads as f64);
        most > 0.0 && most >= asked as f64 * REACHED_SHARE
    }
}

/// The part of `whole` by which `less` is smaller; 0 of nothing.
fn share(whole: u128, less: u128) -> f64 {
    if whole == 0 { 0.0 } else { whole.saturating_sub(less) as f64 / whole as f64 }
}

/// The same of any two figures.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Seconds of one replay of what was seen, and of what was not.
fn all_seconds(summary: &Summary) -> f64 {
    summary.seconds_before + summary.unseen_seconds_before
}

/// Why nothing is worth moving.
pub fn why(summary: &Summary, case: &Case) -> Why {
    let Outlook { now, contiguous_ns, alone, asked, reached, .. } = case.outlook;
    let recorded = case.basis == Basis::MissesRecorded;
    let from_cache = || {
        let is_unsure = recorded && case.thinned.is_some_and(|thinned| thinned.may_hide(asked));
        if is_unsure { Why::NotSeenEnough } else { Why::AllFromCache }
    };
    if summary.files_considered == 0 {
        // Without a request, the recorder has seen no file.
        let unseen = recorded && case.left_out == 0;
        return if unseen { from_cache() } else { Why::NoFile };
    }
    if summary.ranges == 0 && summary.over_budget_bytes > 0 {
        return Why::OverBudget;
    }
    if asked == 0 {
        let unseen = ratio(summary.unseen_seconds_before, all_seconds(summary));
        return if unseen < WORTH_SHARE { Why::NothingFragmented } else { Why::NotSeenEnough };
    }
    // An imitated cache fetches once what was asked for, however often that was.
    let few =
        if recorded { (reached as f64) / (asked as f64) < REACHED_SHARE } else { reached == 0 };
    if few {
        return from_cache();
    }
    if case.outlook.is_in_doubt() {
        return Why::DeviceDoesNotCare;
    }
    if share(now.ns, contiguous_ns) < WORTH_SHARE {
        let by_itself = share(alone[0], alone[1]);
        return if by_itself < WORTH_SHARE {
            Why::DeviceDoesNotCare
        } else {
            Why::HiddenBehindTheQueue
        };
    }
    if case.left_to_chance { Why::NotSeenEnough } else { Why::TooRarelyRead }
}

/// Sets the shares, and the verdict on whether the plan is worth it.
pub fn judge(summary: &mut Summary, case: &Case, file_systems_bytes: u64) {
    let saved = summary.requests_before.saturating_sub(summary.requests_after);
    summary.saved_share = ratio(saved as f64, summary.requests_before as f64);
    summary.seconds_saved = (summary.seconds_before - summary.seconds_after).max(0.0);
    let time_share = ratio(summary.seconds_saved, all_seconds(summary));
    // Of a thinned out recording, what everything would come to.
    let all_saved = summary.seconds_saved + summary.unseen_seconds_saved;
    summary.file_system_share = ratio(summary.bytes_to_move as f64, file_systems_bytes as f64);
    let known =
        ratio(all_saved, all_seconds(summary)) >= WORTH_SHARE && !case.outlook.is_in_doubt();
    summary.worth = summary.ranges > 0 && known && !case.left_to_chance;
    summary.why = (!summary.worth).then(|| why(summary, case));
    summary.verdict = match summary.why {
        Some(why) => format!("not worth it: {}", because(why, summary, case)),
        None => worth_it(summary, time_share),
    };
}

fn worth_it(summary: &Summary, time_share: f64) -> String {
    let unshares = match summary.space_cost_bytes {
        0 => String::new(),
        cost => format!("; it would unshare {}, which needs as much space", bytes(cost)),
    };
    format!(
        "worth it: {} less waiting ({:.0} %) for {} written{unshares}{}",
        seconds(summary.seconds_saved),
        time_share * 100.0,
        bytes(summary.bytes_to_move),
        and_more(summary)
    )
}

/// What a recording of everything would come to besides, if that is more than a little.
fn and_more(summary: &Summary) -> String {
    let more = summary.unseen_seconds_saved;
    if more < summary.seconds_saved * WORTH_SHARE {
        return String::new();
    }
    format!(
        "; ranges that were not recorded, and are not in this plan, would save about {} more: record for longer, or with a larger --overhead",
        seconds(more)
    )
}

/// The reason in words.
fn because(why: Why, summary: &Summary, case: &Case) -> String {
    let Outlook { now, contiguous_ns, alone, asked, reached, .. } = case.outlook;
    let lasts = || seconds(now.seconds());
    let possible = share(now.ns, contiguous_ns) * 100.0;
    match why {
        Why::NoFile if case.left_out > 0 => {
            let recorded = if case.basis == Basis::SequentialRead { "" } else { " that were recorded" };
            let left = case.left_out;
            format!("no file was considered: {left}{recorded} could not be; see what was left alone")
        }
        Why::NoFile => "no file was considered".into(),
        Why::OverBudget => format!(
            "the budget fits nothing: {} would be worth moving, range by range; raise --budget",
            bytes(summary.over_budget_bytes)
        ),
        Why::NothingFragmented => match case.basis {
            Basis::SequentialRead => "nothing is fragmented".into(),
            _ => "nothing that was read is fragmented".into(),
        },
        Why::AllFromCache if asked == 0 => {
            "all from cache: no request for these files reached the device while it was recorded; --assume-cold plans for a cold start".into()
        }
        Why::AllFromCache => {
            let cold = match case.basis {
                Basis::AssumedCold => "",
                _ => "; --assume-cold plans for a cold start",
            };
            format!(
                "all from cache: of {asked} accesses to what is fragmented, {reached} reached the device{cold}"
            )
        }
        Why::NotSeenEnough => not_seen_enough(case),
        Why::HiddenBehindTheQueue => format!(
            "hidden behind the queue: with {:.1} reads in flight, contiguous files would save {possible:.1} % of {} ({:.0} % with one read at a time)",
            summary.depth,
            lasts(),
            share(alone[0], alone[1]) * 100.0
        ),
        Why::DeviceDoesNotCare if case.outlook.is_in_doubt() => format!(
            "the device does not care: contiguous files would save {possible:.1} % of {}, and where it keeps the fragments matters as much",
            lasts()
        ),
        Why::DeviceDoesNotCare => format!(
            "the device does not care: contiguous files would save {possible:.1} % of {}",
            lasts()
        ),
        Why::TooRarelyRead if summary.ranges > 0 => format!(
            "too rarely read: moving {} would save {} of {}",
            bytes(summary.bytes_to_move),
            seconds(summary.seconds_saved),
            lasts()
        ),
        Why::TooRarelyRead => format!(
            "too rarely read: no range saves {:.2} s per GiB written (--min-gain) in one replay, which lasts {}",
            case.min_gain_s_per_gib,
            lasts()
        ),
    }
}

/// What was not seen, and what to do.
fn not_seen_enough(case: &Case) -> String {
    let share = case.thinned.map_or(1.0, |thinned| thinned.share) * 100.0;
    if case.left_to_chance {
        return format!(
            "not seen enough: {share:.1} % of all places were recorded at a time, and ranges were seen too few times to tell which of them pay; record for longer, or with a larger --overhead"
        );
    }
    let reads = match case.thinned.and_then(|thinned| thinned.unexplained) {
        Some(reads) => {
            format!(
                "{reads} reads of the device are of none of the files that were seen, or were not recorded"
            )
        }
        None => "how much the device read is not known".into(),
    };
    format!(
        "not seen enough: {share:.1} % of all places were recorded at a time, and {reads}; record for longer, or with a larger --overhead"
    )
}

fn seconds(s: f64) -> String {
    human(s, Unit::Seconds)
}

fn bytes(n: u64) -> String {
    human(n as f64, Unit::Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragments::Bill;

    /// A replay of 100 accesses of which `reached` reach the device, that lasts so many nanoseconds as the files are and
    /// contiguous, at the depth that was seen and with one read at a time.
    fn case(reached: u128, [now, contiguous]: [u128; 2], alone: [u128; 2]) -> Case {
        let now = Bill { requests: 100, ns: now };
        let apart_ns = now.ns;
        let outlook =
            Outlook { now, contiguous_ns: contiguous, apart_ns, alone, asked: 100, reached };
        Case {
            outlook,
            basis: Basis::MissesRecorded,
            min_gain_s_per_gib: 0.5,
            left_out: 0,
            thinned: None,
            left_to_chance: false,
        }
    }

    fn considered(files: u64) -> Summary {
        Summary { files_considered: files, ..Summary::default() }
    }

    #[test]
    fn what_was_not_recorded_is_not_said_to_be() {
        let case = Case { left_out: 2, ..case(0, [0, 0], [0, 0]) };
        let said = |basis| because(Why::NoFile, &considered(0), &Case { basis, ..case });
        assert!(said(Basis::MissesRecorded).contains("2 that were recorded could not be"));
        assert!(said(Basis::SequentialRead).contains("considered: 2 could not be"));
    }

    #[test]
    fn each_reason_follows_from_its_figures() {
        let of = |case: &Case| why(&considered(1), case);
        let slow = [1000, 500];
        assert_eq!(of(&case(100, slow, slow)), Why::TooRarelyRead);
        // A hundredth of the accesses, and less.
        assert_eq!(of(&case(1, slow, slow)), Why::TooRarelyRead);
        assert_eq!(of(&case(0, slow, slow)), Why::AllFromCache);
        // A hundredth of the time, and less.
        assert_eq!(of(&case(100, [1000, 990], slow)), Why::TooRarelyRead);
        assert_eq!(of(&case(100, [1000, 991], slow)), Why::HiddenBehindTheQueue);
        assert_eq!(of(&case(100, [1000, 991], [1000, 990])), Why::HiddenBehindTheQueue);
        assert_eq!(of(&case(100, [1000, 991], [1000, 991])), Why::DeviceDoesNotCare);
        // A device on which contiguous files are slower does not care either.
        assert_eq!(of(&case(100, [1000, 1100], [1000, 1100])), Why::DeviceDoesNotCare);
        // The fragments may be where they cost that much more, or less.
        for apart_ns in [1501, 500] {
            let mut doubtful = case(100, slow, slow);
            doubtful.outlook.apart_ns = apart_ns;
            assert_eq!(of(&doubtful), Why::DeviceDoesNotCare);
        }
        let mut unbroken = case(100, slow, slow);
        unbroken.outlook.asked = 0;
        assert_eq!(of(&unbroken), Why::NothingFragmented);
        assert_eq!(why(&considered(0), &unbroken), Why::AllFromCache);
        // Reads of which it is not known whose they are: a hundredth of what was asked for, and less.
        for (reads, why) in [(Some(1), Why::NotSeenEnough), (Some(0), Why::AllFromCache)] {
            let thinned = Some(Thinned { share: 0.1, unexplained: reads });
            assert_eq!(of(&Case { thinned, ..case(0, slow, slow) }), why);
            assert_eq!(super::why(&considered(0), &Case { thinned, ..unbroken }), why);
            // What has reached the device is enough.
            assert_eq!(of(&Case { thinned, ..case(100, slow, slow) }), Why::TooRarelyRead);
        }
        let unknown = Some(Thinned { share: 0.1, unexplained: None });
        assert_eq!(of(&Case { thinned: unknown, ..case(0, slow, slow) }), Why::NotSeenEnough);
        let imitated = Case { basis: Basis::ImitatedCache, ..unbroken };
        assert_eq!(why(&considered(0), &imitated), Why::NoFile);
        // What was recorded is gone now.
        assert_eq!(why(&considered(0), &Case { left_out: 1, ..unbroken }), Why::NoFile);
        // An imitated cache fetches what it was asked for once.
        let mut often = case(1, [1000, 1000], [1000, 1000]);
        (often.basis, often.outlook.asked) = (Basis::AssumedCold, 1000);
        assert_eq!(of(&often), Why::DeviceDoesNotCare);
        let over = Summary { over_budget_bytes: 1, ..considered(1) };
        assert_eq!(why(&over, &case(100, slow, slow)), Why::OverBudget);
    }

    #[test]
    fn a_hundredth_of_the_time_is_worth_it() {
        let judged = |after: f64| {
            let mut summary = Summary {
                ranges: 1,
                bytes_to_move: 4096,
                seconds_before: 1000.0,
                seconds_after: after,
                ..considered(1)
            };
            judge(&mut summary, &case(100, [1000, 500], [1000, 500]), 8192);
            assert_eq!(summary.file_system_share, 0.5);
            (summary.worth, summary.why, summary.seconds_saved)
        };
        assert_eq!(judged(990.0), (true, None, 10.0));
        assert!(!judged(990.1).0);
        assert_eq!(judged(990.1).1, Some(Why::TooRarelyRead));
        assert_eq!(judged(1001.0).2, 0.0);
    }

    #[test]
    fn each_verdict_is_a_sentence_with_its_figures() {
        let judged = |case: &Case| {
            let mut summary = Summary { depth: 31.6, ..considered(1) };
            judge(&mut summary, case, 0);
            summary.verdict
        };
        let doubtful = Outlook {
            apart_ns: 400_000_000,
            ..case(100, [1_000_000_000, 500_000_000], [2; 2]).outlook
        };
        let doubtful = Case { outlook: doubtful, ..case(100, [2; 2], [2; 2]) };
        assert_eq!(
            judged(&doubtful),
            "not worth it: the device does not care: contiguous files would save 50.0 % of 1.0 s, and where it keeps the fragments matters as much"
        );
        let ms = |n: u128| n * 1_000_000;
        let slow = [ms(1000), ms(500)];
        let thinned = |unexplained| Some(Thinned { share: 0.016, unexplained });
        for (case, expected) in [
            (
                Case { thinned: thinned(Some(70)), ..case(0, slow, slow) },
                "not worth it: not seen enough: 1.6 % of all places were recorded at a time, and 70 reads of the device are of none of the files that were seen, or were not recorded; record for longer, or with a larger --overhead",
            ),
            (
                Case { thinned: thinned(None), ..case(0, slow, slow) },
                "not worth it: not seen enough: 1.6 % of all places were recorded at a time, and how much the device read is not known; record for longer, or with a larger --overhead",
            ),
            (
                case(0, slow, slow),
                "not worth it: all from cache: of 100 accesses to what is fragmented, 0 reached the device; --assume-cold plans for a cold start",
            ),
            (
                case(100, [ms(1000), ms(995)], slow),
                "not worth it: hidden behind the queue: with 31.6 reads in flight, contiguous files would save 0.5 % of 1.0 s (50 % with one read at a time)",
            ),
            (
                case(100, [ms(1000), ms(995)], [ms(1000), ms(995)]),
                "not worth it: the device does not care: contiguous files would save 0.5 % of 1.0 s",
            ),
            (
                case(100, slow, slow),
                "not worth it: too rarely read: no range saves 0.50 s per GiB written (--min-gain) in one replay, which lasts 1.0 s",
            ),
        ] {
            assert_eq!(judged(&case), expected);
        }
    }
}
