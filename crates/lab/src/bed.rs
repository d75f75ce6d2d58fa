//! What experiments on simulated file systems have in common: a machine with a drive, and a run of the production planner and
//! mover on it.

use crate::loads::watched::Watched;
use crate::setup::Setup;
use fragmend_apply::{Options, Rate, Summary, Volumes, apply};
use fragmend_layout::{FileAccesses, Volume};
use fragmend_plan::{Plan, Policy, Settings, Survey, make};
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::machine::Machine;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::thread;

/// A machine with a new drive of this kind, which keeps no content. Where it is known which dies hold what, planning knows it.
pub fn machine(setup: &Setup) -> Machine {
    let machine = Machine::new(setup.device(), false, setup.host.clone());
    let profile = setup.profile();
    if profile.parallel_units.is_some() {
        machine.set_profile(profile);
    }
    machine
}

/// What a run of the mover did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Bytes of files that it moved.
    pub bytes: u64,
    /// Bytes that the drive was written meanwhile, metadata and the writes of others included.
    pub written_bytes: u64,
    /// Virtual nanoseconds that it lasted.
    pub ns: u64,
}

/// Plans for what was seen, or for all files where the policy needs no trace, and moves it as the machine's present program, without
/// a pause.
///
/// # Panics
/// The files cannot be listed, or the plan is of another file system.
pub fn defragment(
    files: &Rc<dyn FileSystem>,
    seen: Vec<FileAccesses>,
    settings: &Settings,
) -> Moved {
    defragment_below(files, "", seen, settings)
}

/// The same of those files whose path begins with `prefix`.
///
/// # Panics
/// As [`defragment`].
pub fn defragment_below(
    files: &Rc<dyn FileSystem>,
    prefix: &str,
    seen: Vec<FileAccesses>,
    settings: &Settings,
) -> Moved {
    let machine = files.machine();
    let trace = settings.policy.needs_trace().then_some(seen);
    let mut survey = Survey::of(&**files, trace).expect("all files");
    // Accesses are of files without a name.
    if !settings.policy.needs_trace() {
        survey.files.retain(|file| file.path.to_string_lossy().starts_with(prefix));
    }
    let plan = plan(survey, settings);
    let (began, before) = (machine.now_ns(), machine.counters().host_written);
    let summary = carry_out(&plan, machine, || Box::new(Watched::new(files)));
    let written = machine.counters().host_written - before;
    Moved {
        bytes: summary.moved_bytes,
        written_bytes: written * machine.block_bytes(),
        ns: machine.now_ns() - began,
    }
}

/// Plans in a thread of its own: one of a pool's would begin another experiment while it waits for a part of the plan, and then both were
/// in memory.
///
/// # Panics
/// No thread can be started.
pub fn plan(survey: Survey, settings: &Settings) -> Plan {
    let planned = thread::scope(|scope| scope.spawn(|| make(survey, settings)).join());
    planned.expect("planning does not fail")
}

/// Carries out a plan for one file system as the machine's present program, without a pause; `volume` returns the file system.
///
/// # Panics
/// The plan is of another file system.
pub fn carry_out(plan: &Plan, machine: &Machine, volume: impl Fn() -> Box<dyn Volume>) -> Summary {
    let volumes: Volumes = plan.devices.iter().map(|device| (device.device, volume())).collect();
    let options = Options { rate: Rate::Unlimited, ..Options::DEFAULT };
    apply(plan, volumes, machine, &options, &AtomicBool::new(false), |_| {})
        .expect("the volume of the plan")
}

/// Settings with this policy, all windows hot.
pub fn policy(policy: Policy) -> Settings {
    Settings { policy, ..Settings::default() }
}

/// In how many fragments the files are whose path begins with `prefix`, and how many files these are.
///
/// # Panics
/// A file has no layout.
pub fn fragments(files: &dyn FileSystem, prefix: &str) -> (u64, u64) {
    let (mut fragments, mut count) = (0, 0);
    let mut visit = |path: &Path, file: Result<_, _>| {
        if path.to_string_lossy().starts_with(prefix) {
            let layout = files.layout(file.expect("a file"), path).expect("its layout");
            let addressed = layout.extents().iter().filter(|extent| extent.kind.is_addressed());
            fragments += addressed.count() as u64;
            count += 1;
        }
    };
    files.files(&mut visit).expect("all files");
    (fragments, count)
}
