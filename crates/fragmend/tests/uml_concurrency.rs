//! The same as `loop_concurrency`, on F2FS, in a guest whose kernel has it.

use fragmend_testbed::concurrency::{self, Goals, table};
use fragmend_testbed::guest_tests;

/// The seed of every operation; a failure prints its own.
const SEED: u64 = 0x00F2_F5C0;

guest_tests! {
    uml_nobody_loses_a_byte => on("F2FS");
}

fn on(name: &str) {
    let engine = concurrency::engine(name).expect("an engine");
    let rows = concurrency::on(engine, Goals::TEST, SEED);
    println!("{}", table::told(name, &rows));
}
