//! A machine to install packages on: Debian stable with its own systemd as the first process of namespaces
//! (`packaging/boot`), on the kernel of this machine, with the file system of an image at `/srv/data`.
//!
//! All of its processes are in one cgroup, and end with it: when it is dropped, when a signal ends the test, and, if the
//! test was killed, by `scripts/tidy`, which finds the cgroup by its name.

use super::script;
use crate::cleanup::{self, Ticket, Undo};
use crate::image::Image;
use crate::mount::MountGuard;
use crate::process::{Finished, Running, finish};
use crate::scratch;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a program finds in its environment.
const PATH: &str = "PATH=/usr/sbin:/usr/bin";
/// How long anything may need that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A machine that has booted; switched off when dropped.
pub struct Machine {
    // In this order they go.
    _processes: Processes,
    kernel: Running,
    _hierarchy: MountGuard,
    _tree: Ticket,
    _dir: TempDir,
}

/// The cgroup of all processes of a machine.
struct Processes {
    cgroup: PathBuf,
    _ticket: Ticket,
}

impl Drop for Processes {
    fn drop(&mut self) {
        Undo::Cgroup(self.cgroup.clone()).run();
    }
}

impl Machine {
    /// Boots a copy of Debian stable, and waits until systemd has started all that it starts.
    ///
    /// # Panics
    /// When it does not boot, or a unit fails.
    pub fn boot(image: &Image) -> Self {
        let dir = scratch::directory("machine");
        let _tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
        let [tree, cgroups] = ["tree", "cgroups"].map(|name| dir.path().join(name));
        std::fs::create_dir(&cgroups).expect("a mount point");
        let stable = finish(script("tree").arg("stable")).expect(&[0]);
        let mut copy = Command::new("cp");
        finish(copy.args(["-a", "--reflink=auto", stable.trim()]).arg(&tree)).expect(&[0]);
        // The same hierarchy wherever it is mounted.
        let hierarchy = MountGuard::mount(&["-t", "cgroup2", "cgroup2"], &cgroups);
        let cgroup = cgroups.join(dir.path().file_name().expect("its name"));
        std::fs::create_dir(&cgroup).expect("a cgroup");
        let _ticket = cleanup::register(Undo::Cgroup(cgroup.clone()));
        let processes = Processes { cgroup, _ticket };

        let mut boot = script("boot");
        boot.arg(&tree).arg(&processes.cgroup).arg(image.device()).stdin(Stdio::null());
        let kernel = Running::start(&mut boot);
        let machine =
            Self { _processes: processes, kernel, _hierarchy: hierarchy, _tree, _dir: dir };
        machine.until("systemd runs", || machine.tree().join("run/systemd/private").exists());
        let state = machine.run("systemctl is-system-running --wait");
        let failed = machine.run("systemctl --failed --no-legend").stdout;
        assert_eq!(state.stdout, "running\n", "{failed}{state:?}");
        machine
    }

    /// Its root directory as it is seen there, mounts included.
    pub fn tree(&self) -> PathBuf {
        format!("/proc/{}/root", self.init()).into()
    }

    /// The first process of the machine, by its number outside.
    fn init(&self) -> u32 {
        let kernel = self.kernel.id();
        let children = format!("/proc/{kernel}/task/{kernel}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        // None yet: this number has no process, so nothing is found there.
        children.trim().parse().unwrap_or(u32::MAX)
    }

    /// Runs a command of a shell there to its end, as root.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(&self, command: &str) -> Finished {
        let mut enter = Command::new("nsenter");
        enter.arg(format!("--target={}", self.init()));
        enter.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]);
        finish(enter.args(["env", "-i", PATH, "SYSTEMD_PAGER=", "sh", "-c", command]))
    }

    /// What a command prints that must succeed.
    ///
    /// # Panics
    /// When it fails, with what it printed and the end of the journal.
    pub fn expect(&self, command: &str) -> String {
        let done = self.run(command);
        let journal = if done.status.success() { String::new() } else { self.journal_end() };
        assert!(done.status.success(), "{command}: {done:?}\n{journal}");
        done.stdout.trim_end().to_owned()
    }

    /// A property of a unit, as systemctl(1) shows it.
    pub fn property(&self, unit: &str, name: &str) -> String {
        self.expect(&format!("systemctl show --value --property={name} {unit}"))
    }

    /// The main process of a service, by its number there.
    ///
    /// # Panics
    /// When the service does not run.
    pub fn main_process(&self, unit: &str) -> u32 {
        let number = self.property(unit, "MainPID");
        let running = number.parse().ok().filter(|number| *number != 0);
        running.unwrap_or_else(|| panic!("{unit} does not run\n{}", self.journal_end()))
    }

    /// Runs a command with the mounts that a service sees; without its privileges' limits.
    pub fn run_beside(&self, unit: &str, command: &str) -> Finished {
        let main = self.main_process(unit);
        self.run(&format!("nsenter --target={main} --mount sh -c '{command}'"))
    }

    /// What a unit has logged.
    pub fn journal(&self, unit: &str) -> String {
        self.expect(&format!("journalctl --no-pager --output=cat --unit={unit}"))
    }

    fn journal_end(&self) -> String {
        self.run("journalctl --no-pager --lines=50").stdout
    }

    /// Waits until a condition holds.
    ///
    /// # Panics
    /// When it does not within a minute, with the end of the journal.
    pub fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() {
            assert!(started.elapsed() < PATIENCE, "not so: {what}\n{}", self.journal_end());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Puts a file into the machine; its directories are made.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.tree().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("its directory");
        std::fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}
