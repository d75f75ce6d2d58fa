//! The document of `fragmend plan`.

use crate::{Unit, human};
use fragmend_known::Known;
use fragmend_layout::{CostSource, PathText, SkipReason, printable, schema};
use fragmend_plan::{
    Basis, Cleaned, CurvePoint, Plan, PlannedFile, PlannedRange, Priorities, Summary,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The document that `fragmend plan --json` prints. The ranges themselves are in the plan file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlanReport {
    /// Version of this document.
    pub schema_version: u32,
    /// Always "plan".
    pub command: String,
    /// The plan file that was written, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_file: Option<String>,
    /// The totals of the plan.
    #[serde(flatten)]
    pub summary: Summary,
    /// What each amount of writing would save, from nothing to all that saves any time, whatever the budget and the least
    /// gain: at most 25 points, ascending in both figures.
    #[serde(default)]
    pub curve: Vec<CurvePoint>,
    /// Files that were found but could not be considered.
    pub files_left_alone: u64,
    /// The same by reason, the most frequent first. The plan file names each file.
    #[serde(default)]
    pub skipped: Vec<LeftOut>,
    /// What files are to their programs, of those in which the plan saves the most time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<KnownFile>,
}

/// What a file of a plan is to its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnownFile {
    /// Which file.
    #[serde(flatten)]
    pub path: PathText,
    /// What it is.
    pub known: Known,
}

/// Files that were left out of a plan for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The reason.
    pub reason: String,
    /// The reason's code, from the set that receipts of `apply` use too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<SkipReason>,
    /// How many files.
    pub files: u64,
}

/// Files that a plan leaves out, counted by reason, the most frequent first.
pub fn left_out(plan: &Plan) -> Vec<LeftOut> {
    let mut reasons: BTreeMap<(&str, Option<SkipReason>), u64> = BTreeMap::new();
    plan.left_alone.iter().for_each(|l| *reasons.entry((&l.reason, l.code)).or_default() += 1);
    let count = |((reason, code), files): ((&str, _), u64)| {
        let reason = reason.to_owned();
        LeftOut { reason, code, files }
    };
    let mut out: Vec<_> = reasons.into_iter().map(count).collect();
    out.sort_by_key(|l| std::cmp::Reverse(l.files));
    out
}

impl PlanReport {
    /// The report of a plan that was written to `plan_file`, with its curve, and with what is known of its files.
    pub fn of(
        plan: &Plan,
        curve: Vec<CurvePoint>,
        plan_file: Option<String>,
        known: Vec<KnownFile>,
    ) -> Self {
        Self {
            schema_version: schema::DOCUMENT,
            command: "plan".into(),
            plan_file,
            summary: plan.summary.clone(),
            curve,
            files_left_alone: plan.left_alone.len() as u64,
            skipped: left_out(plan),
            known,
        }
    }
}

/// The plan for a terminal: the `top` files in which it saves the most time, what is `known` of these
/// ([`crate::known::text`]), then what is read, what that costs, what is saved and written, where the figures come from, and
/// the verdict.
pub fn text(plan: &Plan, top: usize, known: &str) -> String {
    let mut out = String::new();
    if !plan.files.is_empty() && top > 0 {
        out.push_str(&files(&plan.files, top));
        out.push_str("\n\n");
    }
    if !known.is_empty() {
        out.push_str(known);
        out.push('\n');
    }
    out.push_str(&lines(plan).join("\n"));
    for LeftOut { reason, files, .. } in left_out(plan) {
        out.push_str(&format!("\n   skipped: {files}, {}", printable(&reason)));
    }
    out.push_str("\n\n(times and requests are predictions)\n");
    out.push_str(&plan.summary.verdict);
    out
}

fn lines(plan: &Plan) -> Vec<String> {
    let s = &plan.summary;
    let (time, bytes) = (|t| human(t, Unit::Seconds), |b: u64| human(b as f64, Unit::Bytes));
    let (count, share) = (|n: u64| human(n as f64, Unit::Count), |p| human(p, Unit::Share));
    let read = match s.basis {
        Some(Basis::SequentialRead) | None => {
            format!("one sequential read of {} files", count(s.files_considered))
        }
        Some(_) => format!("{} accesses to {} files", count(s.accesses), count(s.files_considered)),
    };
    let part = if s.seconds_before > 0.0 { s.seconds_saved / s.seconds_before } else { 0.0 };
    let mut lines = vec![
        format!("read: {read}"),
        format!(
            "wait for the device: {} now, {} afterwards: {} saved ({})",
            time(s.seconds_before),
            time(s.seconds_after),
            time(s.seconds_saved),
            share(part)
        ),
        format!(
            "to write: {} in {} ranges of {} files, {} of the file systems (whole files: {})",
            bytes(s.bytes_to_move),
            count(s.ranges),
            count(s.files),
            share(s.file_system_share),
            bytes(s.whole_file_bytes)
        ),
    ];
    if s.unseen_seconds_before > 0.0 {
        lines.push(format!(
            "   besides, about {} in ranges that were not recorded, of which {} could be saved",
            time(s.unseen_seconds_before),
            time(s.unseen_seconds_saved)
        ));
    }
    if s.slow_bytes > 0 {
        let slow = bytes(s.slow_bytes);
        lines.push(format!("   {slow} of it in one extent and yet slow: written anew"));
    }
    lines.extend([
        format!(
            "requests: {} now, {} afterwards",
            count(s.requests_before),
            count(s.requests_after)
        ),
        format!("what reaches the device: {}", basis(s.basis)),
        format!("costs: {}; {}", source(plan), depth(s)),
    ]);
    if let (Some(ns), Some(reads)) = (s.one_more_request_ns, s.timed_reads) {
        lines.push(format!(
            "   one more request costs {} where the data is now: {} recorded reads were timed",
            if ns < 0.0 { "nothing".to_owned() } else { time(ns / 1e9) },
            count(reads)
        ));
    }
    lines.extend(s.priorities.iter().map(priorities));
    lines.extend(s.segments.iter().flat_map(segments));
    lines.extend(s.cost_note.as_ref().map(|note| format!("   {}", printable(note))));
    if s.space_cost_bytes > 0 {
        let space = bytes(s.space_cost_bytes);
        lines.push(format!("space: {space} more, as others keep what is shared with them"));
    }
    lines.extend(s.wear.iter().flat_map(|wear| crate::wear::lines(s.rated_share, wear)));
    if s.over_budget_bytes > 0 {
        lines.push(format!("over the budget: {} more", bytes(s.over_budget_bytes)));
    }
    lines
}

/// What decided by priority.
fn priorities(of: &Priorities) -> String {
    let count = |n: u64| human(n as f64, Unit::Count);
    let by = match (of.with_dopf, of.ranges) {
        (0, _) => {
            "by logical fragmentation alone, as it is not known which dies hold what (DoPF)".into()
        }
        (with, all) if with == all => "by logical and physical fragmentation (DoLF, DoPF)".into(),
        (with, _) => format!(
            "by logical fragmentation, and for {} of them by physical fragmentation too, as it is not known elsewhere which dies hold what",
            count(with)
        ),
    };
    format!(
        "priorities: {} accessed ranges, {by}; {} of the lowest are left out",
        count(of.ranges),
        count(of.truncated)
    )
}

/// What becomes of segments.
fn segments(cleaned: &Cleaned) -> Vec<String> {
    let count = |n: u64| human(n as f64, Unit::Count);
    let change = match cleaned.segments_gained {
        n if n < 0 => format!("{} more are filled", count(n.unsigned_abs())),
        n => format!("{} gained", count(n as u64)),
    };
    let mut lines = vec![format!(
        "segments: {} cleaned, {} of these become free, {change}; {} of {} valid blocks move; fragments in them: {} now, {} afterwards",
        count(cleaned.segments_cleaned),
        count(cleaned.segments_emptied),
        count(cleaned.blocks_moved),
        count(cleaned.blocks_held),
        count(cleaned.fragments_before),
        count(cleaned.fragments_after)
    )];
    if let Some(why) = &cleaned.no_age {
        lines.push(format!(
            "   their age is not known, and victims are chosen by valid blocks alone: {}",
            printable(why)
        ));
    }
    if cleaned.left_for_space_bytes > 0 {
        let bytes = human(cleaned.left_for_space_bytes as f64, Unit::Bytes);
        lines.push(format!(
            "   {bytes} are left for now, as too few segments are free: plan again afterwards"
        ));
    }
    lines
}

fn basis(basis: Option<Basis>) -> &'static str {
    match basis {
        Some(Basis::MissesRecorded) => "what missed the page cache, as recorded, and direct I/O",
        Some(Basis::ImitatedCache) => {
            "assumed: misses were not recorded, so the page cache is imitated, empty at first"
        }
        Some(Basis::AssumedCold) => {
            "assumed: a cold start (--assume-cold), with the page cache imitated"
        }
        Some(Basis::SequentialRead) => "assumed: nothing was recorded",
        None => "not known",
    }
}

fn source(plan: &Plan) -> String {
    match plan.summary.cost_source {
        Some(CostSource::Probed) => "probed".into(),
        Some(CostSource::Observed) => "observed while recording".into(),
        Some(CostSource::Guessed) => {
            let guessed = |d: &&fragmend_plan::Device| d.profile.cost.source == CostSource::Guessed;
            let kind = plan.devices.iter().find(guessed).map(|d| {
                format!(
                    " by the kind of the device: {} is taken for {}",
                    d.profile.name,
                    d.profile.kind()
                )
            });
            format!("guessed{}", kind.unwrap_or_default())
        }
        None => "not known".into(),
    }
}

fn depth(summary: &Summary) -> String {
    if summary.depth_seen {
        format!("{:.1} reads in flight, as seen", summary.depth)
    } else {
        "one read at a time, as how many were in flight was not seen".into()
    }
}

fn files(files: &[PlannedFile], top: usize) -> String {
    use comfy_table::{CellAlignment, Table, presets};
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["file", "saved", "to move", "ranges", "fragments", "requests", "then"]);
    for f in files.iter().take(top) {
        let sum =
            |figure: fn(&PlannedRange) -> u64| f.ranges.iter().map(figure).sum::<u64>() as f64;
        let count = |n: f64| human(n, Unit::Count);
        table.add_row([
            f.path.printable(),
            human(f.ranges.iter().map(|r| r.seconds_saved).sum(), Unit::Seconds),
            human(sum(|r| r.length), Unit::Bytes),
            count(f.ranges.len() as f64),
            count(sum(|r| r.extents)),
            count(sum(|r| r.requests_before)),
            count(sum(|r| r.requests_after)),
        ]);
    }
    table
        .column_iter_mut()
        .skip(1)
        .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    let mut text = table.to_string();
    if files.len() > top {
        text.push_str(&format!("\n ... and {} more files", files.len() - top));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{CostModel, DeviceKind, DeviceProfile, FileId, FsKind};
    use fragmend_plan::wear::{RatingSource, Wear};
    use fragmend_plan::{Device, Settings, Why};
    use std::path::Path;

    fn plan(summary: Summary) -> Plan {
        let profile = DeviceProfile {
            name: "mmcblk0p2".into(),
            cost: CostModel::guessed(DeviceKind::Card),
            ..DeviceProfile::unknown()
        };
        let device = Device {
            device: 7,
            mount: Path::new("/srv").into(),
            file_system: FsKind::Ext4,
            total_bytes: 1 << 30,
            block_bytes: 4096,
            profile,
        };
        Plan {
            format: String::new(),
            schema_version: 1,
            settings: Settings::default(),
            devices: vec![device],
            summary,
            files: Vec::new(),
            left_alone: Vec::new(),
        }
    }

    #[test]
    fn a_plan_is_told_in_time_first() {
        let range = PlannedRange {
            offset: 0,
            length: 3 << 20,
            extents: 40,
            seen: 5,
            requests_before: 1200,
            requests_after: 30,
            seconds_saved: 0.82,
            space_cost_bytes: 0,
            slow_at: None,
            reason: String::new(),
        };
        let mut plan = plan(Summary {
            seconds_before: 2.5,
            seconds_after: 1.68,
            seconds_saved: 0.82,
            bytes_to_move: 3 << 20,
            ranges: 1,
            files: 1,
            files_considered: 4,
            accesses: 1234,
            requests_before: 3000,
            requests_after: 1830,
            whole_file_bytes: 1 << 29,
            file_system_share: 0.003,
            slow_bytes: 1 << 20,
            rated_share: Some(5e-8),
            wear: Some(Wear { source: RatingSource::User, drives: Vec::new() }),
            over_budget_bytes: 4096,
            basis: Some(Basis::MissesRecorded),
            cost_source: Some(CostSource::Guessed),
            cost_note: Some("what mmcblk0p2 answered is too little".into()),
            depth: 1.0,
            worth: true,
            verdict: "worth it: and so on".into(),
            ..Summary::default()
        });
        plan.files.push(PlannedFile {
            path: Path::new("/srv/a").into(),
            file: FileId { device: 7, inode: 12, generation: 1 },
            size: 8 << 20,
            ranges: vec![range],
        });
        let lines: Vec<String> =
            text(&plan, 10, "").lines().map(|line| line.trim_end().to_owned()).collect();
        let expected = [
            " file       saved  to move  ranges  fragments  requests  then",
            " /srv/a  820.0 ms  3.0 MiB       1         40     1 200    30",
            "",
            "read: 1 234 accesses to 4 files",
            "wait for the device: 2.5 s now, 1.7 s afterwards: 820.0 ms saved (32.8 %)",
            "to write: 3.0 MiB in 1 ranges of 1 files, 0.3 % of the file systems (whole files: 512.0 MiB)",
            "   1.0 MiB of it in one extent and yet slow: written anew",
            "requests: 3 000 now, 1 830 afterwards",
            "what reaches the device: what missed the page cache, as recorded, and direct I/O",
            "costs: guessed by the kind of the device: mmcblk0p2 is taken for a memory card; one read at a time, as how many were in flight was not seen",
            "   what mmcblk0p2 answered is too little",
            "wear: 0.0000050 % of what the drive is rated to be written (--rated-writes)",
            "over the budget: 4.0 KiB more",
            "",
            "(times and requests are predictions)",
            "worth it: and so on",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn every_output_says_where_its_figures_come_from() {
        for (cost, basis, depth_seen, expected) in [
            (
                CostSource::Probed,
                Basis::ImitatedCache,
                true,
                [
                    "costs: probed; 8.0 reads in flight, as seen",
                    "assumed: misses were not recorded",
                ],
            ),
            (
                CostSource::Observed,
                Basis::AssumedCold,
                false,
                ["costs: observed while recording; one read at a time", "assumed: a cold start"],
            ),
            (
                CostSource::Guessed,
                Basis::SequentialRead,
                false,
                ["costs: guessed by the kind", "assumed: nothing was recorded"],
            ),
        ] {
            let plan = plan(Summary {
                cost_source: Some(cost),
                basis: Some(basis),
                depth: 8.0,
                depth_seen,
                why: Some(Why::DeviceDoesNotCare),
                ..Summary::default()
            });
            let (text, document) =
                (text(&plan, 10, ""), PlanReport::of(&plan, Vec::new(), None, Vec::new()));
            assert!(expected.iter().all(|part| text.contains(part)), "{text}");
            let document = serde_json::to_value(document).unwrap();
            let of = |value: serde_json::Value, name: &str| {
                assert_eq!(document[name], value, "{document}")
            };
            of(serde_json::to_value(cost).unwrap(), "cost_source");
            of(serde_json::to_value(basis).unwrap(), "basis");
            of("device-does-not-care".into(), "why");
            of(depth_seen.into(), "depth_seen");
            // What other programs have read since the first version.
            for name in ["bytes_to_move", "ranges", "requests_before", "requests_after", "worth"] {
                assert!(!document[name].is_null(), "{name}");
            }
        }
    }
}
