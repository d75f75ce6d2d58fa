//! Predicted beside counted or measured time saved: ten loads, a line each.
//!
//! ```sh
//! cargo bench -p fragmend --bench prediction [-- DRIVE...]                  # served drives, virtual time added up
//! cargo bench -p fragmend --bench prediction -- --paced[=FACTOR] [DRIVE...] # by the clock on the wall
//! cargo bench -p fragmend --bench prediction -- --own [DIR]                 # in a directory of this machine's disk
//! ```
//!
//! `--part=N` reads an N-th: N times smaller files, and so many times fewer reads. By virtual time each figure is a mean of
//! three draws of where the fragments are and what is read (`--draws=N`): where a file begins in the drive's flash pages is chance.
//! All drives if none is named. A paced drive lasts [`Drive::factor`] times as long as its model unless another factor is given.

#[path = "support/loads.rs"]
mod loads;
#[path = "support/place.rs"]
mod place;
#[path = "support/prediction.rs"]
mod prediction;

use loads::{Amount, FILES, LOADS, Load};
use place::Place;
use prediction::{Bed, Outcome, RUNS, Time};
use std::path::{Path, PathBuf};

/// A drive, by what factor it is slowed down when it is paced, and what part of the loads it then does.
struct Drive {
    name: &'static str,
    factor: f64,
    amount: Amount,
}

/// The host's path to a served drive adds some 0.1 ms to a request, so drives of flash get a factor; a disk would need
/// more than ten minutes for all of the loads.
const DRIVES: [Drive; 5] = [
    Drive { name: "microsd", factor: 1.0, amount: WALL },
    Drive { name: "sata-a", factor: 8.0, amount: WALL },
    Drive { name: "nvme-a", factor: 32.0, amount: WALL },
    Drive { name: "nvme-b", factor: 32.0, amount: WALL },
    Drive { name: "hdd", factor: 1.0, amount: Amount { part: 2, fewer: 6, draw: 0 } },
];
/// All of the loads, by virtual time.
const ALL: Amount = Amount { part: 1, fewer: 1, draw: 0 };
/// As much as can be waited for.
const WALL: Amount = Amount { part: 1, fewer: 3, draw: 0 };

/// How far the predicted time saved may be from the counted, and how much two runs differ at most that are the same.
struct Band {
    saved: f64,
    same: f64,
}
const COUNTED: Band = Band { saved: 0.15, same: 0.03 };
const PACED: Band = Band { saved: 0.25, same: 0.05 };

/// Whether prediction and measurement agree.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Within,
    Outside,
    /// The runs differ by more than is saved, or than two runs that are the same may.
    Noise,
}

/// What the command line asks for.
enum Mode {
    Counted,
    Paced(Option<f64>),
    Own,
}

fn main() {
    let (mut mode, mut part, mut draws, mut named) = (Mode::Counted, None, 3, Vec::new());
    for arg in std::env::args().skip(1) {
        match arg.split_once('=').map_or((arg.as_str(), None), |(name, value)| (name, Some(value)))
        {
            ("--paced", factor) => {
                mode = Mode::Paced(factor.map(|factor| factor.parse().expect("a factor")));
            }
            ("--part", Some(n)) => part = Some(n.parse::<u64>().expect("a number")),
            ("--draws", Some(n)) => draws = n.parse::<u64>().expect("a number"),
            ("--own", None) => mode = Mode::Own,
            // What cargo passes.
            ("--bench", None) => {}
            (option, _) if option.starts_with('-') => panic!("{option} is no option"),
            _ => named.push(arg),
        }
    }
    if let Mode::Own = mode {
        let dir = named.pop().map_or_else(std::env::temp_dir, PathBuf::from);
        return own(&dir, of(WALL, part));
    }
    let known = |name: &String| DRIVES.iter().any(|drive| drive.name == name);
    assert!(named.iter().all(known), "{named:?} are no drives of this bench");
    let wanted = |drive: &&Drive| named.is_empty() || named.iter().any(|name| name == drive.name);
    let drives = DRIVES.iter().filter(wanted);
    match mode {
        Mode::Paced(given) => paced(drives, given, part),
        _ => counted(drives, of(ALL, part), draws),
    }
}

/// By the virtual time of served drives.
fn counted<'a>(drives: impl Iterator<Item = &'a Drive>, amount: Amount, draws: u64) {
    assert!(draws > 0, "at least one draw");
    println!("Means of {draws} draws of where the fragments are and what is read.\n");
    println!(
        "| drive | load | requests | moved | before: counted (predicted) | after: counted (predicted) | saved, predicted | saved, counted | difference | of each draw |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let (mut within, mut all) = (0, 0);
    for drive in drives {
        let mut outcomes: Vec<Vec<Outcome>> = LOADS.iter().map(|_| Vec::new()).collect();
        for draw in 0..draws {
            let mut of_load = outcomes.iter_mut();
            each(Place::served(drive.name, None), Amount { draw, ..amount }, |load, outcome| {
                eprintln!("{} |", row(drive.name, load, &outcome, None));
                of_load.next().expect("a load").push(outcome);
            });
        }
        for (load, outcomes) in LOADS.iter().zip(outcomes) {
            let mean = Outcome::mean(&outcomes);
            let verdict = verdict(&mean, &COUNTED);
            let each: Vec<String> = outcomes.iter().map(difference).collect();
            println!("{} | {} |", row(drive.name, load, &mean, Some(verdict)), each.join(", "));
            within += u32::from(verdict == Verdict::Within);
            all += 1;
        }
    }
    println!("\n{within} of {all} are within the band");
}

/// By the clock on the wall, on served drives whose requests really last.
fn paced<'a>(drives: impl Iterator<Item = &'a Drive>, given: Option<f64>, part: Option<u64>) {
    println!(
        "Times are the medians of {RUNS} runs before and {RUNS} after, by the clock on the wall.\n"
    );
    measured_head();
    let (mut within, mut noise, mut all) = (0, 0, 0);
    for drive in drives {
        let factor = given.unwrap_or(drive.factor);
        let amount = of(drive.amount, part);
        let name = format!("{}, {factor} x{}", drive.name, of_all(amount));
        each(Place::served(drive.name, Some(factor)), amount, |load, outcome| {
            let verdict = verdict(&outcome, &PACED);
            measured(&name, load, &outcome, Some(verdict));
            within += u32::from(verdict == Verdict::Within);
            noise += u32::from(verdict == Verdict::Noise);
            all += 1;
        });
    }
    println!(
        "\n{within} of {all} are within the band, and of {noise} noise does not permit a verdict"
    );
}

/// In a directory of this machine, without a band.
fn own(dir: &Path, amount: Amount) {
    let (place, why) = Place::own(dir);
    match why {
        Some(why) => println!(
            "An aged ext4 in an image of 2 GiB in {}, a loop device with direct I/O: {why}.",
            dir.display()
        ),
        None => println!(
            "In {}, no loop device between: {FILES} files a load, blocks of another file between their fragments.",
            dir.display()
        ),
    }
    println!(
        "Times are the medians of {RUNS} runs before and {RUNS} after, by the clock on the wall.\n"
    );
    measured_head();
    each(place, amount, |load, outcome| {
        let noise = Some(verdict(&outcome, &PACED)).filter(|verdict| *verdict == Verdict::Noise);
        measured("own", load, &outcome, noise);
    });
}

/// Runs each load at a place.
fn each(place: Place, amount: Amount, mut show: impl FnMut(&Load, Outcome)) {
    let loads: Vec<&Load> = LOADS.iter().collect();
    let bed = Bed::new(place, amount, &loads);
    for load in loads {
        let outcome = bed.run(load);
        let Outcome { depth, one_more_ns, note, .. } = &outcome;
        eprintln!("{}: depth {depth:.1}, one more {one_more_ns:?} ns, {note:?}", load.name);
        show(load, outcome);
    }
    bed.quit();
}

fn verdict(outcome: &Outcome, band: &Band) -> Verdict {
    let Time { counted: saved, .. } = outcome.saved();
    let (fits, clear) = if outcome.moved_bytes == 0 {
        let most = band.same * outcome.before.counted;
        (saved.abs() < most, outcome.noise < most)
    } else {
        (outcome.error().abs() < band.saved, outcome.noise < saved.abs())
    };
    match (clear, fits) {
        (false, _) => Verdict::Noise,
        (true, true) => Verdict::Within,
        (true, false) => Verdict::Outside,
    }
}

/// A part of an amount, or all of it.
fn of(amount: Amount, part: Option<u64>) -> Amount {
    part.map_or(amount, |part| Amount { part, fewer: amount.fewer * part / amount.part, ..amount })
}

fn of_all(amount: Amount) -> String {
    let Amount { part, fewer, .. } = amount;
    let bytes = if part == 1 { String::new() } else { format!(", 1/{part} of the bytes") };
    if fewer == 1 { bytes } else { format!("{bytes}, 1/{fewer} of the reads") }
}

fn measured_head() {
    println!(
        "| drive | load | requests | moved | before: measured (predicted) | after: measured (predicted) | saved, predicted | saved, measured | difference | noise | load average |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
}

/// A row with the noise of its times, and how busy the machine was.
fn measured(drive: &str, load: &Load, outcome: &Outcome, verdict: Option<Verdict>) {
    let busy = std::fs::read_to_string("/proc/loadavg").expect("the load average");
    let busy = busy.split(' ').next().unwrap_or_default();
    println!("{} | {} | {busy} |", row(drive, load, outcome, verdict), ms(outcome.noise));
}

fn ms(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

/// A row without its end.
fn row(drive: &str, load: &Load, outcome: &Outcome, verdict: Option<Verdict>) -> String {
    let both = |time: Time| format!("{} ({})", ms(time.counted), ms(time.predicted));
    let saved = outcome.saved();
    let mark = match verdict {
        Some(Verdict::Outside) => ", **outside**",
        Some(Verdict::Noise) => ", *noise exceeds it*",
        _ => "",
    };
    let moved = match &outcome.why {
        Some(why) => format!("nothing: {why}"),
        None => format!("{:.1} MiB", outcome.moved_bytes as f64 / f64::from(1 << 20)),
    };
    let unit = if outcome.why.is_some() { " of the time" } else { "" };
    format!(
        "| {drive} | {} | {} | {moved} | {} | {} | {} | {} | {}{unit}{mark}",
        load.name,
        outcome.requests_before,
        both(outcome.before),
        both(outcome.after),
        ms(saved.predicted),
        ms(saved.counted),
        difference(outcome),
    )
}

/// By how much the predicted time saved is more than the counted; where nothing moves, by how much of the time the two runs
/// differ.
fn difference(outcome: &Outcome) -> String {
    let share = if outcome.why.is_some() { outcome.difference() } else { outcome.error() };
    format!("{:+.1} %", 100.0 * share)
}
