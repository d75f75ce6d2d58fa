//! The conformance suite has teeth: volumes that are wrong in one way each fail the case that is for it.

mod support;

use fragmend_conformance::{Fixture, cases};
use fragmend_layout::{
    ByteRange, Extent, Fate, FileId, FsKind, Layout, Movable, Pace, Settled, Skip, SkipReason,
    Target, Terms, Underway, Volume,
};
use fragmend_memory::Memory;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{BLOCK, MemoryFixture};

/// In which way a volume is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    // What it reports.
    TotalDoubled,
    FreeTimesFour,
    ShowsFilesTwice,
    HidesAFile,
    HasNoPath,
    HasAnotherPath,
    HasAnotherSize,
    // Space.
    NeedsNothing,
    NeedsHalf,
    LeaksAfterAMove,
    LeaksWithoutSpace,
    LeaksWhenStopped,
    // A request to end.
    GoesOnAfterTheStop,
    SilentWhenStopped,
    CompleteWhenStopped,
    // The pace.
    StepsAreLonger,
    NeverAsks,
    NeverPauses,
    ReportsAtTheEnd,
    // Sharing.
    AlwaysUnshares,
    NeverUnshares,
    // Contiguous ranges.
    NeverWritesAnew,
    RefusesToWriteAnew,
}

type Case = fn(&dyn Fixture);

/// Each wrong volume, the case that it fails, and a part of what the case says.
const WRONG: [(Wrong, Case, &str); 23] = [
    (Wrong::TotalDoubled, cases::size_and_free_space_are_true, "its size"),
    (Wrong::FreeTimesFour, cases::size_and_free_space_are_true, "bytes free"),
    (Wrong::ShowsFilesTwice, cases::every_file_is_shown_once, "shown twice"),
    (Wrong::HidesAFile, cases::every_file_is_shown_once, "shown at"),
    (Wrong::HasNoPath, cases::an_open_file_knows_its_path_and_size, "its path"),
    (Wrong::HasAnotherPath, cases::an_open_file_knows_its_path_and_size, "its path"),
    (Wrong::HasAnotherSize, cases::an_open_file_knows_its_path_and_size, "its size"),
    (Wrong::NeedsNothing, cases::the_floor_of_free_space_is_kept, "demanded"),
    (Wrong::NeedsHalf, cases::the_floor_of_free_space_is_kept, "demanded"),
    (Wrong::LeaksAfterAMove, cases::space_is_returned_after_a_move, "bytes are free"),
    (
        Wrong::LeaksWithoutSpace,
        cases::space_is_returned_where_there_is_not_enough,
        "bytes are free",
    ),
    (
        Wrong::LeaksWhenStopped,
        cases::a_stopped_move_ends_with_a_result_for_all_that_moved,
        "bytes are free",
    ),
    (
        Wrong::GoesOnAfterTheStop,
        cases::a_stopped_move_ends_with_a_result_for_all_that_moved,
        "steps after the stop",
    ),
    (
        Wrong::SilentWhenStopped,
        cases::a_stopped_move_ends_with_a_result_for_all_that_moved,
        "has no result",
    ),
    (
        Wrong::CompleteWhenStopped,
        cases::a_stopped_move_ends_with_a_result_for_all_that_moved,
        "said to be complete",
    ),
    (
        Wrong::StepsAreLonger,
        cases::no_more_moves_between_two_pauses_than_was_allowed,
        "between two pauses",
    ),
    (Wrong::NeverAsks, cases::every_step_is_asked_for_and_followed_by_a_pause, "were allowed"),
    (
        Wrong::NeverPauses,
        cases::every_step_is_asked_for_and_followed_by_a_pause,
        "bytes in all steps",
    ),
    (Wrong::ReportsAtTheEnd, cases::ranges_move_one_after_the_other, "moved behind"),
    (Wrong::AlwaysUnshares, cases::what_is_shared_moves_only_if_that_is_asked_for, "Shared"),
    (Wrong::NeverUnshares, cases::what_is_shared_moves_only_if_that_is_asked_for, "moved_bytes"),
    (Wrong::NeverWritesAnew, cases::what_is_slow_in_one_extent_is_written_anew, "NoBetterPlace"),
    (Wrong::RefusesToWriteAnew, cases::what_is_slow_in_one_extent_is_written_anew, "it says what"),
];

#[test]
fn every_wrong_volume_fails_its_case() {
    for (wrong, case, said) in WRONG {
        let seen_as = move |memory| Box::new(WrongVolume { memory, wrong }) as Box<dyn Volume>;
        let fixture = MemoryFixture::seen_as(seen_as);
        let ended = catch_unwind(AssertUnwindSafe(|| case(&fixture)));
        let panic = ended.expect_err(&format!("{wrong:?} passes"));
        let literal = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = panic.downcast_ref::<String>().cloned().or(literal).unwrap_or_default();
        assert!(text.contains(said), "{wrong:?} fails for another reason: {text}");
    }
}

/// The volume in memory, wrong in one way.
struct WrongVolume {
    memory: Memory,
    wrong: Wrong,
}

impl Volume for WrongVolume {
    fn label(&self) -> String {
        self.memory.label()
    }

    fn kind(&self) -> FsKind {
        self.memory.kind()
    }

    fn free_bytes(&self) -> Result<u64, Skip> {
        let factor = if self.wrong == Wrong::FreeTimesFour { 4 } else { 1 };
        Ok(self.memory.free_bytes()? * factor)
    }

    fn total_bytes(&self) -> u64 {
        let factor = if self.wrong == Wrong::TotalDoubled { 2 } else { 1 };
        self.memory.total_bytes() * factor
    }

    fn block_bytes(&self) -> u64 {
        self.memory.block_bytes()
    }

    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip> {
        let mut shown = 0;
        self.memory.files(&mut |path, file| {
            shown += 1;
            let times = match self.wrong {
                Wrong::ShowsFilesTwice => 2,
                Wrong::HidesAFile if shown == 2 => 0,
                _ => 1,
            };
            (0..times).for_each(|_| visit(path, file.clone()));
        })
    }

    fn layout(&self, file: FileId, hint: &Path) -> Result<Layout, Skip> {
        self.memory.layout(file, hint)
    }

    fn open(&self, file: FileId, hint: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
        let (file, memory) = (self.memory.open(file, hint)?, &self.memory);
        Ok(Box::new(WrongFile { file, memory, wrong: self.wrong }))
    }
}

/// A file of such a volume.
struct WrongFile<'a> {
    file: Box<dyn Movable + 'a>,
    memory: &'a Memory,
    wrong: Wrong,
}

impl WrongFile<'_> {
    /// A block that is in use from now on, for nothing.
    fn leak(&self) {
        let block = self.memory.free_runs()[0].start;
        let path = PathBuf::from(format!("/memory/leak-{block}"));
        self.memory.add(&path, BLOCK, &[Some(block)]);
    }
}

impl Underway for WrongFile<'_> {
    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip> {
        self.file.layout(range)
    }

    fn let_others_in(&mut self) -> Result<(), Skip> {
        self.file.let_others_in()
    }
}

impl Movable for WrongFile<'_> {
    fn path(&self) -> Option<PathBuf> {
        match self.wrong {
            Wrong::HasNoPath => None,
            Wrong::HasAnotherPath => Some("/memory/another".into()),
            _ => self.file.path(),
        }
    }

    fn size(&self) -> Result<u64, Skip> {
        let more = if self.wrong == Wrong::HasAnotherSize { 1 } else { 0 };
        Ok(self.file.size()? + more)
    }

    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip> {
        self.file.accepts(parts)
    }

    fn need(&mut self, ranges: &[ByteRange]) -> Result<u64, Skip> {
        let need = self.file.need(ranges)?;
        Ok(match self.wrong {
            Wrong::NeedsNothing => 0,
            Wrong::NeedsHalf => need / 2,
            _ => need,
        })
    }

    fn writes_anew(&self) -> Result<(), Skip> {
        match self.wrong {
            Wrong::RefusesToWriteAnew => Err(Skip::new(SkipReason::Unsupported, "")),
            _ => self.file.writes_anew(),
        }
    }

    fn relocate(
        &mut self,
        targets: &[Target],
        terms: &Terms,
        pace: &mut dyn Pace,
    ) -> Result<Settled, Skip> {
        let unshare = match self.wrong {
            Wrong::AlwaysUnshares => true,
            Wrong::NeverUnshares => false,
            _ => terms.unshare,
        };
        let keeps = self.wrong == Wrong::NeverWritesAnew;
        let target = |t: &Target| Target { anew: t.anew && !keeps, ..*t };
        let targets = &targets.iter().map(target).collect::<Vec<_>>()[..];
        let (wrong, never) = (self.wrong, AtomicBool::new(false));
        let mut wrong_pace = WrongPace { pace, wrong, never, late: Vec::new() };
        let ended = self.file.relocate(targets, &Terms { unshare, ..*terms }, &mut wrong_pace);
        for (index, fate) in wrong_pace.late {
            pace.done(&mut *self.file, index, fate)?;
        }
        let leaks = match self.wrong {
            Wrong::LeaksAfterAMove => ended.is_ok(),
            Wrong::LeaksWithoutSpace => ended.is_err(),
            Wrong::LeaksWhenStopped => pace.stop().load(Ordering::Relaxed),
            _ => false,
        };
        if leaks {
            self.leak();
        }
        ended
    }
}

/// The pace as such a volume takes it.
struct WrongPace<'a> {
    pace: &'a mut dyn Pace,
    wrong: Wrong,
    /// Never set.
    never: AtomicBool,
    /// Results that are reported at the end.
    late: Vec<(usize, Fate)>,
}

impl Pace for WrongPace<'_> {
    fn stop(&self) -> &AtomicBool {
        if self.wrong == Wrong::GoesOnAfterTheStop { &self.never } else { self.pace.stop() }
    }

    fn now(&self) -> Duration {
        self.pace.now()
    }

    fn longest_step(&self) -> u64 {
        self.pace.longest_step()
    }

    fn step(&mut self, rest: ByteRange, least: u64) -> ByteRange {
        match self.wrong {
            Wrong::NeverAsks => rest,
            Wrong::StepsAreLonger => {
                self.pace.step(rest, least);
                rest
            }
            _ => self.pace.step(rest, least),
        }
    }

    fn in_one_go(&self, most: u64) -> u64 {
        self.pace.in_one_go(most)
    }

    fn pause(&mut self, file: &mut dyn Underway, bytes: u64, took: Duration) -> Result<(), Skip> {
        if self.wrong == Wrong::NeverPauses {
            return Ok(());
        }
        self.pace.pause(file, bytes, took)
    }

    fn done(&mut self, file: &mut dyn Underway, index: usize, fate: Fate) -> Result<(), Skip> {
        let fate = match (self.wrong, fate) {
            (Wrong::ReportsAtTheEnd, fate) => {
                self.late.push((index, fate));
                return Ok(());
            }
            (Wrong::SilentWhenStopped, Fate::Begun(moved)) if moved.interrupted => return Ok(()),
            (Wrong::CompleteWhenStopped, Fate::Begun(mut moved)) => {
                moved.interrupted = false;
                Fate::Begun(moved)
            }
            (_, fate) => fate,
        };
        self.pace.done(file, index, fate)
    }
}
