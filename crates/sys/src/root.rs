//! A mounted file system, held by one descriptor, and files found by path below it.
//!
//! The owner of a directory above a mount point, or of one on the mounted file system, may replace it at any
//! time: by another directory, a link, or a file system in user space that blocks. So the directory at which
//! a file system is mounted is opened once, without following links, and is verified before any request is
//! sent to the file system behind it; paths are then resolved below it (`openat2(2)`), without following
//! links and without crossing mounts. A subvolume of Btrfs is no mount, and is entered.
//!
//! Before Linux 5.6, which introduced `openat2`, files are found by their inode numbers alone.

use crate::directory;
use crate::handle::{self, Identity, Missing};
use crate::mounts::{self, Mount, holding};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Flags to name a file without opening it.
const NAMES: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);
const BELOW: ResolveFlags = NO_LINKS.union(ResolveFlags::BENEATH).union(ResolveFlags::NO_XDEV);

/// A directory of a mounted file system: where it is mounted, or the root of a subvolume.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    point: PathBuf,
    /// Its mount.
    mount: Mount,
}

impl Root {
    /// Opens the directory `point` of the file system with this device number: that of `stat`, or that of
    /// mountinfo.
    ///
    /// # Errors
    /// That another file system is there; else those of `open(2)`.
    pub fn open(point: &Path, device: u64) -> io::Result<Self> {
        // A program or a server is asked nothing unless its own file system is meant.
        let will_do = |m: &Mount| m.dev == device || !m.answers_at_will();
        let (named, mount) = name_on(&mounts::all()?, point, will_do)?;
        let found = look(&named)?;
        let is_mount = mount.point == point;
        if found.device != device && !(is_mount && mount.dev == device) {
            return Err(elsewhere());
        }
        let fd = directory::readable(named)?;
        Ok(Self { fd, point: point.to_owned(), mount })
    }

    /// Opens the directory of this mount, and no other that is mounted at the same place, be it of the same file
    /// system.
    ///
    /// # Errors
    /// That another mount hides it; else those of [`Root::open`].
    pub fn of(mount: &Mount) -> io::Result<Self> {
        let root = Self::open(&mount.point, mount.dev)?;
        if root.mount.id == mount.id { Ok(root) } else { Err(elsewhere()) }
    }

    /// Its mount, according to mountinfo.
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Where it was when it was opened.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Opens `path` on this file system, below this directory or wherever else the same file system is
    /// mounted. Links are not followed, but a link as the last component may be named
    /// (`O_PATH | O_NOFOLLOW`).
    ///
    /// # Errors
    /// `LOOP` for a link in the path, `XDEV` for another mount, `NOENT` where no mount of this file system is
    /// above it, `NOSYS` before Linux 5.6; else those of `openat2(2)`.
    pub fn below(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        if let Ok(rest) = path.strip_prefix(&self.point) {
            match open_below(&self.fd, rest, flags) {
                Err(Errno::XDEV) => {}
                opened => return opened,
            }
        }
        // It may be mounted elsewhere too, or within itself.
        let mounts = mounts::all().map_err(|_| Errno::NOENT)?;
        let of_this = |m: &Mount| m.dev == self.mount.dev;
        let Some(above) = holding(&mounts, path).filter(|m| of_this(m)) else {
            return Err(if path.starts_with(&self.point) { Errno::XDEV } else { Errno::NOENT });
        };
        let rest = path.strip_prefix(&above.point).map_err(|_| Errno::NOENT)?;
        open_below(&name_mount(&mounts, above).map_err(|_| Errno::NOENT)?, rest, flags)
    }

    /// A descriptor that only names the file (`O_PATH`), found at `path` or else by inode number. At the path
    /// the generation is not compared.
    ///
    /// # Errors
    /// [`Missing`] has the errors of both attempts.
    pub fn find(&self, path: &Path, file: Identity) -> Result<OwnedFd, Missing> {
        let names = NAMES | OFlags::NOFOLLOW;
        let is_it = |fd: &OwnedFd| {
            look(fd).is_ok_and(|at| (at.device, at.inode) == (file.device, file.inode))
        };
        let at_path = match self.below(path, names) {
            Ok(fd) if is_it(&fd) => return Ok(fd),
            Ok(_) => None,
            Err(e) => Some(e.into()),
        };
        handle::open_by_inode(&self.fd, file.inode, file.generation, names.bits() as i32)
            .and_then(|fd| if is_it(&fd) { Ok(fd) } else { Err(Errno::STALE.into()) })
            .map_err(|by_inode| Missing { at_path, by_inode })
    }

    /// The kernel's path of an open file of this file system, as [`handle::path_of`].
    pub fn path_of(&self, file: impl AsFd) -> Option<PathBuf> {
        let path = handle::link_of(&file)?;
        // The kernel appends " (deleted)"; a name may end so too, so the file at the path is compared.
        let there = self.below(&path, NAMES | OFlags::NOFOLLOW).ok()?;
        (look(there).ok()? == look(file).ok()?).then_some(path)
    }
}

impl From<Root> for OwnedFd {
    fn from(root: Root) -> Self {
        root.fd
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens the directory `name` in `parent` for reading, without following links. With a device number given, a
/// file system mounted there is opened only if it has the same number, and no request is sent to it before
/// that: a walk of one file system must not wait for another.
///
/// # Errors
/// `XDEV` for another file system; else those of `open(2)`.
pub fn enter(parent: impl AsFd, name: &CStr, device: Option<u64>) -> rustix::io::Result<OwnedFd> {
    let read = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Some(device) = device {
        let no_mount = ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(&parent, name, read, Mode::empty(), no_mount) {
            // A mount, or a kernel without `openat2`.
            Err(Errno::XDEV | Errno::NOSYS | Errno::PERM) => {}
            opened => return opened,
        }
        let named = rustix::fs::openat(&parent, name, NAMES | OFlags::NOFOLLOW, Mode::empty())?;
        if look(&named)?.device != device {
            return Err(Errno::XDEV);
        }
        return rustix::fs::openat(&named, c".", read, Mode::empty());
    }
    rustix::fs::openat(parent, name, read, Mode::empty())
}

/// Names (`O_PATH`) what has this name in a directory, also a link; nothing that is mounted there is asked
/// anything.
///
/// # Errors
/// `XDEV` for a mount; else those of `open(2)`.
pub fn name_in(dir: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let names = NAMES | OFlags::NOFOLLOW;
    match open_below(&dir, Path::new(name), names) {
        Err(Errno::NOSYS) => {}
        named => return named,
    }
    let named = rustix::fs::openat(&dir, name, names, Mode::empty())?;
    let (at, above) = (look(&named)?, look(&dir)?);
    if (at.device, at.mount) == (above.device, above.mount) { Ok(named) } else { Err(Errno::XDEV) }
}

/// The directory above an open one, named (`O_PATH`); `None` above the top of a mount.
///
/// # Errors
/// Those of `open(2)`.
pub fn above(dir: impl AsFd) -> rustix::io::Result<Option<OwnedFd>> {
    if is_top(&dir)? {
        return Ok(None);
    }
    let above = rustix::fs::openat(&dir, c"..", NAMES, Mode::empty())?;
    let (at, here) = (look(&above)?, look(&dir)?);
    let another = at.mount != here.mount || (at.mount.is_none() && at.device != here.device);
    // `/` is above itself.
    Ok((!another && at != here).then_some(above))
}

/// Whether a directory is known to be the top of its mount: the mount that this one is in is not asked.
fn is_top(dir: impl AsFd) -> rustix::io::Result<bool> {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(dir, c"", how, StatxFlags::empty())?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The device number of the file at `path`, if it is on a local file system; links are not followed.
///
/// # Errors
/// `NotFound` where there is none; else those of `openat2(2)`.
pub fn device_at(path: &Path) -> io::Result<u64> {
    device_on(&mounts::all()?, path)
}

/// The same with the mounts as they were read before, for many paths: what is mounted elsewhere now is not
/// found.
///
/// # Errors
/// As [`device_at`].
pub fn device_on(mounts: &[Mount], path: &Path) -> io::Result<u64> {
    let local = |mount: &Mount| !mount.answers_at_will();
    Ok(look(name_on(mounts, path, local)?.0)?.device)
}

/// The device number of the directory at `path`, if the kernel has all of the path cached: no file system on the
/// way is asked anything. Links are not followed.
///
/// # Errors
/// `AGAIN` where something is not cached; `INVAL` for a path that does not begin at `/`, and before Linux 5.12; else
/// those of `openat2(2)`.
pub fn device_if_cached(path: &Path) -> rustix::io::Result<u64> {
    // The kernel gives up also where a directory is just being changed.
    const TRIES: u32 = 8;
    if !path.is_absolute() {
        return Err(Errno::INVAL);
    }
    let mut tries = (0..TRIES).map(|_| name_if_cached(path));
    let named =
        tries.find(|named| !matches!(named, Err(Errno::AGAIN))).unwrap_or(Err(Errno::AGAIN));
    Ok(look(named?)?.device)
}

/// Names (`O_PATH`) the directory at `path`, if the kernel has all of the path cached; links are not followed.
///
/// # Errors
/// As [`device_if_cached`].
pub(crate) fn name_if_cached(path: &Path) -> rustix::io::Result<OwnedFd> {
    let how = NO_LINKS.union(ResolveFlags::CACHED);
    rustix::fs::openat2(CWD, path, NAMES | OFlags::DIRECTORY, Mode::empty(), how)
}

/// The number of the mount through which a file was opened; `None` before Linux 5.8.
pub fn mount_id(file: impl AsFd) -> Option<u64> {
    look(file).ok()?.mount
}

/// Whether `path` leads to this open file, on the mount through which it was opened, without following links.
pub(crate) fn leads_to(path: &Path, file: impl AsFd) -> io::Result<bool> {
    let (mounts, here) = (mounts::all()?, look(file)?);
    let is_it = |m: &Mount| here.mount.is_none_or(|id| id == m.id);
    if !holding(&mounts, path).is_some_and(is_it) {
        return Ok(false);
    }
    Ok(look(name_on(&mounts, path, |_| true)?.0)? == here)
}

/// Names `path` on the mount that it leads to, if that mount is acceptable.
fn name_on(
    mounts: &[Mount],
    path: &Path,
    will_do: impl Fn(&Mount) -> bool,
) -> io::Result<(OwnedFd, Mount)> {
    let above = holding(mounts, path).filter(|m| will_do(m)).ok_or(Errno::NOENT)?;
    let at = name_mount(mounts, above)?;
    let named = match path.strip_prefix(&above.point) {
        Ok(rest) if rest != Path::new("") => open_below(&at, rest, NAMES | OFlags::NOFOLLOW)?,
        _ => at,
    };
    Ok((named, above.clone()))
}

/// Names the directory at which `mount` is mounted, if it is still there and not hidden. The way is from mount to
/// mount: nothing that is mounted over it, or over a directory above it, is asked anything.
fn name_mount(mounts: &[Mount], mount: &Mount) -> io::Result<OwnedFd> {
    let named = match mounts::holder(mounts, mount) {
        Some(above) => step_to(name_mount(mounts, above)?, above, mount)?,
        None => name_by_path(&mount.point)?,
    };
    match look(&named)?.mount {
        Some(id) if id != mount.id => Err(elsewhere()),
        _ => Ok(named),
    }
}

/// Names what is mounted where `mount` is, which is below `dir`, the top of the mount `above` it.
fn step_to(dir: OwnedFd, above: &Mount, mount: &Mount) -> io::Result<OwnedFd> {
    let point = &mount.point;
    let rest = point.strip_prefix(&above.point).map_err(|_| elsewhere())?;
    let (Some(name), Some(way)) = (rest.file_name(), rest.parent()) else {
        return Err(elsewhere());
    };
    match open_below(&dir, way, NAMES | OFlags::DIRECTORY) {
        Ok(last) => Ok(rustix::fs::openat(last, name, NAMES | OFlags::NOFOLLOW, Mode::empty())?),
        Err(Errno::NOSYS) => name_by_path(point),
        // Another mount on the way.
        Err(Errno::XDEV) => Err(elsewhere()),
        Err(e) => Err(e.into()),
    }
}

fn name_by_path(point: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::openat2(CWD, point, NAMES, Mode::empty(), NO_LINKS) {
        Err(Errno::NOSYS | Errno::PERM) => {
            Ok(rustix::fs::open(point, NAMES | OFlags::NOFOLLOW, Mode::empty())?)
        }
        named => Ok(named?),
    }
}

fn open_below(dir: impl AsFd, rest: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let rest = if rest == Path::new("") { Path::new(".") } else { rest };
    match rustix::fs::openat2(dir, rest, flags | OFlags::CLOEXEC, Mode::empty(), BELOW) {
        // What some containers return for a call that they do not know.
        Err(Errno::PERM) if flags.contains(OFlags::PATH) => Err(Errno::NOSYS),
        opened => opened,
    }
}

fn elsewhere() -> io::Error {
    io::Error::other("its directory was renamed, or something else is mounted there")
}

#[derive(PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    /// `None` before Linux 5.8.
    mount: Option<u64>,
}

/// The attributes of a file that the kernel has cached: no request is sent to a file system in user space.
fn look(file: impl AsFd) -> rustix::io::Result<Seen> {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, c"", how, StatxFlags::INO | StatxFlags::MNT_ID)?;
    let told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(Seen {
        device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        mount: told.then_some(found.stx_mnt_id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn nothing_is_reached_through_links_or_on_other_mounts() {
        let proc = Root::open(Path::new("/proc"), Path::new("/proc").metadata().unwrap().dev());
        let proc = proc.unwrap();
        assert!(proc.below(Path::new("/proc/version"), NAMES).is_ok());
        for (path, error) in [
            ("/proc/self/version", Errno::LOOP),
            ("/proc/1/root/etc", Errno::LOOP),
            ("/etc/passwd", Errno::NOENT),
            ("/proc/../etc/passwd", Errno::NOENT),
        ] {
            let got = proc.below(Path::new(path), NAMES).unwrap_err();
            assert!(got == error || got == Errno::XDEV, "{path}: {got}");
        }
        let below_slash = Root::open(Path::new("/"), Path::new("/").metadata().unwrap().dev());
        assert_eq!(
            below_slash.unwrap().below(Path::new("/proc/version"), NAMES).unwrap_err(),
            Errno::XDEV
        );
    }

    #[test]
    fn another_file_system_is_not_taken_for_the_one_that_is_meant() {
        let of_proc = Path::new("/proc").metadata().unwrap().dev();
        assert!(Root::open(Path::new("/"), of_proc).is_err());
        assert_eq!(device_at(Path::new("/proc/version")).unwrap(), of_proc);
    }

    #[test]
    fn a_link_may_be_named_and_a_path_is_known_again() {
        let dir = std::env::temp_dir().join(format!("fragmend-root-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let here = dir.canonicalize().unwrap();
        let root = mounts::root_of(&here).unwrap();
        let root = Root::open(&root, here.metadata().unwrap().dev()).unwrap();
        std::fs::write(here.join("file"), "x").unwrap();
        symlink("file", here.join("link")).unwrap();
        assert!(root.below(&here.join("link"), NAMES | OFlags::NOFOLLOW).is_ok());
        let file = std::fs::File::open(here.join("file")).unwrap();
        assert_eq!(root.path_of(&file), Some(here.join("file")));
        std::fs::rename(here.join("file"), here.join("x (deleted)")).unwrap();
        assert_eq!(root.path_of(&file), Some(here.join("x (deleted)")));
        std::fs::remove_file(here.join("x (deleted)")).unwrap();
        assert_eq!(root.path_of(&file), None);
        std::fs::remove_dir_all(here).unwrap();
    }
}
