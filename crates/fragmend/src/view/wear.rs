//! Warnings of drives that report that they are worn out.

use crate::ui::Ui;
use fragmend_layout::DriveHealth;
use fragmend_plan::wear::Wear;
use fragmend_report::wear::warnings;

/// Warns of each drive of a plan that is worn out.
pub fn warn_of(wear: Option<&Wear>, ui: &Ui) {
    let drives = wear.into_iter().flat_map(|wear| &wear.drives);
    warn(drives.filter_map(|drive| Some((&*drive.name, drive.health.as_ref()?))), ui);
}

/// The same of drives, by their names and what they report.
pub fn warn<'a>(drives: impl Iterator<Item = (&'a str, &'a DriveHealth)>, ui: &Ui) {
    drives.flat_map(|(name, health)| warnings(name, health)).for_each(|line| ui.warn(line));
}
