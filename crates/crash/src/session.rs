//! Everything that is done on the recorded disk, from mkfs to the last unmount, on the host or in a
//! guest.

use crate::apply::{self, Moves, Target};
use crate::files::{self, MENDED, Role, TestFile};
use crate::interrupt::{State, state};
use crate::later_use::LaterUse;
use crate::marks::{Mark, Marks};
use crate::mount::{Mount, freeze};
use crate::scenario::{Mover, Scenario};
use crate::serve::Served;
use crate::unprotected;
use fragmend_testbed::loop_device::LoopDevice;
use fragmend_testbed::process::Running;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of untouched files.
const UNTOUCHED_FILES: u32 = 9;
/// Number of files that others use once they have moved.
const USED_LATER_FILES: u32 = 4;
/// Bytes of each file.
const FILE_BYTES: u64 = 512 << 10;
/// A recording that lasts longer counts as hung.
const TOO_LONG: Duration = Duration::from_secs(300);
/// How long the load runs where nothing is moved.
const ALONE: Duration = Duration::from_secs(3);
/// The time between two changes of a file there.
const BETWEEN: Duration = Duration::from_millis(15);

/// A run, kept beside its recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Name of the scenario.
    #[serde(alias = "bed")]
    pub scenario: String,
    /// Seed of the load.
    pub seed: u64,
    /// All files, except for those in the churn directory.
    pub files: Vec<TestFile>,
    /// What was moved.
    pub moves: Moves,
}

/// The file of a [`Run`], in the recording's directory.
pub const RUN: &str = "run.json";

/// The paths of a disk, and of the file for its marks.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// The disk.
    pub disk: &'a Path,
    /// The second disk, if the scenario has one.
    pub second: Option<&'a Path>,
    /// See [`Marks`].
    pub marks: &'a Path,
}

impl Nodes<'_> {
    /// Calls `work` while loop devices are attached to a served disk, and to its second one if the scenario has
    /// one; afterwards they are detached.
    ///
    /// # Panics
    /// As [`LoopDevice::attach`] and [`LoopDevice::detach`].
    pub fn attached<T>(
        served: &Served,
        scenario: &Scenario,
        work: impl FnOnce(Nodes<'_>) -> T,
    ) -> T {
        let device = LoopDevice::attach(&served.disk());
        let second = scenario.second.map(|_| LoopDevice::attach(&served.second()));
        let done = work(Nodes {
            disk: Path::new(device.node()),
            second: second.as_ref().map(|second| Path::new(second.node())),
            marks: &served.marks(),
        });
        device.detach();
        second.into_iter().for_each(LoopDevice::detach);
        done
    }
}

/// Runs a session in a process of its own. A process that serves a disk must not use files on it: a
/// store to a mapped page that waits (for a file system that is being frozen, for a page under
/// writeback) holds the memory map's lock, which the server needs to allocate memory.
///
/// # Panics
/// As [`run`], and when it lasts five minutes.
pub fn start(scenario: &Scenario, seed: u64, dir: &Path, nodes: Nodes, soak: &Path) {
    let mut command = Command::new(soak);
    command
        .args(["session", scenario.name, &seed.to_string()])
        .arg(dir)
        .args([nodes.disk, nodes.marks]);
    command.args(nodes.second);
    let running = Running::start(command.stdin(Stdio::null()).stderr(Stdio::piped()));
    let (started, id) = (Instant::now(), running.id());
    while state(id) != State::Ended {
        assert!(started.elapsed() < TOO_LONG, "{}: the recording hangs", scenario.name);
        std::thread::sleep(Duration::from_millis(5));
    }
    running.wait().expect(&[0]);
}

/// Makes the file system and the files, then runs the load and the mover side by side; leaves a
/// [`Run`] in `dir`.
///
/// # Panics
/// When anything but the files' content goes wrong.
pub fn run(scenario: &'static Scenario, seed: u64, dir: &Path, nodes: Nodes, soak: &Path) {
    let inside = |name: &str| dir.join(name);
    assert_volatile(nodes.disk);
    nodes.second.inspect(|disk| assert_volatile(disk));
    let root = inside("mnt");
    fs::create_dir(&root).expect("a directory");
    scenario.make(nodes.disk, nodes.second);
    let options = scenario.mount_options(nodes.second);
    let mounted = Mount::new(scenario.file_system, nodes.disk, &root, &options);
    let mounted = mounted.unwrap_or_else(|why| panic!("{}: {why}", scenario.name));
    let mut files = files::make(&root, UNTOUCHED_FILES, USED_LATER_FILES, FILE_BYTES);
    files::leave_free(&root, scenario.free);
    fs::write(inside("files.json"), serde_json::to_vec(&files).expect("JSON")).expect("a file");
    rustix::fs::syncfs(File::open(&root).expect("the root")).expect("syncfs");
    if scenario.freezes {
        freeze(&root);
    }
    let fragmend = matches!(scenario.mover, Mover::Fragmend(_));
    let plan = fragmend.then(|| apply::plan(&root, scenario.policy, &inside("plan.json")));
    let marks = Marks::open(nodes.marks).expect("a place for marks");
    let say = |mark| marks.write(&mark).expect("the log");
    say(Mark::Recording);

    let mut load = Command::new(soak);
    load.arg("load").arg(&root).arg(inside("files.json")).arg(seed.to_string()).arg(nodes.marks);
    let mut load = Running::start(load.stdin(Stdio::piped()));
    std::thread::sleep(Duration::from_millis(200));
    say(Mark::Moving);
    let mut later_use = LaterUse::new(&root, &files, seed, &marks, scenario);
    let moves = match (scenario.mover, &plan) {
        (Mover::Fragmend(options), Some(plan)) => {
            let on =
                Target { scenario, root: &root, files: &files, marks: &marks, seed, holds: true };
            let mut moves = apply::apply(plan, options, &on, later_use);
            // Its files move as a whole, and F2FS writes nothing anew.
            let anew = !scenario.whole_files && !scenario.in_guest;
            if let Some(plan) = apply::plan_anew(&root, &files, plan).filter(|_| anew) {
                let later_use = LaterUse::new(&root, &files, seed, &marks, scenario);
                let on = Target { holds: false, ..on };
                moves.add(&apply::apply(&plan, options, &on, later_use));
            }
            moves
        }
        (Mover::Unprotected, _) => unprotected::rewrite(&root, &files),
        _ => {
            let all: Vec<u32> = files.iter().map(|f| f.tag).collect();
            let until = Instant::now() + ALONE;
            while Instant::now() < until {
                later_use.touch(&all);
                std::thread::sleep(BETWEEN);
            }
            Moves { later_use: later_use.counts, ..Moves::default() }
        }
    };
    say(Mark::AtRest);
    std::thread::sleep(Duration::from_millis(200));
    drop(load.child().stdin.take());
    load.wait().expect(&[0]);
    for file in files.iter_mut().filter(|f| f.role == Role::Untouched) {
        file.extents_after = files::extent_count(&root.join(MENDED).join(&file.name));
    }
    mounted.unmount();
    let run = Run { scenario: scenario.name.to_owned(), seed, files, moves };
    fs::write(inside(RUN), serde_json::to_vec(&run).expect("JSON")).expect("a file");
}

/// Asserts that the disk has a volatile cache: without one there are no flushes to test.
fn assert_volatile(disk: &Path) {
    let name = disk.file_name().unwrap_or_default();
    let path = Path::new("/sys/block").join(name).join("queue/write_cache");
    let cache = fs::read_to_string(path).expect("the kind of cache");
    assert_eq!(cache.trim(), "write back");
}
