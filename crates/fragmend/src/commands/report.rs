//! `fragmend report`: one HTML page of scans, plans, receipts, profiles and results of the lab. Read-only.
//!
//! What the page shows is made in `fragmend-page`; here inputs are read, or scanned, and the page is written.

use super::plan::refuse_to_overwrite;
use super::scan;
use crate::exit::{Exit, Usage};
use crate::ui::Ui;
use anyhow::Context;
use fragmend_layout::{printable_path, shell_word};
use fragmend_page::{Inputs, LONGEST, PageReport, html};
use fragmend_pipeline::absolute;
use fragmend_sys::input;
use fragmend_sys::output::{self, Audience};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Bytes at the beginning of a page that show that it is one.
const HEAD: u64 = 2048;

/// Options of `fragmend report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to report on, in any mix and number: a directory or a file, which is scanned now; or what other verbs have
    /// written, recognised by its content: `scan --json --layouts`, `plan --json`, plan files, the events of `apply --json`
    /// and `auto --json`, `probe --json`, profiles, `lab run --json`. A file that begins with `{` is read, and any other is scanned
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// The page to write (HTML, one file that loads nothing); needed unless --json is given
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    match &args.output {
        None if !ui.json => {
            return Err(
                Usage("give the page a name with -o FILE, or --json for its data".into()).into()
            );
        }
        Some(output) if ui.json && output::is_stdout(output) => {
            return Err(Usage("-o and --json both name standard output".into()).into());
        }
        Some(output) => refuse_to_overwrite(output, is_page, "page of fragmend report")?,
        None => {}
    }
    let (documents, scanned): (Vec<PathBuf>, Vec<PathBuf>) =
        args.inputs.iter().cloned().partition(|path| is_document(path));
    let mut inputs = Inputs::default();
    for path in documents {
        let text = input::read_text(&path, LONGEST);
        let text = text.with_context(|| printable_path(&path).to_string())?;
        inputs.add(&path.to_string_lossy(), &text)?;
    }
    let mut failed = false;
    // Plans and receipts have such paths, by which they find files of a scan.
    for path in absolute(&scanned)? {
        let (text, incomplete) = scan::document(std::slice::from_ref(&path), ui)?;
        failed |= incomplete;
        let text = String::from_utf8(text).context("a scan is text")?;
        inputs.add(&path.to_string_lossy(), &text)?;
    }
    let report = PageReport::of(&inputs);
    if let Some(output) = &args.output {
        // It names other users' files.
        let written = output::write(output, Audience::Owner, html(&report).as_bytes());
        written.with_context(|| printable_path(output).to_string())?;
    }
    if ui.json {
        writeln!(ui.out(), "{}", serde_json::to_string(&report)?)?;
    }
    suggest(&report, args, scanned.first(), ui);
    Ok(Exit::FAILED.when(failed))
}

/// Whether a file is to be read: it begins as JSON does. Anything else is scanned.
fn is_document(path: &Path) -> bool {
    start_of(path, 64).trim_ascii_start().starts_with(b"{")
}

/// Whether a file is a page of an earlier report.
fn is_page(path: &Path) -> bool {
    let start = start_of(path, HEAD);
    let start = String::from_utf8_lossy(&start);
    start.starts_with("<!DOCTYPE html>") && start.contains("content=\"fragmend ")
}

/// So many bytes of a file, as far as they can be read.
fn start_of(path: &Path, most: u64) -> Vec<u8> {
    let mut start = Vec::new();
    match input::open(path).and_then(|file| file.take(most).read_to_end(&mut start)) {
        Ok(_) => start,
        Err(_) => Vec::new(),
    }
}

/// Names the next step; `scanned` is the first path that was no document.
fn suggest(report: &PageReport, args: &Args, scanned: Option<&PathBuf>, ui: &Ui) {
    if let Some(output) = args.output.as_ref().filter(|output| !output::is_stdout(output)) {
        ui.note(format!("open {} in a browser", shell_word(output)));
    }
    let watched = scanned.map_or("PATH".into(), |path| shell_word(path));
    let is_planned = !report.plans.is_empty();
    if !is_planned && !report.scans.is_empty() {
        ui.note(format!(
            "next, while the service runs: fragmend record -o trace.parquet {watched}"
        ));
    } else if is_planned
        && report.runs.is_empty()
        && report.plans.iter().any(|plan| plan.summary.worth)
    {
        ui.note("next: fragmend apply PLAN");
    }
}
