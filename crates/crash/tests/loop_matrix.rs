//! Cells of the matrix of features and mount options, a few named and others drawn by seed, and
//! file systems on which `apply` must refuse.

use fragmend_crash::choose_cuts::choose;
use fragmend_crash::matrix::{self, UnsupportedFeatures};
use fragmend_crash::record::Recording;
use fragmend_crash::refused;
use fragmend_crash::scenario;
use fragmend_crash::soak::Row;
use std::path::Path;
use std::sync::Mutex;

const SOAK: &str = env!("CARGO_BIN_EXE_soak");
/// Always tested: two disks, and features that change the order of writes.
const NAMED: [&str; 3] = ["ext4+4k+nolock+external", "xfs+1k+reflink+smalllog", "btrfs+raid1+zstd"];
/// How many are drawn besides.
const DRAWN: usize = 3;
const CUTS: usize = 40;

/// Decides which cells are drawn; `FRAGMEND_SEED=7` draws others.
fn seed() -> u64 {
    std::env::var("FRAGMEND_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn loop_cells_of_the_matrix_lose_nothing() {
    let seed = seed();
    let unsupported = UnsupportedFeatures::probe();
    println!("FRAGMEND_SEED={seed}; {unsupported}");
    let drawn = matrix::draw(DRAWN, seed, &unsupported);
    let names =
        NAMED.iter().map(|name| (*name).to_owned()).chain(drawn.into_iter().map(|c| c.name));
    let names = Mutex::new(names.collect::<Vec<_>>());
    // Recording waits most of the time, comparing needs a processor.
    std::thread::scope(|scope| {
        let work = || {
            while let Some(name) = { names.lock().unwrap().pop() } {
                loses_nothing(&name, seed);
            }
        };
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.into_iter().for_each(|worker| worker.join().expect("a cell"));
    });
}

fn loses_nothing(name: &str, seed: u64) {
    let scenario = scenario::named(name).expect("a cell");
    let (mut row, mut said) = (Row::default(), String::new());
    let cuts = |recording: &Recording| choose(recording, CUTS, seed);
    row.add_recording(scenario, seed, cuts, Path::new(SOAK), |what| what.clone_into(&mut said));
    println!("{}\n{said}", row.cells().join(" | "));
    assert_eq!((row.results.losses.len(), row.results.cuts), (0, CUTS as u64), "{said}");
    assert_eq!(row.unexpected(scenario), Vec::<String>::new(), "{name}");
    assert!(row.moves.failed.is_empty(), "{name}: {:?}", row.moves.failed);
}

#[test]
fn loop_what_is_refused_moves_nothing() {
    let (table, wrong) = refused::table();
    println!("{table}");
    assert_eq!(wrong, 0, "{table}");
}
