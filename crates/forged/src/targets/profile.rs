//! Profiles of devices: an accepted one makes sense, can be reckoned with, and is the same when written and read again.

use fragmend_device::profile::{Unusable, parse};
use fragmend_layout::Split;
use std::path::Path;

/// The longest reason, in characters: what is quoted of a forged file is limited.
const LONGEST: usize = 2000;

/// A profile's file.
pub fn profile(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let path = Path::new("profile.json");
    let profile = match parse(text, path) {
        Ok(profile) => profile,
        Err(why) => {
            let said = why.to_string();
            assert!(said.chars().count() <= LONGEST && !said.contains(char::is_control), "{said}");
            assert!(!matches!(why, Unusable::OtherDevice(..) | Unusable::OtherFirmware { .. }));
            return false;
        }
    };
    let share = |share: Option<f64>| share.is_none_or(|share| (0.0..=1.0).contains(&share));
    assert!(share(profile.confidence) && share(profile.disturbed));
    if let (Some(granularity), Some(stripe)) = (profile.die_granularity_bytes, profile.stripe_bytes)
    {
        assert!(stripe > granularity && stripe.is_multiple_of(granularity));
    }
    for (bytes, requests, depth) in
        [(4096, 1, 1.0), (1 << 20, 7, 3.5), (u64::MAX / 2, 1 << 40, 1e9)]
    {
        let seek_ns = profile.costs.seek_either_ns(bytes);
        let ns = profile.costs.read_ns(
            Split {
                bytes,
                requests,
                seek_ns,
                torn: requests % 2 == 0,
                streamed: requests % 3 == 0,
            },
            depth,
        );
        assert!(ns.is_finite() && ns > 0.0, "{ns}");
    }
    let again = serde_json::to_string(&profile).expect("a profile is JSON");
    let again = parse(&again, path).expect("what was written is read again");
    // Fractions may differ in their last digit.
    assert_eq!((&again.device, &again.costs), (&profile.device, &profile.costs));
    assert_eq!(
        (again.stripe_bytes, again.die_granularity_bytes, again.probed_at),
        (profile.stripe_bytes, profile.die_granularity_bytes, profile.probed_at)
    );
    true
}
