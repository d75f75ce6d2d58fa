//! The conformance suite: the cases that every [`Volume`] must pass, mounted or simulated. A test of a volume
//! implements [`Fixture`] for it, and runs the [`cases`] that concern it.
//!
//! A case makes files on a fresh volume, plans with the production planner, applies with the production mover,
//! and compares the result with what was there before; or it relocates a file without a run, at a pace of its
//! own, and looks at the file at every pause. What only one kind of volume has (attributes, symbolic links) is
//! tested beside that volume. A case panics where the volume is wrong.

pub mod cases;
mod watch;

use fragmend_apply::{Environment, Event, Options, Rate, Receipt, Summary, Volumes};
use fragmend_layout::{ByteRange, FileId, Layout, SkipReason, Volume};
use fragmend_plan::{Plan, Policy, Settings, Survey};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Passes the names of the cases that any simulated volume passes to `$make`, a macro that makes a test of each; further names follow.
#[macro_export]
macro_rules! cases_in_one_go {
    ($make:ident $($more:ident)*) => {
        $make! {
            fragments_are_joined
            a_part_moves_and_the_rest_stays
            holes_unwritten_space_and_the_end_stay
            five_gibibytes_and_mostly_holes
            what_changed_since_the_plan_is_left_alone
            what_is_slow_in_one_extent_is_written_anew
            a_dry_run_moves_nothing
            a_full_disk_is_left_alone
            a_stopped_move_ends_with_a_result_for_all_that_moved
            a_stopped_run_accounts_for_every_range
            an_open_file_knows_its_path_and_size
            every_file_is_shown_once
            every_step_is_asked_for_and_followed_by_a_pause
            ranges_move_one_after_the_other
            size_and_free_space_are_true
            space_is_returned_after_a_move
            space_is_returned_where_there_is_not_enough
            the_floor_of_free_space_is_kept
            $($more)*
        }
    };
}

/// The same, with the case of a volume that moves a range in steps as long as the pace allows.
#[macro_export]
macro_rules! cases_in_steps {
    ($make:ident $($more:ident)*) => {
        $crate::cases_in_one_go! {
            $make
            no_more_moves_between_two_pauses_than_was_allowed
            $($more)*
        }
    };
}

/// Size of most files of the cases, in bytes.
pub const SIZE: u64 = 1 << 20;

/// Allocation block of most volumes, in bytes; others have shorter ones.
const BLOCK: u64 = 4096;

/// Moves without a rate limit.
pub const UNPACED: Options = Options { rate: Rate::Unlimited, ..Options::DEFAULT };

/// What another program does to a file between plan and move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Truncates it to so many bytes.
    Truncate(u64),
    /// Punches a hole into it.
    Punch(ByteRange),
    /// Removes it, so that no file has its identity any more.
    Remove,
    /// Replaces it by another file, as fragmented, at the same path.
    Replace,
}

/// The space of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its size.
    pub total: u64,
    /// What may still be allocated.
    pub free: u64,
}

/// A fresh volume with what a case does to its files. Blocks are of 4 KiB or less.
pub trait Fixture {
    /// The volume.
    fn volume(&self) -> Box<dyn Volume + '_>;
    /// Makes a file of `bytes` bytes in extents of 4 KiB, none of which can be joined where it is, and syncs it.
    fn fragmented(&self, name: &str, bytes: u64) -> PathBuf;
    /// Appends `bytes` bytes in such extents at `offset`, which is far behind the file's end.
    fn append_far(&self, path: &Path, offset: u64, bytes: u64);
    /// The space of the volume, found in another way than by asking the volume.
    fn space(&self) -> Space;
    /// Bytes by which the free space may change without anybody's doing: metadata, mostly.
    fn slack(&self) -> u64;
    /// Makes another file that shares all blocks of this one, and syncs it, on volumes that can share.
    fn share(&self, path: &Path) -> PathBuf;
    /// The file that is at a path.
    fn identity(&self, path: &Path) -> FileId;
    /// Changes the file, as another program would.
    fn change(&self, path: &Path, change: Change);
    /// Allocates space without writing to it, inside the file or behind its end; does nothing and returns
    /// false where the volume has no such space.
    fn reserve(&self, path: &Path, range: ByteRange) -> bool;
    /// The bytes of a range of the file, or what stands for them.
    fn content(&self, path: &Path, range: ByteRange) -> Vec<u8>;
    /// What moving must not change about a file besides its content: size, mode, links, owner, times.
    fn attributes(&self, path: &Path) -> Vec<i128>;
    /// Uses all space that is free, until [`release`](Self::release).
    fn fill(&self);
    /// Releases what [`fill`](Self::fill) has used.
    fn release(&self);
    /// Checks that the volume is consistent, and that nothing that was synced has changed; afterwards nothing
    /// is cached.
    fn check(&self);
    /// Carries out a plan until `stop`, and reports each event to `tell` as it happens.
    fn run(
        &self,
        plan: &Plan,
        options: &Options,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(Event),
    ) -> Summary;
    /// Carries out a plan.
    fn apply(&self, plan: &Plan, options: &Options) -> (Summary, Vec<Receipt>) {
        with_receipts(|tell| self.run(plan, options, &AtomicBool::new(false), tell))
    }
}

/// What a run returns, and the receipts among the events that it reports.
pub fn with_receipts<T>(run: impl FnOnce(&mut dyn FnMut(Event)) -> T) -> (T, Vec<Receipt>) {
    let mut receipts = Vec::new();
    let returned = run(&mut |event| {
        if let Event::Range(receipt) = event {
            receipts.push(receipt);
        }
    });
    (returned, receipts)
}

/// Applies a plan to one volume, for a [`Fixture`] whose volume and environment are its own.
///
/// # Panics
/// The plan is not the volume's.
pub fn apply_to(
    volume: Box<dyn Volume>,
    environment: &dyn Environment,
    plan: &Plan,
    options: &Options,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Summary {
    let device = plan.devices.first().expect("a device").device;
    let volumes = Volumes::from([(device, volume)]);
    let summary = fragmend_apply::apply(plan, volumes, environment, options, stop, tell);
    summary.expect("the volume is the plan's")
}

/// The plan for all fragmented files, or for those at `paths` alone.
fn plan(fixture: &dyn Fixture, paths: &[&Path]) -> Plan {
    plan_with(fixture, paths, false)
}

/// The same, with or without what is shared.
fn plan_with(fixture: &dyn Fixture, paths: &[&Path], unshare: bool) -> Plan {
    let settings = Settings { policy: Policy::WholeFile, unshare, ..Settings::default() };
    let mut survey = Survey::of(&*fixture.volume(), None).expect("all files are shown");
    if !paths.is_empty() {
        survey.files.retain(|file| paths.contains(&&*file.path));
        survey.left_alone.clear();
    }
    fragmend_plan::make(survey, &settings)
}

/// The present layout of a file.
fn layout(fixture: &dyn Fixture, path: &Path) -> Layout {
    let read = fixture.volume().layout(fixture.identity(path), path);
    read.unwrap_or_else(|skip| panic!("{}: {skip:?}", path.display()))
}

/// In how many extents a file is.
fn extents(fixture: &dyn Fixture, path: &Path) -> u64 {
    layout(fixture, path).fragments(ByteRange { start: 0, end: u64::MAX })
}

/// The reasons for which ranges of `path` were left alone.
fn reasons(summary: &Summary, path: &Path) -> Vec<SkipReason> {
    let of_path = |s: &&fragmend_apply::Skipped| s.path.to_path().as_deref() == Some(path);
    summary.skipped.iter().filter(of_path).map(|s| s.reason).collect()
}
