//! A plan is never larger than what its reader accepts: a user may have any number of fragmented files, with
//! paths of control characters, each of which is six bytes of JSON.

use crate::file::{LeftAlone, Plan, PlannedFile, Summary};
use crate::parallel;
use fragmend_layout::PathText;
use serde::Serialize;
use std::io::{self, Write};

/// No range is longer in the file, in bytes.
const RANGE: u64 = 768;
/// No file, device or drive without its path, its ranges and its reason is, either.
const ENTRY: u64 = 1024;

/// Takes the last files out of `plan`, which save least, until it has at most `most` bytes when it is written,
/// and notes how many; its summary is then of the others. Returns whether that was needed.
pub(crate) fn fit(plan: &mut Plan, most: u64) -> bool {
    let files = plan.files.iter().map(|f| length(&f.path) + f.ranges.len() as u64 * RANGE);
    let left = plan.left_alone.iter().map(|l| length(&l.path) + 6 * l.reason.len() as u64);
    let drives = plan.summary.wear.as_ref().map_or(0, |wear| wear.drives.len());
    let entries = plan.files.len() + plan.left_alone.len() + plan.devices.len() + drives + 4;
    let devices: u64 = plan.devices.iter().map(|d| length(&d.mount)).sum();
    if files.sum::<u64>() + left.sum::<u64>() + devices + entries as u64 * ENTRY <= most {
        return false;
    }
    let head = written(&plan.devices) + written(&plan.settings) + written(&plan.summary);
    let space = most.saturating_sub(head + 8 * ENTRY);
    let (kept, bytes) = first(&plan.left_alone, space / 4);
    let out = plan.left_alone.split_off(kept).len();
    if out > 0 {
        note(plan, format!("{out} further files were left alone, too many to name"));
    }
    let (kept, _) = first(&plan.files, space - bytes);
    let out = plan.files.split_off(kept);
    if !out.is_empty() {
        leave_out(plan, &out);
        let what = format!(
            "{} further files would make the plan larger than {most} bytes: apply it, and make another one",
            out.len()
        );
        note(plan, what);
    }
    true
}

/// How many of the first elements fit, and their bytes.
fn first<T: Serialize + Sync>(list: &[T], most: u64) -> (usize, u64) {
    let mut sum = 0;
    let lengths = parallel::map(list.len(), |i| written(&list[i]));
    let fit = lengths.iter().take_while(|length| {
        let fits = sum + **length <= most;
        sum += if fits { **length } else { 0 };
        fits
    });
    (fit.count(), sum)
}

/// Corrects the summary for files that were removed.
fn leave_out(plan: &mut Plan, out: &[PlannedFile]) {
    let Plan { summary, files, .. } = plan;
    let saved = |summary: &Summary| (summary.seconds_before - summary.seconds_after).max(0.0);
    let all = saved(summary);
    for range in out.iter().flat_map(|f| &f.ranges) {
        summary.ranges -= 1;
        summary.bytes_to_move -= range.length;
        summary.over_budget_bytes += range.length;
        summary.space_cost_bytes -= range.space_cost_bytes;
        summary.slow_bytes -= if range.slow_at.is_some() { range.length } else { 0 };
        summary.requests_after += range.requests_before.saturating_sub(range.requests_after);
        summary.seconds_after += range.seconds_saved;
    }
    summary.requests_after = summary.requests_after.min(summary.requests_before);
    summary.seconds_after = summary.seconds_after.min(summary.seconds_before);
    let kept = if all > 0.0 { saved(summary) / all } else { 0.0 };
    summary.unseen_seconds_saved *= kept;
    // One file may have several entries, one after the other.
    summary.files = files.chunk_by(|a, b| a.file == b.file).count() as u64;
}

/// Adds a reason that concerns many files.
fn note(plan: &mut Plan, reason: String) {
    let path = plan.devices.first().map(|d| d.mount.clone());
    let path = path.unwrap_or_else(|| std::path::Path::new("/").into());
    plan.left_alone.push(LeftAlone { path, reason, code: None });
}

/// No path is longer in the file, in bytes.
fn length(path: &PathText) -> u64 {
    6 * path.path.len() as u64 + path.path_bytes.as_ref().map_or(0, String::len) as u64
}

/// Bytes of an element of one of the plan's lists in the file, as [`Plan::write_to`] writes it.
fn written(element: &impl Serialize) -> u64 {
    let mut text = Counter::default();
    // Nothing is written, so nothing fails.
    let _ = serde_json::to_writer_pretty(&mut text, element);
    // Its lines are indented, and a comma and the end of a line follow.
    text.bytes + 4 * (text.lines + 1) + 2
}

#[derive(Default)]
struct Counter {
    bytes: u64,
    lines: u64,
}

impl Write for Counter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.bytes += text.len() as u64;
        self.lines += text.iter().filter(|b| **b == b'\n').count() as u64;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Device, FORMAT};
    use crate::{PlanFile, PlanSource, PlannedRange, Settings, Summary};
    use fragmend_layout::{FileId, Skip, SkipReason, schema};
    use std::path::Path;

    /// A plan for so many files of three ranges each, and as many that are left alone.
    fn plan(many: u64) -> Plan {
        let range = |n: u64| PlannedRange {
            offset: n * 8192,
            length: 4096,
            extents: 2,
            seen: 1,
            requests_before: 2,
            requests_after: 1,
            seconds_saved: 0.001,
            space_cost_bytes: 0,
            slow_at: None,
            reason: "2 fragments".into(),
        };
        let name = |n: u64| format!("/mnt/{}{n}", "\u{1}".repeat(400));
        let file = |n: u64| PlannedFile {
            path: Path::new(&name(n)).into(),
            file: FileId { device: 7, inode: n, generation: 1 },
            size: 1 << 20,
            ranges: (0..3).map(range).collect(),
        };
        let skip = Skip::new(SkipReason::Leased, "another program holds a lease on it");
        Plan {
            format: FORMAT.into(),
            schema_version: schema::PLAN_FILE,
            settings: Settings::default(),
            devices: vec![Device::example()],
            summary: Summary {
                ranges: 3 * many,
                files: many,
                bytes_to_move: 3 * many * 4096,
                requests_before: 6 * many,
                requests_after: 3 * many,
                seconds_before: 0.01 * many as f64,
                seconds_after: 0.007 * many as f64,
                ..Summary::default()
            },
            files: (0..many).map(file).collect(),
            left_alone: (0..many).map(|n| LeftAlone::new(Path::new(&name(n)), &skip)).collect(),
        }
    }

    #[test]
    fn a_plan_is_never_larger_than_what_is_read() {
        for most in [40_000, 100_000, 1 << 20] {
            let mut fitted = plan(100);
            let (before, cut) = (fitted.clone(), fit(&mut fitted, most));
            let file = tempfile::NamedTempFile::new().unwrap();
            fitted.write_to(file.as_file()).unwrap();
            let written = file.as_file().metadata().unwrap().len();
            assert!(written <= most, "{written} of {most}");
            let read = PlanFile::new(file.reopen().unwrap(), file.path()).unwrap();
            let (totals, summary) = (read.totals(), &fitted.summary);
            let counted = (totals.files, totals.ranges, totals.bytes);
            assert_eq!(counted, (summary.files, summary.ranges, summary.bytes_to_move));
            assert_eq!(cut, most < 1 << 20);
            if !cut {
                assert_eq!(fitted, before);
                continue;
            }
            // Not much is left empty, and nothing is left out in silence.
            assert!(written > most / 2, "{written} of {most}");
            assert!(summary.requests_before - summary.requests_after == 3 * summary.files);
            let saved = summary.seconds_before - summary.seconds_after;
            assert!((saved - 0.003 * summary.files as f64).abs() < 1e-9, "{saved}");
            let whole = summary.bytes_to_move + summary.over_budget_bytes;
            assert_eq!(whole, before.summary.bytes_to_move);
            let reasons: Vec<&str> =
                fitted.left_alone.iter().rev().take(2).map(|l| &*l.reason).collect();
            assert!(reasons[0].contains("make another one"), "{reasons:?}");
            assert!(reasons[1].contains("further files were left alone"), "{reasons:?}");
        }
    }
}
