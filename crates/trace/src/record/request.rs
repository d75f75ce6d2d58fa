//! Converts the options of a recording to the settings of the kernel side. Each filter is checked
//! here, before anything is loaded or written.

use super::shared::{Config, Device, FileKey, MAX_DISKS};
use super::{COMM_BYTES, Options, paths::Mounts};
use crate::{DeviceMeta, TraceError};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::disks::{self, Disk};
use fragmend_sys::mounts;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kernel side's settings and tables.
pub(super) struct Request {
    pub config: Config,
    pub devices: BTreeMap<u32, Device>,
    pub roots: Vec<FileKey>,
    pub cgroup: Option<std::fs::File>,
    pub mounts: Mounts,
    pub device_meta: Vec<DeviceMeta>,
    /// The disks below the file systems, each once.
    pub disks: Vec<Disk>,
    /// Disks that are too many.
    pub unwatched_disks: usize,
}

/// A device number as the kernel keeps it in `s_dev`.
pub(super) fn kernel_device(dev: u64) -> u32 {
    rustix::fs::major(dev) << 20 | rustix::fs::minor(dev)
}

/// Whether process numbers here differ from those in the initial pid namespace, which the kernel
/// side sees.
fn in_pid_namespace() -> bool {
    const INITIAL: u64 = 0xEFFF_FFFC; // PROC_PID_INIT_INO, include/linux/proc_ns.h
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() != INITIAL)
}

/// Checks the options.
pub(super) fn resolve(options: &Options) -> Result<Request, TraceError> {
    if options.paths.is_empty() {
        return Err(TraceError::Request("name at least one path to record".into()));
    }
    let page = rustix::param::page_size();
    let mut request = Request {
        config: Config {
            // In a pid namespace this may be another process's number outside: so the recorder's own I/O is
            // recorded.
            self_pid: if in_pid_namespace() { 0 } else { std::process::id() },
            page_shift: page.trailing_zeros(),
            o_direct: libc::O_DIRECT as u32,
            o_append: libc::O_APPEND as u32,
            fold: options.max_ranges.is_some().into(),
            ..Config::default()
        },
        devices: BTreeMap::new(),
        roots: Vec::new(),
        cgroup: None,
        mounts: Mounts::default(),
        device_meta: Vec::new(),
        disks: Vec::new(),
        unwatched_disks: 0,
    };
    for path in &options.paths {
        add_path(&mut request, path)?;
    }
    set_disks(&mut request);
    request.config.region_shift = region_shift(&request.device_meta);
    let config = &mut request.config;
    if !options.pids.is_empty() {
        if in_pid_namespace() {
            let why = "--pid: in a container (a pid namespace) processes have other numbers than outside, and the kernel would watch others; use --cgroup, --comm or --user, or record outside of it";
            return Err(TraceError::Request(why.into()));
        }
        for pid in &options.pids {
            if !Path::new("/proc").join(pid.to_string()).is_dir() {
                return Err(TraceError::Request(format!("--pid {pid}: there is no such process")));
            }
        }
        config.by_pid = 1;
    }
    if let Some(uid) = options.uid {
        config.by_uid = 1;
        config.uid = uid;
    }
    if let Some(comm) = &options.comm {
        if comm.len() > COMM_BYTES {
            return Err(TraceError::Request(format!(
                "--comm {comm}: the kernel keeps {COMM_BYTES} bytes of a name, give only those"
            )));
        }
        config.by_comm = 1;
        config.comm[..comm.len()].copy_from_slice(comm.as_bytes());
    }
    if let Some(path) = &options.cgroup {
        config.by_cgroup = 1;
        request.cgroup = Some(open_cgroup(path)?);
    }
    Ok(request)
}

fn add_path(request: &mut Request, path: &Path) -> Result<(), TraceError> {
    let io = |what| TraceError::io(path, what);
    let real = path.canonicalize().map_err(io("cannot be recorded"))?;
    let stat = real.metadata().map_err(io("cannot be recorded"))?;
    if !stat.is_dir() && !stat.is_file() {
        return Err(TraceError::Request(format!(
            "{} is neither a directory nor a regular file: name the directory or file to watch",
            path.display()
        )));
    }
    let mount = mounts::of_path(&real).map_err(io("cannot find its file system"))?;
    if let Some(layers) = mount.overlay_layers() {
        return Err(TraceError::Request(format!(
            "{} is an overlay; its files are in other directories, where reads through it are seen as page-cache misses: record those with --level miss: {layers}",
            path.display()
        )));
    }
    let kernel = kernel_device(mount.dev);
    let whole = real == mount.point && mount.root == Path::new("/");
    let readahead = BlockDevice::under(&real, stat.dev())
        .and_then(|d| d.queue())
        .ok()
        .map(|q| q.read_ahead_bytes);
    let device = request.devices.entry(kernel).or_insert_with(|| {
        let below = disks::under(&real, stat.dev()).unwrap_or_default();
        let numbers = below.iter().map(|disk| disk.number).collect();
        for disk in below {
            if !request.disks.contains(&disk) {
                request.disks.push(disk);
            }
        }
        request.device_meta.push(DeviceMeta {
            disks: numbers,
            device: stat.dev(),
            mount: crate::file::text::escape(mount.point.as_os_str().as_bytes()),
            readahead_bytes: readahead,
        });
        let readahead_bytes = u32::try_from(readahead.unwrap_or(0)).unwrap_or(0);
        Device { readahead_bytes, below_roots: 1 }
    });
    if whole {
        device.below_roots = 0;
    }
    // A subvolume of Btrfs has a device number of its own.
    let named = kernel_device(stat.dev());
    request.config.btrfs |= u8::from(mount.fs_type == "btrfs");
    request.roots.push(FileKey { inode: stat.ino(), device: named, generation: 0 });
    let root = mounts::root_of(&real).map_err(io("cannot find its file system"))?;
    request.mounts.add(stat.dev(), root);
    if mount.fs_type == "btrfs" {
        request.mounts.add_subvolumes(&mount.point);
    }
    Ok(())
}

/// The logarithm of the bytes of a place: readahead windows, which end on multiples of their size, do not cross its
/// borders.
fn region_shift(devices: &[DeviceMeta]) -> u8 {
    const LEAST: u64 = 1 << 20;
    const MOST: u64 = 1 << 30;
    let window = devices.iter().filter_map(|d| d.readahead_bytes).max().unwrap_or(0);
    window.clamp(LEAST, MOST).next_power_of_two().trailing_zeros() as u8
}

/// Passes the disks to the kernel side, as many as it has space for.
fn set_disks(request: &mut Request) {
    request.unwatched_disks = request.disks.len().saturating_sub(MAX_DISKS);
    request.disks.truncate(MAX_DISKS);
    let config = &mut request.config;
    config.disk_count = request.disks.len() as u32;
    for (i, disk) in request.disks.iter().enumerate() {
        config.disks[i] = kernel_device(disk.number);
        config.bio_disks |= u32::from(disk.bio_based) << i;
    }
}

fn open_cgroup(path: &Path) -> Result<std::fs::File, TraceError> {
    const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())
        .map(std::fs::File::from)
        .map_err(|e| TraceError::io(path, "--cgroup")(e.into()))?;
    let kind = rustix::fs::fstatfs(&directory)
        .map_err(|e| TraceError::io(path, "--cgroup")(e.into()))?
        .f_type;
    if kind as u64 != CGROUP2_SUPER_MAGIC {
        return Err(TraceError::Request(format!(
            "--cgroup {}: not a cgroup v2 directory (see `mount -t cgroup2`)",
            path.display()
        )));
    }
    Ok(directory)
}

/// The given processes and all that descend from them, from `/proc/*/stat`.
pub(super) fn with_descendants(pids: &[u32]) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let mut found = pids.to_vec();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid);
        let fresh: Vec<u32> = children.filter(|pid| !found.contains(pid)).collect();
        found.extend(fresh);
        next += 1;
    }
    found
}

/// The fourth field of `/proc/PID/stat`; the second one, the name, may contain anything.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(&stat[after_name + 1..]).ok()?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
