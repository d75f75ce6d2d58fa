//! Work in order by several workers at a time.

use anyhow::Result;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

/// What is left to begin, and what runs.
struct State<'a, J> {
    left: VecDeque<&'a J>,
    running: Vec<&'a J>,
    /// Whether a job could not be done at all: no further one begins.
    is_over: bool,
}

/// Does all jobs, `workers` of them at a time. A job begins when all before it have begun and it may join those that
/// run, if any: `may_join` is called with those and with it.
///
/// # Errors
/// That of the first job that returns one; what runs then is waited for.
pub(super) fn in_order<J: Sync>(
    jobs: &[J],
    workers: usize,
    may_join: &(dyn Fn(&[&J], &J) -> bool + Sync),
    run: &(dyn Fn(&J) -> Result<()> + Sync),
) -> Result<()> {
    let left = jobs.iter().collect();
    let state = Mutex::new(State { left, running: Vec::new(), is_over: false });
    let changed = Condvar::new();
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    // Returns `None` when there is nothing left to begin.
    let next = || {
        let mut now = lock();
        loop {
            let first = *now.left.front().filter(|_| !now.is_over)?;
            if now.running.is_empty() || may_join(&now.running, first) {
                now.left.pop_front();
                now.running.push(first);
                return Some(first);
            }
            now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
    };
    let work = || -> Result<()> {
        while let Some(job) = next() {
            let ends = Ends { job, state: &state, changed: &changed };
            let done = run(job);
            lock().is_over |= done.is_err();
            drop(ends);
            done?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        ended.into_iter().try_for_each(|one| one.expect("no panic"))
    })
}

/// A job that runs; it has ended when this is dropped, also by a panic, after which none begins.
struct Ends<'a, 'b, J> {
    job: &'a J,
    state: &'b Mutex<State<'a, J>>,
    changed: &'b Condvar,
}

impl<J> Drop for Ends<'_, '_, J> {
    fn drop(&mut self) {
        let mut now = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        now.running.retain(|one| !std::ptr::eq(*one, self.job));
        now.is_over |= std::thread::panicking();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::time::Duration;

    /// Runs jobs that are letters; capitals run alone. Returns what began and ended, in order.
    fn history(jobs: &str, workers: usize, fails: char) -> (String, bool) {
        let jobs: Vec<char> = jobs.chars().collect();
        let seen = Mutex::new(String::new());
        let alone = |job: &char| job.is_ascii_uppercase();
        let may_join =
            |running: &[&char], job: &char| !running.iter().any(|one| alone(one)) && !alone(job);
        let run = |job: &char| {
            seen.lock().unwrap().extend(['+', *job]);
            // Long enough for the others to begin.
            std::thread::sleep(Duration::from_millis(if *job == 'l' { 200 } else { 20 }));
            seen.lock().unwrap().extend(['-', *job]);
            if *job == fails {
                bail!("it fails");
            }
            Ok(())
        };
        let failed = in_order(&jobs, workers, &may_join, &run).is_err();
        (seen.into_inner().unwrap(), failed)
    }

    #[test]
    fn jobs_run_side_by_side_and_some_with_nothing_else() {
        let (seen, failed) = history("labCd", 2, ' ');
        assert!(!failed);
        // Those behind one that lasts begin beside it, but not the one that runs alone.
        assert!(seen.ends_with("-l+C-C+d-d"), "{seen}");
        assert!(seen.find("+b") < seen.find("-l") && seen.find("+b") > seen.find("+l"), "{seen}");
    }

    #[test]
    fn one_worker_does_one_after_the_other() {
        assert_eq!(history("abC", 1, ' '), ("+a-a+b-b+C-C".into(), false));
    }

    #[test]
    fn after_one_that_cannot_be_done_none_begins() {
        assert_eq!(history("abC", 1, 'b'), ("+a-a+b-b".into(), true));
    }

    #[test]
    fn a_panic_ends_the_others_too() {
        let run = |job: &char| {
            std::thread::sleep(Duration::from_millis(20));
            assert!(*job != 'a', "it fails");
            Ok(())
        };
        let all = || in_order(&['a', 'b', 'C'], 2, &|_, job| *job != 'C', &run);
        assert!(std::panic::catch_unwind(all).is_err());
    }
}
