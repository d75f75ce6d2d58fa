//! The cuts of a recording, one after the other: the disk becomes what a cut leaves, is mounted,
//! which replays its journal, compared, unmounted and checked; on the host or in a guest.

use crate::bed::Bed;
use crate::check::{Checked, Expected, Wrong};
use crate::choose::{halfway, under_way};
use crate::cut::Cut;
use crate::marks::Marks;
use crate::mounted::Mounted;
use crate::record::Recording;
use crate::session::Nodes;
use fragmend_sys::block::forget_buffers;
use fragmend_testbed::process::finish;
use fragmend_testbed::tools;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// A cut after which something was wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loss {
    /// Which.
    pub cut: Cut,
    /// What.
    pub wrong: Vec<Wrong>,
}

/// What all cuts of a recording came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Cuts that were looked at.
    pub cuts: u64,
    /// Those between two receipts of one file.
    pub under_way: u64,
    /// Those after which a file lay half at its old place and half at its new one.
    pub half_moved: u64,
    /// Those after which one had to; see [`halfway`].
    pub halfway: u64,
    /// Those among them after which it did not.
    pub not_halfway: Vec<Cut>,
    /// Files compared.
    pub files: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// What was lost.
    pub losses: Vec<Loss>,
}

impl Outcome {
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

/// Looks at each of the cuts, which come in order of their positions, on a disk that becomes the
/// cut that it is told.
///
/// # Panics
/// When something fails that has nothing to do with the disk's content.
pub fn look(recording: &Recording, cuts: &[Cut], nodes: Nodes, mnt: &Path) -> Outcome {
    let disk = Marks::open(nodes.marks).expect("a disk that can be cut");
    let (halfway, under_way) = (halfway(recording), under_way(recording));
    let mut marks = recording.marks.iter().peekable();
    let mut expected = Expected::at_first(&recording.run.files, recording.bed.promise);
    let mut outcome = Outcome::default();
    for cut in cuts {
        while let Some((_, mark)) = marks.next_if(|(place, _)| *place < cut.position) {
            expected.learn(*mark);
        }
        disk.say(cut).expect("the log fits the disk");
        for node in [Some(nodes.disk), nodes.second].into_iter().flatten() {
            File::open(node).and_then(forget_buffers).expect("nothing is left of the last cut");
        }
        let checked = look_at(recording, nodes, mnt, &expected);
        outcome.cuts += 1;
        outcome.under_way += u64::from(under_way.iter().any(|s| s.contains(&cut.position)));
        outcome.half_moved += u64::from(!checked.half_moved.is_empty());
        if let Some((tag, _)) = halfway.iter().find(|(_, s)| s.contains(&cut.position)) {
            outcome.halfway += 1;
            if !checked.half_moved.contains(tag) {
                outcome.not_halfway.push(*cut);
            }
        }
        outcome.files += checked.files;
        outcome.bytes += checked.bytes;
        if !checked.wrong.is_empty() {
            outcome.losses.push(Loss { cut: *cut, wrong: checked.wrong });
        }
    }
    outcome
}

/// What a program had to say.
fn complaint(what: &str, found: String) -> Wrong {
    let expected = "nothing to complain of".to_owned();
    Wrong { what: what.to_owned(), offset: 0, bytes: 0, expected, found }
}

/// Has `fragmend recover` put back what a rewrite had not, which must be all.
///
/// # Errors
/// What it said instead.
pub fn recover(bed: &Bed, mnt: &Path) -> Result<(), Wrong> {
    if !bed.recovers() {
        return Ok(());
    }
    let done = finish(Command::new(tools::fragmend()).args(["recover", "--json"]).arg(mnt));
    match done.status.success() || leaves_changed_files(&done.stdout) {
        true => Ok(()),
        false => Err(complaint("fragmend recover", format!("{}{}", done.stdout, done.stderr))),
    }
}

/// Whether all that is left over are records of files that others have changed since. What those hold
/// is for the comparison to judge.
fn leaves_changed_files(said: &str) -> bool {
    let Ok(said) = serde_json::from_str::<serde_json::Value>(said) else { return false };
    let list = |name: &str| said[name].as_array().cloned().unwrap_or_default();
    let fine = ["changed", "whole", "restored", "never_begun", "file_gone"];
    let settled = |record: &serde_json::Value| {
        record["outcome"].as_str().is_some_and(|outcome| fine.contains(&outcome))
    };
    list("errors").is_empty() && !list("records").is_empty() && list("records").iter().all(settled)
}

/// Mounts the disk as it is now, compares, unmounts, and has it checked.
fn look_at(recording: &Recording, nodes: Nodes, mnt: &Path, expected: &Expected) -> Checked {
    let bed = recording.bed;
    let beside = bed.file_system.beside_copy.unwrap_or_default();
    let options = [beside, &bed.mount_options(nodes.second)].join(",");
    let options = options.trim_matches(',');
    let mut checked = match Mounted::new(bed.file_system, nodes.disk, mnt, options) {
        Err(why) => Checked { wrong: vec![complaint("mount", why)], ..Checked::default() },
        Ok(mounted) => {
            let found = recover(bed, mnt).and_then(|()| expected.check(mnt));
            // What the check reads must be final.
            mounted.unmount();
            found.unwrap_or_else(|wrong| Checked { wrong: vec![wrong], ..Checked::default() })
        }
    };
    if let Err(why) = bed.check(nodes.disk, nodes.second) {
        checked.wrong.push(complaint("the file system's check", why));
    }
    checked
}
