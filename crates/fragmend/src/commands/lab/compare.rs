//! `fragmend lab compare`: all remedies side by side on aged images.

use super::{is_file, load_drive};
use crate::exit::{Exit, Usage};
use crate::ui::{Ui, has_reader};
use anyhow::Context;
use comfy_table::{Cell, CellAlignment::Right, Table as Columns, presets};
use fragmend_lab::compare::loads::{Load, Parts};
use fragmend_lab::compare::page::{COLUMNS, cells, page};
use fragmend_lab::compare::remedies::Remedy;
use fragmend_lab::compare::report::{Comparison, Table};
use fragmend_lab::compare::{Choice, DRIVES, compare, picture};
use fragmend_sys::directory;
use fragmend_sys::output::{self, Audience};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Options of `fragmend lab compare`.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// Only these loads; `fragmend lab list` names them
    #[arg(long = "load", value_name = "NAME")]
    loads: Vec<String>,
    /// On these drives instead of ufs-2.0, nvmevirt-fast24 and femu-indef
    #[arg(long = "drive", value_name = "NAME|FILE")]
    drives: Vec<String>,
    /// Only these remedies, beside the image without one
    #[arg(long = "remedy", value_name = "NAME")]
    remedies: Vec<String>,
    /// The seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Loads of one part in N of their usual sizes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    scale: u64,
    /// Where the page (compare.md) and the pictures of gain against programmed bytes (SVG) go; without it, none are written
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How many cells are measured in parallel; the result is the same. One per core by default
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
}

/// The page's file.
const PAGE: &str = "compare.md";

/// Runs the verb.
pub fn run(args: &CompareArgs, ui: &Ui) -> anyhow::Result<Exit> {
    let choice = choice(args)?;
    if let Some(out) = &args.out {
        directory::create(out, false).with_context(|| out.display().to_string())?;
    }
    let bar = ui.progress(None, "{bar:30} {pos}/{len} {msg}");
    let comparison = compare(&choice, &|total| {
        bar.set_length(total);
        bar.inc(1);
    });
    bar.finish_and_clear();
    // A closed output is no error: the page is written, and the exit code has the result.
    has_reader(show(&comparison, ui))?;
    if let Some(out) = &args.out {
        write_out(&comparison, out)?;
        ui.note(format_args!("{PAGE} and pictures are in {}", out.display()));
    }
    let beaten = Exit::IMPROVABLE.when(!comparison.gain_is_on_every_front());
    Ok(Exit::INTEGRITY.when(!comparison.is_safe()) | beaten)
}

fn show(comparison: &Comparison, ui: &Ui) -> anyhow::Result<()> {
    let mut stdout = ui.out();
    if ui.json {
        writeln!(stdout, "{}", serde_json::to_string(comparison)?)?;
    } else {
        write!(stdout, "{}", text(comparison))?;
    }
    Ok(())
}

fn choice(args: &CompareArgs) -> anyhow::Result<Choice> {
    let loads = named("load", &args.loads, &Load::ALL, Load::name)?;
    let remedies = named("remedy", &args.remedies, &Remedy::ALL, Remedy::name)?;
    let mut drives = Vec::new();
    let wanted: Vec<&str> = args.drives.iter().map(String::as_str).collect();
    for name in if wanted.is_empty() { DRIVES.to_vec() } else { wanted } {
        let (_, setup) = load_drive(name)?;
        let shown = if is_file(name) {
            Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned()
        } else {
            name.to_owned()
        };
        // The pictures of both would have one name.
        if drives.iter().any(|(other, _)| *other == shown) {
            return Err(Usage(format!("two drives are named {shown}")).into());
        }
        drives.push((shown, setup));
    }
    let (seed, jobs, parts) = (args.seed, args.jobs, Parts::new(args.scale));
    Ok(Choice { loads, drives, remedies, seed, parts, jobs })
}

/// Those of `all` with these names; all without a name.
fn named<T: Copy>(
    what: &str,
    names: &[String],
    all: &[T],
    name_of: fn(T) -> &'static str,
) -> anyhow::Result<Vec<T>> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let of = |name: &String| {
        let found = all.iter().copied().find(|one| name_of(*one).eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|one| name_of(*one)).collect();
            Usage(format!("no {what} is named {name}; there are {}", known.join(", "))).into()
        })
    };
    for (n, name) in names.iter().enumerate() {
        if names[..n].iter().any(|before| before.eq_ignore_ascii_case(name)) {
            return Err(Usage(format!("{what} {name} is given twice")).into());
        }
    }
    names.iter().map(of).collect()
}

fn write_out(comparison: &Comparison, out: &Path) -> anyhow::Result<()> {
    let file = out.join(PAGE);
    output::write(&file, Audience::Anybody, page(comparison).as_bytes())
        .with_context(|| file.display().to_string())?;
    for plot in picture::of(comparison) {
        plot.draw(out)?;
    }
    Ok(())
}

/// The comparison as tables for a terminal.
fn text(comparison: &Comparison) -> String {
    let Comparison { seed, scale, tables, .. } = comparison;
    let mut text = String::new();
    for table in tables {
        let Table { load, about, drive, rows, advice, .. } = table;
        let _ = writeln!(text, "{load} on {drive}, seed {seed}, scale 1/{scale}: {about}\n");
        let mut columns = Columns::new();
        columns.load_style(presets::NOTHING);
        columns.set_header(COLUMNS);
        for row in rows {
            if let Some(measured) = &row.measured {
                let [remedy, on, figures @ .., front] = cells(row, measured);
                let figures = figures.into_iter().map(|one| Cell::new(one).set_alignment(Right));
                let named = [remedy, on].map(Cell::new).into_iter();
                columns.add_row(named.chain(figures).chain([Cell::new(front)]));
            }
        }
        let _ = writeln!(text, "{}\n", super::text::trimmed(&columns));
        for row in rows.iter().filter(|row| row.measured.is_none()) {
            let why = row.not_applicable.as_deref().unwrap_or_default();
            let on = row.file_system.map_or(String::new(), |kind| format!(" on {}", kind.name()));
            let _ = writeln!(text, "{}{on} does not apply: {why}", row.remedy);
        }
        for line in advice {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(text);
    }
    text
}
