//! Loop devices: a file as a block device (loop(4), linux/loop.h).
//!
//! Nothing here keeps a device open. A process that serves the file itself must not: if it is killed, the kernel
//! closes its descriptors one by one, and closing the last one of a device waits until what is dirty of it is
//! written, to a file that nobody serves any more.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
/// `LO_FLAGS_DIRECT_IO`: the file is read and written with direct I/O.
const DIRECT_IO: u32 = 16;
/// How often a free device is looked for: another process may take the one that was free.
const ATTEMPTS: u32 = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Config>() == 304);

/// Attaches a free loop device to a file, with direct I/O and sectors of this size, or with 0 as the kernel chooses them;
/// returns its node.
///
/// The kernel falls back to buffered I/O where the file has no direct I/O: see [`is_direct`].
///
/// # Errors
/// Those of opening `/dev/loop-control` and the node, `ResourceBusy` if others take every free device first, and
/// those of `LOOP_CONFIGURE`.
pub fn attach(file: &File, sector_bytes: u32) -> io::Result<PathBuf> {
    let control = control()?;
    for _ in 0..ATTEMPTS {
        // SAFETY: the ioctl takes no argument.
        let number = unsafe {
            libc::ioctl(control.as_fd().as_raw_fd(), LOOP_CTL_GET_FREE, 0 as libc::c_ulong)
        };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let node = PathBuf::from(format!("/dev/loop{number}"));
        let device = open(&node, OFlags::RDWR)?;
        match configure(&device, file, sector_bytes) {
            Ok(()) => return Ok(node),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::BUSY) => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Checks that this process may attach loop devices.
///
/// # Errors
/// Those of opening `/dev/loop-control`.
pub fn check() -> io::Result<()> {
    control().map(drop)
}

fn control() -> io::Result<OwnedFd> {
    open(Path::new("/dev/loop-control"), OFlags::RDWR)
}

fn open(path: &Path, how: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, how | OFlags::CLOEXEC, Mode::empty())?)
}

fn configure(device: &OwnedFd, file: &File, sector_bytes: u32) -> io::Result<()> {
    // SAFETY: all fields are integers, which may be zero.
    let mut config: Config = unsafe { std::mem::zeroed() };
    config.fd = file.as_raw_fd().cast_unsigned();
    config.block_size = sector_bytes;
    config.info.flags = DIRECT_IO;
    // SAFETY: the ioctl reads one `struct loop_config`, whose size is checked above.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a device for this process alone, as mounting it would.
///
/// # Errors
/// `ResourceBusy` while a file system is mounted from it, or another device or swap uses it; those of `open(2)`.
pub fn alone(node: &Path) -> io::Result<File> {
    Ok(open(node, OFlags::RDONLY | OFlags::EXCL)?.into())
}

/// Detaches an open device from its file once all others have closed it.
///
/// # Errors
/// Those of the ioctl.
pub fn detach(device: &File) -> io::Result<()> {
    // SAFETY: the ioctl takes no argument.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD, 0 as libc::c_ulong) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What a loop device is attached to, by the kernel's own account and not by a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The device number of the file system of the file, or of the node of a block device.
    pub device: u64,
    /// The number of the file, or of the node.
    pub inode: u64,
    /// The number of the block device that the node stands for; 0 for a file.
    pub block_device: u64,
    /// Where in it the device begins, in bytes.
    pub offset: u64,
    /// Whether it is read and written with direct I/O.
    pub direct: bool,
}

impl Behind {
    /// Whether it is this file.
    pub fn is(&self, file: &Metadata) -> bool {
        (file.dev(), file.ino()) == (self.device, self.inode)
    }

    /// Whether both are attached to the same file.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// What an open loop device is attached to.
///
/// # Errors
/// Those of `LOOP_GET_STATUS64`: `ENXIO` for one that is not attached.
pub fn behind(device: &File) -> io::Result<Behind> {
    // SAFETY: all fields are integers, which may be zero.
    let mut info: Info = unsafe { std::mem::zeroed() };
    // SAFETY: the ioctl writes one `struct loop_info64`, whose size is checked above.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    let Info { device, inode, rdevice, offset, flags, .. } = info;
    // The kernel's `huge_encode_dev` and glibc's `makedev` are the same for numbers that it can have.
    Ok(Behind { device, inode, block_device: rdevice, offset, direct: flags & DIRECT_IO != 0 })
}

/// The numbers of the devices that are attached to something now. None is opened.
pub fn attached() -> Vec<u64> {
    let number = |dir: PathBuf| {
        dir.join("loop/backing_file").exists().then_some(())?;
        let text = std::fs::read_to_string(dir.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    let disks = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    disks.filter_map(|disk| number(disk.path())).collect()
}

/// The directory of a device in sysfs.
pub fn in_sysfs(node: &Path) -> PathBuf {
    Path::new("/sys/block").join(node.file_name().unwrap_or_default())
}

/// Whether a device is attached to the file of this path, as the kernel names it.
pub fn is_attached(node: &Path, file: &Path) -> bool {
    let backing = std::fs::read_to_string(in_sysfs(node).join("loop/backing_file"));
    backing.is_ok_and(|name| Path::new(name.trim_end_matches('\n')) == file)
}

/// Whether a device reads and writes its file with direct I/O.
pub fn is_direct(node: &Path) -> bool {
    std::fs::read_to_string(in_sysfs(node).join("loop/dio")).is_ok_and(|on| on.trim() == "1")
}
