//! Programs that listen with fanotify(7) for permission events, such as virus scanners: the kernel asks
//! them before a file is opened or read.
//!
//! To ask such a program the kernel opens the file for it. While this process holds a lease on the
//! file, that open waits for this process, and this process waits for the program's answer as soon as
//! it reads the file, or opens any file that the program watches: a deadlock until the kernel breaks
//! the lease ([`crate::lease::break_time`]). So before a lease is taken, the listeners are looked up in
//! what the kernel shows of their descriptors (`/proc/PID/fdinfo`, proc_pid_fdinfo(5)).
//!
//! That needs the permission to look at other processes. A listener is not found if it is not visible
//! (another user's, in another pid namespace), or if only another thread or a socket holds its
//! descriptor; nor one that begins to listen between the look-up and the end of the lease, or that
//! opens the file on its own while it is asked about another one. There the wait ends when the lease
//! is broken.

use rustix::fs::{AtFlags, StatxFlags};
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// `FAN_OPEN_PERM`, `FAN_ACCESS_PERM`, `FAN_OPEN_EXEC_PERM` and `FAN_PRE_ACCESS` (linux/fanotify.h).
const PERMISSION: u32 = 0x1_0000 | 0x2_0000 | 0x4_0000 | 0x10_0000;
/// `FAN_EVENT_ON_CHILD`: what is in a directory counts.
const ON_CHILD: u32 = 0x0800_0000;

/// If a program watches more files and directories than this, it counts as watching the file system.
const MOST_NUMBERS: usize = 1 << 16;

/// A result is valid this many times as long as the search lasted, within these bounds.
const WORTH: u32 = 10;
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// Time limits of the search, one after the other: of listing the processes; of finding those of them that can
/// listen; with that, of reading what those listen to; and of reading what the others do, which cannot have
/// begun by themselves.
const LISTING: Duration = Duration::from_millis(300);
const SORTING: Duration = Duration::from_millis(300);
const WHILE: Duration = Duration::from_millis(500);
const MOMENT: Duration = Duration::from_millis(200);

/// A program that is asked before others may open or read a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The process.
    pub pid: u32,
    /// Its command name: any bytes.
    pub name: Vec<u8>,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.name);
        write!(
            f,
            "process {} ({}) is asked before others open or read it (fanotify), and would wait for us while we keep others out; end it, or take the file out of what it watches",
            self.pid,
            name.escape_debug()
        )
    }
}

impl std::error::Error for Listener {}

impl From<Listener> for io::Error {
    fn from(listener: Listener) -> Self {
        Self::new(io::ErrorKind::ResourceBusy, listener)
    }
}

/// What a program watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// All files reached through the mount with this number.
    Mount(u64),
    /// All files of the file system with this number.
    FileSystem(u64),
    /// One file or directory of a file system, and perhaps its entries.
    Inode { device: u64, inode: u64, on_child: bool },
}

/// Parses a line of a fanotify descriptor's fdinfo, if it is about permission events
/// (fs/notify/fdinfo.c). Unknown marks are ignored.
fn mark(line: &str) -> Option<Mark> {
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("fanotify") {
        return None;
    }
    let words: Vec<(&str, &str)> = words.filter_map(|word| word.split_once(':')).collect();
    let number = |name: &str| {
        let (_, digits) = words.iter().find(|(n, _)| *n == name)?;
        // `from_str_radix` accepts a sign, too.
        let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok().filter(|_| plain)
    };
    let mask = u32::try_from(number("mask")?).ok()?;
    if mask & PERMISSION == 0 {
        return None;
    }
    // As the kernel has device numbers internally: 12 bits and 20.
    let device = || {
        let number = u32::try_from(number("sdev")?).ok()?;
        Some(libc::makedev(number >> 20, number & 0xf_ffff))
    };
    match (number("mnt_id"), number("ino")) {
        (Some(id), _) => Some(Mark::Mount(id)),
        (None, Some(inode)) => {
            Some(Mark::Inode { device: device()?, inode, on_child: mask & ON_CHILD != 0 })
        }
        (None, None) => device().map(Mark::FileSystem),
    }
}

/// All that one program watches.
#[derive(Debug)]
struct Asked {
    listener: Listener,
    mounts: HashSet<u64>,
    file_systems: HashSet<u64>,
    inodes: HashSet<(u64, u64)>,
    directories: HashSet<(u64, u64)>,
}

impl Asked {
    fn new(listener: Listener) -> Self {
        Self {
            listener,
            mounts: HashSet::new(),
            file_systems: HashSet::new(),
            inodes: HashSet::new(),
            directories: HashSet::new(),
        }
    }

    fn add(&mut self, mark: Mark) {
        match mark {
            Mark::Mount(id) => drop(self.mounts.insert(id)),
            Mark::FileSystem(device) => drop(self.file_systems.insert(device)),
            Mark::Inode { device, .. } if self.inodes.len() >= MOST_NUMBERS => {
                self.file_systems.insert(device);
            }
            Mark::Inode { device, inode, on_child } => {
                self.inodes.insert((device, inode));
                if on_child {
                    self.directories.insert((device, inode));
                }
            }
        }
    }

    fn concerns(&self, place: &Place) -> bool {
        let device = |marked: u64| {
            // Subvolumes of Btrfs have numbers of their own, which marks do not show.
            marked == place.device || libc::major(marked) == 0 && libc::major(place.device) == 0
        };
        place.mount.map_or(!self.mounts.is_empty(), |mount| self.mounts.contains(&mount))
            || self.file_systems.iter().any(|marked| device(*marked))
            || self.inodes.iter().any(|(marked, inode)| *inode == place.inode && device(*marked))
            || self.directories.iter().any(|(marked, inode)| {
                device(*marked) && place.directory.is_none_or(|directory| directory == *inode)
            })
    }
}

/// Where a file is, as marks name it.
#[derive(Debug)]
struct Place {
    /// `None` where the kernel does not report it.
    mount: Option<u64>,
    device: u64,
    inode: u64,
    /// Its directory's inode number, if it has just one and that is known.
    directory: Option<u64>,
}

impl Place {
    fn of(file: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&file)?;
        let told = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        let told = told.ok().filter(|t| t.stx_mask & StatxFlags::MNT_ID.bits() != 0);
        let directory = if stat.st_nlink == 1 { directory_of(&file, stat.st_dev) } else { None };
        let mount = told.map(|t| t.stx_mnt_id);
        Ok(Self { mount, device: stat.st_dev, inode: stat.st_ino, directory })
    }
}

/// The inode number of a file's directory, if the kernel has its path cached: so the look-up never
/// blocks, whatever is mounted on the path.
fn directory_of(file: impl AsFd, device: u64) -> Option<u64> {
    let path = crate::handle::link_of(file)?;
    let opened = crate::root::name_if_cached(path.parent()?).ok()?;
    let stat = rustix::fs::fstat(opened).ok()?;
    (stat.st_dev == device).then_some(stat.st_ino)
}

/// A program, other than this one, that the kernel asks before this file is opened or read. The result
/// may be up to [`LONGEST`] old where the search lasts long.
///
/// # Errors
/// Those of `fstat(2)`.
pub fn on(file: impl AsFd) -> io::Result<Option<Listener>> {
    let all = remembered();
    if all.is_empty() {
        return Ok(None);
    }
    let place = Place::of(file)?;
    Ok(all.iter().find(|asked| asked.concerns(&place)).map(|asked| asked.listener.clone()))
}

/// The last result, and until when it is valid.
type Found = (Instant, Arc<Vec<Asked>>);

fn remembered() -> Arc<Vec<Asked>> {
    static LAST: Mutex<Option<Found>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let started = Instant::now();
    if let Some((until, all)) = &*last
        && started < *until
    {
        return Arc::clone(all);
    }
    let all = Arc::new(all());
    let worth = (started.elapsed() * WORTH).clamp(SHORTEST, LONGEST);
    *last = Some((Instant::now() + worth, Arc::clone(&all)));
    all
}

/// All listeners that are visible. Processes that may not be inspected are skipped. Any user may have any
/// number of processes and descriptors, also in a program that gets all of root's capabilities (setuid). So
/// root's processes come first, then those with few descriptors, and the search has a time limit: a lease that
/// meets a listener beyond it lasts until the kernel breaks it.
fn all() -> Vec<Asked> {
    // This costs one `stat` of the directory.
    let is_roots = |pid: u32| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|m| m.uid() == 0);
    search(roots_first(numbered("/proc"), is_roots, Instant::now() + LISTING))
}

/// Those of the processes that are listed in time, root's before all others.
fn roots_first(
    pids: impl Iterator<Item = u32>,
    is_roots: impl Fn(u32) -> bool,
    until: Instant,
) -> Vec<u32> {
    let in_time = pids.take_while(|_| Instant::now() < until);
    let (mut first, others): (Vec<u32>, Vec<u32>) = in_time.partition(|pid| is_roots(*pid));
    first.extend(others);
    first
}

/// What these processes watch, as far as that can be found in time.
fn search(pids: impl IntoIterator<Item = u32>) -> Vec<Asked> {
    let began = Instant::now();
    let (sorted, able_done) = (began + SORTING, began + WHILE);
    let ours = user_namespace("self");
    let able = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        may_listen(&status) && user_namespace(&pid.to_string()) == ours
    };
    // How many descriptors they have; before Linux 6.2 that is not reported.
    let descriptors =
        |pid: u32| std::fs::metadata(format!("/proc/{pid}/fd")).map_or(0, |m| m.len());
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for pid in pids.into_iter().take_while(|_| Instant::now() < sorted) {
        let some = if able(pid) { &mut first } else { &mut others };
        some.push((descriptors(pid), pid));
    }
    first.sort();
    others.sort();
    let mut all = Vec::new();
    for (some, until) in [(first, able_done), (others, able_done + MOMENT)] {
        let in_time = some.into_iter().take_while(|_| Instant::now() < until);
        all.extend(in_time.filter_map(|(_, pid)| asked(pid, until)));
    }
    all
}

fn numbered(dir: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn user_namespace(pid: &str) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/user")).ok()
}

/// Whether a process has `CAP_SYS_ADMIN`, in its own user namespace, by its status (proc_pid_status(5)):
/// `fanotify_init(2)` requires that for permission events.
fn may_listen(status: &str) -> bool {
    const SYS_ADMIN: u32 = 21;
    let digits = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    let sets = digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    // Where the kernel does not report it, it may.
    sets.is_none_or(|set| set >> SYS_ADMIN & 1 != 0)
}

/// What a process watches, as far as its descriptors were read before the deadline.
fn asked(pid: u32, until: Instant) -> Option<Asked> {
    let mut asked: Option<Asked> = None;
    for fd in numbered(&format!("/proc/{pid}/fd")) {
        if Instant::now() > until {
            break;
        }
        let link = rustix::fs::readlink(format!("/proc/{pid}/fd/{fd}"), Vec::new());
        if link.is_ok_and(|link| link.as_bytes() == b"anon_inode:[fanotify]") {
            let marks = marks(pid, fd);
            marks.for_each(|mark| asked.get_or_insert_with(|| named(pid)).add(mark));
        }
    }
    asked
}

fn marks(pid: u32, fd: u32) -> impl Iterator<Item = Mark> {
    let told = File::open(format!("/proc/{pid}/fdinfo/{fd}")).map(BufReader::new);
    let lines = told.into_iter().flat_map(|told| told.lines().map_while(Result::ok));
    lines.filter_map(|line| mark(&line))
}

fn named(pid: u32) -> Asked {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    Asked::new(Listener { pid, name: name.strip_suffix(b"\n").unwrap_or(&name).to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_for_permission_are_told_from_others() {
        let inode = "fanotify ino:bb409800 sdev:fe00001 mflags:0 mask:8010000 ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:bb409800bbb115d8";
        let expected =
            Mark::Inode { device: libc::makedev(254, 1), inode: 0xbb40_9800, on_child: true };
        assert_eq!(mark(inode), Some(expected));
        let mount = "fanotify mnt_id:1b mflags:0 mask:30000 ignored_mask:0";
        assert_eq!(mark(mount), Some(Mark::Mount(0x1b)));
        let all = "fanotify sdev:700003 mflags:0 mask:100000 ignored_mask:0";
        assert_eq!(mark(all), Some(Mark::FileSystem(libc::makedev(7, 3))));
        for others in [
            "fanotify flags:5 event-flags:8000",
            "fanotify mnt_id:1b mflags:0 mask:3b ignored_mask:70000",
            "fanotify mnt_ns:4026531841 mflags:0 mask:3000000 ignored_mask:0",
            "inotify wd:1 ino:2 sdev:3 mask:30000 ignored_mask:0",
            "pos:\t0",
            "",
        ] {
            assert_eq!(mark(others), None, "{others}");
        }
    }

    #[test]
    fn what_is_no_line_of_the_kernels_is_no_mark() {
        for odd in [
            "fanotify mnt_id:1b",
            "fanotify mask:30000",
            "fanotify mnt_id: mask:30000",
            "fanotify mnt_id:+1b mask:30000",
            "fanotify mnt_id:-1 mask:30000",
            "fanotify mnt_id:1b mask:130000000",
            "fanotify mnt_id:11111111111111111 mask:30000",
            "fanotify ino:2 mask:30000",
            "fanotify ino:2 sdev:1fe00001 mask:zz",
            "fanotify sdev:1fffffffff mask:30000",
            "fanotify\u{2028}mnt_id:1b mask:30000",
            "xfanotify mnt_id:1b mask:30000",
            ":: : :: fanotify",
        ] {
            assert_eq!(mark(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_mark_concerns_what_it_is_on() {
        let place =
            |directory| Place { mount: Some(7), device: libc::makedev(8, 1), inode: 12, directory };
        let concerns = |mark: Mark, place: &Place| {
            let mut asked = named(std::process::id());
            asked.add(mark);
            asked.concerns(place)
        };
        let known = place(Some(2));
        assert!(concerns(Mark::Mount(7), &known) && !concerns(Mark::Mount(8), &known));
        let on = |device, inode, on_child| Mark::Inode { device, inode, on_child };
        let (here, there) = (known.device, libc::makedev(8, 2));
        assert!(concerns(Mark::FileSystem(here), &known));
        assert!(!concerns(Mark::FileSystem(there), &known));
        assert!(concerns(on(here, 12, false), &known) && !concerns(on(there, 12, false), &known));
        assert!(concerns(on(here, 2, true), &known) && !concerns(on(here, 2, false), &known));
        // Any directory may be its own where that is not known, and any mount.
        assert!(!concerns(on(here, 3, true), &known) && concerns(on(here, 3, true), &place(None)));
        assert!(!concerns(on(there, 3, true), &place(None)));
        assert!(concerns(Mark::Mount(8), &Place { mount: None, ..known }));
        // A subvolume of Btrfs.
        let anonymous = Place { device: libc::makedev(0, 50), ..place(None) };
        assert!(concerns(Mark::FileSystem(libc::makedev(0, 49)), &anonymous));
    }

    #[test]
    fn beyond_many_numbers_the_file_system_counts() {
        let mut asked = named(1);
        for inode in 0..=MOST_NUMBERS as u64 {
            asked.add(Mark::Inode { device: 5, inode, on_child: true });
        }
        assert_eq!((asked.inodes.len(), asked.file_systems.len()), (MOST_NUMBERS, 1));
    }

    #[test]
    fn a_possible_listener_is_known_by_its_capability() {
        let status =
            |set: &str| format!("Name:\tCapPrm:\nCapInh:\t0000000000000000\nCapPrm:\t{set}\n");
        assert!(may_listen(&status("000001ffffffffff")) && may_listen(&status("0000000000200000")));
        assert!(
            !may_listen(&status("0000000000000000")) && !may_listen(&status("000001ffffdfffff"))
        );
        assert!(may_listen("") && may_listen(&status("?")));
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(may_listen(&own) || !rustix::process::geteuid().is_root());
    }

    /// However many processes a user has.
    #[test]
    fn a_search_ends_in_time_and_looks_at_some() {
        let began = Instant::now();
        let looked_at = std::cell::Cell::new(0);
        let own =
            std::iter::repeat(std::process::id()).inspect(|_| looked_at.set(looked_at.get() + 1));
        assert!(search(own).is_empty());
        assert!(began.elapsed() < (WHILE + MOMENT) * 2, "{:?}", began.elapsed());
        assert!(looked_at.get() > 100, "{}", looked_at.get());
    }

    /// However many there are to be listed, root's are searched, within a time limit of their own.
    #[test]
    fn a_list_ends_in_time_and_begins_with_roots() {
        let began = Instant::now();
        let listed = roots_first(0.., |pid| pid % 1000 == 7, began + LISTING);
        assert!(began.elapsed() < LISTING * 2, "{:?}", began.elapsed());
        let roots = listed.iter().take_while(|pid| *pid % 1000 == 7).count();
        assert!(roots > 0 && listed[roots..].iter().all(|pid| pid % 1000 != 7), "{roots}");
        let looked_at = std::cell::Cell::new(0);
        search(listed.into_iter().inspect(|_| looked_at.set(looked_at.get() + 1)));
        assert!(looked_at.get() > 0);
    }

    #[test]
    fn no_name_of_a_process_reaches_a_terminal() {
        let name = b"a\n\x1b[2J\xff\xe2\x80\xae\x9b".to_vec();
        let told = Listener { pid: 3, name }.to_string();
        let harmless = |c: char| c == ' ' || !c.is_control() && !c.is_whitespace();
        assert!(told.chars().all(harmless) && !told.contains('\u{202e}'), "{told:?}");
        assert!(
            io::Error::from(Listener { pid: 3, name: Vec::new() }).to_string().contains("3 ()")
        );
    }

    #[test]
    fn the_directory_of_a_file_is_known() {
        let path = std::env::temp_dir().join(format!("fragmend-listeners-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let directory = path.parent().unwrap().metadata().unwrap().ino();
        let place = Place::of(&file).unwrap();
        assert_eq!(place.directory, Some(directory));
        assert!(place.mount.is_some());
        std::fs::remove_file(path).unwrap();
        assert_eq!(Place::of(&file).unwrap().directory, None);
    }
}
