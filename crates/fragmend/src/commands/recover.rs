//! `fragmend recover`: put back what an interrupted rewrite left unfinished.

use crate::exit::{Exit, Usage};
use crate::ui::Ui;
use anyhow::Context;
use fragmend_engines::engine;
use fragmend_engines::rewrite::journal::{DIRECTORY, ELSEWHERE, JournalError};
use fragmend_engines::rewrite::recover::{
    Options, Prefer, Recovered, RecoveryOutcome, Serves, recover,
};
use fragmend_layout::{printable, printable_path};
use fragmend_pipeline::absolute;
use fragmend_report::recover::RecoverReport;
use fragmend_report::{Unit, human};
use fragmend_sys::mounts::{self, Mount};
use fragmend_sys::root::Root;
use std::collections::HashSet;
use std::io::{ErrorKind, Write};
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
    /// Only these file systems, by any path on them. If none is given all mounted ones, and a journal of
    /// another user's is named and left to them
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
    let (mounts, passed_over) = local_mounts(&args.paths)?;
    let options = Options {
        dry_run: args.dry_run,
        prefer: match args.prefer {
            None => None,
            Some(PreferArg::File) => Some((Prefer::File, absolute(&args.paths)?)),
            Some(PreferArg::Record) => Some((Prefer::Record, absolute(&args.paths)?)),
        },
    };
    let (mut records, mut unsaid) = (Vec::new(), Ok(()));
    let (mut errors, mut left) = (Vec::new(), passed_over);
    // Where no place is named, it is not reported that another user has made a directory of this name somewhere.
    let all = args.paths.is_empty() && args.journal.is_none();
    for (journal, serves) in journals(args, &mounts)? {
        let done = recover(&journal, serves, &options, &mut |record| {
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
            Err(JournalError::Closed(_)) if all => {}
            Err(e) if all && e.is_not_ours() => left.push(e.to_string()),
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

/// The mounts of file systems that rewriting is for: writable ones first, then those that show more of it; and
/// what is said of those that were passed over, where no path was given.
fn local_mounts(paths: &[PathBuf]) -> anyhow::Result<(Vec<Mount>, Vec<String>)> {
    let all = mounts::near().context("the mount table")?;
    let mut found: Vec<Mount> = match paths {
        [] => all.clone(),
        paths => {
            let top =
                |path: &PathBuf| mounts::of_path(path).with_context(|| path.display().to_string());
            paths.iter().map(top).collect::<anyhow::Result<_>>()?
        }
    };
    if let (false, Some(why)) =
        (paths.is_empty(), found.iter().find_map(|m| engine::local(m).err()))
    {
        return Err(Usage(why).into());
    }
    found.retain(|mount| engine::local(mount).is_ok());
    let mut seen: HashSet<(u64, PathBuf)> = HashSet::new();
    let mut reached = Vec::new();
    for mount in found {
        let identity = |m: &Mount| (m.dev, m.root.clone());
        if !seen.contains(&identity(&mount))
            && let Some(mount) = with_directory(mount, &all)
            && seen.insert(identity(&mount))
        {
            reached.push(mount);
        }
    }
    if let (true, Some(path)) = (reached.is_empty(), paths.first()) {
        anyhow::bail!("{}: the top of its file system cannot be opened", printable_path(path));
    }
    let passed_over = if paths.is_empty() { unreached(&reached)? } else { Vec::new() };
    reached.sort_by_key(|mount| (mount.has_option("ro"), mount.root.components().count()));
    Ok((reached, passed_over))
}

/// What is said of local file systems none of whose mounts can be reached without a question to a program or a
/// server.
fn unreached(reached: &[Mount]) -> anyhow::Result<Vec<String>> {
    let devices: HashSet<u64> = reached.iter().map(|mount| mount.dev).collect();
    let line = |mount: &Mount| {
        format!(
            "{}: not looked at, because another mount hides it, or the way to it is over a file system that a program or a server answers for; name it to have it looked at",
            printable_path(&mount.point)
        )
    };
    let mut all = mounts::all().context("the mount table")?;
    all.retain(|mount| !devices.contains(&mount.dev) && engine::local(mount).is_ok());
    Ok(all.iter().map(line).collect())
}

/// The mount itself, or where only a file is mounted (as in every container), one of the same file
/// system that shows more; `None` where another mount hides it.
fn with_directory(mount: Mount, all: &[Mount]) -> Option<Mount> {
    let open = |m: &Mount| Root::open(&m.point, m.dev);
    match open(&mount) {
        Ok(_) => Some(mount),
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            let same = all.iter().filter(|m| m.dev == mount.dev && open(m).is_ok());
            same.min_by_key(|m| m.root.components().count()).cloned()
        }
        Err(_) => None,
    }
}

/// The journals to read, each with the file systems that it may serve: a journal at the top of a mount
/// serves that one alone, one elsewhere serves any that has its name.
fn journals<'a>(args: &Args, mounts: &'a [Mount]) -> anyhow::Result<Vec<(PathBuf, Serves<'a>)>> {
    let Some(dir) = &args.journal else {
        return Ok(mounts.iter().map(|m| (m.point.join(DIRECTORY), Serves::Itself(m))).collect());
    };
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    let serves = |path: PathBuf| {
        let at_top = mounts.iter().find(|m| m.point.join(DIRECTORY) == path);
        let serves = at_top.map_or(Serves::OneOf(mounts), Serves::Itself);
        (path, serves)
    };
    let is_journal = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(ELSEWHERE) || name == DIRECTORY
    };
    if is_journal(&dir) {
        return Ok(vec![serves(dir)]);
    }
    let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
    let names =
        entries.collect::<Result<Vec<_>, _>>().with_context(|| dir.display().to_string())?;
    let mut journals: Vec<_> =
        names.iter().map(|entry| entry.path()).filter(|p| is_journal(p)).collect();
    journals.sort();
    Ok(journals.into_iter().map(serves).collect())
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
        RecoveryOutcome::FileGone => "deleted meanwhile; its record was removed".into(),
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
