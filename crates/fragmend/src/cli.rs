//! The verbs, and the options that all of them share.

use crate::commands;
use clap::{Args, Parser, Subcommand};

/// Finds the fragmentation that costs I/O on this device, and mends just what pays, on a live
/// file system.
#[derive(Debug, Parser)]
#[command(name = "fragmend", version, max_term_width = 100, after_help = crate::exit::HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Options of every verb.
    #[command(flatten)]
    pub global: Global,
}

/// Options that every verb understands.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// Print one JSON document (JSON Lines for long-running verbs) instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress and no hints; results and errors only
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// One variant per verb; each verb's options are in its own file.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// How fragmented files are, where, and what it costs
    Scan(commands::scan::Args),
    /// Trace what programs read and write, into a Parquet file
    Record(commands::record::Args),
    /// Choose what is worth moving, and explain it
    Plan(commands::plan::Args),
    /// Move the ranges of a plan, with a receipt for each
    ///
    /// On ext4, on an XFS that exchanges ranges or swaps files, and with --engine rewrite, a program that
    /// opens a file while it moves waits for a moment, and one that opens it with O_NONBLOCK gets an error:
    /// GNU tar does that and leaves the file out of the archive, so do not run such a backup beside it.
    Apply(commands::apply::Args),
    /// Record, plan and apply in one go
    Auto(commands::auto::Args),
    /// Watch a file system while it is used: a map, the files by the time that is lost because of them, and the present plan
    ///
    /// Needs a terminal. A plan can be started from there, after a question that says what it writes and saves; it can be
    /// paused and stopped at its next safe point. Keys are shown at the bottom, and explained by ?.
    Top(commands::top::Args),
    /// Measure what reading a device costs, and how its flash is organized; reads only
    ///
    /// Safe on a mounted device: it is read past the page cache, nothing is ever written, and what is going to be read
    /// is said before. Costs are measured by length and number in flight. On a drive that does not rotate, reads at
    /// intervals show the die allocation granularity and the stripe, if they can be told. The result is kept as the
    /// profile of the drive. Of a file, ranges are listed that are in one extent and yet slow.
    Probe(commands::probe::Args),
    /// One HTML page of scans, plans, receipts, profiles and results of the lab
    ///
    /// It begins with the answer in a sentence, and has the map of each file system, the files that cost most with their
    /// extents, the curve of time saved against bytes written, prediction beside measurement, receipts, free space, and what
    /// reads cost on the device, as far as the inputs have them.
    Report(commands::report::Args),
    /// Put back what an interrupted `--engine rewrite` left unfinished
    Recover(commands::recover::Args),
    /// Record and plan again and again, advise, and move what a policy permits, within a daily budget
    ///
    /// Without a rule that says mode = "move" nothing is moved. What it knows is kept in a store: what was written in the last
    /// 24 hours, what was moved, which files become fragmented again, and by which program. docs/watch.md describes the policy.
    /// SIGHUP reads it again; SIGINT and SIGTERM end the daemon at the next safe point.
    Watch(commands::watch::Args),
    /// Repeat the papers' experiments on simulated drives, or run a load of your own on one
    Lab(commands::lab::Args),
}
