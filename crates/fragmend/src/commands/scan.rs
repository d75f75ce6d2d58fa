//! `fragmend scan`: how fragmented files are, where, and whether it matters.
//!
//! Read-only. The `scan` crate walks and measures; here are the options, and the two renderings: a
//! page of text ([`text`]), or a JSON document that is written file by file; free space ([`free`]), and what is known of files ([`programs`]).

mod free;
mod programs;
mod text;

use crate::exit::{Exit, Usage};
use crate::options::Check;
use crate::ui::Ui;
use clap::ValueEnum;
use fragmend_known::Known;
use fragmend_layout::{
    Log2Histogram, PathText, ScannedLayout, SkipReason, printable, printable_path, schema,
    shell_word,
};
use fragmend_report::scan::{NEGLIGIBLE, ScanFigures, ScanFile, ScanTotals, Skipped, Step};
use fragmend_scan::{
    FileMeasures, MeasuredBatch, SkippedEntry, Source, Totals, Tree, WalkOptions, files,
    measure_with,
};
use programs::Programs;
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Options of `fragmend scan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files or directories; symbolic links below them are not followed
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How many of the worst files the text lists; JSON has them all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Enter other file systems mounted below a path
    #[arg(long)]
    cross_file_systems: bool,
    /// Where layouts come from
    #[arg(long, value_enum, default_value_t = SourceArg::Auto)]
    source: SourceArg,
    /// Show the free space of each file system, too: how long its runs are
    #[arg(long)]
    free: bool,
    /// Write where each file's data is, too (`layout`), which the lab reads, and what is free and metadata (`spaces`); with
    /// --json only
    #[arg(long)]
    layouts: bool,
    /// What the exit status says
    #[command(flatten)]
    check: Check,
}

/// Values of `--source`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SourceArg {
    /// In bulk where that is possible and pays, after one sync of the file system; FIEMAP elsewhere
    Auto,
    /// Open every file and ask the kernel (FIEMAP)
    Fiemap,
    /// Read ext4's inode tables from the block device, or the reverse mapping of an XFS; needs root
    Bulk,
}

impl From<SourceArg> for Source {
    fn from(arg: SourceArg) -> Self {
        match arg {
            SourceArg::Auto => Self::Auto,
            SourceArg::Fiemap => Self::Fiemap,
            SourceArg::Bulk => Self::Bulk,
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    if args.layouts && !ui.json {
        return Err(Usage("--layouts is for --json".into()).into());
    }
    let mut out = BufWriter::with_capacity(1 << 16, ui.out());
    let scanned = match scan(args, ui.json, &mut out, ui) {
        Ok(scanned) => scanned,
        Err(error) => {
            // No half document: what is still in the buffer is discarded.
            drop(out.into_parts());
            return Err(error);
        }
    };
    out.flush()?;
    let Scanned { totals, failed } = scanned;
    if totals.files > 0 {
        suggest(ui, args, &totals);
    }
    Ok(args.check.exit(totals.fragmented_files > 0) | Exit::FAILED.when(failed))
}

/// The document of a scan of these paths with layouts, for another verb, and whether some of it failed.
///
/// # Errors
/// As the verb.
pub fn document(paths: &[PathBuf], ui: &Ui) -> anyhow::Result<(Vec<u8>, bool)> {
    let args = Args {
        paths: paths.to_vec(),
        top: 0,
        cross_file_systems: false,
        source: SourceArg::Auto,
        free: false,
        layouts: true,
        check: Check { check: false },
    };
    let mut out = Vec::new();
    let Scanned { failed, .. } = scan(&args, true, &mut out, ui)?;
    Ok((out, failed))
}

/// What a scan came to, beside what it has written.
struct Scanned {
    totals: Totals,
    /// Whether some paths could not be scanned.
    failed: bool,
}

/// Scans, and writes a document or a page of text.
fn scan(
    args: &Args,
    json: bool,
    out: &mut (impl Write + Send),
    ui: &Ui,
) -> anyhow::Result<Scanned> {
    let bar = ui.progress(None, "{spinner} {pos} files found");
    let options = WalkOptions { across: args.cross_file_systems };
    let tree = files(&args.paths, &options, &|n| bar.inc(n))?;
    bar.finish_and_clear();
    let mut errors: Vec<String> = tree.failed().iter().map(one_line).collect();
    errors.iter().for_each(|e| ui.warn(e));

    let bar = ui.progress(Some(tree.entries().len() as u64), "{bar:30} {pos}/{len} files {eta}");
    let mut found = Kept { top: args.top, ..Kept::default() };
    if json {
        let version = schema::DOCUMENT;
        write!(out, "{{\"schema_version\":{version},\"command\":\"scan\",\"files\":[")?;
    }
    let (mut first, mut programs) = (true, Programs::default());
    let measured = measure_with(&tree, args.source.into(), args.layouts, |batch| {
        bar.inc((batch.files.len() + batch.skips.len()) as u64);
        found.take(&tree, batch);
        if json {
            for (at, file) in batch.files.iter().enumerate() {
                out.write_all(if std::mem::take(&mut first) { b"\n" } else { b",\n" })?;
                let layout = batch.layouts.get(at).cloned();
                let known = programs.known(&tree, file);
                serde_json::to_writer(&mut *out, &scan_file(&tree, file, known, layout))?;
            }
        }
        Ok(())
    });
    let totals = measured.map_err(unwrap_sink)?;
    bar.finish_and_clear();

    unread(&totals, &found).into_iter().for_each(|error| fail(ui, &mut errors, error));
    if json {
        finish_json(out, &tree, &totals, &found)?;
        if args.free || args.layouts {
            free::write_json(out, &tree, args, ui, &mut errors)?;
        }
        write!(out, ",\n\"errors\":")?;
        serde_json::to_writer(&mut *out, &errors)?;
        writeln!(out, "}}")?;
    } else if tree.failed().len() < args.paths.len() {
        text::write(out, &tree, &totals, &mut found, &mut programs)?;
        if args.free {
            free::write_text(out, &tree, ui, &mut errors)?;
        }
    }
    Ok(Scanned { totals, failed: !errors.is_empty() })
}

/// What of all files could not be read at all.
fn unread(totals: &Totals, found: &Kept) -> Vec<String> {
    let without = found.without_layouts().map(|name| {
        format!(
            "{name} does not report where files are (no FIEMAP): scan a path on ext4, XFS, Btrfs or F2FS"
        )
    });
    let mut errors: Vec<String> = without.collect();
    if totals.files == 0 && totals.skipped.contains_key(&SkipReason::PermissionDenied.into()) {
        errors.push("none of the files may be read by this user: run as root".into());
    }
    errors
}

/// Shows an error that does not end the scan, and keeps it for the document.
fn fail(ui: &Ui, errors: &mut Vec<String>, error: String) {
    ui.warn(&error);
    errors.push(error);
}

/// Unwraps an error of the output, so that a closed pipe is recognized.
fn unwrap_sink(error: fragmend_scan::ScanError) -> anyhow::Error {
    match error {
        fragmend_scan::ScanError::Sink(io) => io.into(),
        other => other.into(),
    }
}

/// What is kept besides the totals while the batches are processed.
#[derive(Default)]
struct Kept {
    top: usize,
    worst: Vec<FileMeasures>,
    skips: Vec<SkippedEntry>,
    /// Names of the file systems on which a file was measured, and of those on which one had no FIEMAP.
    measured: BTreeSet<String>,
    refused: BTreeSet<String>,
}

impl Kept {
    fn take(&mut self, tree: &Tree, batch: &MeasuredBatch) {
        if let Some(file) = batch.files.first() {
            self.measured.insert(fs_name(tree, file));
        }
        for skip in &batch.skips {
            if skip.cause.reason() == SkipReason::NoLayout {
                let fs = tree.skipped_on(skip);
                let name = format!("{} ({})", printable_path(fs.label()), fs.type_name);
                if !self.refused.contains(&name) {
                    self.refused.insert(name);
                }
            }
        }
        self.skips.extend(&batch.skips);
        let fragmented =
            batch.files.iter().filter(|f| f.measures.extents > f.measures.ideal_extents);
        self.worst.extend(fragmented);
        if self.worst.len() > 4096 + 2 * self.top {
            self.settle();
        }
    }

    /// Keeps the worst: most requests to save, then most extents.
    fn settle(&mut self) {
        self.worst.sort_by_key(|f| {
            let m = &f.measures;
            std::cmp::Reverse((m.requests_now - m.requests_best.min(m.requests_now), m.extents))
        });
        self.worst.truncate(self.top);
    }

    fn without_layouts(&self) -> impl Iterator<Item = &String> {
        self.refused.difference(&self.measured)
    }
}

fn fs_name(tree: &Tree, file: &FileMeasures) -> String {
    let fs = tree.file_system(&file.entry);
    format!("{} ({})", printable_path(fs.label()), fs.type_name)
}

fn scan_file(
    tree: &Tree,
    file: &FileMeasures,
    known: Option<Known>,
    layout: Option<ScannedLayout>,
) -> ScanFile {
    ScanFile {
        path: PathText::from(tree.path(&file.entry).as_path()),
        path_shortened: !tree.has_whole_path(&file.entry),
        figures: ScanFigures::new(file.bytes, &file.measures),
        known,
        layout,
    }
}

fn scan_totals(totals: &Totals) -> ScanTotals {
    ScanTotals {
        files: totals.files,
        fragmented_files: totals.fragmented_files,
        figures: ScanFigures::new(totals.bytes, &totals.measures),
        further_names: totals.further_names,
        skipped: totals.skipped.values().sum(),
    }
}

fn steps(histogram: &Log2Histogram) -> Vec<Step> {
    histogram.steps().map(|(from_bytes, count)| Step { from_bytes, count }).collect()
}

/// What comes after the files, up to what was skipped.
fn finish_json(out: &mut impl Write, tree: &Tree, totals: &Totals, found: &Kept) -> io::Result<()> {
    write!(out, "\n],\n\"totals\":")?;
    serde_json::to_writer(&mut *out, &scan_totals(totals))?;
    write!(out, ",\n\"frag_size_distribution\":")?;
    serde_json::to_writer(&mut *out, &steps(&totals.frag_sizes))?;
    write!(out, ",\n\"frag_distance_distribution\":")?;
    serde_json::to_writer(&mut *out, &steps(&totals.frag_distances))?;
    write!(out, ",\n\"skipped\":[")?;
    for (i, skip) in tree.skips().iter().chain(&found.skips).enumerate() {
        out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
        let path = PathText::from(tree.skipped_path(skip).as_path());
        let (reason, code) = (skip.cause.to_string(), skip.cause.reason());
        let path_shortened = !tree.skipped_has_whole_path(skip);
        let skipped = Skipped { path, path_shortened, reason, code };
        serde_json::to_writer(&mut *out, &skipped)?;
    }
    write!(out, "]")
}

fn suggest(ui: &Ui, args: &Args, totals: &Totals) {
    if totals.skipped.contains_key(&SkipReason::PermissionDenied.into()) {
        ui.note("Some files may not be read by this user; root sees them all.");
    }
    let path = args.paths.first().map(|p| shell_word(p)).unwrap_or_default();
    let (requests, share) = text::saved(totals);
    if totals.fragmented_files == 0 || requests == 0 {
        ui.note("Nothing needs doing.");
    } else if share < NEGLIGIBLE {
        ui.note(format_args!(
            "Leave it, unless one hot file is among the worst: \
             fragmend record -o trace.parquet {path}"
        ));
    } else {
        ui.note(format_args!(
            "Next, while the service runs, see what it really reads: \
             fragmend record -o trace.parquet {path}"
        ));
    }
}

fn one_line(error: &impl std::fmt::Display) -> String {
    printable(&error.to_string()).to_string()
}
