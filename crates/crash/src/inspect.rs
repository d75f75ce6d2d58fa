//! Inspects the cuts of a recording, one after the other: the disk becomes what a cut leaves of it, and is
//! mounted, which replays its journal, compared, unmounted and checked; on the host or in a guest.

use crate::check::{Checked, Expected, Mismatch};
use crate::choose_cuts::{halfway, under_way};
use crate::cut::Cut;
use crate::cut_disk::CutDisk;
use crate::mount::Mount;
use crate::record::Recording;
use crate::scenario::Scenario;
use fragmend_testbed::process::finish;
use fragmend_testbed::tools;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// A cut after which something was lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loss {
    /// The cut.
    pub cut: Cut,
    /// What was wrong after it.
    pub wrong: Vec<Mismatch>,
}

/// The results of the cuts of a recording.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CutResults {
    /// Cuts that were inspected.
    pub cuts: u64,
    /// Those between two receipts of one file.
    pub under_way: u64,
    /// Those after which a file was half at its old place and half at its new one.
    pub half_moved: u64,
    /// Those that had to find a file half moved; see [`halfway`].
    pub halfway: u64,
    /// Those among them that did not.
    pub not_halfway: Vec<Cut>,
    /// Files compared.
    pub files: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Cuts with losses.
    pub losses: Vec<Loss>,
}

impl CutResults {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.under_way += other.under_way;
        self.half_moved += other.half_moved;
        self.halfway += other.halfway;
        self.not_halfway.extend(other.not_halfway);
        self.files += other.files;
        self.bytes += other.bytes;
        self.losses.extend(other.losses);
    }

    /// Wrong bytes in all files after all cuts.
    pub fn wrong_bytes(&self) -> u64 {
        self.losses.iter().flat_map(|loss| &loss.wrong).map(|wrong| wrong.bytes).sum()
    }
}

/// Inspects each of the cuts, which come in order of their positions.
///
/// # Panics
/// When something fails that has nothing to do with the disk's content.
pub fn inspect(recording: &Recording, cuts: &[Cut], disk: &mut CutDisk, mnt: &Path) -> CutResults {
    let (halfway, under_way) = (halfway(recording), under_way(recording));
    let mut marks = recording.marks.iter().peekable();
    let mut expected = Expected::initial(&recording.run.files, recording.scenario.promise);
    let mut results = CutResults::default();
    for cut in cuts {
        while let Some((_, mark)) = marks.next_if(|(place, _)| *place < cut.position) {
            expected.apply(*mark);
        }
        disk.set(*cut).expect("the log fits the disk");
        let checked = check_disk(recording, disk, mnt, &expected);
        results.cuts += 1;
        results.under_way += u64::from(under_way.iter().any(|s| s.contains(&cut.position)));
        results.half_moved += u64::from(!checked.half_moved.is_empty());
        if let Some((tag, _)) = halfway.iter().find(|(_, s)| s.contains(&cut.position)) {
            results.halfway += 1;
            if !checked.half_moved.contains(tag) {
                results.not_halfway.push(*cut);
            }
        }
        results.files += checked.files;
        results.bytes += checked.bytes;
        if !checked.wrong.is_empty() {
            results.losses.push(Loss { cut: *cut, wrong: checked.wrong });
        }
    }
    results
}

/// What a program reported, as a mismatch.
fn complaint(what: &str, found: String) -> Mismatch {
    let expected = "nothing to complain of".to_owned();
    Mismatch { what: what.to_owned(), offset: 0, bytes: 0, expected, found }
}

/// Runs `fragmend recover` where the scenario rewrites files. It must restore every range that a
/// rewrite left behind.
///
/// # Errors
/// What it printed instead.
pub fn recover(scenario: &Scenario, mnt: &Path) -> Result<(), Mismatch> {
    if !scenario.recovers() {
        return Ok(());
    }
    let done = finish(Command::new(tools::fragmend()).args(["recover", "--json"]).arg(mnt));
    if done.status.success() || leaves_changed_files(&done.stdout) {
        return Ok(());
    }
    Err(complaint("fragmend recover", format!("{}{}", done.stdout, done.stderr)))
}

/// Whether it reported no error, and every record is settled or of a file that others have changed since. The
/// content is judged by the comparison.
fn leaves_changed_files(output: &str) -> bool {
    let Ok(output) = serde_json::from_str::<serde_json::Value>(output) else { return false };
    let list = |name: &str| output[name].as_array().cloned().unwrap_or_default();
    let settled_outcomes = ["changed", "whole", "restored", "never_begun"];
    let settled = |record: &serde_json::Value| {
        record["outcome"].as_str().is_some_and(|outcome| settled_outcomes.contains(&outcome))
    };
    list("errors").is_empty() && !list("records").is_empty() && list("records").iter().all(settled)
}

/// Mounts the disk as it is now, compares the files, unmounts it, and runs the file system's check.
fn check_disk(recording: &Recording, disk: &CutDisk, mnt: &Path, expected: &Expected) -> Checked {
    let (scenario, node) = (recording.scenario, disk.node());
    let beside = scenario.file_system.beside_copy.unwrap_or_default();
    let options = [beside, &scenario.mount_options(disk.second())].join(",");
    let options = options.trim_matches(',');
    let mut checked = match Mount::new(scenario.file_system, node, mnt, options) {
        Err(why) => Checked { wrong: vec![complaint("mount", why)], ..Checked::default() },
        Ok(mounted) => {
            let found = recover(scenario, mnt).and_then(|()| expected.check(mnt));
            // What the check reads must be final.
            mounted.unmount();
            found.unwrap_or_else(|wrong| Checked { wrong: vec![wrong], ..Checked::default() })
        }
    };
    if let Err(why) = scenario.check(node, disk.second()) {
        checked.wrong.push(complaint("the file system's check", why));
    }
    checked
}
