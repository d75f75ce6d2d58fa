//! A block device's queue settings and I/O counters, from sysfs (Documentation/ABI/stable/sysfs-block).

use crate::mounts;
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The unit of sizes and counters in sysfs, on every device.
const SECTOR: u64 = 512;

/// A disk, found by the device number of a file system on it; for a partition, the whole disk.
#[derive(Clone, Debug)]
pub struct BlockDevice {
    /// The device of the file system (partition or whole disk).
    node: PathBuf,
    /// The whole disk, which owns the queue.
    disk: PathBuf,
    /// Btrfs has its own readahead setting and ignores the disk's.
    bdi: Option<PathBuf>,
}

/// Limits and hints of the request queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Readahead window in bytes.
    pub read_ahead_bytes: u64,
    /// Largest request that the kernel builds, in bytes.
    pub max_request_bytes: u64,
    /// Smallest addressable unit in bytes.
    pub logical_block_bytes: u64,
    /// Whether the device seeks.
    pub rotational: bool,
}

/// Counters since boot (Documentation/block/stat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests completed.
    pub reads: u64,
    /// Read requests that were merged into a queued one; the busier the queue, the more are merged.
    pub reads_merged: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Total milliseconds that reads waited.
    pub read_wait_ms: u64,
    /// Write requests completed.
    pub writes: u64,
    /// Write requests that were merged into a queued one.
    pub writes_merged: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Total milliseconds that writes waited.
    pub write_wait_ms: u64,
    /// Discards completed; 0 on kernels before 4.18.
    pub discards: u64,
    /// Flushes completed, those of a partition by its whole disk; 0 on kernels before 5.5.
    pub flushes: u64,
    /// Requests in flight now.
    pub in_flight: u64,
}

impl std::ops::Sub for Counters {
    type Output = Counters;
    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            reads: self.reads.saturating_sub(earlier.reads),
            reads_merged: self.reads_merged.saturating_sub(earlier.reads_merged),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            read_wait_ms: self.read_wait_ms.saturating_sub(earlier.read_wait_ms),
            writes: self.writes.saturating_sub(earlier.writes),
            writes_merged: self.writes_merged.saturating_sub(earlier.writes_merged),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            write_wait_ms: self.write_wait_ms.saturating_sub(earlier.write_wait_ms),
            discards: self.discards.saturating_sub(earlier.discards),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            in_flight: self.in_flight,
        }
    }
}

impl BlockDevice {
    /// The device with this number (`st_dev` of a file on it, or `st_rdev` of its node).
    ///
    /// # Errors
    /// `NotFound` when the number is not a block device: see [`under`](Self::under).
    pub fn from_dev(dev: u64) -> io::Result<Self> {
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let node = Path::new("/sys/dev/block").join(format!("{major}:{minor}")).canonicalize()?;
        let disk = if node.join("queue").is_dir() {
            node.clone()
        } else {
            node.parent().map(Path::to_owned).unwrap_or_else(|| node.clone())
        };
        Ok(Self { node, disk, bdi: None })
    }

    /// The device under the file or directory `path`, whose `st_dev` is `dev`: the one with this number, or
    /// on Btrfs, whose numbers are not those of devices, the one that mountinfo names, also where there are
    /// several.
    ///
    /// # Errors
    /// `NotFound` where there is none: tmpfs, overlay, network.
    pub fn under(path: &Path, dev: u64) -> io::Result<Self> {
        Self::from_dev(dev).or_else(|error| {
            let mount = mounts::of_path(path)?;
            if mount.fs_type != "btrfs" {
                return Err(error);
            }
            let device = Self::from_dev(Path::new(&mount.source).metadata()?.rdev())?;
            let holds = |fs: &PathBuf| fs.join("devices").join(device.name()).exists();
            let systems = std::fs::read_dir("/sys/fs/btrfs")?;
            let of_it = systems.flatten().map(|fs| fs.path()).find(holds);
            Ok(Self { bdi: of_it.map(|fs| fs.join("bdi")), ..device })
        })
    }

    /// The file system's device in sysfs: a partition, or the whole disk.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// The whole disk in sysfs.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// Device numbers of the node and of the whole disk, as far as sysfs has them.
    pub fn numbers(&self) -> Vec<u64> {
        let number = |device: &PathBuf| {
            let text = std::fs::read_to_string(device.join("dev")).ok()?;
            let (major, minor) = text.trim().split_once(':')?;
            Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
        };
        [&self.node, &self.disk].into_iter().filter_map(number).collect()
    }

    /// Kernel name of the node, for example `sda1` or `loop0`.
    pub fn name(&self) -> String {
        self.node.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The bytes of the node.
    ///
    /// # Errors
    /// When sysfs does not have them: the device is gone.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(read_number(&self.node.join("size"))? * SECTOR)
    }

    /// Whether the node is a partition of the disk.
    pub fn is_partition(&self) -> bool {
        self.node != self.disk
    }

    /// The whole disk as a device of its own.
    pub fn whole(&self) -> Self {
        Self { node: self.disk.clone(), disk: self.disk.clone(), bdi: None }
    }

    /// An attribute of the disk in sysfs, for example `device/model`; `None` if there is none, or it is empty.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let bytes = std::fs::read(self.disk.join(name)).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n', '\t']).to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Opens the node for reading past the page cache (`O_DIRECT`), by its name in `/dev`.
    ///
    /// # Errors
    /// `NotFound` when the node of this name in `/dev` is another device, or there is none; else those of `open(2)`.
    pub fn open_direct(&self) -> io::Result<File> {
        // The kernel writes `!` in sysfs for `/` (cciss!c0d0).
        let path = Path::new("/dev").join(self.name().replace('!', "/"));
        let number = std::fs::read_to_string(self.node.join("dev"))?;
        let named = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let there = rustix::fs::fstat(&named)?;
        let (major, minor) = (rustix::fs::major(there.st_rdev), rustix::fs::minor(there.st_rdev));
        let block = FileType::from_raw_mode(there.st_mode) == FileType::BlockDevice;
        if !block || format!("{major}:{minor}") != number.trim() {
            let why = format!("{} is not the device {}", path.display(), number.trim());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NONBLOCK;
        crate::handle::reopen(named, flags).map(File::from)
    }

    /// The file in sysfs that contains the readahead window, in KiB.
    pub fn readahead_setting(&self) -> PathBuf {
        let queue = || self.disk.join("queue");
        self.bdi.clone().unwrap_or_else(queue).join("read_ahead_kb")
    }

    /// Whether the file system has its own readahead setting instead of its disk's.
    pub fn has_own_readahead(&self) -> bool {
        self.bdi.is_some()
    }

    /// The queue's present settings.
    pub fn queue(&self) -> io::Result<Queue> {
        let read = |name: &str| read_number(&self.disk.join("queue").join(name));
        Ok(Queue {
            read_ahead_bytes: read_number(&self.readahead_setting())? * 1024,
            max_request_bytes: read("max_sectors_kb")? * 1024,
            logical_block_bytes: read("logical_block_size")?,
            rotational: read("rotational")? != 0,
        })
    }

    /// The node's present I/O counters.
    pub fn counters(&self) -> io::Result<Counters> {
        let text = std::fs::read_to_string(self.node.join("stat"))?;
        let n: Vec<u64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        if n.len() < 9 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "short block stat line"));
        }
        Ok(Counters {
            reads: n[0],
            reads_merged: n[1],
            read_bytes: n[2] * SECTOR,
            read_wait_ms: n[3],
            writes: n[4],
            writes_merged: n[5],
            written_bytes: n[6] * SECTOR,
            write_wait_ms: n[7],
            discards: n.get(11).copied().unwrap_or(0),
            flushes: n.get(15).copied().unwrap_or(0),
            in_flight: n[8],
        })
    }
}

fn read_number(path: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a number", path.display()))
    })
}
/// Writes back and drops a block device's page cache (`BLKFLSBUF`, uapi/linux/fs.h): later reads
/// come from the device. Needs `CAP_SYS_ADMIN`.
pub fn forget_buffers(node: impl AsFd) -> io::Result<()> {
    const BLKFLSBUF: libc::c_ulong = 0x1261;
    // SAFETY: the ioctl takes no argument.
    let rc = unsafe { libc::ioctl(node.as_fd().as_raw_fd(), BLKFLSBUF, 0) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
