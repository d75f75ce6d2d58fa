//! Free space of the file systems that were scanned: a section of the text for each, or an element of `spaces`.
//!
//! It is read one file system after the other, and no more than the runs of one are held. Where `--free` asked for it, it is
//! an error that it is not known; beside layouts, the document says why.

use super::{Args, fail};
use crate::ui::Ui;
use fragmend_layout::{PathText, printable, printable_path};
use fragmend_report::scan::{RunStep, ScanSpace, SpaceFigures};
use fragmend_report::{Unit, human};
use fragmend_scan::space::MOST_RUNS;
use fragmend_scan::{FileSystem, FoundSpace, NotKnown, Tree, space};
use std::io::{self, Write};

/// A run of this length holds a file that is read without much loss, whatever the device.
const LONG: u64 = 1 << 20;

/// Writes `spaces`.
pub(super) fn write_json(
    out: &mut impl Write,
    tree: &Tree,
    args: &Args,
    ui: &Ui,
    errors: &mut Vec<String>,
) -> io::Result<()> {
    write!(out, ",\n\"spaces\":[")?;
    let mut separator = "\n";
    for (fs, further_devices) in file_systems(tree) {
        let found = space(fs, if args.layouts { MOST_RUNS } else { 0 });
        if let (true, Err(why)) = (args.free, &found) {
            fail(ui, errors, not_known(fs, why));
        }
        write!(out, "{}", std::mem::replace(&mut separator, ",\n"))?;
        serde_json::to_writer(&mut *out, &element(fs, further_devices, found, args.layouts))?;
    }
    write!(out, "]")
}

/// Writes a section for each file system.
pub(super) fn write_text(
    out: &mut impl Write,
    tree: &Tree,
    ui: &Ui,
    errors: &mut Vec<String>,
) -> io::Result<()> {
    for (fs, _) in file_systems(tree) {
        match space(fs, 0) {
            Ok(found) => section(out, fs, &found)?,
            Err(why) => fail(ui, errors, not_known(fs, &why)),
        }
    }
    Ok(())
}

/// The file systems of a tree, each once, with further numbers of the same one.
fn file_systems(tree: &Tree) -> Vec<(&FileSystem, Vec<u64>)> {
    let mut all: Vec<(&FileSystem, Vec<u64>)> = Vec::new();
    for fs in tree.file_systems() {
        match all.iter_mut().find(|(first, _)| first.number() == fs.number()) {
            Some((_, further)) => further.push(fs.dev),
            None => all.push((fs, Vec::new())),
        }
    }
    all
}

fn not_known(fs: &FileSystem, why: &NotKnown) -> String {
    let (label, why) = (printable_path(fs.label()), why.to_string());
    format!("the free space of {label} is not known: {}", printable(&why))
}

fn element(
    fs: &FileSystem,
    further_devices: Vec<u64>,
    found: Result<FoundSpace, NotKnown>,
    with_runs: bool,
) -> ScanSpace {
    let mut element = ScanSpace {
        path: PathText::from(fs.label()),
        file_system: fs.type_name.clone(),
        device: fs.dev,
        further_devices,
        not_known: None,
        figures: None,
        free_run_distribution: Vec::new(),
        runs: None,
    };
    match found {
        Ok(found) => {
            element.figures = Some(figures(&found));
            element.free_run_distribution = steps(&found);
            element.runs = (with_runs && found.has_runs()).then_some(found.space.runs);
        }
        Err(why) => element.not_known = Some(why.to_string()),
    }
    element
}

fn figures(found: &FoundSpace) -> SpaceFigures {
    SpaceFigures {
        bytes: found.space.bytes,
        block_bytes: found.space.block_bytes,
        free_bytes: found.free.bytes,
        free_runs: found.free.runs,
        longest_free_run_bytes: found.free.longest_bytes,
        free_bytes_in_long_runs: found.free.bytes_in_runs_from(LONG),
        metadata_bytes: found.metadata_bytes,
        unallocated_bytes: found.unallocated_bytes,
    }
}

fn steps(found: &FoundSpace) -> Vec<RunStep> {
    let steps = found.free.lengths.steps().zip(found.free.bytes_by_length.steps());
    steps.map(|((from_bytes, runs), (_, bytes))| RunStep { from_bytes, runs, bytes }).collect()
}

/// How long free runs are, with a bar for the bytes in those of each length.
fn section(out: &mut impl Write, fs: &FileSystem, found: &FoundSpace) -> io::Result<()> {
    const WIDTH: u64 = 40;
    let bytes = |bytes: u64| human(bytes as f64, Unit::Bytes);
    let count = |count: u64| human(count as f64, Unit::Count);
    let (label, free) = (printable_path(fs.label()), &found.free);
    writeln!(out, "\nFree space of {label} ({}):\n", printable(&fs.type_name))?;
    let steps = steps(found);
    let most = steps.iter().map(|step| step.bytes).max().unwrap_or(1);
    for RunStep { from_bytes, runs, bytes: within } in steps {
        let bar = "#".repeat((within as u128 * WIDTH as u128).div_ceil(most as u128) as usize);
        let runs = format!("{} run{}", count(runs), if runs == 1 { "" } else { "s" });
        writeln!(out, "{:>12}+  {bar:<40}  {} in {runs}", bytes(from_bytes), bytes(within))?;
    }
    if found.unallocated_bytes > 0 {
        let unallocated = bytes(found.unallocated_bytes);
        writeln!(out, "\n{unallocated} of its devices are in no block group yet.")?;
    }
    let share = free.bytes_in_runs_from(LONG) as f64 / free.bytes.max(1) as f64;
    writeln!(
        out,
        "\n{} are free, {} of that in runs of 1 MiB or more; the longest run has {}.",
        bytes(free.bytes),
        human(share, Unit::Share),
        bytes(free.longest_bytes)
    )
}
