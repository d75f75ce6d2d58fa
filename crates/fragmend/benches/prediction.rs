//! Predicted beside counted time saved: ten loads on five served drives, a line each as soon as it is known. Arguments are
//! names of drives; all if there are none.
//!
//! ```sh
//! cargo bench -p fragmend --bench prediction [-- DRIVE...]
//! ```

#[path = "support/prediction.rs"]
mod prediction;

use prediction::{Bed, LOADS, Load, Outcome, Time};

const DRIVES: [&str; 5] = ["microsd", "sata-a", "nvme-a", "nvme-b", "hdd"];
/// How far the predicted time saved may be from the counted, and how much two runs differ at most that are the same.
const BAND: f64 = 0.15;
const SAME: f64 = 0.03;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |drive: &&str| asked.is_empty() || asked.iter().any(|name| name == drive);
    println!(
        "| drive | load | requests | moved | before: counted (predicted) | after: counted (predicted) | saved, predicted | saved, counted | difference |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let (mut within, mut all) = (0, 0);
    for drive in DRIVES.into_iter().filter(wanted) {
        let loads: Vec<&Load> = LOADS.iter().collect();
        let bed = Bed::new(drive, &loads);
        for load in loads {
            let outcome = bed.run(load);
            let fits = fits(&outcome);
            println!("{}", line(drive, load, &outcome, fits));
            within += u32::from(fits);
            all += 1;
        }
        bed.quit();
    }
    println!("\n{within} of {all} are within the band");
}

/// Whether prediction and count agree.
fn fits(outcome: &Outcome) -> bool {
    if outcome.moved_bytes == 0 {
        outcome.difference().abs() < SAME
    } else {
        outcome.error().abs() < BAND
    }
}

fn line(drive: &str, load: &Load, outcome: &Outcome, fits: bool) -> String {
    let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    let both = |time: Time| format!("{} ({})", ms(time.counted), ms(time.predicted));
    let saved = outcome.saved();
    let mark = if fits { "" } else { ", **outside**" };
    let (moved, difference) = match &outcome.why {
        Some(why) => (
            format!("nothing: {why}"),
            format!("{:+.1} % of the time", 100.0 * outcome.difference()),
        ),
        None => (
            format!("{:.1} MiB", outcome.moved_bytes as f64 / f64::from(1 << 20)),
            format!("{:+.1} %", 100.0 * outcome.error()),
        ),
    };
    format!(
        "| {drive} | {} | {} | {moved} | {} | {} | {} | {} | {difference}{mark} |",
        load.name,
        outcome.requests_before,
        both(outcome.before),
        both(outcome.after),
        ms(saved.predicted),
        ms(saved.counted),
    )
}
