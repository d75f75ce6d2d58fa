//! The daemon's policy: a reason is one line of limited length; an accepted policy is within its bounds, limits what is written
//! if anything may move, and can be explained and asked.

use fragmend_watch::Time;
use fragmend_watch::policy::Policy;
use fragmend_watch::policy::rules::{Cgroups, Mode};
use std::path::Path;

/// The longest reason, in characters: what is quoted of a forged file is limited.
const LONGEST: usize = 4000;

/// A policy's file.
pub fn policy(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let policy = match Policy::parse(text) {
        Ok(policy) => policy,
        Err(why) => {
            assert!(why.chars().count() <= LONGEST && !why.contains(char::is_control), "{why:?}");
            return false;
        }
    };
    assert!(!policy.paths.is_empty() && policy.paths.iter().all(|path| path.is_absolute()));
    assert!(policy.metrics.textfile.as_ref().is_none_or(|path| path.is_absolute()));
    let recording = &policy.recording;
    assert!(!recording.window.is_zero() && recording.window <= recording.every);
    assert!(recording.overhead_percent > 0.0 && recording.overhead_percent <= 100.0);
    assert!(policy.planning_every >= recording.every && policy.keep >= Time::DAY);
    // Whatever the rating: what moves is limited.
    for rated in [0, 1 << 40, u64::MAX] {
        let budget = policy.budget.bytes(Some(rated));
        assert!(budget.is_some() || !policy.moves());
        assert!(budget <= policy.budget.bytes_per_day.or(Some(rated)));
    }
    for at in [0, 1_000_000_000_000, 2_000_000_000_000].map(Time::from_ms) {
        if let Some(next) = policy.hours.next(at) {
            assert!(next >= at && policy.hours.allow(next), "{next:?} after {at:?}");
        }
    }
    let seen = |some_unknown| Cgroups { known: vec!["a/b.service".into()], some_unknown };
    for path in ["/", "/srv/a", "/srv/\u{1b}\n"].map(Path::new) {
        let modes = [false, true].map(|unknown| policy.ruling(path, false, &seen(unknown)).mode);
        assert!(modes[1] <= modes[0], "a program that is not known permits more: {modes:?}");
        assert!(policy.moves() || modes[0] != Mode::Move);
    }
    for line in policy.in_words() {
        assert!(!line.is_empty() && !line.contains(char::is_control), "{line:?}");
    }
    true
}
