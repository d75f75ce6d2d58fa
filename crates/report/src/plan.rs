//! The document of `fragmend plan`.

use crate::{figures, table};
use fragmend_layout::{SkipReason, printable, schema};
use fragmend_plan::{Plan, PlannedFile, Summary};
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
    /// Files that were found but could not be considered.
    pub files_left_alone: u64,
    /// The same by reason, the most frequent first. The plan file names each file.
    #[serde(default)]
    pub skipped: Vec<LeftOut>,
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
    /// The report of a plan that was written to `plan_file`.
    pub fn of(plan: &Plan, plan_file: Option<String>) -> Self {
        Self {
            schema_version: schema::DOCUMENT,
            command: "plan".into(),
            plan_file,
            summary: plan.summary.clone(),
            files_left_alone: plan.left_alone.len() as u64,
            skipped: left_out(plan),
        }
    }
}

/// The plan for a terminal: the `top` files for which it saves the most requests, the figures, the verdict.
pub fn text(plan: &Plan, top: usize) -> String {
    let mut out = String::new();
    if !plan.files.is_empty() && top > 0 {
        out.push_str(&files(&plan.files, top));
        out.push_str("\n\n");
    }
    out.push_str(&table(&figures(&plan.summary)));
    for LeftOut { reason, files, .. } in left_out(plan) {
        out.push_str(&format!("\n   skipped: {files}, {}", printable(&reason)));
    }
    out.push_str("\n\n(requests are predictions)\n");
    out.push_str(&plan.summary.verdict);
    out
}

fn files(files: &[PlannedFile], top: usize) -> String {
    use comfy_table::{CellAlignment, Table, presets};
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["file", "ranges", "to move", "fragments", "requests", "then"]);
    for f in files.iter().take(top) {
        let sum = |figure: fn(&fragmend_plan::PlannedRange) -> u64| {
            f.ranges.iter().map(figure).sum::<u64>() as f64
        };
        let count = |n: f64| crate::human(n, crate::Unit::Count);
        table.add_row([
            f.path.printable(),
            count(f.ranges.len() as f64),
            crate::human(sum(|r| r.length), crate::Unit::Bytes),
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
