//! Child processes: started, asked to end, and never left behind.

use crate::cleanup::{self, Ticket, Undo};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a program that was asked to end may take to do so.
const PATIENCE: Duration = Duration::from_secs(5);

/// An address of this machine that nothing listens at now, for a child to serve; if another program takes it meanwhile, the
/// child cannot.
///
/// # Panics
/// When there is none.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address")
}

/// A running child; killed by its id when dropped.
pub struct Running {
    child: Child,
    name: String,
    /// Its standard error, if that is read while it runs.
    complaints: Option<Complaints>,
    _ticket: Ticket,
}

/// Standard error, read to its end by a thread.
struct Complaints {
    so_far: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Complaints {
    fn so_far(&self) -> String {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Running {
    /// Starts it. Its standard streams are inherited unless the caller sets them.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .spawn()
            .unwrap_or_else(|e| panic!("{name} cannot be started ({e}): is it installed?"));
        let ticket = cleanup::register(Undo::Process(child.id()));
        Self { child, name, complaints: None, _ticket: ticket }
    }

    /// The process, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for its end, and returns what it printed on the pipes that the caller has not taken.
    pub fn wait(mut self) -> Finished {
        // Both pipes are drained at once: a full one would block the child.
        let err = self.child.stderr.take();
        let drain = std::thread::spawn(move || read_all(err));
        let stdout = read_all(self.child.stdout.take());
        let mut stderr = drain.join().unwrap_or_default();
        if let Some(Complaints { so_far, reader }) = self.complaints.take() {
            let _ = reader.join();
            stderr = std::mem::take(&mut so_far.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let status = self.child.wait().expect("a child can be waited for");
        Finished { name: self.name.clone(), status, stdout, stderr }
    }

    /// Waits until a line of its standard error, which is piped, begins with `beginning`.
    ///
    /// # Panics
    /// When it ends before, or after a minute, with what it printed so far.
    pub fn wait_until_it_says(mut self, beginning: &str) -> Self {
        let so_far = Arc::new(Mutex::new(String::new()));
        let (keep, wanted) = (Arc::clone(&so_far), beginning.to_owned());
        let (tell, told) = channel();
        let mut lines =
            BufReader::new(self.child.stderr.take().expect("its standard error is piped"));
        let reader = std::thread::spawn(move || {
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                keep.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                if text.starts_with(&wanted) {
                    let _ = tell.send(());
                }
                line.clear();
            }
        });
        let complaints = self.complaints.insert(Complaints { so_far, reader });
        if told.recv_timeout(Duration::from_secs(60)).is_err() {
            panic!("{} did not say '{beginning}', but: {}", self.name, complaints.so_far());
        }
        self
    }

    /// Waits until `condition` holds for its process id.
    ///
    /// # Panics
    /// When it ends before, with what it printed, or after half a minute.
    pub fn wait_until(mut self, condition: impl Fn(u32) -> bool) -> Self {
        let start = Instant::now();
        while !condition(self.id()) {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                panic!("ended early: {:?}", self.wait());
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{} is not ready", self.name);
            std::thread::sleep(Duration::from_millis(10));
        }
        self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether the process handles `signal`, so that it is a request and does not end the process.
pub fn is_handled(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    caught & 1 << (signal.as_raw() - 1) != 0
}

/// Bytes of a program's output that are shown when it failed.
const END: usize = 4096;

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    name: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Finished {
    /// A program that ended in this way, on the host or in a guest.
    pub fn new(name: &str, status: ExitStatus, stdout: String, stderr: String) -> Self {
        Self { name: name.to_owned(), status, stdout, stderr }
    }

    /// Its standard output.
    ///
    /// # Panics
    /// When its exit code is none of `codes`, with its standard error and the end of its output.
    pub fn expect(self, codes: &[i32]) -> String {
        let ended_well = self.status.code().is_some_and(|c| codes.contains(&c));
        if !ended_well {
            cleanup::pause_if_ending();
        }
        let Self { name, status, stdout, stderr } = self;
        let end = &stdout.as_bytes()[stdout.len().saturating_sub(END)..];
        let (stderr, end) = (stderr.trim(), String::from_utf8_lossy(end));
        assert!(ended_well, "{name} failed ({status}): {stderr}\n{}", end.trim());
        stdout
    }
}

/// Whether a program waits until `holder` releases its lease on this file (proc_locks(5)).
///
/// # Panics
/// `/proc/locks` cannot be read.
pub fn a_program_waits(holder: u32, path: &Path) -> bool {
    let Ok(meta) = path.metadata() else { return false };
    let (holder, inode) = (holder.to_string(), format!(":{}", meta.ino()));
    let locks = fs::read_to_string("/proc/locks").expect("the locks of all");
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], [_, "LEASE", "BREAKING", _, pid, file, ..] if pid == holder && file.ends_with(&inode))
    })
}

/// Runs a program to its end with both outputs kept.
pub fn finish(command: &mut Command) -> Finished {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command).wait()
}

/// Runs a tool to its end and returns its standard output.
///
/// # Errors
/// What it printed when it failed.
///
/// # Panics
/// When it cannot be started.
pub fn try_run<S: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
) -> Result<String, String> {
    let mut command = Command::new(program);
    told_by(program, command.args(args))
}

/// The part of it that needs to be built only once, whatever the arguments are.
fn told_by(program: &str, command: &mut Command) -> Result<String, String> {
    let child = piped(program, command);
    told(program, child.wait_with_output().expect("a child can be waited for"))
}

/// A child that was started, with nothing to read and its output piped.
fn piped(program: &str, command: &mut Command) -> Child {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().unwrap_or_else(|e| {
        panic!("{program} cannot be started ({e}): is it installed, are we root?")
    })
}

/// The output of a program that succeeded, or what it printed when it failed.
fn told(program: &str, out: Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if out.status.success() {
        return Ok(text(&out.stdout));
    }
    Err(format!("{program} failed: {}{}", text(&out.stdout), text(&out.stderr)))
}

/// As [`try_run`], but killed after `seconds`: for tools that read or mount a served disk, which
/// would otherwise wait as long as its server does not answer.
///
/// # Errors
/// What it printed when it failed, or that it was ended after `seconds`.
///
/// # Panics
/// When it cannot be started.
pub fn try_run_within<S: AsRef<OsStr>>(
    seconds: u32,
    program: &str,
    args: impl IntoIterator<Item = S>,
) -> Result<String, String> {
    let mut command = Command::new(program);
    told_within(seconds, program, command.args(args))
}

fn told_within(seconds: u32, program: &str, command: &mut Command) -> Result<String, String> {
    let child = piped(program, command);
    // Names this process and no later one of its id.
    let id = Pid::from_child(&child);
    let process = pidfd_open(id, PidfdFlags::empty()).expect("a child that is not waited for yet");
    let (ended, end) = channel::<()>();
    let (out, was_ended) = std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let mut left = Duration::from_secs(seconds.into());
            for signal in [Signal::TERM, Signal::KILL] {
                // Told, or hung up on.
                if end.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                    return signal != Signal::TERM;
                }
                let _ = pidfd_send_signal(&process, signal);
                left = PATIENCE;
            }
            true
        });
        let out = child.wait_with_output().expect("a child can be waited for");
        drop(ended);
        (out, watcher.join().expect("no panic"))
    });
    let said = told(program, out);
    if was_ended {
        let what = said.unwrap_or_else(|said| said);
        return Err(format!("{program} was ended after {seconds} s: {what}"));
    }
    said
}

/// As [`try_run`], for tools that must succeed.
///
/// # Panics
/// When it cannot be started or fails, with what it printed.
pub fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> String {
    try_run(program, args).unwrap_or_else(|e| panic!("{e}"))
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_too_long_is_ended_also_if_it_does_not_heed_that() {
        assert_eq!(try_run_within(60, "echo", ["done"]).unwrap(), "done\n");
        let failed = try_run_within(60, "sh", ["-c", "echo no >&2; exit 3"]).unwrap_err();
        assert_eq!(failed, "sh failed: no\n");
        let ended = try_run_within(1, "sh", ["-c", "echo begun; exec sleep 60"]).unwrap_err();
        assert_eq!(ended, "sh was ended after 1 s: sh failed: begun\n");
        let deaf = "trap '' TERM; echo deaf; while :; do sleep 0.1; done";
        let ended = try_run_within(1, "sh", ["-c", deaf]).unwrap_err();
        assert_eq!(ended, "sh was ended after 1 s: sh failed: deaf\n");
    }
}
