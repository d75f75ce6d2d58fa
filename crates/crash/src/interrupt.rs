//! Stops the mover again and again, so that others can use its files at any instant of a move.

use crate::files::{MENDED, TestFile};
use crate::later_use::LaterUse;
use crate::scenario::Scenario;
use fragmend_testbed::random::Random;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Milliseconds from one stop to the next: at least, and how much longer at most.
const BETWEEN: [u64; 2] = [4, 24];
/// How often the mover's state is polled.
const POLL: Duration = Duration::from_micros(500);

/// Tags of the files of which some range has moved.
pub type PartlyMoved = Mutex<Vec<u32>>;

/// Interrupts a mover until it ends. A build with debug assertions stops itself right after each
/// move (`FRAGMEND_STOP_AT`), before the move is committed; every build is stopped at random
/// instants besides.
pub fn interrupt(
    mover: u32,
    scenario: &Scenario,
    files: &[TestFile],
    partly_moved: &PartlyMoved,
    later_use: &mut LaterUse,
    seed: u64,
) {
    let pid = pid_of(mover);
    let mut random = Random::new(seed ^ 0x0151);
    let pause = |random: &mut Random| {
        Instant::now() + Duration::from_millis(BETWEEN[0] + random.below(BETWEEN[1]))
    };
    let (mut next, mut asked) = (pause(&mut random), false);
    loop {
        match state(mover) {
            State::Ended => return,
            State::Stopped => {
                let current = tag_in_progress(mover, files);
                if !asked {
                    later_use.counts.stops += 1;
                    begin(partly_moved, current);
                }
                let mut known = partly_moved.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if scenario.whole_files && asked {
                    // A file that is written to while it is copied does not move at all.
                    known.retain(|tag| Some(*tag) != current);
                }
                match current.filter(|tag| !asked && known.contains(tag)) {
                    Some(tag) => later_use.touch(&[tag]),
                    None => later_use.touch(&known),
                }
                go_on(mover);
                (next, asked) = (pause(&mut random), false);
            }
            State::Running if !asked && Instant::now() > next => {
                asked = kill_process(pid, Signal::STOP).is_ok();
            }
            State::Running => std::thread::sleep(POLL),
        }
    }
}

/// The state of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// It has stopped since the last call.
    Stopped,
    /// It has ended and was not waited for yet.
    Ended,
}

/// The state of a child process; each stop is reported once.
pub fn state(child: u32) -> State {
    let (id, quick) = (WaitId::Pid(pid_of(child)), WaitIdOptions::NOHANG);
    let any = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    match waitid(id.clone(), any | quick) {
        Ok(None) => State::Running,
        Ok(Some(status)) if status.stopped() => {
            // Consumes the stop, so that it is not seen again.
            let _ = waitid(id, WaitIdOptions::STOPPED | quick);
            State::Stopped
        }
        _ => State::Ended,
    }
}

/// Continues a stopped child.
pub fn go_on(child: u32) {
    let _ = kill_process(pid_of(child), Signal::CONT);
}

fn pid_of(child: u32) -> Pid {
    i32::try_from(child).ok().and_then(Pid::from_raw).expect("a process")
}

/// Notes that some range of this file has moved.
pub fn begin(partly_moved: &PartlyMoved, tag: Option<u32>) {
    let mut partly_moved = partly_moved.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tag) = tag.filter(|tag| !partly_moved.contains(tag)) {
        partly_moved.push(tag);
    }
}

/// The tag of the file of the run that a process has open.
fn tag_in_progress(process: u32, files: &[TestFile]) -> Option<u32> {
    let path = open_below(process, MENDED)?;
    files.iter().find(|f| path.ends_with(&f.name)).map(|f| f.tag)
}

/// The file directly in a directory of this name that a process has open.
pub fn open_below(process: u32, dir: &str) -> Option<PathBuf> {
    let open = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let paths = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    // An unnamed file is shown with a number for a name.
    let named = |path: &PathBuf| path.parent().is_some_and(|p| p.ends_with(dir)) && path.exists();
    paths.into_iter().find(named)
}
