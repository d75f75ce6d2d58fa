//! The file system of a device number: its kind, its block size, and what the queue of its device allows.

use fragmend_layout::DeviceProfile;
use fragmend_layout::{DeviceLimits, FsKind};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::btrfs;
use fragmend_sys::mounts::{self, Mount};
use fragmend_sys::root::{self, Root};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One mounted file system that files were found on.
#[derive(Clone, Debug)]
pub struct FileSystem {
    /// Device number as `stat(2)` returns it in `st_dev`.
    pub dev: u64,
    /// Its kind.
    pub kind: FsKind,
    /// Its type as the kernel names it; `unknown` where no mount shows the device.
    pub type_name: String,
    /// Allocation block in bytes.
    pub block_bytes: u64,
    /// The device's queue, or the kernel's defaults.
    pub device: DeviceProfile,
    /// Where it is mounted, if a mount shows it; a subvolume of Btrfs is shown by that of its file system.
    pub mount: Option<Mount>,
    /// Its size in bytes.
    pub(crate) total_bytes: u64,
    /// The inodes that it has or may have; 0 where it does not tell.
    pub(crate) inodes: u64,
}

/// How many blocks the file system of an open file has, and the bytes of each. Where a quota limits a
/// directory, its file system's size is that limit, which may be exceeded; so the device counts as well.
pub(crate) fn size(file: BorrowedFd, dev: u64) -> io::Result<(u64, u64)> {
    let size = rustix::fs::fstatvfs(file)?;
    let device = BlockDevice::from_dev(dev).map(|d| d.node().join("size"));
    let sectors = device.and_then(std::fs::read_to_string).unwrap_or_default();
    let sectors: u64 = sectors.trim().parse().unwrap_or(0);
    let block = size.f_frsize.max(512);
    Ok((size.f_blocks.max(sectors.saturating_mul(512) / block), block))
}

impl FileSystem {
    /// The file system of an open file or directory whose `st_dev` is `dev`.
    pub fn of(file: impl AsFd, dev: u64) -> io::Result<Self> {
        let stat = rustix::fs::fstatfs(&file)?;
        let (blocks, bytes) = size(file.as_fd(), dev)?;
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let mounts = mounts::all()?;
        let shows_it = |m: &&Mount| m.dev == dev && mounts::is_visible(&mounts, m);
        // Btrfs subvolumes have device numbers that no mount shows.
        let is_btrfs = stat.f_type as u64 == btrfs::MAGIC;
        let id = if is_btrfs { root::mount_id(&file) } else { None };
        let mount = mounts.iter().rev().find(shows_it);
        let mount = mount.or_else(|| mounts.iter().find(|m| Some(m.id) == id)).cloned();
        let type_name = match &mount {
            Some(m) => m.fs_type.clone(),
            None if is_btrfs => "btrfs".into(),
            None => "unknown".into(),
        };
        Ok(Self {
            dev,
            kind: FsKind::from_name(&type_name),
            type_name,
            block_bytes: u64::try_from(stat.f_bsize).unwrap_or(0).max(512),
            total_bytes: blocks.saturating_mul(bytes),
            inodes: stat.f_files,
            device: fragmend_device::under(Path::new(&path), dev)
                .unwrap_or_else(|_| fragmend_device::unknown()),
            mount,
        })
    }

    /// The limits that its extents and requests are measured against.
    pub fn limits(&self) -> DeviceLimits {
        DeviceLimits::new(self.kind, self.block_bytes, &self.device)
    }

    /// Its mount point, for messages; `(file system)` where no mount shows it.
    pub fn label(&self) -> &Path {
        self.mount.as_ref().map_or(Path::new("(file system)"), |m| &m.point)
    }

    /// The directory at which it is mounted.
    ///
    /// # Errors
    /// No mount shows it, or that cannot be opened.
    pub fn root(&self) -> io::Result<Root> {
        let mount = self.mount.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Root::open(&mount.point, mount.dev)
    }

    /// A number of it that is the same for all subvolumes of a Btrfs.
    pub fn number(&self) -> u64 {
        self.mount.as_ref().map_or(self.dev, |mount| mount.dev)
    }

    /// Whether inode numbers in directories are those of the files.
    pub(crate) fn inode_numbers_hold(&self) -> bool {
        self.kind != FsKind::Other
    }

    /// Opens the block device under it for reading. Its number proves that it is the right one.
    ///
    /// # Errors
    /// There is no node in `/dev`, or it may not be read.
    pub fn open_device(&self) -> io::Result<File> {
        let (major, minor) = (rustix::fs::major(self.dev), rustix::fs::minor(self.dev));
        let by_number = PathBuf::from(format!("/dev/block/{major}:{minor}"));
        let by_name = BlockDevice::from_dev(self.dev)
            .map(|d| Path::new("/dev").join(d.name().replace('!', "/")));
        let source = self.mount.as_ref().map(|mount| PathBuf::from(&mount.source));
        let candidates = source.into_iter().chain(by_name.ok()).chain([by_number]);
        let mut error = io::Error::new(io::ErrorKind::NotFound, "its device has no node in /dev");
        for path in candidates.filter(|p| p.is_absolute()) {
            let is_it = |m: std::fs::Metadata| {
                use std::os::unix::fs::FileTypeExt;
                m.file_type().is_block_device() && m.rdev() == self.dev
            };
            match std::fs::metadata(&path).map(&is_it) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => {
                    error = e;
                    continue;
                }
            }
            match File::open(&path) {
                // Checked again once it is open: the node can be replaced in between.
                Ok(file) if file.metadata().is_ok_and(&is_it) => return Ok(file),
                Ok(_) => {}
                Err(e) => error = e,
            }
        }
        Err(error)
    }
}
