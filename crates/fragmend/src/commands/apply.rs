//! `fragmend apply`: move the ranges of a plan, with a receipt for each.

use crate::exit::Exit;
use crate::options::{Pace, Sharing};
use crate::ui::Ui;
use crate::view;
use fragmend_layout::shell_word;
use fragmend_pipeline::plan_file;
use fragmend_plan::PlanSource;
use std::path::PathBuf;

/// Options of `fragmend apply`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How to move
    #[command(flatten)]
    pace: Pace,
    /// What is shared
    #[command(flatten)]
    sharing: Sharing,
    /// Check and report, move nothing
    #[arg(long)]
    dry_run: bool,
    /// A plan that `fragmend plan` wrote
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let wanted = args.pace.wanted()?;
    let options = args.pace.options(args.sharing, args.dry_run);
    let plan = plan_file::open(&args.plan)?;
    let twice = plan.totals().listed_twice;
    if twice > 0 {
        ui.note(format!("{twice} ranges are left out: the plan lists their files twice"));
    }
    // As they are now: the plan may be old.
    let written = plan.totals().devices;
    let devices = plan.devices().iter().filter(|device| written.contains(&device.device));
    let drives = fragmend_pipeline::drives(&devices.cloned().collect::<Vec<_>>());
    let known = drives.iter().filter_map(|d| Some((&*d.name, d.health.as_ref().ok()?)));
    view::wear::warn(known, ui);
    let summary = view::apply::carry_out(&plan, &wanted, &options, None, ui)?;
    if summary.interrupted && summary.ranges_left > 0 {
        ui.note(format!("stopped; go on with: fragmend apply {}", shell_word(&args.plan)));
    } else if args.dry_run {
        ui.note("nothing was moved (--dry-run)");
    } else if summary.ranges_moved > 0 {
        ui.note(format!("next: fragmend scan {}", shell_word(&plan.totals().root)));
    }
    Ok(view::apply::exit_of(&summary))
}
