//! Runs experiments in parallel. The results of each follow from the seed alone and are in the order of the
//! experiments, so they are the same as one by one.

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

/// Calls `one` with each of `all`, `jobs` at a time, or one per core; returns the results in order.
pub fn run_all<T: Sync, R: Send>(
    all: &[T],
    jobs: Option<usize>,
    one: impl Fn(&T) -> R + Sync + Send,
) -> Vec<R> {
    let each = || all.par_iter().map(&one).collect();
    // More threads than there is to do are of no use; for 0 there is one per core.
    let threads = jobs.map_or(0, |jobs| jobs.min(all.len()));
    // If no pool can be made, the global one is used.
    match ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(each),
        Err(_) => each(),
    }
}
