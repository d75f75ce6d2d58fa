//! Runs things side by side. Each follows from its seed alone, and they come out in the order that
//! they went in, so the result is the same as one by one.

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

/// Does `one` with each of `all`, so many at a time, one per core by default.
pub fn run_all<T: Sync, R: Send>(
    all: &[T],
    jobs: Option<usize>,
    one: impl Fn(&T) -> R + Sync + Send,
) -> Vec<R> {
    let each = || all.par_iter().map(&one).collect();
    // Without threads of our own, those that there are do.
    match ThreadPoolBuilder::new().num_threads(jobs.unwrap_or(0)).build() {
        Ok(pool) => pool.install(each),
        Err(_) => each(),
    }
}
