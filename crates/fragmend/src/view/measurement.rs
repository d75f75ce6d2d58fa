//! Prediction and measurement side by side, as text.

use comfy_table::{Cell, CellAlignment, Table, presets};
use fragmend_apply::measurement::{MeasuredBy, Measurement, Method, Times};
use fragmend_layout::printable;
use fragmend_report::{Unit, human};
use std::io::{self, Write};

/// Writes it.
pub fn write(measurement: &Measurement, out: &mut impl Write) -> io::Result<()> {
    let m = measurement;
    let bytes = |bytes: u64| human(bytes as f64, Unit::Bytes);
    let clock = match m.clock {
        Some(MeasuredBy::Served) => ", by the drive's own (virtual) clock",
        Some(MeasuredBy::Wall) => ", by the clock on the wall",
        None => "",
    };
    writeln!(out)?;
    match m.method {
        Method::Replayed => writeln!(
            out,
            "{} of {} recorded reads replayed, {}, {} in flight, the median of {} rounds{clock}:",
            m.reads,
            m.recorded_reads,
            bytes(m.read_bytes),
            m.in_flight,
            m.rounds,
        )?,
        Method::WatchedAgain if m.measured.is_none() => {
            writeln!(out, "the service was to be watched again:")?;
        }
        Method::WatchedAgain => writeln!(
            out,
            "the service watched again: {} read before, {} afterwards; busy time of the device for as many bytes{clock}:",
            bytes(m.read_bytes),
            bytes(m.read_bytes_again.unwrap_or(0)),
        )?,
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let heads = ["", "before", "after", "saved"];
    table.set_header(heads.map(|head| right(head.to_owned())));
    let both = [&m.predicted, &m.measured];
    let longest = both.into_iter().flatten().map(|t| t.seconds_before.max(t.seconds_after));
    let longest = longest.fold(0.0, f64::max);
    let mut row = |name: &str, times: &Times| {
        let seconds = [times.seconds_before, times.seconds_after, times.seconds_saved];
        let cells = seconds.map(|s| right(beside(s, longest)));
        table.add_row([Cell::new(name)].into_iter().chain(cells));
    };
    if let Some(times) = &m.predicted {
        row("predicted", times);
    }
    if let Some(times) = &m.measured {
        row("measured", times);
    }
    if m.predicted.is_some() || m.measured.is_some() {
        table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))?;
    }
    if m.predicted_ranges < m.planned_ranges {
        writeln!(
            out,
            "predicted after is for the {} of {} planned ranges that were moved",
            m.predicted_ranges, m.planned_ranges
        )?;
    }
    if let Some(share) = m.saved_of_predicted {
        writeln!(out, "saved: {} of what was predicted", human(share, Unit::Share))?;
    }
    if m.no_verdict.is_some() {
        writeln!(out, "no verdict: {}", printable(&m.detail))?;
    }
    if m.fitted {
        writeln!(
            out,
            "predicted before is fitted: the plan was made with the time of these reads"
        )?;
    }
    if let Some(noise) = m.noise {
        writeln!(out, "the rounds differ by {}", human(noise, Unit::Share))?;
    }
    if m.not_measured.is_some() {
        writeln!(out, "not measured: {}", printable(&m.detail))?;
    }
    Ok(())
}

/// Seconds in the unit that suits the longest of the times that they are shown beside.
fn beside(seconds: f64, longest: f64) -> String {
    match longest {
        long if long >= 10.0 => format!("{seconds:.2} s"),
        long if long >= 1e-3 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.1} us", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_apply::measurement::{NoVerdict, NotMeasured};

    fn text(measurement: &Measurement) -> String {
        let mut out = Vec::new();
        write(measurement, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn predicted_and_measured_are_in_the_same_unit_and_what_is_missing_has_its_reason() {
        let measured = Measurement {
            method: Method::Replayed,
            predicted: Some(Times::new(0.2, 0.0742)),
            predicted_ranges: 1,
            planned_ranges: 6,
            fitted: true,
            measured: Some(Times::new(0.1, 0.12)),
            not_measured: None,
            saved_of_predicted: Some(-0.159),
            no_verdict: None,
            detail: String::new(),
            clock: Some(MeasuredBy::Wall),
            noise: Some(0.031),
            rounds: 3,
            reads: 40,
            read_bytes: 5 << 20,
            recorded_reads: 1000,
            in_flight: 1.0,
            read_bytes_again: None,
        };
        let told = text(&measured);
        for part in [
            "40 of 1000 recorded reads replayed, 5.0 MiB, 1 in flight, the median of 3 rounds, by the clock on the wall:",
            "predicted  200.0 ms   74.2 ms  125.8 ms",
            "measured   100.0 ms  120.0 ms  -20.0 ms",
            "predicted after is for the 1 of 6 planned ranges that were moved",
            "saved: -15.9 % of what was predicted",
            "predicted before is fitted: the plan was made with the time of these reads",
            "the rounds differ by 3.1 %",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let unclear = Measurement {
            saved_of_predicted: None,
            no_verdict: Some(NoVerdict::Noise),
            detail: "the rounds differ".into(),
            ..measured.clone()
        };
        let told = text(&unclear);
        assert!(told.contains("measured   100.0 ms") && !told.contains("saved:"), "{told}");
        assert!(told.contains("\nno verdict: the rounds differ\n"), "{told}");
        let missing = Measurement {
            measured: None,
            saved_of_predicted: None,
            noise: None,
            clock: None,
            not_measured: Some(NotMeasured::Refused),
            detail: "/mnt/f: Invalid argument".into(),
            ..measured
        };
        let told = text(&missing);
        assert!(told.contains("predicted ") && !told.contains("measured   "), "{told}");
        assert!(told.ends_with("not measured: /mnt/f: Invalid argument\n"), "{told}");
    }
}
