//! A disk that promised more than it has (thin provisioning): new places cannot be written although
//! the file system has room. Nothing is lost, whatever the file system makes of it.

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::loop_device::{LoopDevice, unmount};
use fragmend_testbed::process::finish;
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::plan;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 8 * MIB;
const HOLE: std::ops::Range<u64> = 4 * MIB..4 * MIB + (400 << 10);

/// A file system on a sparse disk, in a file system that can be filled.
struct Thin {
    file_system: &'static FileSystem,
    point: PathBuf,
    _mounted: Ticket,
    device: LoopDevice,
    pool: Image,
}

impl Thin {
    fn new(file_system: &'static FileSystem) -> Self {
        let pool = Image::ext4(400 * MIB);
        let disk = pool.path().join("disk.img");
        File::create(&disk).and_then(|f| f.set_len(320 * MIB)).unwrap();
        let device = LoopDevice::attach(&disk);
        file_system.make(Path::new(device.node()), &[]);
        let point = pool.scratch().join("thin");
        fs::create_dir(&point).unwrap();
        let mounted = cleanup::register(Undo::Mount(point.clone()));
        let thin = Self { file_system, point, _mounted: mounted, device, pool };
        thin.mount();
        thin
    }

    fn mount(&self) {
        let mounted = self.file_system.mount(Path::new(self.device.node()), &self.point, "");
        mounted.unwrap_or_else(|e| panic!("{e}"));
    }

    fn unmount(&self) {
        unmount(Path::new(self.device.node()), &self.point);
    }

    /// Leaves nothing in the pool.
    fn fill(&self) -> PathBuf {
        let path = self.pool.path().join("filler");
        let filler = File::create(&path).unwrap();
        let mut at = 0;
        for piece in [16 * MIB, MIB, 64 << 10, 4096] {
            let how = FallocateFlags::empty();
            while rustix::fs::fallocate(&filler, how, at, piece).is_ok() {
                at += piece;
            }
        }
        path
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        self.unmount();
    }
}

#[test]
fn loop_a_thin_disk_that_is_full_loses_nothing() {
    for file_system in [&XFS, &XFS_EXCHANGE, &XFS_RMAP, &BTRFS, &EXT4] {
        let thin = Thin::new(file_system);
        let path = thin.point.join("file");
        interleaved(&path, SIZE, &[4096], true).unwrap();
        // In several ranges: what goes wrong with one must not be forgotten at the next.
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let hole = HOLE.end - HOLE.start;
        rustix::fs::fallocate(
            File::options().write(true).open(&path).unwrap(),
            how,
            HOLE.start,
            hole,
        )
        .unwrap();
        let before = fs::read(&path).unwrap();
        rustix::fs::syncfs(File::open(&thin.point).unwrap()).unwrap();
        let plan_file = thin.pool.scratch().join("plan.json");
        let made = plan(&[&path], Policy::WholeFile);
        assert!(made.files[0].ranges.len() > 1, "{made:?}");
        made.write(&plan_file).unwrap();
        let filler = thin.fill();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        let done = finish(command.args(["apply", "--rate", "max"]).arg(&plan_file));
        let left = done.stdout.lines().find(|l| l.starts_with("left alone")).expect("why");
        println!("{}: {} {left}", file_system.name, done.status);
        assert!(left.contains("No space left"), "{left}");
        fs::remove_file(filler).unwrap();
        thin.unmount();
        thin.mount();
        assert!(fs::read(&path).unwrap() == before, "{}", file_system.name);
    }
}
