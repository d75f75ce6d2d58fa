//! On XFS what is copied next is read ahead, where nothing of it is cached and no other program reads: what others do to it
//! meanwhile is noticed, and none of it stays in memory.

mod support;

use fragmend_crash::refusing::RefusingDisk;
use fragmend_crash::slow::Kind;
use fragmend_plan::Policy;
use fragmend_sys::cache;
use fragmend_testbed::file_system::XFS;
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, Running, finish};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::rewrite::{FRAGMEND, at_each_stop};
use support::{plan, write_plan};

const SIZE: u64 = 2 << 20;
/// Behind what is copied when it is requested; in the second range where there are two.
const AT: u64 = 5 << 18;
const HOLE: u64 = SIZE / 8;
/// A file that changed later is not read ahead: see `unpinned.rs`.
const OLD: Duration = Duration::from_millis(3_100);
/// On a busy machine reads are slow, and nothing is requested ahead.
const TRIES: usize = 6;

/// A fragmented file that nothing is cached of, and a plan for it.
struct Cold {
    disk: RefusingDisk,
    size: u64,
    plan: PathBuf,
}

impl Cold {
    /// Of two ranges with a hole between them, or of one.
    fn new(hole: bool) -> Self {
        Self::of(SIZE, if hole { &[SIZE / 2] } else { &[] })
    }

    /// Of ranges that end where the holes begin.
    fn of(size: u64, holes: &[u64]) -> Self {
        let disk = RefusingDisk::new(&XFS, 320 << 20, size, |file| {
            holes.iter().for_each(|at| punch(file, *at, HOLE));
        });
        Self::on(disk, size)
    }

    fn on(disk: RefusingDisk, size: u64) -> Self {
        std::thread::sleep(OLD);
        let plan_file = disk.slow().scratch().join("plan.json");
        write_plan(&plan(&[disk.path()], Policy::WholeFile), &plan_file);
        cache::drop_clean(File::open(disk.path()).unwrap(), 0..size).unwrap();
        Self { disk, size, plan: plan_file }
    }

    fn cached(&self) -> u64 {
        cache::cached_pages(File::open(self.disk.path()).unwrap(), 0..self.size).unwrap()
    }

    /// Applies; calls `meanwhile` once when the part at `at` has been requested, before it is copied. Returns
    /// whether that was so.
    fn apply(&self, at: u64, meanwhile: impl FnOnce(&Running)) -> (Finished, bool) {
        self.apply_at("max", at, meanwhile)
    }

    /// The same at this rate.
    fn apply_at(&self, rate: &str, at: u64, meanwhile: impl FnOnce(&Running)) -> (Finished, bool) {
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--rate", rate, "--json", "--force"]).arg(&self.plan);
        command.env("FRAGMEND_STOP_AT", "filled=stop");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let file = File::options().read(true).write(true).open(self.disk.path()).unwrap();
        let mut meanwhile = Some(meanwhile);
        let ended = at_each_stop(Running::start(&mut command), |running| {
            let ahead = cache::cached_pages(&file, at..at + 4096).unwrap() > 0;
            if let Some(meanwhile) = meanwhile.take_if(|_| ahead) {
                meanwhile(running);
            }
        });
        (ended, meanwhile.is_none())
    }

    /// Such a file whose parts were read ahead, and what became of it.
    fn applied(
        hole: bool,
        prepare: impl Fn(&Self),
        meanwhile: impl Fn(&Self, &Running),
    ) -> (Self, Finished) {
        let tried = (0..TRIES).find_map(|_| {
            let cold = Self::new(hole);
            prepare(&cold);
            let (ended, was_ahead) = cold.apply(AT, |running| meanwhile(&cold, running));
            was_ahead.then_some((cold, ended))
        });
        tried.expect("something was read ahead")
    }
}

fn punch(file: &File, at: u64, length: u64) {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, how, at, length).unwrap();
}

#[test]
fn loop_what_the_disk_refuses_of_what_was_read_ahead_is_told() {
    // In its old place alone: its copy is accepted.
    let (cold, ended) = Cold::applied(
        false,
        |cold| cold.disk.refuse_place(AT),
        |cold, _| {
            cold.disk.write(&File::options().write(true).open(cold.disk.path()).unwrap(), AT);
        },
    );
    assert!(cold.disk.shows_refused(AT), "what the disk refused is gone: {ended:?}");
    assert_eq!(ended.status.code(), Some(4 | 2), "{ended:?}");
    assert!(ended.stdout.contains("the disk has refused"), "{ended:?}");
}

#[test]
fn loop_what_was_read_ahead_does_not_stay_in_memory() {
    let (cold, ended) = Cold::applied(true, |_| (), |_, _| ());
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(cold.cached(), 0, "{ended:?}");
    let (cold, ended) = Cold::applied(true, |_| (), |_, running| running.signal(Signal::TERM));
    assert_eq!(ended.status.code(), Some(16), "{ended:?}");
    assert_eq!(cold.cached(), 0, "{ended:?}");
}

/// The disk refuses the first block of the second of three ranges when much of it has been requested.
#[test]
fn loop_what_was_read_ahead_of_a_range_that_is_left_does_not_stay_in_memory() {
    let second = SIZE / 2 + HOLE;
    let tried = (0..TRIES).find_map(|_| {
        let cold = Cold::of(2 * SIZE, &[SIZE / 2, SIZE + HOLE * 2]);
        cold.disk.refuse_place(second);
        let file = File::options().write(true).open(cold.disk.path()).unwrap();
        let (ended, was_ahead) = cold.apply(second + (3 << 18), |_| cold.disk.write(&file, second));
        was_ahead.then_some((cold, ended))
    });
    let (cold, ended) = tried.expect("something was read ahead");
    assert!(ended.stdout.contains("the disk has refused"), "{ended:?}");
    let file = File::open(cold.disk.path()).unwrap();
    // Nothing is dropped beside what was refused.
    let behind = second + (1 << 18)..2 * SIZE;
    assert_eq!(cache::cached_pages(file, behind).unwrap(), 0, "{ended:?}");
}

/// A program reads the start of a range that is left alone.
#[test]
fn loop_what_others_read_of_a_range_that_is_left_stays_in_memory() {
    const WARM: u64 = 64 << 10;
    let cold = Cold::new(true);
    let file = File::options().read(true).write(true).open(cold.disk.path()).unwrap();
    file.read_exact_at(&mut [0; WARM as usize], 0).unwrap();
    let (ended, began) = cold.apply(0, |_| punch(&file, WARM + 8192, 4096));
    assert!(began && ended.stdout.contains("layout_changed"), "{ended:?}");
    let left = cache::cached_pages(&file, 0..WARM).unwrap();
    assert_eq!(left, WARM / 4096, "{ended:?}");
}

/// Also where a step of the copy begins in one request and ends in the next.
#[test]
fn loop_what_was_read_ahead_is_read_once() {
    const MOVED: u64 = 16 << 20;
    let image = Image::of(&XFS, 320 << 20);
    let path = image.path().join("file");
    interleaved(&path, MOVED, &[64 << 10], true).unwrap();
    image.sync();
    std::thread::sleep(OLD);
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    cache::drop_clean(File::open(&path).unwrap(), 0..MOVED).unwrap();
    let mut command = Command::new(FRAGMEND);
    let ended =
        finish(command.args(["apply", "--rate", "max", "--json", "--force"]).arg(&plan_file));
    let summary: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(summary["moved_bytes"], MOVED, "{ended:?}");
    assert!(summary["read_bytes"].as_u64().unwrap() < MOVED / 4 * 5, "{ended:?}");
}

/// A program reads from the disk when all that is left has been requested: what has moved by then is not read again.
#[test]
fn loop_what_was_read_ahead_is_not_read_again_at_the_end() {
    let over = AtomicBool::new(false);
    let tried = (0..TRIES).find_map(|_| {
        let cold = Cold::new(false);
        let node = cold.disk.slow().node().to_owned();
        let (ended, was_ahead) = std::thread::scope(|scope| {
            over.store(false, Ordering::Relaxed);
            let done = cold.apply_at("auto", SIZE - 4096, |_| {
                let begun = Arc::new(AtomicBool::new(false));
                scope.spawn({
                    let (begun, over) = (Arc::clone(&begun), &over);
                    move || {
                        let disk = File::open(node).unwrap();
                        for at in (64..300).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                            cache::drop_clean(&disk, at << 20..(at + 1) << 20).unwrap();
                            disk.read_exact_at(&mut vec![0; 1 << 20], at << 20).unwrap();
                            begun.store(true, Ordering::Relaxed);
                        }
                    }
                });
                while !begun.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
            over.store(true, Ordering::Relaxed);
            done
        });
        was_ahead.then_some(ended)
    });
    let ended = tried.expect("something was read ahead");
    let summary: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(summary["moved_bytes"], SIZE, "{ended:?}");
    println!("{summary}");
    assert!(summary["read_bytes"].as_u64().unwrap() < SIZE / 8 * 9, "{ended:?}");
}

/// The disk becomes slow when much of many small ranges has been requested.
#[test]
fn loop_what_was_read_ahead_delays_no_end() {
    let tried = (0..TRIES).find_map(|_| {
        let holes: Vec<u64> = (SIZE / 2..2 * SIZE).step_by(32 << 10).collect();
        let disk = RefusingDisk::new(&XFS, 320 << 20, 2 * SIZE, |file| {
            holes.iter().for_each(|at| punch(file, *at, 4096));
        });
        let cold = Cold::on(disk, 2 * SIZE);
        let mut began = None;
        let (ended, was_ahead) = cold.apply(AT - 4096, |running| {
            cold.disk.slow().gate().pace(Kind::Read, Some(20));
            running.signal(Signal::TERM);
            began = Some(Instant::now());
        });
        let took = began.map(|began| began.elapsed());
        cold.disk.slow().gate().pace(Kind::Read, None);
        was_ahead.then_some((took, ended))
    });
    let (took, ended) = tried.expect("something was read ahead");
    assert_eq!(ended.status.code(), Some(16), "{ended:?}");
    println!("{took:?}");
    assert!(took < Some(Duration::from_secs(5)), "{took:?}");
}
