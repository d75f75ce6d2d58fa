//! Table 3: how long a reader of another file waits during defragmentation, with each tool's default
//! pace: e4defrag has none.

use super::contender::{Contender, E4DEFRAG, GAIN, apply, native};
use super::limits::Limits;
use super::loads::{file_in, fragmented};
use super::{markdown, note};
use crate::fragment;
use crate::image::Image;
use crate::measure::{Cost, drop_caches, measured};
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

/// Rounds of each contender.
const ROUNDS: u32 = 3;

/// How long the undisturbed reader is measured.
const UNDISTURBED: Duration = Duration::from_secs(5);

/// Measures and prints the table.
pub fn run(limits: &mut Limits) {
    let master = fragmented(MENDED_BYTES);
    fragment::interleaved(&other_in(&master), OTHER_BYTES, &[OTHER_BYTES], false)
        .expect("the reader's file can be written");
    let mut rows = Vec::new();
    for request_bytes in [4 << 10, 128 << 10] {
        note(format_args!("a reader of {} KiB beside each contender", request_bytes >> 10));
        // Interleaved rounds: the machine's own noise affects all of them alike.
        let contenders = [Contender::None, E4DEFRAG, GAIN];
        let mut seen = contenders.map(|_| (Waits::default(), Duration::ZERO));
        for _ in 0..ROUNDS {
            for (contender, (waits, elapsed)) in contenders.iter().zip(&mut seen) {
                let (round, cost) = beside(&master, *contender, request_bytes);
                waits.add(&round);
                *elapsed += cost.elapsed / ROUNDS;
            }
        }
        let p99 = |waits: &Waits| waits.quantile(0.99);
        let alone = p99(&seen[0].0);
        let names = ["undisturbed", "beside e4defrag", "beside fragmend gain"];
        for (name, (waits, elapsed)) in names.iter().zip(&seen) {
            rows.push(vec![
                format!("{} KiB", request_bytes >> 10),
                (*name).to_owned(),
                waits.requests().to_string(),
                micros(waits.quantile(0.5)),
                micros(p99(waits)),
                micros(waits.quantile(1.0)),
                format!("{:.2}", times(p99(waits), alone)),
                format!("{:.2}", elapsed.as_secs_f64()),
            ]);
        }
        let what = format!("{} KiB reader beside fragmend: p99", request_bytes >> 10);
        limits.at_most(what, times(p99(&seen[2].0), alone), 1.5);
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
    println!("### A reader beside the mending ({} MiB file)\n", MENDED_BYTES >> 20);
    println!("{}\n", markdown::table(&columns, 2, rows));
}

fn beside(master: &Image, contender: Contender, bytes: u64) -> (Waits, Cost) {
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
    (reader.finish(), cost)
}

fn other_in(image: &Image) -> PathBuf {
    image.path().join("other")
}

fn micros(d: Duration) -> String {
    d.as_micros().to_string()
}

fn times(d: Duration, other: Duration) -> f64 {
    d.as_secs_f64() / other.as_secs_f64()
}
