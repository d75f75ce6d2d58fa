//! Several programs at once on one machine. Each has a processor and a clock of its own; the program that is behind all others
//! makes its next operation, so that the drive's commands arrive almost in the order of time: no operation begins before one that
//! another program has made began.

use super::{Done, Load};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::machine::{Machine, Program};

/// What a program, or several, have done in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations.
    pub operations: u64,
    /// What they have transferred.
    pub done: Done,
    /// When the first of them began, and the last one ended, in nanoseconds since the machine was made.
    pub began_ns: u64,
    /// See `began_ns`.
    pub ended_ns: u64,
}

impl Tally {
    /// How long it was, in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.ended_ns - self.began_ns
    }

    /// Bytes that were read and written in a second of virtual time.
    pub fn bytes_per_second(&self) -> f64 {
        let bytes = self.done.read_bytes + self.done.written_bytes;
        bytes as f64 / (self.ns().max(1) as f64 / 1e9)
    }

    /// Operations in a second of virtual time.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / (self.ns().max(1) as f64 / 1e9)
    }

    /// What was done since it was `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            operations: self.operations - earlier.operations,
            done: Done {
                read_bytes: self.done.read_bytes - earlier.done.read_bytes,
                written_bytes: self.done.written_bytes - earlier.done.written_bytes,
            },
            began_ns: earlier.ended_ns.max(self.began_ns),
            ended_ns: self.ended_ns,
        }
    }

    /// What two programs have done together.
    fn beside(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            done: self.done + other.done,
            began_ns: self.began_ns.min(other.began_ns),
            ended_ns: self.ended_ns.max(other.ended_ns),
        }
    }
}

/// Programs that run side by side.
#[derive(Default)]
pub struct Programs(Vec<Running>);

struct Running {
    program: Program,
    load: Box<dyn Load>,
    tally: Tally,
    has_ended: bool,
}

impl Programs {
    /// Adds a program, which begins at the time of the machine's present one.
    pub fn add(&mut self, machine: &Machine, load: impl Load + 'static) {
        let program = machine.add_program();
        let now = machine.now_of(program);
        let tally = Tally { began_ns: now, ended_ns: now, ..Tally::default() };
        self.0.push(Running { program, load: Box::new(load), tally, has_ended: false });
    }

    /// Lets them run until all have ended; the present program waits for them.
    ///
    /// # Errors
    /// That of the first operation that fails. The others are where they were.
    pub fn run(&mut self, files: &dyn FileSystem) -> Result<Tally, Error> {
        self.run_until(files, u64::MAX)?;
        let tally = self.tally();
        files.machine().wait_until(tally.ended_ns);
        Ok(tally)
    }

    /// Lets those that are behind this time run until none is; the present program's clock stays.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_until(&mut self, files: &dyn FileSystem, until_ns: u64) -> Result<(), Error> {
        let machine = files.machine();
        let caller = machine.present();
        let ended = loop {
            let behind = self.0.iter_mut().filter(|one| !one.has_ended);
            let Some(next) = behind.min_by_key(|one| machine.now_of(one.program)) else {
                break Ok(());
            };
            if machine.now_of(next.program) >= until_ns {
                break Ok(());
            }
            machine.switch_to(next.program);
            match next.load.next(files) {
                Ok(Some(done)) => {
                    next.tally.operations += 1;
                    next.tally.done = next.tally.done + done;
                    next.tally.ended_ns = machine.now_ns();
                }
                Ok(None) => next.has_ended = true,
                Err(error) => break Err(error),
            }
        };
        machine.switch_to(caller);
        ended
    }

    /// What all of them have done so far.
    pub fn tally(&self) -> Tally {
        self.tallies().reduce(Tally::beside).unwrap_or_default()
    }

    /// What each of them has done so far, in the order in which they were added.
    pub fn tallies(&self) -> impl Iterator<Item = Tally> + '_ {
        self.0.iter().map(|one| one.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::double::Double;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Writes its number down, and needs so long.
    struct Ticks {
        number: u32,
        ns: u64,
        left: u32,
        order: Rc<RefCell<Vec<(u32, u64)>>>,
    }

    impl Load for Ticks {
        fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
            if self.left == 0 {
                return Ok(None);
            }
            self.left -= 1;
            self.order.borrow_mut().push((self.number, files.machine().now_ns()));
            files.machine().spend(self.ns);
            Ok(Some(Done { read_bytes: 10, ..Done::default() }))
        }
    }

    #[test]
    fn the_program_that_is_behind_goes_next() {
        let files = Double::new(1000);
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut programs = Programs::default();
        let machine = files.machine();
        for (number, ns, left) in [(0, 100, 3), (1, 30, 4)] {
            programs.add(machine, Ticks { number, ns, left, order: Rc::clone(&order) });
        }
        programs.run_until(&files, 40).unwrap();
        assert_eq!(*order.borrow(), [(0, 0), (1, 0), (1, 30)]);
        assert_eq!(machine.now_ns(), 0, "the caller's clock stays");
        let before = programs.tally();
        assert_eq!((before.operations, before.ns()), (3, 100));
        let tally = programs.run(&files).unwrap();
        assert_eq!(order.borrow()[3..], [(1, 60), (1, 90), (0, 100), (0, 200)]);
        assert_eq!((tally.operations, tally.ns(), machine.now_ns()), (7, 300, 300));
        assert_eq!(tally.since(&before).ns(), 200);
        assert_eq!(programs.tallies().map(|one| one.ns()).collect::<Vec<_>>(), [300, 120]);
        assert!((tally.bytes_per_second() - 70.0 / 300e-9).abs() < 1.0);
    }
}
