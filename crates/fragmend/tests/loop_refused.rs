//! Data that a program has written and the disk refused is in the page cache and nowhere else, and the
//! kernel marks it clean. It stays there, whether or not the error was reported, and however often
//! `apply` runs.

mod support;

use fragmend_crash::refusing::{REFUSED, RefusingDisk};
use fragmend_crash::slow::{Arrived, Kind, SlowMount};
use fragmend_plan::Policy;
use fragmend_sys::cache;
use fragmend_testbed::file_system::{EXT4, EXT4_1K, FileSystem, XFS_1K};
use fragmend_testbed::fragment::{content, interleaved, is_intact};
use fragmend_testbed::process::{Finished, Running};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};
use std::fs::{self, DirEntry, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use support::rewrite::{FRAGMEND, is_stopped};
use support::{plan, write_plan};

const SIZE: u64 = 2 << 20;
/// Where data is written: in the second step of `apply`.
const AT: u64 = 300 << 10;

/// A fragmented file on a disk that refuses [`REFUSED`], and a plan for it.
struct Refusing {
    disk: RefusingDisk,
    plan: PathBuf,
}

impl Refusing {
    fn new() -> Self {
        Self::on(&EXT4)
    }

    fn on(file_system: &'static FileSystem) -> Self {
        let disk = RefusingDisk::new(file_system, 320 << 20, SIZE, |_| ());
        let plan_file = disk.slow().scratch().join("plan.json");
        write_plan(&plan(&[disk.path()], Policy::WholeFile), &plan_file);
        disk.refuse_data();
        Self { disk, plan: plan_file }
    }

    /// Writes, and waits until the disk has refused it.
    fn write(&self, file: &File) {
        self.disk.write(file, AT);
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).open(self.disk.path()).unwrap()
    }

    fn apply(&self, options: &[&str], stop_at: &str) -> Running {
        self.apply_by(Command::new(FRAGMEND), options, stop_at)
    }

    fn apply_by(&self, mut command: Command, options: &[&str], stop_at: &str) -> Running {
        command.args(["apply", "--rate", "max", "--json"]).args(options).arg(&self.plan);
        command.env("FRAGMEND_STOP_AT", format!("{stop_at}=stop"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(&mut command)
    }

    /// Checks that the error is reported, and that what was written is there.
    fn is_reported(&self, ended: &Finished) {
        let code = ended.status.code().expect("an exit code");
        assert!(self.is_whole(), "what the disk refused is gone: {code} {ended:?}");
        assert!(code & 4 != 0 && ended.stdout.contains("disk has refused"), "{code}: {ended:?}");
    }

    /// Whether the file shows what was last written to it.
    fn is_whole(&self) -> bool {
        self.disk.shows_refused(AT)
    }
}

/// The error that the kernel returns for a sync.
fn sync(file: &File) -> Option<i32> {
    file.sync_all().err().and_then(|e| e.raw_os_error())
}

const EIO: i32 = 5;

/// Continues a process wherever it stops, until it ends.
fn go_on(mut running: Running) -> Finished {
    while running.child().try_wait().unwrap().is_none() {
        if is_stopped(running.id()) {
            running.signal(Signal::CONT);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    running.wait()
}

#[test]
fn loop_what_the_disk_refused_stays_and_is_reported() {
    let disk = Refusing::new();
    disk.write(&disk.open());
    for time in 1..=3 {
        let ended = disk.apply(&[], "").wait();
        println!("{time}: {}", ended.stdout);
        disk.is_reported(&ended);
        // At first the kernel still reports the error, and nothing moves at all.
        assert!(time > 1 || ended.stdout.contains("\"ranges_moved\":0"), "{ended:?}");
    }
    // As for PostgreSQL, which opens files anew to sync what others wrote.
    let later = File::open(disk.disk.path()).unwrap();
    assert_eq!(sync(&later), Some(EIO), "the error was for the next descriptor of the file");
}

/// Where blocks are smaller than pages, a page may hold one block that was written and refused, and nothing else:
/// not all that counts pages counts it.
#[test]
fn loop_a_block_inside_a_page_that_the_disk_refused_stays_and_is_reported() {
    const BYTES: usize = 1024;
    let (native, rewrite) = (&[][..], &["--engine", "rewrite"][..]);
    for (file_system, options) in
        [(&EXT4_1K, native), (&EXT4_1K, rewrite), (&XFS_1K, native), (&XFS_1K, rewrite)]
    {
        let disk = Refusing::on(file_system);
        let file = disk.open();
        cache::drop_clean(&file, 0..SIZE).unwrap();
        disk.disk.write_first(&file, AT, BYTES);
        // Nobody is told any more. Reading the file would complete the page.
        assert_eq!(sync(&file), Some(EIO));
        drop(file);
        let ended = disk.apply(options, "").wait();
        println!("{} {options:?}: {}", file_system.name, ended.stdout);
        assert!(disk.disk.shows_first(AT, BYTES), "it is gone: {ended:?}");
        assert!(ended.stdout.contains("disk has refused"), "{ended:?}");
    }
}

/// The kernel evicts other pages between the two looks at what is cached: what is cached in part is found still.
#[test]
fn loop_a_page_in_part_is_found_while_others_are_evicted() {
    let (disk, page) = (RefusingDisk::new(&EXT4_1K, 128 << 20, SIZE, |_| ()), 4096);
    let file = File::options().read(true).write(true).open(disk.path()).unwrap();
    cache::drop_clean(&file, 0..SIZE).unwrap();
    let mut bytes = [0; 4096];
    for at in [0, page] {
        file.read_exact_at(&mut bytes, at).unwrap();
    }
    file.write_all_at(&REFUSED[..1024], AT).unwrap();
    file.sync_all().unwrap();
    let before = cache::mincore(&file, 0..SIZE).unwrap();
    cache::drop_clean(&file, 0..256 << 10).unwrap();
    assert_eq!(before[(AT / page) as usize] & 1, 0);
    assert!(cache::complete(&file, 0..SIZE, &before).unwrap());
    let whole = AT / page * page..AT / page * page + page;
    assert!(cache::resident(&file, 0..SIZE).unwrap().contains(&whole));
}

/// The descriptor of a file that another process has open, where its lease lets no program open it.
fn descriptor(process: u32, path: &Path) -> OwnedFd {
    let pid = Pid::from_raw(process as i32).unwrap();
    let all = fs::read_dir(format!("/proc/{process}/fd")).unwrap().map(Result::unwrap);
    let is_it = |link: &DirEntry| fs::read_link(link.path()).is_ok_and(|to| to == path);
    let number = all.filter(is_it).map(|link| link.file_name()).next().expect("it has it open");
    let number = number.to_str().unwrap().parse().unwrap();
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    pidfd_getfd(process, number, PidfdGetfdFlags::empty()).unwrap()
}

/// Pages that nobody uses are dropped before they are compared: only the cached page has a copy's bytes then.
#[test]
fn loop_a_refused_copy_is_not_evicted_and_goes_back() {
    a_refused_copy_goes_back(Command::new(FRAGMEND));
}

/// Where copies are waited for little by little.
#[test]
fn loop_beside_readers_a_refused_copy_is_not_evicted_and_goes_back() {
    let mut command = Command::new(FRAGMEND);
    command.env("FRAGMEND_OTHERS_READ", "1");
    a_refused_copy_goes_back(command);
}

fn a_refused_copy_goes_back(command: Command) {
    // In the first call.
    const EARLY: u64 = 4 << 10;
    let disk = RefusingDisk::new(&EXT4, 128 << 20, SIZE, |file| {
        file.write_all_at(&REFUSED, EARLY).unwrap();
    });
    let plan_file = disk.slow().scratch().join("plan.json");
    write_plan(&plan(&[disk.path()], Policy::WholeFile), &plan_file);
    let modified = disk.path().metadata().unwrap().modified().unwrap();
    let disk = Refusing { disk, plan: plan_file };
    disk.disk.refuse_data();
    let mut running = disk.apply_by(command, &[], "moved").wait_until(is_stopped);
    let file = descriptor(running.id(), disk.disk.path());
    let mut stops = 0;
    while running.child().try_wait().unwrap().is_none() {
        if is_stopped(running.id()) {
            while cache::dirty_pages(&file, 0..SIZE).unwrap() > 0 {
                cache::start_writeback(&file, 0..SIZE).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            cache::drop_clean(&file, 0..SIZE).unwrap();
            assert_eq!(cache::cached_pages(&file, EARLY..EARLY + 4096).unwrap(), 1);
            stops += 1;
            running.signal(Signal::CONT);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = running.wait();
    drop(file);
    // The disk may have refused pages of the first call before the second one is over.
    assert!(stops > 1, "{stops} calls");
    println!("{}", ended.stdout);
    assert!(disk.disk.shows_refused(EARLY), "{ended:?}");
    assert_eq!(ended.status.code(), Some(4 | 2), "{ended:?}");
    assert!(ended.stdout.contains("is back where it was"), "{ended:?}");
    assert_eq!(disk.disk.path().metadata().unwrap().modified().unwrap(), modified);
    disk.disk.accept();
    let file = disk.open();
    // The error of the copy.
    let _ = sync(&file);
    cache::drop_clean(file, 0..SIZE).unwrap();
    assert!(disk.disk.shows_refused(EARLY), "{ended:?}");
}

#[test]
fn loop_a_refused_writer_is_told_after_moves_that_were_forced() {
    let disk = Refusing::new();
    let owner = disk.open();
    disk.write(&owner);
    for _ in 1..=3 {
        disk.is_reported(&disk.apply(&["--force"], "").wait());
    }
    assert_eq!(sync(&owner), Some(EIO));
    assert!(disk.is_whole());
    // Written again once the disk accepts it.
    disk.disk.accept();
    owner.write_all_at(&REFUSED, AT).unwrap();
    assert_eq!(sync(&owner), None);
    let ended = disk.apply(&["--force"], "").wait();
    assert!(ended.status.code() == Some(0) && disk.is_whole(), "{ended:?}");
}

#[test]
fn loop_what_the_disk_refuses_meanwhile_stays_as_well() {
    for (options, point) in [(&[][..], "staged"), (&["--force"], "staged"), (&["--force"], "moved")]
    {
        let disk = Refusing::new();
        // At the second point, a program that opened it then would wait.
        let owner = Some(()).filter(|()| !options.is_empty()).map(|()| disk.open());
        let stopped = disk.apply(options, point).wait_until(is_stopped);
        match &owner {
            Some(owner) => disk.write(owner),
            None => disk.write(&disk.open()),
        }
        let ended = go_on(stopped);
        println!("{options:?} {point}: {}", ended.stdout);
        disk.is_reported(&ended);
        disk.is_reported(&disk.apply(options, "").wait());
        let owner = owner.unwrap_or_else(|| disk.open());
        assert_eq!(sync(&owner), Some(EIO), "{options:?} {point}");
    }
}

/// A disk whose writes may be refused, a fragmented file on it, and a plan for that.
fn planned_on_a_slow_disk() -> (SlowMount, PathBuf, PathBuf) {
    let bed = SlowMount::new(&EXT4, 128 << 20, "");
    let path = bed.root().join("file");
    interleaved(&path, SIZE, &[4096], true).unwrap();
    bed.sync();
    let plan_file = bed.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    (bed, path, plan_file)
}

/// A program writes to an adjacent page all the time, so that no check of the whole step finds it clean.
#[test]
fn loop_refused_copies_go_back_beside_a_forced_writer() {
    const COLD: u64 = 340 << 10;
    const HOT: u64 = 320 << 10;
    let (mut bed, path, plan_file) = planned_on_a_slow_disk();
    let mut page = [0; 512];
    content(COLD, &mut page);
    bed.gate().refuse(Some(move |arrived: &Arrived| {
        arrived.kind == Kind::Write && arrived.carries(&page[..])
    }));
    let file = File::options().write(true).open(&path).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0u64.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                file.write_all_at(&n.to_ne_bytes(), HOT).unwrap();
            }
        });
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--rate", "max", "--json", "--force"]).arg(&plan_file);
        let ended = fragmend_testbed::process::finish(&mut command);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        ended
    });
    drop(file);
    println!("{} {}", ended.status, ended.stdout);
    // Nothing of it is cached any more.
    bed.unmount();
    bed.mount();
    let mut found = fs::read(&path).unwrap();
    let mut expected = vec![0; SIZE as usize];
    content(0, &mut expected);
    for bytes in [&mut found, &mut expected] {
        bytes[HOT as usize..][..8].fill(0);
    }
    assert!(
        found == expected,
        "copies that the disk refused took the place of the bytes: {ended:?}"
    );
}

/// The disk hangs on the copies and then refuses them, as a thin one does. Until they are back where they were, no
/// request ends the process: it has the only descriptor of the blocks that hold the data.
#[test]
fn loop_two_requests_to_end_wait_for_copies_that_go_back() {
    let (mut bed, path, plan_file) = planned_on_a_slow_disk();
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--rate", "max", "--json"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "staged=stop");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::start(&mut command).wait_until(is_stopped);
    let mut page = [0; 512];
    content(100 << 10, &mut page);
    let (hangs, hung) = channel();
    let (answer, answers) = channel::<()>();
    bed.gate().refuse(Some(move |arrived: &Arrived| {
        let is_copy = arrived.kind == Kind::Write && arrived.carries(&page[..]);
        if is_copy {
            let _ = hangs.send(());
            let _ = answers.recv_timeout(Duration::from_secs(20));
        }
        is_copy
    }));
    running.signal(Signal::CONT);
    hung.recv_timeout(Duration::from_secs(10)).expect("the copies reach the disk");
    for _ in 0..2 {
        running.signal(Signal::INT);
        std::thread::sleep(Duration::from_secs(1));
    }
    // Longer than a second request waits for what may be interrupted.
    std::thread::sleep(Duration::from_secs(3));
    drop(answer);
    let ended = running.wait();
    bed.gate().refuse(None::<fn(&Arrived) -> bool>);
    bed.unmount();
    bed.mount();
    assert!(is_intact(&path, SIZE).unwrap(), "{ended:?}");
}
