//! A User Mode Linux guest: another kernel, as a process of this one, for file systems that the
//! host's kernel lacks.
//!
//! The guest's root is the host's (hostfs), so freshly built programs and installed tools run in
//! it as they are, with its own /proc, /sys and devices. Its processes are root there, and write
//! to the host's files. It boots in about two seconds.
//!
//! A guest consists of several host processes in a PID namespace of their own: when its first
//! process ends, all are killed; and that one ends with `unshare(1)`, a child of this process. The
//! first process is a shell, because a guest that panics aborts, which a namespace's first process
//! cannot.

pub mod test;

use crate::cleanup::{self, Ticket, Undo};
use crate::image::run;
use crate::process::{Finished, Running};
use crate::scratch;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Set in the environment of every program that runs in a guest.
pub const IN_GUEST: &str = "FRAGMEND_IN_GUEST";

/// Whether this process runs in a guest.
pub fn inside() -> bool {
    std::env::var_os(IN_GUEST).is_some()
}

/// The configuration of a guest.
#[derive(Clone, Debug)]
pub struct Guest {
    memory_mib: u32,
    disks: Vec<PathBuf>,
    limit: Duration,
}

impl Default for Guest {
    fn default() -> Self {
        Self { memory_mib: 512, disks: Vec::new(), limit: Duration::from_secs(120) }
    }
}

/// Why a command has no exit code.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// It ran longer than its limit, and was killed.
    #[error("the guest was not done after {limit:?}: {said}")]
    TimedOut {
        /// The limit.
        limit: Duration,
        /// Its output so far.
        said: String,
    },
    /// The guest's kernel ended before the program did.
    #[error("the guest ended before its program: {said}")]
    Died {
        /// Its console's output.
        said: String,
    },
}

impl Guest {
    /// 512 MiB of memory, no disks, two minutes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a disk image: the first is `/dev/ubda` in the guest, the second `/dev/ubdb`.
    #[must_use]
    pub fn disk(mut self, image: &Path) -> Self {
        self.disks.push(image.to_owned());
        self
    }

    /// Sets the size of its memory.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Limits its time, boot included.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Boots, runs a command to its end, and switches off.
    ///
    /// # Errors
    /// [`Lost`] when the command did not end.
    ///
    /// # Panics
    /// When the guest cannot be started.
    pub fn run(&self, command: &Command) -> Result<Finished, Lost> {
        self.start(command).wait()
    }

    /// Boots and starts a command: its program, arguments, and the environment set on it.
    /// Temporary files go to a directory that the host removes.
    ///
    /// # Panics
    /// When the guest cannot be started.
    pub fn start(&self, command: &Command) -> Booted {
        let dir = scratch::directory("guest");
        let ticket = cleanup::register(Undo::Tree(dir.path().to_owned()));
        let file = |name: &str| dir.path().join(name);
        fs::create_dir(file("tmp")).expect("the guest's temporary directory");
        fs::write(file("command"), line(command, &file("tmp"))).expect("the guest's command");
        fs::write(file("init"), include_str!("init.sh")).expect("the guest's init");
        fs::set_permissions(file("init"), fs::Permissions::from_mode(0o755)).expect("its mode");
        fs::write(file("xstate.c"), include_str!("xstate.c")).expect("the library's source");
        let args = ["-shared", "-fPIC", "-O2", "-o"].map(Into::into);
        run("gcc", args.into_iter().chain([file("xstate.so"), file("xstate.c")]));

        let console = fs::File::create(file("console")).expect("the guest's console");
        let mut kernel = Command::new("unshare");
        kernel.args(["--fork", "--pid", "--kill-child", "sh", "-c", "\"$@\"; exit $?", "sh"]);
        kernel.arg("linux.uml");
        kernel.arg(format!("mem={}M", self.memory_mib));
        for (n, disk) in self.disks.iter().enumerate() {
            // The kernel's command line has no quoting.
            let disk = fs::canonicalize(disk).expect("the guest's disk");
            let name = file(&format!("disk{n}"));
            std::os::unix::fs::symlink(disk, &name).expect("a name for the disk");
            kernel.arg(with_path(&format!("ubd{n}="), &name));
        }
        kernel.args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "quiet"]);
        kernel.arg(with_path("init=", &file("init")));
        kernel.arg(with_path("uml_dir=", &file("uml")));
        kernel.args(["con=null", "con0=null,fd:1"]);
        kernel.env("LD_PRELOAD", file("xstate.so")).env("TMPDIR", dir.path());
        kernel.stdin(Stdio::null()).stderr(console.try_clone().expect("a second handle"));
        kernel.stdout(console);
        let name = command.get_program().to_string_lossy().into_owned();
        let running = Running::start(&mut kernel);
        Booted { running, name, limit: self.limit, started: Instant::now(), _ticket: ticket, dir }
    }
}

/// A running guest; killed, with all its processes, when dropped.
pub struct Booted {
    running: Running,
    name: String,
    limit: Duration,
    started: Instant,
    _ticket: Ticket,
    dir: tempfile::TempDir,
}

impl Booted {
    /// The id of the process with which the guest ends.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Waits for the command's end and for the guest's.
    ///
    /// # Errors
    /// [`Lost`] when the command did not end.
    pub fn wait(mut self) -> Result<Finished, Lost> {
        while !self.has_ended() {
            if self.started.elapsed() > self.limit {
                return Err(Lost::TimedOut { limit: self.limit, said: self.said() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let code = self.text("code").trim().parse::<i32>();
        let Ok(code) = code else { return Err(Lost::Died { said: self.said() }) };
        let status = ExitStatus::from_raw(code << 8);
        Ok(Finished::new(&self.name, status, self.text("stdout"), self.text("stderr")))
    }

    /// Waits until a file exists on the host, for example one that the command makes.
    ///
    /// # Panics
    /// When the guest ends before, or exceeds its time limit.
    #[must_use]
    pub fn wait_for(mut self, path: &Path) -> Self {
        while !path.exists() {
            let lost = self.has_ended() || self.started.elapsed() > self.limit;
            assert!(!lost, "the guest never made {}: {}", path.display(), self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        self
    }

    fn has_ended(&mut self) -> bool {
        self.running.child().try_wait().expect("a child can be waited for").is_some()
    }

    fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.dir.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn said(&self) -> String {
        ["console", "init.log", "stdout", "stderr"].map(|name| self.text(name)).concat()
    }
}

impl Drop for Booted {
    /// Kills the first process first, so that `unshare` reaps it.
    fn drop(&mut self) {
        let id = self.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let first = children.ok().and_then(|c| c.split_whitespace().next()?.parse().ok());
        if let Some(first) = first.and_then(Pid::from_raw) {
            let _ = kill_process(first, Signal::KILL);
            let patience = Instant::now() + Duration::from_secs(5);
            while !self.has_ended() && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn with_path(key: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(key);
    argument.push(path);
    argument
}

/// The command as a shell's line.
fn line(command: &Command, tmp: &Path) -> Vec<u8> {
    let mut line = Vec::new();
    let mut set = |name: &OsStr, value: &OsStr| {
        line.extend(name.as_bytes());
        line.push(b'=');
        line.extend(quoted(value));
        line.push(b' ');
    };
    set(IN_GUEST.as_ref(), "1".as_ref());
    set("TMPDIR".as_ref(), tmp.as_os_str());
    command.get_envs().filter_map(|(n, v)| Some((n, v?))).for_each(|(n, v)| set(n, v));
    for word in [command.get_program()].into_iter().chain(command.get_args()) {
        line.extend(quoted(word));
        line.push(b' ');
    }
    line
}

fn quoted(word: &OsStr) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend(br"'\''"),
            other => out.push(*other),
        }
    }
    out.push(b'\'');
    out
}
