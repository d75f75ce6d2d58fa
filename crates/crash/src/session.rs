//! What is done on the recorded disk, from its file system's making to the last unmount; on the
//! host or in a guest, and both times the same.

use crate::apply::{self, Applying, Moves};
use crate::bed::{Bed, Mover};
use crate::careless;
use crate::files::{self, FileOf, MENDED, Role};
use crate::life::Life;
use crate::marks::{Mark, Marks};
use crate::minder::{State, state};
use crate::mounted::{Mounted, freeze};
use fragmend_testbed::process::Running;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Files that nobody writes.
const STILL_FILES: u32 = 9;
/// Files that others use once they have moved.
const LIVING_FILES: u32 = 4;
/// Bytes of each file.
const FILE_BYTES: u64 = 512 << 10;
/// No recording takes so long.
const TOO_LONG: Duration = Duration::from_secs(300);
/// How long the load runs where nothing is moved.
const ALONE: Duration = Duration::from_secs(3);
/// How often others change a file there.
const BETWEEN: Duration = Duration::from_millis(15);

/// What a recording was, kept beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Name of the row.
    pub bed: String,
    /// Of the load.
    pub seed: u64,
    /// All files, but for those that come and go.
    pub files: Vec<FileOf>,
    /// What was moved meanwhile.
    pub moves: Moves,
}

/// Where a [`Run`] is kept, in the recording's directory.
pub const RUN: &str = "run.json";

/// A disk, and where to say what happens to it.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// The disk's node.
    pub disk: &'a Path,
    /// Its second disk's, where the row has one.
    pub second: Option<&'a Path>,
    /// See [`Marks`].
    pub marks: &'a Path,
}

/// Has all of it done by a process of its own. Who serves a disk must not use what lies on it: a
/// store to a mapped page that waits (for a file system that is being frozen, for a page on its way)
/// holds a lock of the whole process, which its server needs to go on.
///
/// # Panics
/// As [`run`], and when it takes too long.
pub fn start(bed: &Bed, seed: u64, dir: &Path, nodes: Nodes, soak: &Path) {
    let mut command = Command::new(soak);
    command.args(["session", bed.name, &seed.to_string()]).arg(dir).args([nodes.disk, nodes.marks]);
    command.args(nodes.second);
    let running = Running::start(command.stdin(Stdio::null()).stderr(Stdio::piped()));
    let (started, id) = (Instant::now(), running.id());
    while state(id) != State::Ended {
        assert!(started.elapsed() < TOO_LONG, "{}: the recording hangs", bed.name);
        std::thread::sleep(Duration::from_millis(5));
    }
    running.wait().expect(&[0]);
}

/// Makes the file system and the files, then has the load and the mover at work beside each other;
/// leaves a [`Run`] in `dir`.
///
/// # Panics
/// When anything but the files' content goes wrong.
pub fn run(bed: &'static Bed, seed: u64, dir: &Path, nodes: Nodes, soak: &Path) {
    let inside = |name: &str| dir.join(name);
    assert_volatile(nodes.disk);
    nodes.second.inspect(|disk| assert_volatile(disk));
    let root = inside("mnt");
    fs::create_dir(&root).expect("a directory");
    bed.make(nodes.disk, nodes.second);
    let options = bed.mount_options(nodes.second);
    let mounted = Mounted::new(bed.file_system, nodes.disk, &root, &options);
    let mounted = mounted.unwrap_or_else(|why| panic!("{}: {why}", bed.name));
    let mut files = files::make(&root, STILL_FILES, LIVING_FILES, FILE_BYTES);
    files::leave_free(&root, bed.free);
    fs::write(inside("files.json"), serde_json::to_vec(&files).expect("JSON")).expect("a file");
    rustix::fs::syncfs(File::open(&root).expect("the root")).expect("syncfs");
    if bed.freezes {
        freeze(&root);
    }
    let fragmend = matches!(bed.mover, Mover::Fragmend(_));
    let plan = fragmend.then(|| apply::plan(&root, &inside("plan.json")));
    let marks = Marks::open(nodes.marks).expect("a place for marks");
    let say = |mark| marks.say(&mark).expect("the log");
    say(Mark::Recording);

    let mut load = Command::new(soak);
    load.arg("load").arg(&root).arg(inside("files.json")).arg(seed.to_string()).arg(nodes.marks);
    let mut load = Running::start(load.stdin(Stdio::piped()));
    std::thread::sleep(Duration::from_millis(200));
    say(Mark::Moving);
    let mut life = Life::new(&root, &files, seed, &marks, bed);
    let moves = match (bed.mover, &plan) {
        (Mover::Fragmend(options), Some(plan)) => {
            let on = Applying { bed, root: &root, files: &files, marks: &marks, seed };
            apply::apply(plan, options, &on, life)
        }
        (Mover::Careless, _) => careless::rewrite(&root, &files),
        _ => {
            let all: Vec<u32> = files.iter().map(|f| f.tag).collect();
            let until = Instant::now() + ALONE;
            while Instant::now() < until {
                life.touch(&all);
                std::thread::sleep(BETWEEN);
            }
            Moves { lived: life.lived, ..Moves::default() }
        }
    };
    say(Mark::AtRest);
    std::thread::sleep(Duration::from_millis(200));
    drop(load.child().stdin.take());
    load.wait().expect(&[0]);
    for file in files.iter_mut().filter(|f| f.role == Role::Still) {
        file.pieces_after = files::pieces(&root.join(MENDED).join(&file.name));
    }
    mounted.unmount();
    let run = Run { bed: bed.name.to_owned(), seed, files, moves };
    fs::write(inside(RUN), serde_json::to_vec(&run).expect("JSON")).expect("a file");
}

/// Without a volatile cache there are no flushes, and nothing would be proven.
fn assert_volatile(disk: &Path) {
    let name = disk.file_name().unwrap_or_default();
    let path = Path::new("/sys/block").join(name).join("queue/write_cache");
    let cache = fs::read_to_string(path).expect("the kind of cache");
    assert_eq!(cache.trim(), "write back");
}
