//! Stops the mover again and again, so that others can do something in between, wherever it is.

use crate::bed::Bed;
use crate::files::{FileOf, MENDED};
use crate::life::Life;
use fragmend_testbed::random::Random;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// From one stop to the next, at least, and how much longer at most.
const BETWEEN: [u64; 2] = [4, 24];
/// How often somebody looks whether the mover has stopped itself.
const LOOK: Duration = Duration::from_micros(500);

/// Files of which something has moved, by their tags.
pub type Begun = Mutex<Vec<u32>>;

/// Minds a mover until it ends. Builds with debug assertions stop themselves right after each move
/// (`FRAGMEND_STOP_AT`), where what has moved is not committed yet; all are stopped at other
/// instants.
pub fn mind(mover: u32, bed: &Bed, files: &[FileOf], begun: &Begun, life: &mut Life, seed: u64) {
    let pid = of(mover);
    let mut random = Random::new(seed ^ 0x0151);
    let pause = |random: &mut Random| {
        Instant::now() + Duration::from_millis(BETWEEN[0] + random.below(BETWEEN[1]))
    };
    let (mut next, mut asked) = (pause(&mut random), false);
    loop {
        match state(mover) {
            State::Ended => return,
            State::Stopped => {
                let current = in_hand(mover, files);
                if !asked {
                    life.lived.stops += 1;
                    begin(begun, current);
                }
                let mut known = begun.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if bed.whole_files && asked {
                    // What is written to while it is copied does not move at all.
                    known.retain(|tag| Some(*tag) != current);
                }
                match current.filter(|tag| !asked && known.contains(tag)) {
                    Some(tag) => life.touch(&[tag]),
                    None => life.touch(&known),
                }
                go_on(mover);
                (next, asked) = (pause(&mut random), false);
            }
            State::Running if !asked && Instant::now() > next => {
                asked = kill_process(pid, Signal::STOP).is_ok();
            }
            State::Running => std::thread::sleep(LOOK),
        }
    }
}

/// What a child is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// It was stopped, which is told once.
    Stopped,
    /// It has ended; its owner waits for it.
    Ended,
}

/// What a child of ours is doing.
pub fn state(child: u32) -> State {
    let (id, quick) = (WaitId::Pid(of(child)), WaitIdOptions::NOHANG);
    let any = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    match waitid(id.clone(), any | quick) {
        Ok(None) => State::Running,
        Ok(Some(status)) if status.stopped() => {
            // Told once, so that the same stop is not seen again.
            let _ = waitid(id, WaitIdOptions::STOPPED | quick);
            State::Stopped
        }
        _ => State::Ended,
    }
}

/// Has a stopped child go on.
pub fn go_on(child: u32) {
    let _ = kill_process(of(child), Signal::CONT);
}

fn of(child: u32) -> Pid {
    i32::try_from(child).ok().and_then(Pid::from_raw).expect("a process")
}

/// Something of this file has moved.
pub fn begin(begun: &Begun, tag: Option<u32>) {
    let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tag) = tag.filter(|tag| !begun.contains(tag)) {
        begun.push(tag);
    }
}

/// The file of the run that a process has open.
fn in_hand(process: u32, files: &[FileOf]) -> Option<u32> {
    let path = open_below(process, MENDED)?;
    files.iter().find(|f| path.ends_with(&f.name)).map(|f| f.tag)
}

/// The file right below a directory of this name that a process has open.
pub fn open_below(process: u32, dir: &str) -> Option<PathBuf> {
    let open = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let paths = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    // An unnamed file is shown with a number for a name.
    let named = |path: &PathBuf| path.parent().is_some_and(|p| p.ends_with(dir)) && path.exists();
    paths.into_iter().find(named)
}
