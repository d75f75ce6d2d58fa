//! Where the loads of the prediction bench run, and whose time it is: a drive that `fragmend lab serve` serves, with its
//! virtual time added up or paced by the clock on the wall, or a directory, or
//! an image, on a disk of this machine.

use fragmend_crash::mount::Mount;
use fragmend_device::profile::Identity;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::mounts;
use fragmend_testbed::aging;
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::fragment::interleaved_with;
use fragmend_testbed::loop_device::LoopDevice;
use fragmend_testbed::random::Random;
use fragmend_testbed::scratch;
use fragmend_testbed::served::ServedDrive;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const KIB: u64 = 1024;
/// Virtual time that a drive rests after a file was written: a paced drive programs its 16 MiB of buffer in less.
const REST: Duration = Duration::from_secs(3);
const PACED_REST: Duration = Duration::from_millis(25);

/// Bytes of an image on this machine's disk: twice what all loads have in holes.
const IMAGE_BYTES: u64 = 2 << 30;

/// A place with a directory for the files.
pub struct Place {
    /// The file system of what is aged, once it is mounted. Unmounted first.
    mount: Option<Mount>,
    kind: Kind,
    dir: TempDir,
    _ticket: Ticket,
}

enum Kind {
    /// A served drive whose virtual time is added up.
    Counted(ServedDrive),
    /// One whose requests really last, so many times as long as the drive needs.
    Paced(ServedDrive, f64),
    /// An image on a disk of this machine, in this directory.
    Image { device: LoopDevice, _dir: TempDir },
    /// A directory of a disk of this machine.
    Own,
}

impl Place {
    /// A served drive that was filled, with an ext4 that is not mounted yet.
    pub fn served(name: &str, paced: Option<f64>) -> Self {
        let mut args = vec![name.to_owned(), "--size".to_owned(), "4G".to_owned()];
        args.extend(paced.map(|factor| format!("--paced={factor}")));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let drive = ServedDrive::start(&args);
        drive.control("fill").expect("a command");
        if paced.is_none() {
            // Beside other programs a probe's bursts would be waited for four times as long.
            drive.control("settle 500").expect("a command");
        }
        let kind = match paced {
            Some(factor) => Kind::Paced(drive, factor),
            None => Kind::Counted(drive),
        };
        Self::aged(kind)
    }

    /// A fresh directory in this one, or, where the reason is returned as well, an image in it.
    pub fn own(above: &Path) -> (Self, Option<&'static str>) {
        let meta = above.metadata().unwrap_or_else(|e| panic!("{}: {e}", above.display()));
        let device = BlockDevice::under(above, meta.dev());
        let device = device.unwrap_or_else(|e| panic!("{}: {e}", above.display()));
        let mount = mounts::of_path(above).expect("its mount");
        let fresh = || {
            let prefix = format!("fragmend-prediction-{}-", std::process::id());
            tempfile::Builder::new().prefix(&prefix).tempdir_in(above).expect("a directory")
        };
        let why = if !["ext4", "xfs", "btrfs", "f2fs"].contains(&mount.fs_type.as_str()) {
            "its file system is none of those whose data is moved"
        } else if device.whole().open_direct().is_err() {
            "the disk may not be read here but through its file systems, so it cannot be probed"
        } else if Identity::of(&device).is_err() {
            "the disk reports no serial number, so that no profile of it is kept"
        } else {
            return (Self::new(Kind::Own, fresh()), None);
        };
        let dir = fresh();
        let _ticket = cleanup::register(Undo::Tree(dir.path().to_owned()));
        let path = dir.path().join("disk.img");
        let image = File::create_new(&path).expect("an image");
        // What was never written is not read from the disk.
        let (mut random, mut part) = (Random::new(6), vec![0; 1 << 20]);
        for at in (0..IMAGE_BYTES).step_by(1 << 20) {
            part.chunks_exact_mut(8).for_each(|w| w.copy_from_slice(&random.bits().to_le_bytes()));
            image.write_all_at(&part, at).expect("space");
        }
        image.sync_all().expect("it is synced");
        rustix::fs::fadvise(&image, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
        (Self::aged(Kind::Image { device: LoopDevice::attach(&path), _dir: dir }), Some(why))
    }

    /// With an ext4.
    fn aged(kind: Kind) -> Self {
        let place = Self::new(kind, scratch::directory("prediction"));
        EXT4.make(&place.probed(), &["-E", "nodiscard", "-m", "0"]);
        place
    }

    fn new(kind: Kind, dir: TempDir) -> Self {
        let _ticket = cleanup::register(Undo::Tree(dir.path().to_owned()));
        Self { kind, mount: None, dir, _ticket }
    }

    /// Mounts what is not mounted yet.
    pub fn mount(&mut self) {
        if !matches!(self.kind, Kind::Own) {
            let new = Mount::new(&EXT4, &self.probed(), self.dir.path(), "");
            self.mount = Some(new.expect("a file system"));
        }
    }

    /// The directory of the files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What is probed: a device, or a directory on it.
    pub fn probed(&self) -> PathBuf {
        match &self.kind {
            Kind::Counted(drive) | Kind::Paced(drive, _) => drive.node(),
            Kind::Image { device, .. } => device.node().into(),
            Kind::Own => self.dir.path().to_owned(),
        }
    }

    /// Whether the clock is that on the wall.
    pub fn is_on_the_wall(&self) -> bool {
        !matches!(self.kind, Kind::Counted(_))
    }

    /// The time in seconds, since an instant that stays the same.
    pub fn now(&self) -> f64 {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        match &self.kind {
            Kind::Counted(drive) => drive.clock() as f64 / 1e9,
            _ => BEGUN.get_or_init(Instant::now).elapsed().as_secs_f64(),
        }
    }

    /// Writes out what is dirty; what the drive has buffered is programmed.
    pub fn settle(&self) {
        let all = File::open(self.dir.path()).expect("the directory");
        rustix::fs::syncfs(all).expect("it is synced");
        match &self.kind {
            Kind::Counted(drive) => drive.rest(REST),
            Kind::Paced(_, factor) => std::thread::sleep(PACED_REST.mul_f64(*factor)),
            Kind::Image { .. } | Kind::Own => {}
        }
    }

    /// Writes files in fragments of 4 to 32 KiB: into holes of a file system that is aged, in a directory of this machine's each
    /// with blocks of another file between, so that the rest of the file system stays as it is. All of `bytes` are
    /// written by `write`, which has a function that writes one file; `draw` is one of the lengths of fragments.
    pub fn fragment(&self, bytes: u64, draw: u64, write: impl FnOnce(&dyn Fn(&Path, &[u8]))) {
        if matches!(self.kind, Kind::Own) {
            write(&|path, bytes| interleaved(path, bytes, draw));
            return self.settle();
        }
        let path = |name: &str| self.dir.path().join(name);
        // Holes for all of them and some journal, in twice as much that is allocated.
        let holes = bytes + (40 << 20);
        let punched = File::create(path("punched")).expect("a file");
        fallocate(&punched, FallocateFlags::empty(), 0, 2 * holes + (32 << 20)).expect("space");
        let rest = aging::fill_up(&path("rest"));
        let (mut random, mut at, mut freed) = (Random::new(1 + draw), 0, 0);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        while freed < holes {
            let bytes = length(&mut random);
            fallocate(&punched, hole, at, bytes).expect("a hole");
            freed += bytes;
            at += bytes + [4, 16][random.below(2) as usize] * KIB;
        }
        self.settle();
        // What ext4 keeps for itself cannot be allocated before, and would be the place of the first file.
        fs::write(path("first"), vec![1; 24 << 20]).expect("space");
        self.settle();
        write(&|path, bytes| {
            fs::write(path, bytes).expect("a file in holes");
            self.settle();
        });
        drop((punched, rest));
        for name in ["punched", "rest", "first"] {
            fs::remove_file(path(name)).expect("it is removed");
        }
        self.settle();
    }

    /// Ends it tidily.
    pub fn quit(self) {
        if let Some(mount) = self.mount {
            mount.unmount();
        }
        match self.kind {
            Kind::Counted(drive) | Kind::Paced(drive, _) => drive.quit(),
            Kind::Image { device, .. } => device.detach(),
            Kind::Own => {}
        }
    }
}

/// The length of a fragment.
fn length(random: &mut Random) -> u64 {
    [4, 8, 16, 32][random.below(4) as usize] * KIB
}

fn interleaved(path: &Path, content: &[u8], draw: u64) {
    let mut random = Random::new(1 + draw);
    let lengths: Vec<u64> = (0..content.len() as u64 / KIB).map(|_| length(&mut random)).collect();
    let at = |offset: u64, buffer: &mut [u8]| {
        buffer.copy_from_slice(&content[offset as usize..][..buffer.len()]);
    };
    let written = interleaved_with(path, content.len() as u64, &lengths, false, at);
    written.expect("a file in fragments");
}
