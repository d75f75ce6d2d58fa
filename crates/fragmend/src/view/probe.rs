//! What a probe found out, as text and as pictures.

use crate::ui::Ui;
use comfy_table::{Cell, CellAlignment, Table, presets};
use fragmend_device::probe::Stage;
use fragmend_device::probe::area::Content;
use fragmend_device::probe::clock::ClockKind;
use fragmend_device::profile::Profile;
use fragmend_lab::plot::Plot;
use fragmend_layout::{RequestCost, printable};
use fragmend_report::probe::{FileReport, ProbeReport};
use fragmend_report::{Unit, human, wear};
use fragmend_sys::directory;
use std::io::Write;
use std::path::Path;

/// What a stage does, in words.
pub fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Areas => "looking for data",
        Stage::Costs => "measuring requests",
        Stage::Seeks => "measuring distances",
        Stage::Intervals => "reading at intervals",
    }
}

/// Prints the document, as JSON or as text.
pub fn show(report: &ProbeReport, ui: &Ui) -> anyhow::Result<()> {
    let mut out = ui.out();
    if ui.json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
        return Ok(());
    }
    device(&mut out, &report.profile)?;
    for drive in &report.drives {
        let said = match &drive.health {
            Some(health) => wear::used(&drive.name, health),
            None => wear::not_known(&drive.name, drive.unknown.as_deref()),
        };
        writeln!(out, "{said}")?;
    }
    if let Some(kept) = &report.kept {
        writeln!(out, "kept as {}", kept.printable())?;
    }
    if let Some(file) = &report.file {
        writeln!(out)?;
        ranges(&mut out, file)?;
    }
    Ok(())
}

fn us(ns: f64) -> String {
    let us = ns / 1000.0;
    if us < 10.0 { format!("{us:.1} us") } else { format!("{us:.0} us") }
}

fn device(out: &mut impl Write, profile: &Profile) -> std::io::Result<()> {
    let device = &profile.device;
    let model = device.identity.as_ref().and_then(|identity| identity.model.as_deref());
    let model = model.map(|model| format!(" ({})", printable(model))).unwrap_or_default();
    writeln!(out, "{}{model}: {}", printable(&device.name), device.kind.words())?;
    if profile.clock == ClockKind::Served {
        writeln!(out, "  times are by the drive's own clock")?;
    }
    match profile.content {
        Content::Data => {}
        Content::Mixed => writeln!(
            out,
            "  data was found only between zeroes: some of the times may not be those of the media"
        )?,
        Content::Zeroes => writeln!(
            out,
            "  only zeroes were found: if nothing was written there, the times are not those of the media"
        )?,
        Content::Unknown => writeln!(out, "  whether data was read cannot be told")?,
    }
    if let Some(share) = profile.disturbed.filter(|share| *share > 0.01) {
        let share = human(share, Unit::Share);
        writeln!(out, "  other programs used it beside {share} of the bursts")?;
    }
    match (profile.die_granularity_bytes, profile.stripe_bytes, profile.cannot_tell) {
        (Some(granularity), Some(stripe), _) => writeln!(
            out,
            "  as the data there was written: die granularity {}, stripe {} ({} dies); confidence {:.4}\n  (they are the drive's own if one program wrote it in order)",
            human(granularity as f64, Unit::Bytes),
            human(stripe as f64, Unit::Bytes),
            stripe / granularity,
            profile.confidence.unwrap_or(0.0),
        )?,
        (.., why) => writeln!(
            out,
            "  die granularity and stripe: cannot tell: {}",
            why.map_or("no reason is known", |why| why.words())
        )?,
    }
    for more in &profile.one_more_request {
        writeln!(out, "  one more request, {} in flight: {}", more.in_flight, us(more.ns as f64))?;
    }
    writeln!(out, "\n{}", costs(profile.costs.reads()))?;
    let seeks = profile.costs.seeks();
    if !seeks.is_empty() {
        let mut table = plain();
        table.set_header(["distance", "longer by"].map(right));
        for seek in seeks {
            let distance = human(seek.distance_bytes as f64, Unit::Bytes);
            table.add_row([distance, us(seek.ns as f64)].map(right));
        }
        writeln!(out, "\n{table}")?;
    }
    writeln!(
        out,
        "\nread {} in {} requests, {}",
        human(profile.read_bytes as f64, Unit::Bytes),
        human(profile.read_requests as f64, Unit::Count),
        human(profile.seconds, Unit::Seconds),
    )
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

/// Latency of one burst, and the rate with as many always in flight, at the numbers that FAST'24 has.
fn costs(reads: &[RequestCost]) -> String {
    let mut table = plain();
    let deepest = reads.last().map_or(1, |cost| cost.in_flight);
    let shown: Vec<u32> = [1, 4, deepest].into_iter().filter(|depth| *depth <= deepest).collect();
    let mut head = vec![right("request")];
    for depth in &shown {
        head.push(right(format!("{depth} in flight")));
        head.push(right("MB/s"));
    }
    table.set_header(head);
    for row in reads.chunk_by(|a, b| a.request_bytes == b.request_bytes) {
        let mut cells = vec![right(human(row[0].request_bytes as f64, Unit::Bytes))];
        for depth in &shown {
            if let Some(cost) = row.iter().find(|cost| cost.in_flight == *depth) {
                cells.push(right(us(cost.burst_ns as f64)));
                let rate = cost.request_bytes as f64 * 1000.0 / cost.interval_ns as f64;
                cells.push(right(format!("{rate:.0}")));
            }
        }
        table.add_row(cells);
    }
    table
        .to_string()
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

fn ranges(out: &mut impl Write, file: &FileReport) -> std::io::Result<()> {
    let bytes = |bytes: u64| human(bytes as f64, Unit::Bytes);
    writeln!(
        out,
        "{} of the file's {} of data were timed: reading them lasts {} times as long as the drive needs",
        bytes(file.timed_bytes),
        bytes(file.data_bytes),
        human(file.ratio, Unit::Ratio),
    )?;
    let in_several = file.ranges.iter().filter(|range| range.fragments > 1 && range.is_slow());
    let in_several: u64 = in_several.map(|range| range.bytes).sum();
    if in_several > 0 {
        let bytes = bytes(in_several);
        writeln!(out, "in several extents, and slower than these explain: {bytes}")?;
    }
    if file.slow.is_empty() {
        return writeln!(out, "no range that is in one extent is slow");
    }
    writeln!(out, "in one extent and yet slow: {}", bytes(file.slow_bytes))?;
    let mut table = plain();
    table.set_header(["offset", "bytes", "lasts", "drive needs", "times"].map(right));
    for range in &file.slow {
        let ratio = range.ns as f64 / range.expected_ns.max(1) as f64;
        let row = [
            range.offset.to_string(),
            bytes(range.bytes),
            us(range.ns as f64),
            us(range.expected_ns as f64),
            human(ratio, Unit::Ratio),
        ];
        table.add_row(row.map(right));
    }
    writeln!(out, "{table}")
}

/// Draws the pictures into a directory.
pub fn draw(report: &ProbeReport, dir: &Path) -> anyhow::Result<()> {
    directory::create(dir, false)?;
    let reads = report.profile.costs.reads();
    let deepest = reads.last().map_or(1, |cost| cost.in_flight);
    let mut depths: Vec<u32> = reads.iter().map(|cost| cost.in_flight).collect();
    depths.sort_unstable();
    depths.dedup();
    depths.retain(|depth| [1, 4, deepest].contains(depth));
    let line = |depth: &u32| {
        let at = reads.iter().filter(|cost| cost.in_flight == *depth);
        let rate = |cost: &RequestCost| {
            let kib = cost.request_bytes as f64 / 1024.0;
            (kib, cost.request_bytes as f64 * 1000.0 / cost.interval_ns as f64)
        };
        (format!("{depth} in flight"), at.map(rate).collect())
    };
    let plot = Plot::Lines {
        name: "probe-requests".into(),
        title: format!("{}: reads at random places", printable(&report.profile.device.name)),
        axes: ["request, KiB".into(), "MB/s".into()],
        logarithmic: true,
        lines: depths.iter().map(line).collect(),
    };
    plot.draw(dir)?;
    if !report.profile.intervals.is_empty() {
        let rate = |at: &fragmend_device::profile::AtInterval| {
            (at.distance_bytes as f64 / 1024.0, at.mb_per_second)
        };
        let points: Vec<(f64, f64)> = report.profile.intervals.iter().map(rate).collect();
        // Powers of two alone, or every multiple of a unit.
        let logarithmic = points.len() < 64;
        let plot = Plot::Lines {
            name: "probe-intervals".into(),
            title: format!("{}: reads at intervals", printable(&report.profile.device.name)),
            axes: ["from start to start, KiB".into(), "MB/s".into()],
            logarithmic,
            lines: vec![(printable(&report.profile.device.name).to_string(), points)],
        };
        plot.draw(dir)?;
    }
    if let Some(file) = &report.file {
        let ratio = |range: &fragmend_report::probe::FileRange| {
            let times = range.ns as f64 / range.expected_ns.max(1) as f64;
            (range.offset as f64 / f64::from(1 << 20), times)
        };
        let plot = Plot::Lines {
            name: "probe-file".into(),
            title: "Time of each MiB, beside what the drive needs".into(),
            axes: ["offset, MiB".into(), "times".into()],
            logarithmic: false,
            lines: vec![("read".into(), file.ranges.iter().map(ratio).collect())],
        };
        plot.draw(dir)?;
    }
    Ok(())
}
