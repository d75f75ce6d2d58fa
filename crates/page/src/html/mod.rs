//! A report as a page: one file without a reference to another, of HTML that is escaped by construction.
//!
//! The page's policy forbids everything but its own style and script, which it names by their hashes: whatever a document
//! has put into the text, nothing else is executed, loaded or sent.
//!
//! | module | its part |
//! |---|---|
//! | `text` | names and figures, safe to show |
//! | `table` | tables that can be sorted and filtered |
//! | `chart` | lines and bars as SVG, each with its figures as a table |
//! | `block_map` | the map, drawn by the script, and as a table |
//! | `files` | the worst files with their extents |
//! | `plan`, `run`, `drive`, `lab` | the other sections |

mod block_map;
mod chart;
mod drive;
mod files;
mod lab;
mod plan;
mod run;
mod table;
mod text;

use crate::report::{PageReport, ScanPart};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};
use sha2::{Digest, Sha256};
use text::{figures_table, shown, together};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A section of the page.
struct Section {
    id: &'static str,
    title: &'static str,
    body: Markup,
}

/// The page of a report.
pub fn html(report: &PageReport) -> String {
    let sections = sections(report);
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; base-uri 'none'; form-action 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    let page = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(concat!("fragmend ", env!("CARGO_PKG_VERSION")));
                title { "fragmend report: " (report.answer.sentence) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#answer" { "Skip to the answer" }
                (head(&sections))
                main {
                    (answer(report))
                    @for section in &sections {
                        section id=(section.id) aria-labelledby={ (section.id) "-title" } {
                            h2 id={ (section.id) "-title" } { (section.title) }
                            (section.body)
                        }
                    }
                }
                (foot(report))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// A source of the policy: the hash of what is between the tags.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

fn sections(report: &PageReport) -> Vec<Section> {
    let all = [
        ("map", "Where data is", block_map::section(report)),
        ("files", "The files that cost most", files::section(report)),
        ("plan", "Time saved against bytes written", plan::section(report)),
        ("measured", "Prediction beside measurement", run::measured(report)),
        ("receipts", "What was moved", run::section(report)),
        ("free", "How free space is divided", drive::free_space(report)),
        ("device", "What reads cost on the device", drive::section(report)),
        ("lab", "Results of the lab", lab::section(report)),
        ("scans", "What was scanned", scans(&report.scans)),
    ];
    let section =
        |(id, title, body): (_, _, Option<Markup>)| Some(Section { id, title, body: body? });
    all.into_iter().filter_map(section).collect()
}

fn head(sections: &[Section]) -> Markup {
    markup! {
        header {
            p.brand { "fragmend report" }
            nav aria-label="Sections" {
                ul {
                    @for section in sections {
                        li { a href={ "#" (section.id) } { (section.title) } }
                    }
                }
            }
            p.controls {
                label for="theme" { "Colours " }
                select #theme {
                    option value="auto" { "as the system" }
                    option value="light" { "light" }
                    option value="dark" { "dark" }
                }
            }
        }
    }
}

fn answer(report: &PageReport) -> Markup {
    let a = &report.answer;
    let cost =
        if crate::answer::is_moved(report) { "What did it cost?" } else { "What would it cost?" };
    let questions = [
        ("Is it bad?", &a.is_it_bad),
        ("Which files?", &a.which_files),
        (cost, &a.what_would_it_cost),
        ("What did it change?", &a.what_did_it_change),
    ];
    markup! {
        section #answer tabindex="-1" aria-label="The answer" {
            h1 { (together(&a.sentence)) }
            dl.questions {
                @for (question, text) in questions {
                    div {
                        dt { (question) }
                        dd { bdi { (together(text)) } }
                    }
                }
            }
        }
    }
}

fn scans(scans: &[ScanPart]) -> Option<Markup> {
    let one = |scan: &ScanPart| {
        markup! {
            h3 { bdi { (scan.input) } }
            (figures_table("Files of this scan", &scan.totals))
            @if !scan.left_out.is_empty() {
                p { "Left out: "
                    @for (at, (reason, files)) in scan.left_out.iter().enumerate() {
                        @if at > 0 { ", " }
                        (files) " (" (shown(reason)) ")"
                    }
                "." }
            }
            @for error in &scan.errors { p.warning { bdi { (shown(error)) } } }
        }
    };
    (!scans.is_empty()).then(|| markup! { @for scan in scans { (one(scan)) } })
}

fn foot(report: &PageReport) -> Markup {
    markup! {
        footer {
            h2 { "Made from" }
            ul {
                @for input in &report.inputs {
                    li { bdi { (input.name) } ": " (input.kinds.join(", ")) }
                }
            }
            p { "Times of a plan are predictions for one replay of what was recorded; what was measured says so. "
                "This page is one file, and loads nothing." }
        }
    }
}

#[cfg(test)]
#[path = "../html_tests.rs"]
mod tests;
