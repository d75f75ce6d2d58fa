//! From a survey to what may move and what is advised, by the rules of a policy. A pure function.
//!
//! Files under one rule are planned together, with the settings of that rule; what is moved and what is advised are plans
//! of their own. What may move is cut into batches, each of one file: the budget is debited batch by batch, so that a batch
//! that is never finished costs no more than its own debit.

use crate::activity::Activity;
use crate::policy::Policy;
use crate::policy::rules::{Cgroups, Mode};
use crate::world::Applied;
use fragmend_layout::ByteRange;
use fragmend_plan::{Plan, PlannedFile, Survey, SurveyedFile};
use std::collections::BTreeMap;

/// Data that moves and moves back, because the result is no better, is written twice.
const WRITTEN_TWICE: u64 = 2;
/// What a batch may write besides: metadata of the donor and of the file, in several commits. Measured for one file of 16 KiB: 66 KiB on
/// ext4, 300 KiB on Btrfs.
const BESIDE: u64 = 1 << 20;
/// What it may write of that if nothing moves: a donor is made and freed. Measured on ext4: 71 KiB.
const BESIDE_IN_VAIN: u64 = BESIDE / 8;
/// Metadata grows with the data that moves: by an eighth of it at most. Measured on Btrfs, of extents of 4 KiB: a fifteenth.
const METADATA: u64 = 8;
/// The longest batch in bytes, unless one file must move at once. It is moved in seconds at the speed of a disk.
const LONGEST: u64 = 256 << 20;

/// Stands for no rule, behind all others.
const NO_RULE: usize = usize::MAX;

/// The plan for the files under one rule.
#[derive(Clone, Debug)]
pub struct Ruled {
    /// What happens to them.
    pub mode: Mode,
    /// What is worth moving.
    pub plan: Plan,
}

/// The plans for a survey, one for each rule that has files, in the order of the rules. Files that are ignored are in none. At
/// most `budget_bytes` are written in any 24 hours; if that is not known, nothing is planned to move.
pub fn plans(
    survey: Survey,
    policy: &Policy,
    activity: &Activity,
    budget_bytes: Option<u64>,
) -> Vec<Ruled> {
    let mut by_rule: BTreeMap<(usize, Mode), Vec<SurveyedFile>> = BTreeMap::new();
    let Survey { files, .. } = survey;
    let rest = Survey { files: Vec::new(), left_alone: Vec::new(), ..survey };
    for file in files {
        // A file of which no access was seen is not known to be used by anybody.
        let unknown = || Cgroups { known: Vec::new(), some_unknown: true };
        let cgroups = activity.of(file.layout.file).map_or_else(unknown, |seen| seen.cgroups());
        let ruling = policy.ruling(&file.path, file.has_other_names, &cgroups);
        let mode = if budget_bytes.is_none() { ruling.mode.min(Mode::Advise) } else { ruling.mode };
        if mode != Mode::Ignore {
            by_rule.entry((ruling.rule.unwrap_or(NO_RULE), mode)).or_default().push(file);
        }
    }
    let plan = |((rule, mode), files): ((usize, Mode), Vec<SurveyedFile>)| {
        let rule = Some(rule).filter(|rule| *rule != NO_RULE);
        // What one day's budget can move is what saves most for its bytes.
        let most = budget_bytes.filter(|_| mode == Mode::Move).map(|bytes| bytes / WRITTEN_TWICE);
        let survey = Survey { files, ..rest.clone() };
        Ruled { mode, plan: fragmend_plan::make(survey, &policy.settings(rule, most)) }
    };
    by_rule.into_iter().map(plan).collect()
}

/// The most bytes that moving `ranges` can write to a device that is written each byte so many times (`copies`).
pub fn most_written(ranges: &[ByteRange], copies: u64) -> u64 {
    let bytes = ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.len()));
    bytes.saturating_mul(WRITTEN_TWICE).saturating_add(BESIDE).saturating_mul(copies)
}

/// What a move of `ranges` is settled at, on a device that is written each byte so many times (`copies`): the kernel writes most of the
/// metadata later, and charges no process for it, so that counts as the most that it can be.
pub fn settled(applied: &Applied, copies: u64, ranges: &[ByteRange]) -> u64 {
    let beside = if applied.has_moved_data { BESIDE } else { BESIDE_IN_VAIN };
    let charged = applied.written_bytes;
    let at_most = charged.saturating_add(charged / METADATA).saturating_add(beside);
    let most = most_written(ranges, copies);
    at_most.saturating_mul(copies).min(most).max(charged.saturating_mul(copies))
}

/// A file's planned ranges, cut into batches that can be written within a budget, each byte `copies` times; and the bytes of ranges
/// that are longer than that.
pub fn batches(file: &PlannedFile, budget_bytes: u64, copies: u64) -> (Vec<PlannedFile>, u64) {
    let once = budget_bytes / copies.max(1);
    let longest = (once.saturating_sub(BESIDE) / WRITTEN_TWICE).min(LONGEST);
    let (mut batches, mut too_long, mut bytes) = (Vec::<PlannedFile>::new(), 0, 0);
    for range in &file.ranges {
        if range.length > longest {
            too_long += range.length;
            continue;
        }
        match batches.last_mut().filter(|_| bytes + range.length <= longest) {
            Some(batch) => batch.ranges.push(range.clone()),
            None => {
                batches.push(PlannedFile { ranges: vec![range.clone()], ..head(file) });
                bytes = 0;
            }
        }
        bytes += range.length;
    }
    (batches, too_long)
}

fn head(file: &PlannedFile) -> PlannedFile {
    PlannedFile { path: file.path.clone(), file: file.file, size: file.size, ranges: Vec::new() }
}

/// Its ranges.
pub fn ranges(file: &PlannedFile) -> Vec<ByteRange> {
    file.ranges.iter().map(|range| range.range()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use fragmend_layout::FileId;
    use fragmend_plan::PlannedRange;
    use std::path::Path;

    /// A file with ranges of these lengths, one after the other.
    pub(crate) fn file(lengths: &[u64]) -> PlannedFile {
        let mut at = 0;
        let range = |length: &u64| {
            at += length;
            PlannedRange {
                offset: at - length,
                length: *length,
                extents: 2,
                seen: 1,
                requests_before: 2,
                requests_after: 1,
                seconds_saved: 1.0,
                space_cost_bytes: 0,
                slow_at: None,
                reason: String::new(),
            }
        };
        PlannedFile {
            path: Path::new("/srv/x").into(),
            file: FileId { device: 7, inode: 1, generation: 0 },
            size: lengths.iter().sum(),
            ranges: lengths.iter().map(range).collect(),
        }
    }

    #[test]
    fn no_batch_can_write_more_than_the_budget() {
        const MIB: u64 = 1 << 20;
        for budget in [0, MIB, 3 * MIB, 16 * MIB, 17 * MIB, 100 * MIB, 4096 * MIB] {
            let file = file(&[8 * MIB, MIB, 4096, 8 * MIB, 3 * MIB, 200 * MIB, 100 * MIB]);
            for copies in 1..=4 {
                let (batches, too_long) = batches(&file, budget, copies);
                let all: Vec<_> = batches.iter().flat_map(ranges).collect();
                let fits = |b: &PlannedFile| most_written(&ranges(b), copies) <= budget;
                assert!(batches.iter().all(|b| !b.ranges.is_empty() && fits(b)));
                assert_eq!(all.iter().map(|r| r.len()).sum::<u64>() + too_long, file.size);
                assert!(all.is_sorted());
            }
        }
        // What fits is moved at once: some files cannot be moved in parts.
        assert_eq!(batches(&file(&[8 << 20, 8 << 20]), 40 << 20, 1).0.len(), 1);
    }
}
