//! On XFS what is copied next is read ahead, where nothing of it is cached and no other program reads: what others do to it
//! meanwhile is noticed, and none of it stays in memory.

mod support;

use fragmend_crash::refusing::RefusingDisk;
use fragmend_plan::Policy;
use fragmend_sys::cache;
use fragmend_testbed::file_system::XFS;
use fragmend_testbed::process::{Finished, Running};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::rewrite::{FRAGMEND, at_each_stop};
use support::{plan, write_plan};

const SIZE: u64 = 2 << 20;
/// Behind what is copied when it is requested; in the second range where there are two.
const AT: u64 = 5 << 18;
/// A file that changed later is not read ahead: see `unpinned.rs`.
const OLD: Duration = Duration::from_millis(3_100);
/// On a busy machine reads are slow, and nothing is requested ahead.
const TRIES: usize = 6;

/// A fragmented file that nothing is cached of, and a plan for it.
struct Cold {
    disk: RefusingDisk,
    plan: PathBuf,
}

impl Cold {
    /// Of two ranges with a hole between them, or of one.
    fn new(hole: bool) -> Self {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let disk = RefusingDisk::new(&XFS, 320 << 20, SIZE, |file| {
            if hole {
                fallocate(file, how, SIZE / 2, SIZE / 8).unwrap();
            }
        });
        std::thread::sleep(OLD);
        let plan_file = disk.slow().scratch().join("plan.json");
        write_plan(&plan(&[disk.path()], Policy::WholeFile), &plan_file);
        cache::drop_clean(File::open(disk.path()).unwrap(), 0..SIZE).unwrap();
        Self { disk, plan: plan_file }
    }

    fn cached(&self) -> u64 {
        cache::cached_pages(File::open(self.disk.path()).unwrap(), 0..SIZE).unwrap()
    }

    /// Applies; calls `meanwhile` once when the part at [`AT`] has been requested, before it is copied. Returns
    /// whether that was so.
    fn apply(&self, meanwhile: impl FnOnce(&Running)) -> (Finished, bool) {
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--rate", "max", "--json", "--force"]).arg(&self.plan);
        command.env("FRAGMEND_STOP_AT", "filled=stop");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let file = File::options().read(true).write(true).open(self.disk.path()).unwrap();
        let mut meanwhile = Some(meanwhile);
        let ended = at_each_stop(Running::start(&mut command), |running| {
            let ahead = cache::cached_pages(&file, AT..AT + 4096).unwrap() > 0;
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
            let (ended, was_ahead) = cold.apply(|running| meanwhile(&cold, running));
            was_ahead.then_some((cold, ended))
        });
        tried.expect("something was read ahead")
    }
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
