//! `fragmend recover`: put back what an interrupted rewrite left unfinished.

mod places;

use crate::exit::Exit;
use crate::ui::Ui;
use fragmend_engines::rewrite::journal::JournalError;
use fragmend_engines::rewrite::recover::{Options, Prefer, Recovered, RecoveryOutcome, recover};
use fragmend_layout::printable;
use fragmend_pipeline::absolute;
use fragmend_report::recover::RecoverReport;
use fragmend_report::{Unit, human};
use places::Mounts;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Options of `fragmend recover`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory that was given to `apply --journal`. If copies of the file system are mounted as
    /// well, nothing is done until PATH names the one that was rewritten. A record is kept as
    /// `NAME.record.kept`, exit code 1, if it is not certain that its own file was found; renamed back,
    /// it is checked again
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Check and report, change nothing
    #[arg(long)]
    dry_run: bool,
    /// What to do where a file at or below the given paths was changed after its record was made
    #[arg(long, value_enum, requires = "paths")]
    prefer: Option<PreferArg>,
    /// Only these file systems, by any path on them; records in a directory above a path are found as well. If
    /// none is given all mounted ones, and a journal of another user's is named and left to them
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Values of `--prefer`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PreferArg {
    /// The file as it is now: remove the record
    File,
    /// The recorded bytes: put them back over what is there
    Record,
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let mut mounts = Mounts::of(&args.paths)?;
    let prefer = match args.prefer {
        None => None,
        Some(PreferArg::File) => Some((Prefer::File, absolute(&args.paths)?)),
        Some(PreferArg::Record) => Some((Prefer::Record, absolute(&args.paths)?)),
    };
    let (mut records, mut unsaid) = (Vec::new(), Ok(()));
    let (mut errors, mut left) = (Vec::new(), std::mem::take(&mut mounts.passed_over));
    if args.journal.is_none() {
        left.extend(mounts.partly_shown());
    }
    for place in mounts.journals(args.journal.as_deref())? {
        let mut options = Options { dry_run: args.dry_run, prefer: prefer.clone() };
        if let Some((_, below)) = &mut options.prefer {
            below.extend(mounts.names_on(place.serves));
        }
        let done = recover(&place.journal, place.serves, &options, &mut |record| {
            // An error of the output does not end the recovery.
            if !ui.json
                && let Err(e) = writeln!(ui.out(), "{}", line(&record))
            {
                unsaid = Err(e);
            }
            records.push(record);
        });
        match done {
            Ok(()) => {}
            // Another user may make a directory of this name where no place was named.
            Err(JournalError::Closed(_)) if !place.named => {}
            Err(e) if !place.named && e.is_not_ours() => left.push(e.to_string()),
            Err(e) => errors.push(e.to_string()),
        }
    }
    let report = RecoverReport::new(args.dry_run, records, errors, left);
    if ui.json {
        writeln!(ui.out(), "{}", serde_json::to_string(&report)?)?;
    } else if report.records.is_empty() && report.errors.is_empty() {
        writeln!(ui.out(), "nothing to recover")?;
    }
    report.errors.iter().chain(&report.left).for_each(|e| ui.warn(e));
    if let Err(e) = &unsaid {
        ui.warn(format_args!("cannot write the output: {e}"));
    }
    let failed = report
        .records
        .iter()
        .any(|r| matches!(r.outcome, RecoveryOutcome::Failed | RecoveryOutcome::Unreachable));
    Ok(Exit::INTEGRITY.when(report.totals.at_risk > 0)
        | Exit::FAILED.when(failed || unsaid.is_err() || !report.errors.is_empty()))
}

fn line(record: &Recovered) -> String {
    let path = Path::new(&record.path.path);
    let name = if path.as_os_str().is_empty() {
        printable(&record.record).to_string()
    } else {
        record.path.printable()
    };
    let bytes = human(record.restored_bytes as f64, Unit::Bytes);
    let what = match record.outcome {
        RecoveryOutcome::Whole => "whole; its record was removed".into(),
        RecoveryOutcome::Restored => format!("{bytes} put back at {}", record.offset),
        RecoveryOutcome::WouldRestore => format!("{bytes} would be put back at {}", record.offset),
        RecoveryOutcome::NeverBegun => "an unfinished copy, removed".into(),
        RecoveryOutcome::SetAside if record.restored_bytes > 0 => {
            format!("{bytes} put back at {}; its RECORD IS KEPT", record.offset)
        }
        RecoveryOutcome::SetAside => "nothing was done; its RECORD IS KEPT".into(),
        RecoveryOutcome::Discarded => "left as it is; its record was removed".into(),
        RecoveryOutcome::Changed => "CHANGED MEANWHILE, nothing was done".into(),
        RecoveryOutcome::Damaged => "RECORD DAMAGED, nothing was done".into(),
        RecoveryOutcome::Foreign => "a foreign record, nothing was done".into(),
        RecoveryOutcome::Unreachable => "OUT OF REACH, nothing was done".into(),
        RecoveryOutcome::Failed => "FAILED".into(),
    };
    match &record.detail {
        Some(detail) => format!("{name}: {what} ({})", printable(detail)),
        None => format!("{name}: {what}"),
    }
}
