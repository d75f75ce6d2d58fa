//! Data that a program has written and the disk refused is in the page cache and nowhere else: a copy may
//! include it, and nothing may drop it. On the file systems whose data moves by copies.

mod support;

use fragmend_crash::refusing::{REFUSED, RefusingDisk};
use fragmend_crash::slow::{Arrived, Kind, SlowMount};
use fragmend_plan::Policy;
use fragmend_sys::same::{Compare, Same};
use fragmend_sys::{cache, inode};
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_ZSTD, FileSystem, XFS, XFS_1K, XFS_EXCHANGE, XFS_RMAP,
};
use fragmend_testbed::fragment::{alternating, compressible};
use fragmend_testbed::process::{Finished, Running};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::rewrite::{FRAGMEND, go_on_throughout};
use support::{plan, write_plan};

const SIZE: u64 = 2 << 20;
/// Where is written: the first block, one in the middle, and the last.
const PLACES: [u64; 3] = [0, 300 << 10, SIZE - 4096];
const KINDS: [&FileSystem; 4] = [&XFS, &XFS_EXCHANGE, &XFS_RMAP, &BTRFS];

/// A fragmented file on a disk that refuses a block, and a plan for it.
struct Refusing {
    disk: RefusingDisk,
    plan: PathBuf,
    /// Where in the file, in bytes.
    at: u64,
}

impl Refusing {
    fn new(file_system: &'static FileSystem, at: u64) -> Self {
        Self::with(file_system, at, |_| ())
    }

    /// With a file that `prepare` changes before the plan is made.
    fn with(file_system: &'static FileSystem, at: u64, prepare: impl FnOnce(&File)) -> Self {
        let disk = RefusingDisk::new(file_system, 320 << 20, SIZE, prepare);
        let plan_file = disk.slow().scratch().join("plan.json");
        write_plan(&plan(&[disk.path()], Policy::WholeFile), &plan_file);
        disk.refuse_data();
        Self { disk, plan: plan_file, at }
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).open(self.disk.path()).unwrap()
    }

    /// Writes, and waits until the disk has refused it; the rest of the file is not cached.
    fn write(&self) {
        let file = self.open();
        cache::drop_clean(&file, 0..2 * SIZE).unwrap();
        self.disk.write(&file, self.at);
    }

    /// Whether the file shows what was written last.
    fn is_there(&self, file: &File) -> bool {
        let mut now = [0; REFUSED.len()];
        file.read_exact_at(&mut now, self.at).unwrap();
        now == REFUSED
    }

    fn apply(&self, stop_at: &str, meanwhile: impl FnOnce()) -> Finished {
        apply(&self.plan, stop_at, meanwhile)
    }

    /// Checks that the file shows what was last written to it, and that the error is reported.
    fn is_right(&self, ended: &Finished, what: &str) {
        let code = ended.status.code().expect("an exit code");
        let found = self.disk.shows_refused(self.at);
        assert!(found, "{what}: what the disk refused is gone: {code} {ended:?}");
        assert!(code & 4 != 0, "{what}: {code}: {ended:?}");
    }
}

/// Applies, and continues it wherever it stops; calls `meanwhile` when it has stopped for the first time.
fn apply(plan: &Path, stop_at: &str, meanwhile: impl FnOnce()) -> Finished {
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--rate", "max", "--json", "--force"]).arg(plan);
    command.env("FRAGMEND_STOP_AT", format!("{stop_at}=stop"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    go_on_throughout(Running::start(&mut command), meanwhile)
}

#[test]
fn loop_what_the_disk_refused_of_a_copied_file_stays() {
    for (file_system, at) in KINDS.iter().flat_map(|kind| PLACES.map(|at| (*kind, at))) {
        let disk = Refusing::new(file_system, at);
        disk.write();
        for time in 1..=3 {
            let what = format!("{} at {at}, {time}", file_system.name);
            let ended = disk.apply("", || ());
            disk.is_right(&ended, &what);
        }
    }
}

/// The kernel reports once that the disk has refused a copy, and shows the copy in the page cache afterwards. The
/// file has two ranges: what went wrong with one is known at the other. What was copied last is in flight until
/// all of it is synced.
#[test]
fn loop_copies_that_the_disk_refuses_are_not_taken_over() {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let places = [300 << 10, SIZE - 4096];
    for (file_system, at) in KINDS.iter().flat_map(|kind| places.map(|at| (*kind, at))) {
        let disk = Refusing::with(file_system, at, |file| {
            file.write_all_at(&REFUSED, at).unwrap();
            fallocate(file, how, SIZE / 2, SIZE / 8).unwrap();
        });
        let before = std::fs::read(disk.disk.path()).unwrap();
        for time in 1..=2 {
            let ended = disk.apply("", || ());
            let what = format!("{} at {at}, {time}: {ended:?}", file_system.name);
            println!("{what}");
            assert_eq!(ended.status.code(), Some(4 | 2), "{what}");
            assert!(std::fs::read(disk.disk.path()).unwrap() == before, "{what}");
        }
        disk.disk.accept();
        // It reports what was refused.
        let _ = rustix::fs::syncfs(disk.open());
        disk.disk.slow().sync();
        cache::drop_clean(disk.open(), 0..SIZE).unwrap();
        assert!(std::fs::read(disk.disk.path()).unwrap() == before, "{}", file_system.name);
    }
}

/// The file has no data on the disk there, so no copy and no comparison of data finds it; a swap drops all
/// pages.
#[test]
fn loop_what_the_disk_refused_beside_the_data_of_a_swapped_file_stays() {
    const BESIDE: u64 = 256 << 10;
    let reserve = |file: &File| {
        fallocate(file, FallocateFlags::empty(), SIZE, BESIDE).unwrap();
    };
    let leave_a_hole = |file: &File| file.set_len(SIZE + BESIDE).unwrap();
    for (name, prepare) in [("reserved", &reserve as &dyn Fn(&File)), ("a hole", &leave_a_hole)] {
        let disk = Refusing::with(&XFS_RMAP, SIZE + BESIDE / 2, prepare);
        disk.write();
        for time in 1..=3 {
            disk.is_right(&disk.apply("", || ()), &format!("{name}, {time}"));
        }
    }
}

#[test]
fn loop_what_the_disk_refuses_of_a_file_while_it_is_copied_stays() {
    for (file_system, point) in
        KINDS.iter().flat_map(|kind| ["staged", "filled"].map(|point| (*kind, point)))
    {
        // A program that opens an exchanged file waits for its lease, and the mover is stopped.
        if file_system.name == XFS_EXCHANGE.name && point == "filled" {
            continue;
        }
        let disk = Refusing::new(file_system, PLACES[1]);
        let what = format!("{} {point}", file_system.name);
        let ended = disk.apply(point, || disk.write());
        disk.is_right(&ended, &what);
        disk.is_right(&disk.apply("", || ()), &what);
    }
}

/// Compressed data cannot be compared with what is on the disk, so nothing of it may be dropped from the
/// cache: not what a program writes after a step, and the disk refuses or has refused.
#[test]
fn loop_what_the_disk_refuses_of_compressed_data_before_it_has_settled_stays() {
    for (point, refused_before) in
        ["moved", "driven"].iter().flat_map(|point| [false, true].map(|before| (*point, before)))
    {
        let what = format!("{point}, {refused_before}");
        let mut slow = SlowMount::new(&BTRFS_ZSTD, 320 << 20, "");
        let path = slow.root().join("file");
        alternating(&path, SIZE, 16 << 10, compressible).unwrap();
        slow.sync();
        let plan_file = slow.scratch().join("plan.json");
        write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        cache::drop_clean(&file, 0..SIZE).unwrap();
        // In the first step.
        let at = 64 << 10;
        let range = at..at + REFUSED.len() as u64;
        let ended = apply(&plan_file, point, || {
            // Data only: each block of a tree contains the file system's UUID here, and so does the super
            // block.
            let mut name = [0; 16];
            File::open(slow.node()).unwrap().read_exact_at(&mut name, (64 << 10) + 0x20).unwrap();
            slow.gate().refuse(Some(move |arrived: &Arrived| {
                arrived.kind == Kind::Write && arrived.bytes.get(0x20..0x30) != Some(&name)
            }));
            file.write_all_at(&REFUSED, at).unwrap();
            while refused_before && cache::dirty_pages(&file, range.clone()).unwrap() > 0 {
                cache::start_writeback(&file, range.clone()).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut now = [0; REFUSED.len()];
        file.read_exact_at(&mut now, at).unwrap();
        assert!(now == REFUSED, "{what}: what the disk refused is gone: {ended:?}");
        let code = ended.status.code().expect("an exit code");
        let by = ended.stdout.contains("BTRFS_IOC_DEFRAG_RANGE");
        assert!(code & 4 != 0 && by, "{what}, {code}: {ended:?}");
        slow.gate().refuse(None::<fn(&Arrived) -> bool>);
        drop(file);
        slow.unmount();
    }
}

/// Behind compressed data, which cannot be compared, plain data is compared all the same.
#[test]
fn loop_what_the_disk_refused_behind_compressed_data_is_seen() {
    const COMPRESSED: usize = 128 << 10;
    let disk = Refusing::with(&BTRFS, PLACES[1], |file| {
        let flags = inode::attributes(file).unwrap();
        inode::set_attributes(file, flags | inode::flags::COMPRESSED).unwrap();
        file.write_all_at(&[0x20; COMPRESSED], 0).unwrap();
        file.sync_all().unwrap();
        inode::set_attributes(file, flags).unwrap();
    });
    let file = disk.open();
    disk.disk.write(&file, disk.at);
    let mut whole = vec![0; SIZE as usize];
    file.read_exact_at(&mut whole, 0).unwrap();
    let compare = |range| Compare::default().range(&file, range, || true).unwrap();
    let alone = compare(0..COMPRESSED as u64);
    assert!(matches!(alone, Same::Unknown | Same::ButRefused(_)), "compressed: {alone:?}");
    for time in 1..=2 {
        let found = compare(0..SIZE);
        let seen = matches!(found, Same::No(at, _) if at <= disk.at && disk.at < at + 4096);
        assert!(seen && disk.is_there(&file), "{time}: {found:?}");
    }
}

/// Btrfs reads from the page cache instead of the device as long as an adjacent write is not in the tree yet,
/// which is later than its pages are clean.
#[test]
fn loop_what_the_disk_refused_beside_a_write_that_is_not_over_stays_on_btrfs() {
    const LONG: usize = 8 << 20;
    const LAST: [u8; 512] = [0xa5; 512];
    let disk = Refusing::new(&BTRFS, 0);
    let file = disk.open();
    cache::drop_clean(&file, 0..SIZE).unwrap();
    disk.disk.write(&file, disk.at);
    let compare = |what: &str| {
        let found = Compare::default().drop(&file, 0..64 << 10, || true);
        println!("{what}: {found:?}");
        // A read of what is not cached would wait for all writes that are not complete.
        let stays = cache::is_resident(&file, 0..4096).unwrap() && disk.is_there(&file);
        assert!(stays, "{what}: what the disk refused is gone");
    };
    // The kernel reports the error once.
    compare("alone");
    compare("again");
    let mut long = vec![0x31; LONG];
    long[LONG - LAST.len()..].copy_from_slice(&LAST);
    // Its end is in flight, and its beginning is written: on a busy machine both may be in flight together.
    let begins = |_| {
        let hold = disk.disk.slow().gate().hold(|arrived: &Arrived| arrived.carries(&LAST));
        file.write_all_at(&long, 4096).unwrap();
        cache::start_writeback(&file, 4096..4096 + LONG as u64).unwrap();
        assert!(hold.wait_for(1, Duration::from_secs(10)), "its end is written");
        let started = Instant::now();
        while cache::dirty_pages(&file, 0..64 << 10).unwrap() > 0 {
            if started.elapsed() > Duration::from_secs(2) {
                hold.release();
                rustix::fs::fdatasync(&file).unwrap_or_default();
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(hold)
    };
    let hold = (0..30).find_map(begins).expect("its beginning is written before its end");
    compare("beside");
    hold.release();
    rustix::fs::fdatasync(&file).unwrap_or_default();
    compare("afterwards");
}

/// Blocks are smaller than pages, and the range ends inside a page, which the kernel drops as a whole. The program
/// writes behind the range.
#[test]
fn loop_what_the_disk_refuses_on_a_page_that_a_range_ends_in_stays() {
    const AT: u64 = 200 << 10;
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let refusing = Refusing::with(&XFS_1K, AT, |file| {
        fallocate(file, how, AT + 1024, 32 << 10).unwrap();
    });
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--rate", "max", "--json", "--force"]).arg(&refusing.plan);
    command.env("FRAGMEND_STOP_AT", "filled=stop");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let file = refusing.open();
    let ended = go_on_throughout(Running::start(&mut command), || {
        // All of the range has been copied.
        refusing.disk.write_first(&file, AT + 2048, 1024);
    });
    let mut found = [0; 1024];
    file.read_exact_at(&mut found, AT + 2048).unwrap();
    assert!(found == REFUSED[..1024], "what the disk refused is gone: {ended:?}");
    assert_eq!(ended.status.code(), Some(4 | 2), "{ended:?}");
}
