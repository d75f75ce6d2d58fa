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
}

impl Mounts {
    /// The file system with this number. If no mount shows it (a subvolume of Btrfs), it is found through the
    /// first of `hints` with an ancestor on it, or else among the subvolumes of each mounted Btrfs.
    pub fn of<'a>(
        &mut self,
        dev: u64,
        hints: impl Iterator<Item = &'a Path>,
    ) -> Option<&SurveyedMount> {
        self.seen.entry(dev).or_insert_with(|| SurveyedMount::find(dev, hints)).as_ref()
    }

    /// The file systems that were found, in the order of their numbers.
    pub fn devices(self) -> Vec<Device> {
        let mut devices: Vec<_> = self.seen.into_values().flatten().map(|m| m.device).collect();
        devices.sort_by_key(|d| d.device);
        devices
    }
}

impl SurveyedMount {
    fn find<'a>(dev: u64, hints: impl Iterator<Item = &'a Path>) -> Option<Self> {
        let mounts = mounts::all().ok()?;
        let mount = match mounts::best(&mounts, dev) {
            Some(mount) => mount.clone(),
            None => {
                let on_it = |p: &&Path| root::device_at(p).is_ok_and(|at| at == dev);
                let near = |hint: &'a Path| hint.ancestors().find(on_it);
                let above = hints.into_iter().find_map(near);
                let root = above.and_then(|p| mounts::root_of(p).ok());
                mounts::of_root(&mounts, dev, &root.or_else(|| subvolume(&mounts, dev))?)?
            }
        };
        let root = Root::open(&mount.point, dev).ok()?;
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

/// Where the subvolume of Btrfs with this device number is: numbers that no mount shows.
fn subvolume(mounts: &[Mount], dev: u64) -> Option<PathBuf> {
    let of = |file: &File| rustix::fs::fstat(file).is_ok_and(|s| s.st_dev == dev);
    let open = |point: &Path| File::open(point).ok();
    let has_several = |m: &&Mount| FsKind::from_name(&m.fs_type).has_subvolumes();
    let on_btrfs = || mounts.iter().filter(has_several).map(|m| m.point.as_path());
    let mounted = on_btrfs().find(|point| open(point).is_some_and(|f| of(&f)));
    let nested = || {
        on_btrfs().filter_map(open).find_map(|mount| {
            let numbers = btrfs::subvolumes(&mount).unwrap_or_default();
            let roots = numbers.into_iter().filter_map(|n| handle::open_subvolume(&mount, n).ok());
            let root = roots.map(File::from).find(of)?;
            handle::path_of(&root)
        })
    };
    mounted.map(Path::to_owned).or_else(nested)
}

fn cannot_open(error: &io::Error) -> Skip {
    let reason = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => return Skip::new(SkipReason::Leased, "somebody holds a lease on it"),
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
            "moved or deleted since, and finding it again takes root",
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
