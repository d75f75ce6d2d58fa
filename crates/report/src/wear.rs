//! What a plan or a probe says of wear, in lines for a terminal.

use crate::{Unit, human};
use fragmend_layout::{DriveHealth, printable};
use fragmend_plan::wear::{DriveWear, RatingSource, Wear};

/// The lines of a plan: by the user's rating, and each drive's own account.
pub fn lines(rated_share: Option<f64>, wear: &Wear) -> Vec<String> {
    let by_user = rated_share.filter(|_| wear.source == RatingSource::User).map(|share| {
        format!(
            "wear: {} of what the drive is rated to be written (--rated-writes)",
            percent(share)
        )
    });
    by_user.into_iter().chain(wear.drives.iter().map(of_plan)).collect()
}

fn of_plan(drive: &DriveWear) -> String {
    let Some(health) = &drive.health else {
        return format!("wear: {}", not_known(&drive.name, drive.unknown.as_deref()));
    };
    let writes = human(drive.bytes_to_write as f64, Unit::Bytes);
    let part = match (drive.share_high, health.unrated()) {
        (Some(share), _) if share > 0.0 => format!(", at most {} of its life", percent(share)),
        (Some(_), _) => String::new(),
        (None, why) => {
            format!(", whose part of its life cannot be told: {}", why.unwrap_or_default())
        }
    };
    format!("wear: {}; this plan writes {writes}{part}", used(&drive.name, health))
}

/// The account of a drive in a sentence.
pub fn used(name: &str, health: &DriveHealth) -> String {
    let written = health.written_bytes.map(|bytes| human(bytes as f64, Unit::Bytes));
    let written = written.map(|bytes| format!(" for {bytes} written")).unwrap_or_default();
    let (share, step) = (health.used_share * 100.0, health.used_step * 100.0);
    let share = if step < 1.5 {
        format!("{share:.0} %")
    } else if health.life_used_up {
        format!("more than {share:.0} %")
    } else {
        format!("{:.0} to {share:.0} %", share - step)
    };
    format!("{} reports that {share} of its rated life is used{written}", printable(name))
}

/// Why a drive has none, in a sentence.
pub fn not_known(name: &str, why: Option<&str>) -> String {
    let why = why.unwrap_or("no reason is known");
    format!("what {} has used of its life is not known: {}", printable(name), printable(why))
}

/// What should be known of a drive before anything is written to it, a sentence for each.
pub fn warnings(name: &str, health: &DriveHealth) -> Vec<String> {
    let line = |words| format!("{} reports that {words}", printable(name));
    health.warnings().into_iter().map(line).collect()
}

/// A share in per cent, with two digits however small it is.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent <= 0.0 {
        return "0 %".into();
    }
    let digits = (1 - percent.log10().floor() as i64).clamp(0, 12) as usize;
    format!("{percent:.digits$} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(health: Result<DriveHealth, &str>, share_high: Option<f64>) -> DriveWear {
        DriveWear {
            name: "nvme0n1".into(),
            bytes_to_write: 64 << 20,
            unknown: health.as_ref().err().map(|why| (*why).to_owned()),
            health: health.ok(),
            share_low: share_high.map(|share| share / 2.0),
            share_high,
        }
    }

    fn told(drive: DriveWear) -> String {
        let wear = Wear { source: RatingSource::Drive, drives: vec![drive] };
        lines(Some(1.0), &wear).join("\n")
    }

    #[test]
    fn wear_is_told_in_the_drives_own_terms() {
        let used = DriveHealth::of_percent(12, Some(41_000_000_000_000));
        assert_eq!(
            told(drive(Ok(used), Some(2.13e-7))),
            "wear: nvme0n1 reports that 12 % of its rated life is used for 37.3 TiB written; this plan writes 64.0 MiB, at most 0.000021 % of its life"
        );
        let young = DriveHealth::of_percent(1, Some(1 << 40));
        assert!(
            told(drive(Ok(young), None))
                .ends_with("cannot be told: whole per cents are too coarse below 3 %")
        );
        let tenth = told(drive(Ok(DriveHealth::of_tenth(2)), None));
        assert!(tenth.contains("10 to 20 % of its rated life is used; this plan"), "{tenth}");
        assert!(told(drive(Ok(DriveHealth::of_tenth(11)), None)).contains("more than 100 %"));
        let closed = "wear: what nvme0n1 has used of its life is not known: only root may ask it";
        assert_eq!(told(drive(Err("only root may ask it"), None)), closed);
    }

    #[test]
    fn a_rating_of_the_user_is_said_to_be_one() {
        let wear = Wear { source: RatingSource::User, drives: Vec::new() };
        let line = "wear: 0.0000050 % of what the drive is rated to be written (--rated-writes)";
        assert_eq!(lines(Some(5e-8), &wear), [line]);
        assert_eq!([0.0, 0.123, 0.0123, 2.5].map(percent), ["0 %", "12 %", "1.2 %", "250 %"]);
    }

    #[test]
    fn a_drive_that_is_worn_out_is_a_warning() {
        let worn = DriveHealth { read_only: true, ..DriveHealth::of_percent(100, None) };
        let said = warnings("nvme0n1\n", &worn);
        assert_eq!(said.len(), 2);
        assert!(
            said[0].starts_with("nvme0n1\\n reports that its rated life is used up"),
            "{said:?}"
        );
    }
}
