//! The map of a file system: cells for the script to draw, a key, and the same as a table.

use super::table::{Cell as TableCell, Table};
use super::text::{bytes, count, path};
use crate::map::{BlockMap, Shares, State};
use crate::report::PageReport;
use fragmend_report::{Unit, human};
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

/// Parts of the address space that the table has, at most.
const ROWS: usize = 64;

/// What the script draws from.
#[derive(Serialize)]
struct Drawn<'a> {
    /// Names of the states.
    states: Vec<&'static str>,
    /// Names of files.
    names: &'a [String],
    cell_bytes: u64,
    /// The state of each cell, the number of its file or -1, and its bytes by state.
    cells: Vec<(u8, i64, &'a Shares)>,
}

/// The maps; nothing if there is none, and no scan that should have had one.
pub fn section(report: &PageReport) -> Option<Markup> {
    if report.maps.is_empty() {
        return (!report.scans.is_empty()).then(|| {
            html! { p.warning { "The scan has no places of extents: make it with --layouts, or give the directory itself." } }
        });
    }
    Some(html! {
        p {
            "The file system as it was scanned: each cell is a part of it, in the order of its addresses. It is drawn as to be moved, "
            "or moved, if any of it is, and else as what most of it is. What was moved is marked where the scan has found it. Point at a cell, tap it, or press the arrow keys on the map to see what it holds; Page Down goes "
            "to the next highlighted cell."
        }
        @for (number, map) in report.maps.iter().enumerate() { (one(number, map)) }
        @if report.maps_left_out > 0 {
            p.warning { (report.maps_left_out) " more file systems are not drawn: make a report of each." }
        }
    })
}

fn one(number: usize, map: &BlockMap) -> Markup {
    let id = |of: &str| format!("map{number}-{of}");
    html! {
        h3 {
            @if let Some(mount) = &map.mount { (path(mount)) } @else { "File system " (map.device) }
            " (" bdi { (map.input) } "): " (bytes(map.bytes)) ", " (count(map.cells.len() as u64)) " cells of " (bytes(map.cell_bytes))
        }
        @if !map.has_space {
            p.warning { "Free space and metadata were not recorded: what no scanned file has is shown as not known." }
        }
        @if map.has_space && !map.has_metadata {
            p.warning { "The file system does not report where its metadata is, as an XFS without rmapbt: that is shown as not known." }
        }
        @if map.ranges_elsewhere > 0 {
            p.warning {
                (count(map.ranges_elsewhere)) " planned ranges are not on the map, as the scan has no file of these names."
            }
        }
        figure.map {
            figcaption { (key(map)) }
            p.controls {
                label { "Order " select.order { option value="rows" { "rows" } option value="hilbert" { "Hilbert curve" } } }
                label { " Highlight " select.highlight {
                    option value="" { "everything" }
                    @for state in State::ALL { option value=(state as usize) { (state.words()) } }
                } }
                label { " File " input.find type="search" autocomplete="off" placeholder="part of a name"; }
                " " output.found { }
            }
            canvas tabindex="0" role="application" aria-label=(format!("Block map of {} cells; arrow keys go from cell to cell", map.cells.len()))
                aria-describedby=(id("cell")) { }
            output.cell #(id("cell")) { "No cell is chosen." }
            script type="application/json" { (PreEscaped(data(map))) }
        }
        details { summary { "This map as a table" } (table(map)) }
    }
}

/// JSON that ends no element.
fn data(map: &BlockMap) -> String {
    let cell = |cell: &'_ crate::map::Cell| (cell.state as u8, cell.file.map_or(-1, i64::from));
    let drawn = Drawn {
        states: State::ALL.map(State::words).to_vec(),
        names: &map.names,
        cell_bytes: map.cell_bytes,
        cells: map.cells.iter().map(|c| (cell(c).0, cell(c).1, &c.bytes)).collect(),
    };
    let json = serde_json::to_string(&drawn).unwrap_or_default();
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn key(map: &BlockMap) -> Markup {
    let all: u64 = map.totals.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes));
    html! {
        ul.key {
            @for state in State::ALL {
                @let of_state = map.totals[state as usize];
                li {
                    canvas.swatch width="32" height="32" data-state=(state as usize) aria-hidden="true" { }
                    " " (state.words()) ": "
                    @if state == State::Metadata && !map.has_metadata { "not reported" } @else {
                        (bytes(of_state)) " (" (human(of_state as f64 / all.max(1) as f64, Unit::Share)) ")"
                    }
                }
            }
        }
    }
}

/// Parts of equal size, each with its bytes by state and the file that has most of one of its cells.
fn table(map: &BlockMap) -> Markup {
    let mut table = Table::new("The address space in parts");
    table.number("from", "Where the part begins.");
    for state in State::ALL {
        table.number(state.words(), "");
    }
    table.column("largest file", "The file that has most of a cell in the part.");
    let step = map.cells.len().div_ceil(ROWS).max(1);
    for (number, part) in map.cells.chunks(step).enumerate() {
        let from = (number * step) as u64 * map.cell_bytes;
        let mut cells = vec![TableCell::number(from as f64, bytes(from))];
        for state in State::ALL {
            let of = part.iter().fold(0u64, |sum, c| sum.saturating_add(c.bytes[state as usize]));
            cells.push(TableCell::number(of as f64, bytes(of)));
        }
        let data = |bytes: &Shares| {
            bytes[State::Used as usize..State::Unknown as usize].iter().max().copied()
        };
        let largest = part.iter().filter(|c| c.file.is_some()).max_by_key(|c| data(&c.bytes));
        let name = largest.and_then(|c| map.names.get(c.file? as usize));
        cells.push(TableCell::markup(html! { bdi.path { (name.map_or("", String::as_str)) } }));
        table.row(cells);
    }
    table.draw()
}
