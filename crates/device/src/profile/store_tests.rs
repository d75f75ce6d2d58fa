use super::*;
use crate::kind::Kind;
use crate::probe::area::Content;
use crate::probe::clock::ClockKind;
use crate::probe::intervals::{Geometry, Sure};
use crate::probe::{Measured, meter::Spent};
use crate::profile::ProfiledDevice;
use fragmend_layout::{CostModel, CostSource, ParallelUnits, RequestCost};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

fn identity(id: &str) -> Identity {
    let firmware = Some("1.0".to_owned());
    Identity { id: id.to_owned(), model: Some("A drive".into()), firmware, bytes: 1 << 40 }
}

fn profile(id: &str) -> Profile {
    let cost = |request_bytes, burst_ns| RequestCost {
        request_bytes,
        in_flight: 1,
        burst_ns,
        interval_ns: burst_ns,
        split_ns: None,
        stream_ns: None,
    };
    let reads = vec![cost(4096, 50_000), cost(32 << 10, 60_000), cost(1 << 20, 400_000)];
    let sure = |bytes| Some(Sure { bytes, confidence: 0.999 });
    let measured = Measured {
        costs: CostModel::new(CostSource::Probed, reads, Vec::new()).unwrap(),
        complete: true,
        geometry: Geometry {
            stripe: sure(1 << 20),
            granularity: sure(32 << 10),
            ..Geometry::default()
        },
        content: Content::Data,
        spent: Spent { bytes: 5, requests: 1 },
        lasted: Duration::from_millis(1500),
    };
    let device = ProfiledDevice {
        name: "nvme0n1".into(),
        kind: Kind::Flash,
        identity: Some(identity(id)),
        partition_start_bytes: None,
    };
    Profile::new(device, measured, ClockKind::Wall)
}

fn found(dir: &Path, of: &Identity) -> Result<Option<Profile>, String> {
    of_identity(of, dir).map_err(|e| e.to_string())
}

#[test]
fn a_profile_comes_back_as_it_was_kept() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new/profiles");
    let (mine, id) = (profile("wwid eui.1"), identity("wwid eui.1"));
    assert_eq!(found(&dir, &id), Ok(None));
    let path = keep(&mine, &dir).unwrap();
    assert_eq!(path.file_name().unwrap(), "wwid_eui.1.json");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(found(&dir, &id), Ok(Some(mine.clone())));
    assert_eq!(found(&dir, &identity("wwid eui.2")), Ok(None));
    // 8 MiB: 256 requests of 32 KiB, or 8 of 1 MiB.
    let slope = (256.0 * 60_000.0 - 8.0 * 400_000.0) / 248.0;
    assert_eq!(mine.one_more_request[0].ns, f64::round(slope) as i64);
    assert_eq!(mine.confidence, Some(0.999));
}

#[test]
fn a_profile_of_another_device_or_firmware_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    // Their names in the directory are the same.
    keep(&profile("serial a/b"), dir.path()).unwrap();
    let error = found(dir.path(), &identity("serial a_b")).unwrap_err();
    assert!(error.contains("is of another device (serial a/b)"), "{error}");
    let larger = Identity { bytes: 2 << 40, ..identity("serial a/b") };
    assert!(
        found(dir.path(), &larger).unwrap_err().contains("of another device (one of 1099511627776")
    );
    let newer = Identity { firmware: Some("2.0".into()), ..identity("serial a/b") };
    let error = found(dir.path(), &newer).unwrap_err();
    assert!(error.contains("measured with firmware 1.0, the device has 2.0"), "{error}");
    assert!(found(dir.path(), &identity("serial a/b")).unwrap().is_some());
}

#[test]
fn a_profile_that_was_changed_by_hand_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let id = identity("serial x");
    let path = keep(&profile("serial x"), dir.path()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, why) in [
        ("\"profile_version\": 1", "\"profile_version\": 9", "has version 9, this program reads 1"),
        ("\"profile_version\": 1", "\"profile_version\": -1", "is no profile"),
        ("\"burst_ns\": 50000", "\"burst_ns\": 0", "a time is 0"),
        ("\"request_bytes\": 4096", "\"request_bytes\": 32768", "twice"),
        ("\"confidence\": 0.999", "\"confidence\": 1.5", "between 0 and 1"),
        ("\"stripe_bytes\": 1048576", "\"stripe_bytes\": 1048064", "no multiple of the die"),
        ("\"stripe_bytes\": 1048576", "\"stripe_bytes\": 0", "multiple of 512"),
        ("\"source\": \"probed\"", "\"source\": \"guessed\"", "were not probed"),
        ("\"source\": \"probed\"", "\"source\": \"a\\u001b[2Jb\"", "is no profile"),
        ("\"seconds\": 1.5", "\"seconds\": -1.5", "no time"),
        ("{", "", "is no profile"),
    ] {
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text, "{from}");
        std::fs::write(&path, wrong).unwrap();
        let error = found(dir.path(), &id).unwrap_err();
        assert!(
            error.contains(why) && error.contains("probe") && !error.contains('\u{1b}'),
            "{error}"
        );
    }
    std::fs::write(&path, "x".repeat(LONGEST as usize + 1)).unwrap();
    assert!(found(dir.path(), &id).unwrap_err().contains("longer than"));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(found(dir.path(), &id).unwrap_err().contains("a directory"));
}

#[test]
fn no_link_is_followed_and_nothing_is_written_without_an_identity() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "mine").unwrap();
    let kept = dir.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    std::os::unix::fs::symlink(&victim, kept.join("serial_x.json")).unwrap();
    assert!(keep(&profile("serial x"), &kept).is_err());
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    let mut nameless = profile("serial x");
    nameless.device.identity = None;
    let nowhere = dir.path().join("nowhere");
    assert!(keep(&nameless, &nowhere).is_err() && !nowhere.exists());
}

#[test]
fn costs_that_programs_may_not_meet_are_used_with_a_note_or_not_at_all() {
    let changed = |change: fn(&mut Profile)| {
        let mut profile = profile("serial x");
        change(&mut profile);
        profile.caveat()
    };
    assert_eq!(changed(|_| {}), Ok(None));
    assert_eq!(changed(|p| p.disturbed = Some(0.4)), Ok(None));
    let refused = [
        (changed(|p| p.complete = false), "there was no time for all of it"),
        (changed(|p| p.disturbed = Some(1.0)), "other programs used it beside 100 % of the bursts"),
    ];
    for (caveat, why) in refused {
        assert!(caveat.clone().is_err_and(|said| said.starts_with(why)), "{caveat:?}");
    }
    let noted = [
        (changed(|p| p.content = Content::Zeroes), "only zeroes were read"),
        (changed(|p| p.clock = ClockKind::Served), "by the clock of the drive of the lab"),
        (
            changed(|p| p.device.identity.as_mut().unwrap().id += " through the page cache"),
            "it reads its file through the page cache",
        ),
    ];
    for (caveat, why) in noted {
        assert!(caveat.clone().is_ok_and(|said| said.unwrap().starts_with(why)), "{caveat:?}");
    }
}

#[test]
fn a_stripe_is_one_turn_of_all_units() {
    let mut profile = profile("a drive");
    let units = ParallelUnits { units: 32, unit_bytes: 32 << 10 };
    assert_eq!(profile.parallel_units(), Some(units));
    profile.stripe_bytes = Some(2 << 20);
    assert_eq!(profile.parallel_units().map(|of| of.units), Some(64));
    // More dies than any drive has would need as much memory.
    profile.stripe_bytes = Some(1 << 50);
    assert_eq!(profile.parallel_units(), None);
    for unknown in [(None, Some(1 << 20)), (Some(4096), None), (Some(0), Some(1 << 20))] {
        (profile.die_granularity_bytes, profile.stripe_bytes) = unknown;
        assert_eq!(profile.parallel_units(), None, "{unknown:?}");
    }
}
