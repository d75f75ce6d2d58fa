//! Programs that run beside a mover: whenever the mover looks at its clock, they catch up with it
//! ([`Machine::set_others`](fragmend_simfs::machine::Machine::set_others)).

use super::schedule::{Programs, Tally};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use std::cell::RefCell;
use std::rc::Rc;

/// Programs beside a mover, until this is dropped.
pub struct Beside {
    files: Rc<dyn FileSystem>,
    state: Rc<RefCell<State>>,
}

struct State {
    programs: Programs,
    /// The first call that failed; nothing runs after it.
    failed: Option<Error>,
}

impl Beside {
    /// Lets programs run beside whatever looks at the clock of the machine. There is one such group at a time.
    pub fn start(files: Rc<dyn FileSystem>, programs: Programs) -> Self {
        let state = Rc::new(RefCell::new(State { programs, failed: None }));
        let (theirs, shared) = (Rc::clone(&files), Rc::clone(&state));
        files.machine().set_others(move |_, now| {
            let state = &mut *shared.borrow_mut();
            if state.failed.is_none() {
                state.failed = state.programs.run_until(&*theirs, now).err();
            }
        });
        Self { files, state }
    }

    /// What they have done so far.
    ///
    /// # Errors
    /// A call of theirs has failed; none of them has made another one since.
    pub fn tally(&self) -> Result<Tally, Error> {
        let state = self.state.borrow();
        state.failed.clone().map_or_else(|| Ok(state.programs.tally()), Err)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.files.machine().set_others(|_, _| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::double::Double;
    use crate::loads::writers::SyncWriter;
    use fragmend_apply::Environment;
    use std::path::Path;

    #[test]
    fn they_catch_up_whenever_the_mover_looks_at_its_clock() {
        let files: Rc<dyn FileSystem> = Rc::new(Double::new(1000));
        let mut programs = Programs::default();
        programs.add(files.machine(), SyncWriter::new("log", 500 * 4096, 4096));
        let beside = Beside::start(Rc::clone(&files), programs);
        files.machine().spend(2_000_000);
        assert_eq!(beside.tally().unwrap().operations, 0);
        let _ = files.machine().now();
        let tally = beside.tally().unwrap();
        assert!(tally.ended_ns >= 2_000_000 && tally.done.written_bytes > 0);
        assert_eq!(files.size(files.find(Path::new("log")).unwrap()), Ok(tally.done.written_bytes));
        drop(beside);
        files.machine().spend(2_000_000);
        let _ = files.machine().now();
        assert_eq!(files.size(files.find(Path::new("log")).unwrap()), Ok(tally.done.written_bytes));
    }

    #[test]
    fn what_fails_is_reported_and_ends_them() {
        let files: Rc<dyn FileSystem> = Rc::new(Double::new(8));
        let mut programs = Programs::default();
        programs.add(files.machine(), SyncWriter::new("log", 500 * 4096, 4096));
        let beside = Beside::start(Rc::clone(&files), programs);
        files.machine().spend(1_000_000_000);
        let _ = files.machine().now();
        assert_eq!(beside.tally(), Err(Error::NoSpace));
    }
}
