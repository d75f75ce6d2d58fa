//! No program loses a byte of a file while it is moved: random operations, SQLite, appends and their
//! readers, with every engine of the host's kernel.

use fragmend_testbed::concurrency::{self, Goals, table};

/// The seed of every operation; a failure prints its own.
const SEED: u64 = 0x00F2_C0C0;

fn on(name: &str) {
    let engine = concurrency::engine(name).expect("an engine");
    let rows = concurrency::on(engine, Goals::TEST, SEED);
    println!("{}", table::told(name, &rows));
}

/// One test per line: its name, and its engine.
macro_rules! engines {
    ($($test:ident => $engine:expr;)*) => {
        $(#[test] fn $test() { on($engine) })*
    };
}

engines! {
    loop_on_ext4 => "ext4";
    loop_on_ext4_with_small_blocks => "ext4, 1 KiB";
    loop_on_xfs => "XFS";
    loop_on_xfs_with_exchange => "XFS, exchange";
    loop_on_btrfs => "Btrfs";
    loop_on_btrfs_that_compresses => "Btrfs, zstd";
    loop_rewriting_keeps_out_of_the_way => "rewrite, XFS";
}
