//! Whether the machine can see: what must lose bytes is cut first, and has to. A build whose mover
//! cannot be stopped between a move and its commit would find nothing in any number of cuts.

use crate::bed::{self, Bed};
use crate::choose::{behind_each_sync, choose};
use crate::cut::Cut;
use crate::minder::{State, state};
use crate::record::Recording;
use crate::soak::Row;
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools;
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Looked at in a recording of [`bed::FORCED`].
const FORCED_CUTS: usize = 80;
/// A seed whose load syncs rarely, so that little of what others sync is committed by it.
const FORCED_SEED: u64 = 2;
/// Looked at in a recording of each of [`bed::BROKEN`].
const BROKEN_CUTS: usize = 60;
/// A move of a few blocks takes no longer.
const TOO_LONG: Duration = Duration::from_secs(60);

/// Cuts of [`bed::FORCED`]: right behind what others were told is durable.
pub fn forced_cuts(recording: &Recording) -> Vec<Cut> {
    behind_each_sync(recording, FORCED_CUTS)
}

/// Records and cuts [`bed::FORCED`]; `tell` hears of the first loss.
pub fn forced(soak: &Path, tell: impl FnOnce(&str)) -> Row {
    let mut row = Row::default();
    row.more(&bed::FORCED, FORCED_SEED, forced_cuts, soak, tell);
    row
}

/// Records and cuts one of [`bed::BROKEN`]; `tell` hears of the first loss.
pub fn broken(bed: &'static Bed, soak: &Path, tell: impl FnOnce(&str)) -> Row {
    let mut row = Row::default();
    row.more(bed, 1, |recording| choose(recording, BROKEN_CUTS, 1), soak, tell);
    row
}

/// All of them.
pub fn all(soak: &Path) -> Vec<Row> {
    let broken = bed::BROKEN.iter().map(|bed| broken(bed, soak, |_| ()));
    std::iter::once(forced(soak, |_| ())).chain(broken).collect()
}

/// The fragmend that is tried stops itself right after a move (`FRAGMEND_STOP_AT`).
///
/// # Errors
/// It does not, with how to get one that does.
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
        "{} never stops itself right after a move, so nobody could use a file between its move and the commit: build both with debug assertions (make soak does)",
        tools::fragmend().display()
    ))
}
