//! Whether the crash machine detects losses: scenarios that must lose bytes are cut first, and their losses
//! must be found. With a build whose mover cannot be stopped between a move and its commit, no number of cuts
//! would find any.

use crate::choose_cuts::{behind_each_sync, choose};
use crate::cut::Cut;
use crate::interrupt::{State, state};
use crate::record::Recording;
use crate::scenario::{self, Scenario};
use crate::soak::Row;
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools;
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Cuts of one recording of [`scenario::FORCED`].
const FORCED_CUTS: usize = 80;
/// A seed whose load syncs rarely, so that it seldom commits what others have synced.
const FORCED_SEED: u64 = 2;
/// Cuts of one recording of each of [`scenario::BROKEN`].
const BROKEN_CUTS: usize = 60;
/// A move of a few blocks that lasts longer counts as hung.
const TOO_LONG: Duration = Duration::from_secs(60);

/// Cuts of [`scenario::FORCED`]: right after a sync has returned.
pub fn forced_cuts(recording: &Recording) -> Vec<Cut> {
    behind_each_sync(recording, FORCED_CUTS)
}

/// Records and cuts [`scenario::FORCED`]; calls `report` with the first loss.
pub fn forced(soak: &Path, report: impl FnOnce(&str)) -> Row {
    let mut row = Row::default();
    row.add_recording(&scenario::FORCED, FORCED_SEED, forced_cuts, soak, report);
    row
}

/// Records and cuts one of [`scenario::BROKEN`]; calls `report` with the first loss.
pub fn broken(scenario: &'static Scenario, soak: &Path, report: impl FnOnce(&str)) -> Row {
    let mut row = Row::default();
    row.add_recording(scenario, 1, |recording| choose(recording, BROKEN_CUTS, 1), soak, report);
    row
}

/// Runs all controls.
pub fn all(soak: &Path) -> Vec<Row> {
    let broken = scenario::BROKEN.iter().map(|scenario| broken(scenario, soak, |_| ()));
    std::iter::once(forced(soak, |_| ())).chain(broken).collect()
}

/// Checks that the `fragmend` under test stops itself right after a move (`FRAGMEND_STOP_AT`).
///
/// # Errors
/// If it does not: how to build one that does.
pub fn stops_at_moves() -> Result<(), String> {
    let image = Image::ext4(64 << 20);
    let (file, plan) = (image.path().join("file"), image.scratch().join("plan.json"));
    interleaved(&file, 64 << 10, &[4096], true).expect("a fragmented file");
    image.sync();
    let mut command = Command::new(tools::fragmend());
    command.args(["plan", "--quiet", "--policy", "whole-file", "-o"]).arg(&plan).arg(&file);
    finish(&mut command).expect(&[0, 2]);
    let mut command = Command::new(tools::fragmend());
    command.args(["apply", "--quiet"]).arg(&plan).env("FRAGMEND_STOP_AT", "moved=stop");
    let mover = Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()));
    let started = Instant::now();
    loop {
        match state(mover.id()) {
            State::Stopped => {
                mover.signal(Signal::KILL);
                drop(mover.wait());
                return Ok(());
            }
            State::Running if started.elapsed() < TOO_LONG => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => break,
        }
    }
    Err(format!(
        "{} never stops itself right after a move, so no program could use a file between its move and the commit: build both with debug assertions (make soak does)",
        tools::fragmend().display()
    ))
}
