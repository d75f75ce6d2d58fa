//! An image as a fixture of the conformance suite.

use super::{ENGINE, fragmented_of, run_on};
use fragmend_apply::{Event, Options, Summary};
use fragmend_conformance::{Change, Fixture, Space};
use fragmend_engines::begin::Wanted;
use fragmend_engines::engine::volume_for;
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_plan::Plan;
use fragmend_sys::mounts;
use fragmend_testbed::fragment::{interleave, interleaved};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::delete_for_good;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// A mounted image; data is moved by the engine of this thread.
pub struct ImageFixture<'a>(pub &'a Image);

impl Fixture for ImageFixture<'_> {
    fn volume(&self) -> Box<dyn Volume + '_> {
        let mount = mounts::of_path(self.0.path()).expect("a mount");
        ENGINE.with_borrow(|engine| volume_for(&mount, engine, true)).expect("a volume")
    }

    fn fragmented(&self, name: &str, bytes: u64) -> PathBuf {
        fragmented_of(self.0, name, bytes)
    }

    fn append_far(&self, path: &Path, offset: u64, bytes: u64) {
        let far = File::options().write(true).open(path).unwrap();
        let other = File::create(self.0.path().join("between")).unwrap();
        interleave(&far, &other, offset, bytes, &[4096]).unwrap();
    }

    fn space(&self) -> Space {
        self.0.sync();
        let stat = rustix::fs::statvfs(self.0.path()).unwrap();
        let bytes = |blocks: u64| blocks * stat.f_frsize;
        Space { total: bytes(stat.f_blocks), free: bytes(stat.f_bavail) }
    }

    /// Trees grow and shrink.
    fn slack(&self) -> u64 {
        1 << 20
    }

    fn share(&self, path: &Path) -> PathBuf {
        let other = path.with_extension("shared");
        let args = ["--reflink=always"].map(AsRef::as_ref);
        run("cp", args.into_iter().chain([path.as_os_str(), other.as_os_str()]));
        self.0.sync();
        other
    }

    fn identity(&self, path: &Path) -> FileId {
        super::identity(path)
    }

    fn change(&self, path: &Path, change: Change) {
        match change {
            Change::Truncate(bytes) => {
                OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
            }
            Change::Punch(range) => fallocate("-p", path, range),
            Change::Remove => delete_for_good(path),
            Change::Replace => {
                let (other, bytes) = (path.with_extension("other"), path.metadata().unwrap().len());
                interleaved(&other, bytes, &[4096], true).unwrap();
                fs::rename(&other, path).unwrap();
            }
        }
    }

    fn reserve(&self, path: &Path, range: ByteRange) -> bool {
        let is_inside = range.end <= path.metadata().unwrap().len();
        fallocate(if is_inside { "-z" } else { "-n" }, path, range);
        self.0.sync();
        true
    }

    fn content(&self, path: &Path, range: ByteRange) -> Vec<u8> {
        let mut bytes = vec![0; range.len() as usize];
        File::open(path).unwrap().read_exact_at(&mut bytes, range.start).unwrap();
        bytes
    }

    fn attributes(&self, path: &Path) -> Vec<i128> {
        let m = path.metadata().unwrap();
        let numbers = [m.len(), m.mode().into(), m.nlink(), m.uid().into(), m.gid().into()];
        let times = [m.mtime(), m.mtime_nsec()];
        numbers.into_iter().map(i128::from).chain(times.into_iter().map(i128::from)).collect()
    }

    fn fill(&self) {
        let filler = fragmend_testbed::aging::fill_up(&self.0.path().join("filler"));
        filler.sync_all().unwrap();
    }

    fn release(&self) {
        fs::remove_file(self.0.path().join("filler")).unwrap();
    }

    fn check(&self) {
        self.0.fsck();
    }

    fn run(
        &self,
        plan: &Plan,
        options: &Options,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(Event),
    ) -> Summary {
        let engine = ENGINE.with_borrow(Clone::clone);
        run_on(plan, &Wanted { engine, force: false }, options, stop, tell)
    }
}

/// `fallocate(1)` over a range.
fn fallocate(mode: &str, path: &Path, range: ByteRange) {
    let (offset, length) = (range.start.to_string(), range.len().to_string());
    let args = [mode, "-o", &offset, "-l", &length].map(AsRef::as_ref);
    run("fallocate", args.into_iter().chain([path.as_os_str()]));
}
