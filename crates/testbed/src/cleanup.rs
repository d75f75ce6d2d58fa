//! What must be undone when a signal ends the process: processes, mounts, loop devices, files,
//! settings.
//!
//! Each owner ([`crate::image::Image`], [`crate::process::Running`]) tidies up in its own `Drop`,
//! which also runs when a test panics. A signal runs no destructors; so each owner also holds a
//! [`Ticket`] here, and the first SIGINT, SIGTERM or SIGHUP undoes whatever has a ticket, newest
//! first, and then ends the process as the signal would have.

use crate::holders::{self, HUNG};
use fragmend_sys::loop_device;
use rustix::mount::{UnmountFlags, unmount};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// One thing to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// A child that still runs, by its id.
    Process(u32),
    /// A mount point.
    Mount(PathBuf),
    /// The mount point of a FUSE file system that this process serves.
    Served(PathBuf),
    /// A loop device's node.
    Loop(String),
    /// The same, only while its file is this one: by now another program's may be on the node.
    LoopOf(PathBuf, PathBuf),
    /// A cgroup (v2), with those below it and all of their processes.
    Cgroup(PathBuf),
    /// A directory with all that is in it.
    Tree(PathBuf),
    /// A setting of the kernel's, and its old value.
    Setting(PathBuf, String),
}

/// Held by the owner of what is to be undone, and dropped once the owner has undone it.
#[derive(Debug)]
pub struct Ticket(u64);

/// Tickets and what they undo, oldest first.
static OPEN: Mutex<(u64, Vec<(u64, Undo)>)> = Mutex::new((0, Vec::new()));

/// Locks the list, also if the lock is poisoned: a mount must not be left behind.
fn open() -> MutexGuard<'static, (u64, Vec<(u64, Undo)>)> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes something to undo if a signal ends the process before the ticket is dropped.
pub fn register(undo: Undo) -> Ticket {
    listen();
    let mut open = open();
    open.0 += 1;
    let id = open.0;
    open.1.push((id, undo));
    Ticket(id)
}

impl Drop for Ticket {
    fn drop(&mut self) {
        open().1.retain(|(id, _)| *id != self.0);
    }
}

impl Undo {
    /// Undoes it; succeeds if nothing is left to undo.
    pub fn run(&self) {
        match self {
            Self::Process(pid) => end_process(*pid),
            Self::Mount(path) => {
                let done = holders::unmount_within(path, UnmountFlags::NOFOLLOW, HUNG);
                let is_nothing = |e: &io::Error| {
                    [io::ErrorKind::InvalidInput, io::ErrorKind::NotFound].contains(&e.kind())
                };
                if done.as_ref().is_some_and(|done| done.as_ref().err().is_none_or(is_nothing)) {
                    return;
                }
                // A process that was just ended may hold the mount for a moment longer.
                let used = holders::named(path);
                if unmount(path, UnmountFlags::DETACH).is_ok() {
                    eprintln!(
                        "{} is detached, and lives on until it is free: {used}",
                        path.display()
                    );
                } else if done.is_none() {
                    eprintln!("{} is still being unmounted: {used}", path.display());
                }
            }
            Self::Served(path) => {
                // By force, which ends its connection: a process that waits for an answer would not get one,
                // and would keep this process from ending.
                let _ = unmount(path, UnmountFlags::FORCE);
                let _ = unmount(path, UnmountFlags::DETACH);
            }
            Self::Loop(node) => {
                let _ = File::open(node).and_then(|device| loop_device::detach(&device));
            }
            Self::LoopOf(node, file) if !loop_device::is_attached(node, file) => {}
            Self::LoopOf(node, _) => {
                let _ = File::open(node).and_then(|device| loop_device::detach(&device));
            }
            Self::Cgroup(path) => {
                let _ = std::fs::write(path.join("cgroup.kill"), "1");
                wait_until_empty(path);
                remove_cgroup(path);
            }
            Self::Tree(path) => {
                let _ = std::fs::remove_dir_all(path);
            }
            Self::Setting(path, old) => {
                let _ = std::fs::write(path, old.trim());
            }
        }
    }
}

/// Waits until no process is left in a cgroup, or it counts as hung.
fn wait_until_empty(cgroup: &Path) {
    let started = Instant::now();
    let events = || std::fs::read_to_string(cgroup.join("cgroup.events")).unwrap_or_default();
    while events().contains("populated 1") {
        if started.elapsed() > HUNG {
            return eprintln!("{} has processes that do not end", cgroup.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Removes a cgroup in which no process is, and those below it.
fn remove_cgroup(path: &Path) {
    let below = std::fs::read_dir(path).into_iter().flatten().flatten();
    below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).for_each(|entry| {
        remove_cgroup(&entry.path());
    });
    // Its files go with it.
    let _ = std::fs::remove_dir(path);
}

fn end_process(pid: u32) {
    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    if kill_process(pid, Signal::KILL).is_ok() {
        // Waits until it holds no files any more, and leaves its exit code to its owner.
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    }
}

/// Whether a signal is ending this process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// If a signal is ending this process, blocks the calling thread until the end: a program that failed now
/// failed because of the signal, which is not to be reported.
pub fn pause_if_ending() {
    // Ctrl-C may reach the children before this process.
    std::thread::sleep(Duration::from_millis(100));
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// From now on a panic prints one line on standard error that begins with `program`; for programs
/// that people run. A panic because of a signal prints nothing.
pub fn panics_in_one_line(program: &'static str) {
    std::panic::set_hook(Box::new(move |panic| {
        pause_if_ending();
        let payload = panic.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("it failed");
        eprintln!("{program}: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
    }));
}

/// Starts the thread that waits for a signal, once.
fn listen() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                ENDING.store(true, Ordering::SeqCst);
                // Held to the end: nothing may be registered while the process ends.
                let open = open();
                for (_, undo) in open.1.iter().rev() {
                    undo.run();
                }
                let _ = emulate_default_handler(signal);
            }
        });
    });
}
