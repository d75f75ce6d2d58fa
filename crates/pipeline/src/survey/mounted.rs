//! A mounted file system on which files are found again by their identity: device, inode and generation. A path
//! is where to look first, and what people read.

use fragmend_layout::{FileId, FsKind, PathText, Skip, SkipReason};
use fragmend_plan::Device;
use fragmend_scan::FileSystem;
use fragmend_sys::again::{self, Lost};
use fragmend_sys::mounts::{self, Mount};
use fragmend_sys::root::{self, Root};
use fragmend_sys::{btrfs, handle};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A mounted file system.
pub(super) struct SurveyedMount {
    pub mount: Mount,
    /// Its directory: files are opened below it.
    root: Root,
    pub device: Device,
}

/// A file that was found again.
pub(super) struct FoundFile {
    pub fd: OwnedFd,
    /// Where it is now, if the kernel knows.
    pub path: Option<PathBuf>,
}

/// All file systems that were looked for, by device number.
#[derive(Default)]
pub(super) struct Mounts {
    seen: HashMap<u64, Option<SurveyedMount>>,
    /// The mounts, read when the first one is looked for.
    table: Option<Table>,
}

impl Mounts {
    /// The file system with this number. If no mount shows it (a subvolume of Btrfs), it is found through the
    /// first of `hints` with an ancestor on it, or else among the subvolumes of each mounted Btrfs.
    pub fn of<'a>(
        &mut self,
        dev: u64,
        hints: impl Iterator<Item = &'a Path>,
    ) -> Option<&SurveyedMount> {
        let table = self.table.get_or_insert_with(Table::read);
        self.seen.entry(dev).or_insert_with(|| SurveyedMount::find(dev, hints, table)).as_ref()
    }

    /// The file systems that were found, in the order of their numbers.
    pub fn devices(self) -> Vec<Device> {
        let mut devices: Vec<_> = self.seen.into_values().flatten().map(|m| m.device).collect();
        devices.sort_by_key(|d| d.device);
        devices
    }
}

/// The mounts as they were when the first device was looked for. A trace may be forged, and have any number of
/// devices that are nowhere, with paths of any depth: they are looked for in a limited number of places.
#[derive(Default)]
struct Table {
    mounts: Vec<Mount>,
    /// Device numbers of the directories that were looked at.
    looked_at: HashMap<PathBuf, Option<u64>>,
    /// Looks so far.
    looks: usize,
    /// The subvolumes of each mounted Btrfs by their device numbers, once they were listed.
    subvolumes: Option<HashMap<u64, PathBuf>>,
}

/// The paths of one device that are tried, and the directories above each, from the deepest one.
pub(super) const MOST_HINTS: usize = 16;
const MOST_ABOVE: usize = 64;
/// Looks for all devices together.
const MOST_LOOKS: usize = 100_000;

impl Table {
    fn read() -> Self {
        Self { mounts: mounts::all().unwrap_or_default(), ..Self::default() }
    }

    /// A directory above one of `hints` with this device number.
    fn above<'a>(&mut self, dev: u64, hints: impl Iterator<Item = &'a Path>) -> Option<&'a Path> {
        let near = |hint: &'a Path| hint.ancestors().take(MOST_ABOVE);
        hints.take(MOST_HINTS).flat_map(near).find(|p| self.device_at(p) == Some(dev))
    }

    fn device_at(&mut self, path: &Path) -> Option<u64> {
        self.looks += 1;
        if self.looks > MOST_LOOKS {
            return None;
        }
        if let Some(known) = self.looked_at.get(path) {
            return *known;
        }
        let found = root::device_on(&self.mounts, path).ok();
        self.looked_at.insert(path.to_owned(), found);
        found
    }

    /// Where the subvolume of Btrfs with this device number is: numbers that no mount shows.
    fn subvolume(&mut self, dev: u64) -> Option<PathBuf> {
        self.subvolumes.get_or_insert_with(|| subvolumes(&self.mounts)).get(&dev).cloned()
    }
}

/// The subvolumes of each mounted Btrfs: those that are mounted, and those below them.
fn subvolumes(mounts: &[Mount]) -> HashMap<u64, PathBuf> {
    let device = |file: &File| rustix::fs::fstat(file).map(|stat| stat.st_dev).ok();
    let on_btrfs = mounts.iter().filter(|m| FsKind::from_name(&m.fs_type).has_subvolumes());
    let open = |m: &Mount| Some((File::open(&m.point).ok()?, m.point.clone()));
    let mounted: Vec<(File, PathBuf)> = on_btrfs.filter_map(open).collect();
    let mut found = HashMap::new();
    for (file, point) in &mounted {
        device(file).map(|dev| found.entry(dev).or_insert_with(|| point.clone()));
    }
    for (mount, _) in &mounted {
        for number in btrfs::subvolumes(mount).unwrap_or_default() {
            let Ok(root) = handle::open_subvolume(mount, number).map(File::from) else { continue };
            if let (Some(dev), Some(path)) = (device(&root), handle::path_of(&root)) {
                found.entry(dev).or_insert(path);
            }
        }
    }
    found
}

impl SurveyedMount {
    fn find<'a>(
        dev: u64,
        hints: impl Iterator<Item = &'a Path>,
        table: &mut Table,
    ) -> Option<Self> {
        let mount = match mounts::best(&table.mounts, dev) {
            Some(mount) => mount.clone(),
            None => {
                let root = table.above(dev, hints).and_then(|p| mounts::root_of(p).ok());
                let root = root.or_else(|| table.subvolume(dev));
                mounts::of_root(&table.mounts, dev, &root?)?
            }
        };
        let root = Root::of(&mount).ok()?;
        let system = FileSystem::of(&root, dev).ok()?;
        let size = rustix::fs::fstatvfs(&root).ok()?;
        let device = Device {
            device: dev,
            mount: PathText::from(mount.point.as_path()),
            file_system: system.kind,
            total_bytes: size.f_blocks * size.f_frsize,
            block_bytes: system.block_bytes,
            profile: system.device,
        };
        Some(Self { mount, root, device })
    }

    /// What a file is called that is known by its number alone, and why.
    pub fn by_number(&self, inode: u64, why: &str) -> PathBuf {
        self.mount.point.join(format!("(inode {inode}, {why})"))
    }

    /// Opens a file of the trace: at its path if it is still there, else by its number.
    ///
    /// # Errors
    /// What became of the file.
    pub fn open(&self, file: FileId, path: Option<&Path>) -> Result<FoundFile, Skip> {
        let FileId { device, inode, generation } = file;
        let at = path.unwrap_or(Path::new(""));
        let named = handle::Identity { device, inode, generation };
        let named = self.root.find(at, named).map_err(|m| why_missing(&m))?;
        // Does not wait, not even for the holder of a lease on it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = again::open(&named, generation, |named, _| handle::reopen(named, flags));
        let (fd, stat) = opened.map_err(|lost| match lost {
            Lost::NotRegular | Lost::Reused => Skip::new(
                SkipReason::Vanished,
                "deleted since it was seen, and its inode number is another file's now",
            ),
            Lost::Unread(e) | Lost::Closed(e) => cannot_open(&e),
        })?;
        if stat.st_nlink == 0 {
            return Err(Skip::new(SkipReason::Vanished, "deleted, but still open somewhere"));
        }
        // A file that was opened by its number has a path only if a program has just walked it.
        let path = self.root.path_of(&fd);
        Ok(FoundFile { fd, path })
    }
}

fn cannot_open(error: &io::Error) -> Skip {
    let reason = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => {
            return Skip::new(SkipReason::Leased, "another program holds a lease on it");
        }
        Some(Errno::PERM | Errno::ACCESS) => SkipReason::PermissionDenied,
        _ => SkipReason::Failed,
    };
    Skip::new(reason, format!("it cannot be opened: {error}"))
}

fn why_missing(missing: &handle::Missing) -> Skip {
    let code = missing.by_inode.raw_os_error().map(Errno::from_raw_os_error);
    let (reason, why) = match code {
        Some(Errno::PERM | Errno::ACCESS) => (
            SkipReason::PermissionDenied,
            "moved or deleted since, and finding it again needs root",
        ),
        Some(Errno::STALE) if missing.at_path.is_none() => (
            SkipReason::IdentityChanged,
            "deleted since it was seen; another file has its name now",
        ),
        Some(Errno::STALE | Errno::NOENT) => (SkipReason::Vanished, "deleted since it was seen"),
        Some(Errno::OPNOTSUPP | Errno::OVERFLOW | Errno::INVAL) => (
            SkipReason::Vanished,
            "no longer at its path, and its file system finds no file by its number",
        ),
        _ => return cannot_open(&missing.by_inode),
    };
    Skip::new(reason, why)
}
