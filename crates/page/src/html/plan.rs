//! Plans: the curve of time saved against bytes written, with the chosen point, and all figures.

use super::chart::{Axis, Chart, Series};
use super::text::{count, figures_table, shown};
use crate::plans::PlanPart;
use crate::report::PageReport;
use fragmend_report::{Unit, wear};
use maud::{Markup, html};

/// The plans; nothing if there is none.
pub fn section(report: &PageReport) -> Option<Markup> {
    (!report.plans.is_empty()).then(|| html! { @for plan in &report.plans { (one(plan)) } })
}

fn one(plan: &PlanPart) -> Markup {
    let s = &plan.summary;
    html! {
        h3 { bdi { (plan.inputs.join(", ")) } }
        p.verdict { (shown(&s.verdict)) }
        @if let Some(chart) = curve(plan) { (chart) } @else {
            p { "The curve is not in a plan file: give what fragmend plan --json prints as well." }
        }
        @if let Some(of_drives) = &s.wear {
            @for line in wear::lines(s.rated_share, of_drives) { p { (shown(&line)) } }
        }
        @if let Some(note) = &s.cost_note { p.warning { (shown(note)) } }
        @if !plan.left_out.is_empty() {
            p { "Files that could not be considered: "
                @for (at, left) in plan.left_out.iter().enumerate() {
                    @if at > 0 { ", " }
                    (count(left.files)) " (" (shown(&left.reason)) ")"
                }
            "." }
        }
        (figures_table("This plan", s))
    }
}

fn curve(plan: &PlanPart) -> Option<Markup> {
    if plan.curve.is_empty() {
        return None;
    }
    let points = plan.curve.iter().map(|p| (p.bytes as f64, p.seconds_saved)).collect();
    let chosen = (plan.summary.bytes_to_move as f64, plan.summary.seconds_saved);
    let axis = |title: &str, unit| Axis { title: title.into(), unit, is_logarithmic: false };
    let chart = Chart {
        title: "What each amount of writing would save in one replay, and what the plan has chosen"
            .into(),
        x: axis("bytes written", Unit::Bytes),
        y: axis("seconds saved (predicted)", Unit::Seconds),
        series: vec![
            Series { name: "best choice for these bytes".into(), points, has_line: true },
            Series { name: "this plan".into(), points: vec![chosen], has_line: false },
        ],
    };
    chart.draw()
}
