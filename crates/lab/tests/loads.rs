//! Loads on the simulated ext4 and Btrfs: they run to their end, leave a consistent file system, and fragment it as their sources say
//! that they do.

use fragmend_apply::Environment;
use fragmend_lab::loads::beside::Beside;
use fragmend_lab::loads::filebench::{FILESERVER, Personality, VARMAIL};
use fragmend_lab::loads::grep::Grep;
use fragmend_lab::loads::lsm::{Options as StoreOptions, Store};
use fragmend_lab::loads::mobile::{DAYS, Habits, PARTITION, Phone};
use fragmend_lab::loads::replica::{Replica, compare};
use fragmend_lab::loads::schedule::Programs;
use fragmend_lab::loads::sqlite::{Inserts, Journal, Select};
use fragmend_lab::loads::writers::{TABLE_2, iozone};
use fragmend_lab::loads::ycsb::{Client, Fill, Workload};
use fragmend_lab::loads::{Load, Scale};
use fragmend_lab::presets;
use fragmend_lab::scan::Scan;
use fragmend_lab::setup::DriveKind;
use fragmend_layout::{ByteRange, Fate, Pace, Skip, Target, Terms, Underway};
use fragmend_simfs::cow::{self, Cow};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A machine with the drive of this name, which has one part in `parts` of its blocks.
fn machine(name: &str, parts: u32) -> Machine {
    let mut setup = presets::named(name).unwrap();
    if let DriveKind::Flash(drive) = &mut setup.drive {
        drive.geometry.blocks_per_plane /= parts;
        if parts > 1 {
            // At least five blocks of each die are more than the host sees.
            drive.geometry.over_provisioning_per_mille = 300;
        }
    }
    Machine::new(setup.device(), false, setup.host)
}

fn ext4(name: &str, parts: u32) -> Rc<dyn FileSystem> {
    let machine = machine(name, parts);
    Rc::new(InPlace::format(&machine, &Options::of(&machine)).unwrap())
}

fn btrfs(name: &str, parts: u32) -> Rc<dyn FileSystem> {
    let machine = machine(name, parts);
    Rc::new(Cow::format(&machine, &cow::Options::of(&machine)).unwrap())
}

/// How many fragments each file has whose path begins so, in the order of paths.
fn fragments(files: &dyn FileSystem, prefix: &str) -> Vec<usize> {
    let mut all = Vec::new();
    let mut visit = |path: &Path, file: Result<_, _>| {
        if path.to_string_lossy().starts_with(prefix) {
            all.push((path.to_owned(), file.unwrap()));
        }
    };
    files.files(&mut visit).unwrap();
    all.sort();
    let count = |(path, file): &(std::path::PathBuf, _)| {
        let layout = files.layout(*file, path).unwrap();
        layout.extents().iter().filter(|extent| extent.kind.is_addressed()).count()
    };
    all.iter().map(count).collect()
}

#[test]
fn synchronous_writers_interleave_unless_space_is_reserved() {
    let machine = machine("sata-b", 4);
    let plain = Options { reservation: false, locality: false, ..Options::of(&machine) };
    let files = InPlace::format(&machine, &plain).unwrap();
    let mut programs = Programs::default();
    iozone(&mut programs, &machine, "f", &TABLE_2, Scale::one_in(8));
    programs.run(&files).unwrap();
    let apart = fragments(&files, "f-");
    // Files 5 to 7 have records of 4 KiB among those of seven other writers.
    assert!(apart[4] > 500 && apart[6] > 500, "{apart:?}");
    let reserved = ext4("sata-b", 4);
    let mut programs = Programs::default();
    iozone(&mut programs, reserved.machine(), "f", &TABLE_2, Scale::one_in(8));
    programs.run(&*reserved).unwrap();
    let together = fragments(&*reserved, "f-");
    assert!(together.iter().sum::<usize>() * 4 < apart.iter().sum(), "{together:?} {apart:?}");
    assert_eq!(files.check(), Ok(()));
}

#[test]
fn filebench_runs_on_both_and_grep_reads_all_of_it() {
    for personality in [FILESERVER, VARMAIL] {
        for files in [ext4("ssd-intel-530", 64), btrfs("ssd-intel-530", 64)] {
            let personality = Personality { threads: 8, mean_bytes: 64 << 10, ..personality };
            let mut programs = Programs::default();
            personality.start(&*files, &mut programs, "set", Scale::one_in(50), 1).unwrap();
            let until = files.machine().now_ns() + 200_000_000;
            programs.run_until(&*files, until).unwrap();
            assert!(programs.tally().operations > 500, "{:?}", programs.tally());
            files.sync().unwrap();
            files.drop_caches();
            let read = files.machine().counters().host_read;
            let done = Grep::of(&*files, "", Access::Buffered).unwrap().finish(&*files).unwrap();
            let units = files.machine().counters().host_read - read;
            assert!(units * 4096 >= done.read_bytes, "{units} units of {done:?}");
            assert_eq!(files.check(), Ok(()), "{}", files.label());
        }
    }
}

/// FragPicker, section 5.3.2: a database that grows synchronously is fragmented where writes are not in place.
#[test]
fn a_database_is_fragmented_on_btrfs_and_not_on_ext4() {
    let grown = |files: Rc<dyn FileSystem>| {
        Inserts::new("db", 2000, 4096, Journal::Rollback).finish(&*files).unwrap();
        files.sync().unwrap();
        files.drop_caches();
        let start = files.machine().now_ns();
        let done = Select::new("db", 0..100).finish(&*files).unwrap();
        assert_eq!(files.check(), Ok(()));
        (fragments(&*files, "db")[0], files.machine().now_ns() - start, done.read_bytes)
    };
    let (cow, cow_ns, bytes) = grown(btrfs("microsd", 1));
    let (ext4, ext4_ns, same) = grown(ext4("microsd", 1));
    assert_eq!(bytes, same);
    assert!(cow > 500 && ext4 < 50, "{cow} {ext4}");
    assert!(cow_ns > 3 * ext4_ns, "{cow_ns} {ext4_ns}");
}

#[test]
fn a_store_is_filled_and_asked_by_several_clients() {
    let files = ext4("optane", 1);
    let store = Rc::new(RefCell::new(Store::new("db", StoreOptions::rocksdb(Scale::one_in(256)))));
    Fill::new(&store, 20_000).finish(&*files).unwrap();
    let mut programs = Programs::default();
    for number in 0..4 {
        let client = Client::new(&store, Workload::B, 20_000, 500, (1, number));
        programs.add(files.machine(), client);
    }
    let tally = programs.run(&*files).unwrap();
    assert_eq!(tally.operations, 2000);
    assert!(tally.operations_per_second() > 100.0 && tally.done.written_bytes > 0);
    assert_eq!(files.check(), Ok(()));
}

#[test]
fn six_months_of_a_small_phone_fragment_it() {
    let files = ext4("simmmc", 50);
    let habits = Habits { package: 4 << 20, ..Habits::default() };
    let mut phone = Phone::new(&*files, habits, Scale::one_in(50), 1).unwrap();
    phone.finish(&*files).unwrap();
    assert_eq!(phone.day(), DAYS);
    let all = fragments(&*files, "");
    assert!(all.iter().any(|fragments| *fragments > 1), "{all:?}");
    assert_eq!(files.check(), Ok(()));
}

/// `cargo test --release -p fragmend-lab --test loads -- --ignored --nocapture`: 25 GB, in under 60 s.
#[test]
#[ignore = "needs a minute, and an optimized build"]
fn six_months_of_a_whole_phone_last_less_than_a_minute() {
    let began = std::time::Instant::now();
    let files = ext4("simmmc", 1);
    assert!(files.total_bytes() >= PARTITION);
    let mut phone = Phone::new(&*files, Habits::default(), Scale::WHOLE, 1).unwrap();
    phone.finish(&*files).unwrap();
    let needed = began.elapsed();
    let all = fragments(&*files, "");
    let more = all.iter().filter(|fragments| **fragments > 1).count();
    let used = files.total_bytes() - files.free_bytes().unwrap();
    println!(
        "{needed:?}; {} files, {more} in more than one fragment, {} fragments; {} % full; drive {:?}",
        all.len(),
        all.iter().sum::<usize>(),
        used * 100 / files.total_bytes(),
        files.machine().counters(),
    );
    assert_eq!(files.check(), Ok(()));
    assert!(needed.as_secs() < 60, "{needed:?}");
}

#[test]
fn a_replica_of_a_scan_is_nearly_as_fragmented() {
    let text = include_str!("../../../docs/examples/real-layout.json");
    let scan = Scan::parse(text, "real-layout.json").unwrap();
    let machine = machine("sata-b", 4);
    let plain = Options { reservation: false, locality: false, ..Options::of(&machine) };
    let files = InPlace::format(&machine, &plain).unwrap();
    Replica::of(&scan).finish(&files).unwrap();
    let likeness = compare(&scan, &files).unwrap();
    println!("{likeness:?}");
    assert_eq!(likeness.files, 13);
    assert!(likeness.simulated * 10 >= likeness.real * 7, "{likeness:?}");
}

/// Goes on without a pause, in steps of 64 KiB, and looks at the machine's clock as a run does.
struct Steps<'a> {
    machine: &'a Machine,
    stop: AtomicBool,
    moved: u64,
}

impl Pace for Steps<'_> {
    fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn now(&self) -> Duration {
        self.machine.now()
    }

    fn longest_step(&self) -> u64 {
        64 << 10
    }

    fn step(&mut self, rest: ByteRange, least: u64) -> ByteRange {
        ByteRange::at(rest.start, least.max(64 << 10)).intersect(rest)
    }

    fn in_one_go(&self, most: u64) -> u64 {
        most
    }

    fn pause(&mut self, _: &mut dyn Underway, _: u64, _: Duration) -> Result<(), Skip> {
        let _ = self.now();
        Ok(())
    }

    fn done(&mut self, _: &mut dyn Underway, _: usize, fate: Fate) -> Result<(), Skip> {
        if let Fate::Begun(moved) = fate {
            self.moved += moved.bytes;
        }
        Ok(())
    }
}

/// The programs beside a mover make their calls while it moves a file, in the midst of its steps.
#[test]
fn a_fileserver_goes_on_beside_a_mover() {
    let machine = machine("ssd-intel-530", 64);
    let plain = Options { reservation: false, locality: false, ..Options::of(&machine) };
    let files: Rc<dyn FileSystem> = Rc::new(InPlace::format(&machine, &plain).unwrap());
    let mut programs = Programs::default();
    let two = [TABLE_2[6], TABLE_2[6]];
    iozone(&mut programs, &machine, "f", &two, Scale::one_in(4));
    programs.run(&*files).unwrap();
    let before = fragments(&*files, "f-1")[0];
    let mut programs = Programs::default();
    let served = Personality { threads: 4, ..FILESERVER };
    served.start(&*files, &mut programs, "set", Scale::one_in(100), 1).unwrap();

    let beside = Beside::start(Rc::clone(&files), programs);
    let started = machine.now_ns();
    let path = Path::new("f-1");
    let id = files.find(path).unwrap();
    let range = ByteRange::at(0, files.size(id).unwrap());
    let target = Target { range, fragments: before as u64, anew: false };
    let mut pace = Steps { machine: &machine, stop: AtomicBool::new(false), moved: 0 };
    let mut movable = files.open(id, path).unwrap();
    movable.relocate(&[target], &Terms::default(), &mut pace).unwrap();
    drop(movable);
    let tally = beside.tally().unwrap();
    let lasted = machine.now_ns() - started;
    drop(beside);
    assert!(before > 1000 && fragments(&*files, "f-1")[0] < before / 10);
    assert_eq!(pace.moved, range.len());
    // Until the mover's last look at the clock.
    assert!(tally.operations > 100 && tally.ns() > lasted / 2, "{tally:?} in {lasted}");
    assert_eq!(files.check(), Ok(()));
}
