//! Table 3: how long a reader of another file waits during defragmentation, with each tool's default
//! pace: e4defrag has none.

use super::contender::{Contender, E4DEFRAG, GAIN, apply, native};
use super::limits::Limits;
use super::loads::{file_in, fragmented};
use super::{markdown, note};
use crate::fragment;
use crate::image::Image;
use crate::measure::{drop_caches, measured};
use crate::reader::{Reader, Waits};
use crate::replay::{self, Mode};
use std::path::PathBuf;
use std::time::Duration;

/// Size of the file that is defragmented: enough for thousands of the reader's requests.
const MENDED_BYTES: u64 = 128 << 20;

/// Size of the file that the reader reads.
const OTHER_BYTES: u64 = 128 << 20;

/// Time between two requests of the reader: busy, but not saturating.
const INTERVAL: Duration = Duration::from_micros(250);

/// Rounds of each contender: what is printed and limited are medians of them.
const ROUNDS: usize = 5;

/// How long the undisturbed reader is measured.
const UNDISTURBED: Duration = Duration::from_secs(5);

/// The p99 of the reader may be so many times as long as undisturbed, at the default pace.
const MOST: f64 = 1.5;

/// And the run so many times as long as that of e4defrag.
const MOST_TIME: f64 = 1.0;

/// The rows.
const NAMES: [&str; 3] = ["undisturbed", "beside e4defrag", "beside fragmend gain"];

/// One contender in one round.
struct Round {
    waits: Waits,
    elapsed: Duration,
}

/// Measures and prints the table.
pub fn run(limits: &mut Limits) {
    let master = fragmented(MENDED_BYTES);
    fragment::interleaved(&other_in(&master), OTHER_BYTES, &[OTHER_BYTES], false)
        .expect("the reader's file can be written");
    let mut rows = Vec::new();
    for request_bytes in [4 << 10, 128 << 10] {
        let reader = format!("{} KiB", request_bytes >> 10);
        note(format_args!("a reader of {reader} beside each contender"));
        // Interleaved rounds: the machine's own noise affects all of them alike.
        let mut seen: [Vec<Round>; 3] = Default::default();
        for _ in 0..ROUNDS {
            for (contender, rounds) in [Contender::None, E4DEFRAG, GAIN].iter().zip(&mut seen) {
                rounds.push(beside(&master, *contender, request_bytes));
            }
        }
        let alone: Vec<f64> = seen[0].iter().map(p99).collect();
        let times = |rounds: &[Round]| {
            median(rounds.iter().zip(&alone).map(|(round, alone)| p99(round) / alone))
        };
        let seconds = |rounds: &[Round]| median(rounds.iter().map(|r| r.elapsed.as_secs_f64()));
        for (name, rounds) in NAMES.iter().zip(&seen) {
            let quantile = |share| {
                let us = rounds.iter().map(|r| r.waits.quantile(share).as_secs_f64() * 1e6);
                format!("{:.0}", median(us))
            };
            let requests = rounds.iter().map(|r| r.waits.requests()).sum::<u64>();
            rows.push(vec![
                reader.clone(),
                (*name).to_owned(),
                requests.to_string(),
                quantile(0.5),
                quantile(0.99),
                quantile(1.0),
                format!("{:.2}", times(rounds)),
                format!("{:.2}", seconds(rounds)),
            ]);
        }
        limits.at_most(format!("{reader} reader beside fragmend: p99"), times(&seen[2]), MOST);
        let against = seconds(&seen[2]) / seconds(&seen[1]);
        limits.at_most(
            format!("{reader} reader: time of fragmend against e4defrag"),
            against,
            MOST_TIME,
        );
    }
    let columns = [
        "reader",
        "",
        "requests",
        "p50 us",
        "p99 us",
        "longest us",
        "p99 to undisturbed",
        "mending s",
    ];
    println!(
        "### A reader beside the mending ({} MiB file, medians of {ROUNDS})\n",
        MENDED_BYTES >> 20
    );
    println!("{}\n", markdown::table(&columns, 2, rows));
}

fn beside(master: &Image, contender: Contender, bytes: u64) -> Round {
    let image = master.copy();
    let file = file_in(&image);
    let load = replay::sequential(MENDED_BYTES);
    let play = || replay::replay(&file, &load, Mode::Direct).expect("the load can be replayed");
    let plan = (contender == GAIN).then(|| contender.plan(&image, &file, play));
    drop_caches(&file);
    let reader = Reader::start(&other_in(&image), bytes, INTERVAL, 11);
    let ((), cost) = measured(&image, || match &plan {
        Some(plan) => drop(apply(plan, &[])),
        None => match contender {
            Contender::Native(tool) => native(tool, &file),
            _ => std::thread::sleep(UNDISTURBED),
        },
    });
    Round { waits: reader.finish(), elapsed: cost.elapsed }
}

fn p99(round: &Round) -> f64 {
    round.waits.quantile(0.99).as_secs_f64()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn other_in(image: &Image) -> PathBuf {
    image.path().join("other")
}
