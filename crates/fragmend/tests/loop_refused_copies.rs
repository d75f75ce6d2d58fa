//! What somebody has written and the disk refused is in the page cache and nowhere else: a copy may take it
//! along, and nothing may throw it away. On the file systems whose data moves by copies.

mod support;

use fragmend_crash::slow::{Arrived, Kind, SlowBed};
use fragmend_plan::Policy;
use fragmend_sys::cache;
use fragmend_testbed::file_system::{BTRFS, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::{content, interleaved};
use fragmend_testbed::process::{Finished, Running};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::plan;
use support::rewrite::{FRAGMEND, go_on_throughout};

const SIZE: u64 = 2 << 20;
const WRITTEN: [u8; 4096] = [0xe7; 4096];
/// Where it is written: the first block, one in a middle, and the last.
const PLACES: [u64; 3] = [0, 300 << 10, SIZE - 4096];
const KINDS: [&FileSystem; 4] = [&XFS, &XFS_EXCHANGE, &XFS_RMAP, &BTRFS];

/// A file in pieces on a disk that refuses [`WRITTEN`], and a plan for it.
struct Refusing {
    _bed: SlowBed,
    path: PathBuf,
    plan: PathBuf,
    /// Where in the file, in bytes.
    at: u64,
}

impl Refusing {
    fn new(file_system: &'static FileSystem, at: u64) -> Self {
        Self::with(file_system, at, |_| ())
    }

    /// With a file to which something else is done before it is planned for.
    fn with(file_system: &'static FileSystem, at: u64, prepare: impl FnOnce(&File)) -> Self {
        let bed = SlowBed::new(file_system, 320 << 20, "");
        let path = bed.root().join("file");
        interleaved(&path, SIZE, &[4096], true).unwrap();
        prepare(&File::options().write(true).open(&path).unwrap());
        bed.sync();
        let plan_file = bed.scratch().join("plan.json");
        plan(&[&path], Policy::WholeFile).write(&plan_file).unwrap();
        let refused =
            |arrived: &Arrived| arrived.kind == Kind::Write && arrived.brings(&WRITTEN[..512]);
        bed.gate().refuse(Some(refused));
        Self { _bed: bed, path, plan: plan_file, at }
    }

    /// Writes, and waits until the disk has refused it; else the file is cold.
    fn write(&self) {
        let file = File::options().read(true).write(true).open(&self.path).unwrap();
        cache::drop_clean(&file, 0..2 * SIZE).unwrap();
        file.write_all_at(&WRITTEN, self.at).unwrap();
        let range = self.at..self.at + 4096;
        while cache::dirty_pages(&file, range.clone()).unwrap() > 0 {
            cache::start_writeback(&file, range.clone()).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Applies, and goes on wherever that stops; `meanwhile` once it has stopped for the first time.
    fn apply(&self, stop_at: &str, meanwhile: impl FnOnce()) -> Finished {
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--rate", "max", "--json", "--force"]).arg(&self.plan);
        command.env("FRAGMEND_STOP_AT", format!("{stop_at}=stop"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        go_on_throughout(Running::start(&mut command), meanwhile)
    }

    /// The file shows what was last written to it, and somebody is told, unless it has moved: then the
    /// disk took it.
    fn is_right(&self, ended: &Finished, what: &str) {
        let mut expected = vec![0; self.path.metadata().unwrap().len() as usize];
        content(0, &mut expected[..SIZE as usize]);
        expected[self.at as usize..][..WRITTEN.len()].copy_from_slice(&WRITTEN);
        let code = ended.status.code().expect("an exit code");
        let found = fs::read(&self.path).unwrap() == expected;
        assert!(found, "{what}: what the disk refused is gone: {code} {ended:?}");
        assert!(code & 4 != 0, "{what}: {code}: {ended:?}");
    }
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

/// There the file has no data on the disk, so no copy and no comparison of data sees it; a swap drops all pages.
#[test]
fn loop_what_the_disk_refused_beside_the_data_of_a_swapped_file_stays() {
    const BESIDE: u64 = 256 << 10;
    let reserve = |file: &File| {
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), SIZE, BESIDE).unwrap();
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
        // Whoever opens an exchanged file waits for its lease, and the mover stands still.
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
