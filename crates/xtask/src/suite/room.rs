//! Where a binary runs, and beside which others.

use super::binary::Binary;
use super::parts::{WITH_DISK, WITH_GUEST};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Seconds after which a process counts as hung on the disks of this machine: none needs half as long.
const LIMIT: u32 = 900;
/// The same for those that have less right to the processor.
const LIMIT_BESIDE: u32 = 1800;
/// Those that wait for flushes of the machine's own disk for minutes: their disks are in the directory that
/// `DISKS_IN_MEMORY` names, if any. Not those with rewrites, which are refused there, as a power cut would lose
/// their records.
pub(super) const IN_MEMORY: [&str; 1] = ["loop_apply_safety"];
/// Those that serve their own disks from memory and measure no waits.
pub(super) const SERVED: [&str; 2] = ["loop_crash", "loop_matrix"];
/// Those on disks of this machine that measure no waits.
pub(super) const UNHURRIED: [&str; 4] =
    ["loop_auto_measures", "loop_hostile_calls", "loop_uring", "loop_walkthrough"];
/// Those that for a while change for the whole machine whether files are rewritten: how long programs wait for a
/// lease, an overlay of which it is not known where it writes. None of [`SERVED`] runs beside them.
pub(super) const GLOBAL: [&str; 2] = ["loop_rewrite_alone", "loop_rewrite_overlay"];
/// Those whose tests exclude each other by a lock in their process.
pub(super) const TOGETHER: [&str; 3] = ["loop_rewrite_alone", "loop_rewrite_overlay", "loop_alone"];
/// Those that measure what the machine does while they run, or look for something on it within a limit of time.
const ALONE: [&str; 13] = [
    "loop_budget",
    "loop_filters",
    "loop_floods",
    "loop_lab_serve",
    "loop_listeners",
    "loop_loads",
    "loop_measures",
    "loop_misses",
    "loop_page_cache",
    "loop_pipeline",
    "loop_plan_time",
    "loop_readahead",
    "loop_syscalls",
];
/// How many tests on the disks of this machine run at a time, beside those of the other rooms: they wait for disks
/// and pauses half of the time.
const ON_DISKS: usize = 3;

/// Held while a part of a binary runs, where such parts exclude those of others.
pub(super) struct Share {
    _held: Option<Held>,
}

enum Held {
    Alone { _held: RwLockWriteGuard<'static, ()> },
    Shared { _held: RwLockReadGuard<'static, ()> },
}

impl Share {
    /// Waits until a part of this binary may run.
    pub fn of(binary: &Binary) -> Self {
        /// Locked for writing by one of [`GLOBAL`], for reading by one of [`SERVED`].
        static MACHINE: RwLock<()> = RwLock::new(());
        let _held = if binary.is_in(&GLOBAL) {
            Some(Held::Alone { _held: MACHINE.write().expect("no panic") })
        } else if binary.is_in(&SERVED) {
            Some(Held::Shared { _held: MACHINE.read().expect("no panic") })
        } else {
            None
        };
        Self { _held }
    }
}

/// Whether a binary runs with none other of its room.
pub(super) fn is_alone(binary: &Binary) -> bool {
    binary.is_in(&TOGETHER) || binary.is_in(&ALONE)
}

/// Where a binary runs. The rooms run beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The disks of this machine.
    Machine,
    /// Guests with a kernel of their own, disks that are served from memory, and the unhurried. The machine's tests come
    /// first, but do not starve them, as their programs have time limits too.
    Elsewhere,
    /// No file system: only the processor time that all others leave.
    Nowhere,
}

impl Room {
    /// The room of a binary with tests of these names: a unit test may touch whatever it likes, an integration
    /// test says by its name what it needs.
    pub fn of<'a>(is_integration: bool, tests: impl Iterator<Item = &'a str>) -> Self {
        if !is_integration {
            return Self::Machine;
        }
        let mut room = Self::Nowhere;
        for test in tests {
            let name = test.rsplit("::").next().unwrap_or(test);
            if name.starts_with(WITH_DISK) {
                return Self::Machine;
            } else if name.starts_with(WITH_GUEST) {
                room = Self::Elsewhere;
            }
        }
        room
    }

    /// How many parts run at a time.
    pub fn workers(self) -> usize {
        match self {
            Self::Machine => ON_DISKS,
            Self::Elsewhere | Self::Nowhere => {
                std::thread::available_parallelism().map_or(1, usize::from)
            }
        }
    }

    /// After how many seconds a process counts as hung.
    pub fn limit(self) -> u32 {
        if self == Self::Machine { LIMIT } else { LIMIT_BESIDE }
    }

    /// The program through which its binaries run.
    pub fn through(self) -> &'static [&'static str] {
        match self {
            Self::Machine => &[],
            Self::Elsewhere => &["nice", "-n", "10"],
            Self::Nowhere => &["chrt", "--idle", "0"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_alone_is_in_the_room_where_that_counts() {
        assert!(
            !ALONE
                .iter()
                .chain(&TOGETHER)
                .any(|name| SERVED.contains(name) || UNHURRIED.contains(name))
        );
    }

    #[test]
    fn a_binary_runs_beside_others_only_if_all_its_tests_may() {
        let room = |is_integration, tests: &[&str]| Room::of(is_integration, tests.iter().copied());
        assert_eq!(room(true, &["plans", "a::reads"]), Room::Nowhere);
        assert_eq!(room(true, &["plans", "a::uml_moves"]), Room::Elsewhere);
        assert_eq!(room(true, &["a::loop_moves", "uml_moves"]), Room::Machine);
        assert_eq!(room(true, &["uml_moves", "loop_moves"]), Room::Machine);
        assert_eq!(room(false, &["plans"]), Room::Machine);
    }
}
