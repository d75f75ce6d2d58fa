//! What a plan says of wear: by the user's rating, by the drives' own account, or nothing.

mod support;

use fragmend_layout::DriveHealth;
use fragmend_plan::wear::{Drive, RatingSource, Wear};
use fragmend_plan::{Settings, Summary, Survey, make};
use support::*;

const TB: u64 = 1_000_000_000_000;

fn drive(name: &str, devices: &[u64], health: Result<DriveHealth, &str>) -> Drive {
    Drive { name: name.into(), devices: devices.to_vec(), health: health.map_err(str::to_owned) }
}

fn reports(used: u8, written: u64) -> Result<DriveHealth, &'static str> {
    Ok(DriveHealth::of_percent(used, Some(written)))
}

fn planned(drives: Vec<Drive>, rated: Option<u64>) -> Summary {
    let reads: Vec<_> = (0..64).map(|n| read(n * 128 * KIB, 128 * KIB, 1)).collect();
    let survey = Survey { drives, ..survey(&scattered(vec![32 * KIB; 4 * 64]), &reads, &serial()) };
    let settings = Settings { rated_writes_bytes: rated, ..Settings::default() };
    let summary = make(survey, &settings).summary;
    assert_eq!(summary.bytes_to_move, 8 * MIB);
    summary
}

fn wear(summary: &Summary) -> &Wear {
    summary.wear.as_ref().expect("something of wear")
}

#[test]
fn without_a_rating_and_a_drive_that_reports_nothing_is_said() {
    let s = planned(Vec::new(), None);
    assert_eq!((s.rated_share, s.wear), (None, None));
}

#[test]
fn a_drive_says_what_the_plan_costs_it() {
    let s = planned(vec![drive("nvme0n1", &[7], reports(12, 41 * TB))], None);
    let (wear, rated) = (wear(&s), (8 * MIB) as f64);
    assert_eq!((wear.source, wear.drives.len()), (RatingSource::Drive, 1));
    let of = &wear.drives[0];
    assert_eq!((&*of.name, of.bytes_to_write, of.unknown.as_deref()), ("nvme0n1", 8 * MIB, None));
    // Between 11 and 13 % for what was written.
    let near = |share: Option<f64>, percent: f64| {
        (share.unwrap() / (rated * percent / 100.0 / (41 * TB) as f64) - 1.0).abs() < 1e-9
    };
    assert!(near(of.share_low, 11.0) && near(of.share_high, 13.0), "{of:?}");
    assert_eq!(s.rated_share, of.share_high);
    // What is written to other file systems does not wear it.
    let s = planned(vec![drive("nvme0n1", &[8], reports(12, 41 * TB))], None);
    let of = &s.wear.unwrap().drives[0];
    assert_eq!((of.bytes_to_write, of.share_high, s.rated_share), (0, Some(0.0), Some(0.0)));
}

#[test]
fn the_users_rating_goes_first_and_the_drives_account_stays() {
    let s = planned(vec![drive("nvme0n1", &[7], reports(12, 41 * TB))], Some(TB));
    assert_eq!(s.rated_share, Some((8 * MIB) as f64 / TB as f64));
    assert_eq!(wear(&s).source, RatingSource::User);
    assert!(wear(&s).drives[0].share_high < s.rated_share);
    let s = planned(Vec::new(), Some(TB));
    assert_eq!((wear(&s).source, wear(&s).drives.len()), (RatingSource::User, 0));
}

#[test]
fn of_several_drives_the_most_worn_by_the_plan_counts() {
    let new = drive("sda", &[7], reports(1, 2 * TB));
    let small = drive("sdb", &[7], reports(50, TB));
    let large = drive("sdc", &[7, 9], reports(50, 600 * TB));
    let closed = drive("sdd", &[7], Err("only root may ask it"));
    let s = planned(vec![new, large, closed, small], None);
    let drives = &wear(&s).drives;
    let names: Vec<_> = drives.iter().map(|drive| &*drive.name).collect();
    // Each is charged with all of it.
    assert!(drives.iter().all(|drive| drive.bytes_to_write == 8 * MIB));
    assert_eq!(names, ["sdb", "sdc", "sda", "sdd"]);
    assert_eq!((s.rated_share, drives[2].share_high), (drives[0].share_high, None));
    assert_eq!(drives[3].unknown.as_deref(), Some("only root may ask it"));
}

#[test]
fn a_drive_that_tells_no_rating_has_no_share() {
    for health in [reports(2, TB), Ok(DriveHealth::of_tenth(3)), Err("it does not report that")] {
        let s = planned(vec![drive("mmcblk0", &[7], health)], None);
        assert_eq!((s.rated_share, wear(&s).source), (None, RatingSource::None));
        assert_eq!(wear(&s).drives[0].share_high, None);
    }
}

#[test]
fn a_plan_names_a_limited_number_of_drives_and_is_read_again() {
    let many = |n: u8| drive(&format!("sd{n}"), &[7], reports(n, u64::from(n) * TB));
    let s = planned((1..=100).map(many).collect(), None);
    assert_eq!(wear(&s).drives.len(), 64);
    let text = serde_json::to_string(&s).unwrap();
    let again: Summary = serde_json::from_str(&text).unwrap();
    // Fractions may differ in their last digit.
    let figures = |summary: &Summary| {
        let of = |drive: &fragmend_plan::wear::DriveWear| {
            let rated = drive.health.as_ref().and_then(|health| health.rated_bytes);
            (drive.name.clone(), drive.bytes_to_write, rated)
        };
        wear(summary).drives.iter().map(of).collect::<Vec<_>>()
    };
    assert!(figures(&again) == figures(&s));
    let one = serde_json::to_string(&wear(&s).drives[0]).unwrap();
    let more = text.replacen(&one, &[one.as_str(); 2].join(","), 1);
    assert!(serde_json::from_str::<Summary>(&more).is_err());
}
