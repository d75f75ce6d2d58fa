//! Plans, each put together from its file and its summary where both were given.

use crate::inputs::Inputs;
use fragmend_plan::{CurvePoint, Summary};
use fragmend_report::plan::{LeftOut, left_out};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most reasons why files were left out.
const MOST_REASONS: usize = 20;
/// The most points of a curve that are drawn: a document of a plan has at most 25.
const MOST_POINTS: usize = 256;

/// What a plan comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanPart {
    /// Which inputs say so.
    pub inputs: Vec<String>,
    /// Its figures; predictions.
    pub summary: Summary,
    /// What each amount of writing would save; empty where only the plan file was given, which does not have it.
    pub curve: Vec<CurvePoint>,
    /// Files that could not be considered, by reason.
    pub left_out: Vec<LeftOut>,
}

/// All plans. A plan file and a summary with the same figures are of one plan.
pub fn plans(inputs: &Inputs) -> Vec<PlanPart> {
    let mut plans: Vec<PlanPart> = Vec::new();
    for named in &inputs.plans {
        let plan = &named.document;
        plans.push(PlanPart {
            inputs: vec![named.name.clone()],
            summary: plan.summary.clone(),
            curve: Vec::new(),
            left_out: left_out(plan),
        });
    }
    for named in &inputs.summaries {
        let report = &named.document;
        let curve = || report.curve.iter().take(MOST_POINTS).copied().collect();
        let same = |plan: &&mut PlanPart| plan.summary == report.summary && plan.curve.is_empty();
        if let Some(plan) = plans.iter_mut().find(same) {
            plan.inputs.push(named.name.clone());
            plan.curve = curve();
        } else {
            plans.push(PlanPart {
                inputs: vec![named.name.clone()],
                summary: report.summary.clone(),
                curve: curve(),
                left_out: report.skipped.clone(),
            });
        }
    }
    plans.iter_mut().for_each(|plan| plan.left_out.truncate(MOST_REASONS));
    plans
}
