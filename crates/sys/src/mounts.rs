//! What is mounted where: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use crate::root::{self, device_at};
use rustix::fs::{Mode, OFlags, StatVfs, StatVfsMountFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number until it is unmounted, as `statx(2)` returns it in `stx_mnt_id`.
    pub id: u64,
    /// The number of the mount in which its directory is; that one need not be listed.
    pub parent: u64,
    /// Device number, as `stat` returns it in `st_dev`.
    pub dev: u64,
    /// The directory of the file system that is visible at `point` (`/` unless bind-mounted).
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// File system type, for example `ext4`.
    pub fs_type: String,
    /// What was mounted, for example `/dev/sda1`.
    pub source: OsString,
    /// Options of the mount and of the super block.
    pub options: Vec<String>,
    /// The directory to which an overlay writes, as it was named when the overlay was mounted; `None` for any
    /// other file system.
    pub upper: Option<PathBuf>,
}

impl Mount {
    /// Whether an option is set, for example `ro` or `data=writeback`.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    /// Whether a program, a server or a daemon serves it, so that a system call may block uninterruptibly and
    /// without limit.
    pub fn answers_at_will(&self) -> bool {
        const SERVED: [&str; 11] = [
            "autofs", "nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "coda", "virtiofs",
            "lustre",
        ];
        self.fs_type.starts_with("fuse") || SERVED.contains(&self.fs_type.as_str())
    }

    /// The directories that an overlay combines, as its options name them, for messages; `None` for any other
    /// file system.
    pub fn overlay_layers(&self) -> Option<String> {
        let is_layer = |o: &&String| o.starts_with("upperdir") || o.starts_with("lowerdir");
        let layers: Vec<_> = self.options.iter().filter(is_layer).map(String::as_str).collect();
        (self.fs_type == "overlay").then(|| layers.join(" "))
    }
}

/// All mounts that are visible to this process; some may be hidden by others.
///
/// # Errors
/// When mountinfo cannot be read.
pub fn all() -> io::Result<Vec<Mount>> {
    let mut all = parse(&std::fs::read("/proc/self/mountinfo")?);
    // A path begins at the root of this process, also where something has been mounted over that since.
    let root = rustix::fs::open(c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    if let Some(root) = root.ok().and_then(root::mount_id) {
        all.retain(|m| m.id == root || m.point != Path::new("/"));
    }
    Ok(all)
}

/// Those of `all` mounts that a path leads to without a question to a program or a server, that of `/` excepted.
/// Some of these may be hidden by others.
pub fn near(all: &[Mount]) -> Vec<Mount> {
    let served = |m: &Mount| m.answers_at_will() && m.point != Path::new("/");
    let is_near = |m: &Mount| {
        std::iter::successors(holder(all, m), |above| holder(all, above)).all(|m| !served(m))
    };
    all.iter().filter(|m| is_near(m)).cloned().collect()
}

/// The mount in which the directory is on which `mount` is mounted, below others at the same place if there
/// are any; `None` if it is not listed, as that of `/`.
pub(crate) fn holder<'a>(mounts: &'a [Mount], mount: &Mount) -> Option<&'a Mount> {
    let above = |mount: &Mount| mounts.iter().find(|m| m.id == mount.parent && m.id != mount.id);
    let mut at = above(mount)?;
    // As many steps as there are mounts, should the table be of several instants.
    for _ in mounts {
        if at.point != mount.point {
            break;
        }
        at = above(at)?;
    }
    (mount.point != at.point && mount.point.starts_with(&at.point)).then_some(at)
}

/// Parses the text of mountinfo; malformed lines are left out.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

/// The mount that a path without links in it leads to: as the kernel walks, from mount to mount, over one that
/// hides another.
pub fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let listed: HashSet<_> = mounts.iter().map(|m| m.id).collect();
    // The one that is reached first of those mounted in `within`, or in one that is not listed.
    let next = |within: Option<&Mount>| {
        let is_in = |m: &&Mount| match within {
            Some(above) => m.parent == above.id && m.id != above.id,
            None => m.parent == m.id || !listed.contains(&m.parent),
        };
        let above = mounts.iter().filter(|m| path.starts_with(&m.point)).filter(is_in);
        above.min_by_key(|m| m.point.components().count())
    };
    // As many steps as there are mounts, should the table be of several instants.
    std::iter::successors(next(None), |at| next(Some(at))).take(mounts.len()).last()
}

/// Whether the point of a mount leads to it, and no other mount hides it.
pub fn is_visible(mounts: &[Mount], mount: &Mount) -> bool {
    holding(mounts, &mount.point).is_some_and(|at| at.id == mount.id)
}

/// The mount of a device to use, of those that no other hides: a writable one before a read-only one, then the
/// one nearest to the file system's root (`/` rather than a bind-mounted directory), then the first.
pub fn best(mounts: &[Mount], dev: u64) -> Option<&Mount> {
    let mut of_dev: Vec<_> = mounts.iter().filter(|m| m.dev == dev).collect();
    of_dev.sort_by_key(|m| (m.has_option("ro"), m.root.components().count()));
    of_dev.into_iter().find(|m| is_visible(mounts, m))
}

/// The mount to use for the file system whose directory `root` has this device number: as [`best`], or the
/// mount of `root` where no mount has that number, as for subvolumes of Btrfs.
pub fn of_root(mounts: &[Mount], dev: u64, root: &Path) -> Option<Mount> {
    let there = || device_at(root).is_ok_and(|at| at == dev);
    let on_it =
        || holding(mounts, root).map(|m| Mount { dev, point: root.to_owned(), ..m.clone() });
    best(mounts, dev).cloned().or_else(|| there().then(on_it).flatten())
}

/// Checks that a file system is mounted for writing, where these figures of it were asked for.
///
/// # Errors
/// `EROFS`.
pub(crate) fn is_for_writing(found: &StatVfs) -> io::Result<()> {
    let read_only = found.f_flag.contains(StatVfsMountFlags::RDONLY);
    if read_only { Err(Errno::ROFS.into()) } else { Ok(()) }
}

/// The highest directory above `path` that has its device number: a mount point, or the root of
/// a subvolume.
pub fn root_of(path: &Path) -> io::Result<PathBuf> {
    let dev = path.metadata()?.dev();
    let same = |p: &&Path| p.metadata().is_ok_and(|m| m.dev() == dev);
    Ok(path.ancestors().take_while(same).last().unwrap_or(path).to_owned())
}

/// The mount of `path`.
///
/// # Errors
/// When mountinfo or `path` cannot be read, or no mount holds it.
pub fn of_path(path: &Path) -> io::Result<Mount> {
    let (path, mounts) = (path.canonicalize()?, all()?);
    holding(&mounts, &path)
        .cloned()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no mount holds this path"))
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    let mut fields = line.split(|b| *b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let parent = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let dev = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = dev.split_once(':')?;
    let root = unescape(fields.next()?);
    let point = unescape(fields.next()?);
    let own_options = fields.next()?;
    let mut fields = fields.skip_while(|f| *f != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let super_options = fields.next().unwrap_or_default();
    let options = || [own_options, super_options].into_iter().flat_map(|o| o.split(|b| *b == b','));
    let upper =
        options().find_map(|o| o.strip_prefix(b"upperdir=")).filter(|_| fs_type == "overlay");
    Some(Mount {
        id,
        parent,
        dev: rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?),
        root: root.into(),
        point: point.into(),
        fs_type,
        source,
        options: options().map(|o| String::from_utf8_lossy(o).into_owned()).collect(),
        upper: upper.map(|named| without_backslashes(unescape(named)).into()),
    })
}

/// Undoes the octal escapes for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail.get(..3).filter(|_| first == b'\\').and_then(|d| {
            let text = std::str::from_utf8(d).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match code {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

/// The name in a value of an overlay's option, in which a backslash keeps the meaning of the next character from
/// it (`ovl_unescape()` in fs/overlayfs/params.c).
fn without_backslashes(value: OsString) -> OsString {
    let mut bytes = value.into_vec().into_iter();
    let mut name = Vec::with_capacity(bytes.len());
    while let Some(byte) = bytes.next() {
        name.push(if byte == b'\\' { bytes.next().unwrap_or(byte) } else { byte });
    }
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_names_the_directory_to_which_it_writes() {
        use std::os::unix::ffi::OsStrExt;
        let line = b"36 35 0:50 / /m rw - overlay overlay rw,lowerdir=/l,upperdir=/a\\040b/\xe9\\134\\054c\\134\\134d,workdir=/w";
        let upper = parse_line(line).unwrap().upper.unwrap();
        assert_eq!(upper.as_os_str().as_bytes(), b"/a b/\xe9,c\\d");
        let other = b"36 35 8:1 / /m rw - ext4 /dev/a rw,upperdir=/a";
        assert_eq!(parse_line(other).unwrap().upper, None);
    }

    #[test]
    fn a_line_with_optional_fields_and_escapes() {
        let line = br"36 35 7:3 / /mnt/a\040b rw,noatime master:1 shared:2 - ext4 /dev/loop3 rw,data=writeback";
        let m = parse_line(line).unwrap();
        assert_eq!((m.id, m.parent), (36, 35));
        assert_eq!(m.dev, rustix::fs::makedev(7, 3));
        assert_eq!(m.point, Path::new("/mnt/a b"));
        assert_eq!(m.fs_type, "ext4");
        assert!(m.has_option("data=writeback") && m.has_option("noatime"));
    }

    #[test]
    fn the_holder_of_a_mount_is_the_one_in_which_its_directory_is() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
            2 1 0:5 / /home rw - tmpfs none rw\n\
            3 2 8:2 / /home/a/disk rw - ext4 /dev/b rw\n\
            4 2 0:6 / /home/a rw - fuse x rw\n\
            5 3 8:3 / /home/a/disk rw - ext4 /dev/c rw\n\
            6 4 8:4 / /home/a/x rw - ext4 /dev/d rw\n";
        let mounts = parse(table);
        let holder = |id: u64| {
            let mount = mounts.iter().find(|m| m.id == id).unwrap();
            holder(&mounts, mount).map(|m| m.id)
        };
        let holders: Vec<_> = (1..=6).map(holder).collect();
        assert_eq!(holders, [None, Some(1), Some(2), Some(2), Some(2), Some(4)]);
    }

    #[test]
    fn a_path_leads_over_the_mounts_that_hide_others() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
            2 1 8:2 / /m rw - ext4 /dev/b rw\n\
            3 2 8:2 /sub /m rw - ext4 /dev/b rw\n\
            4 1 8:2 / /w/x rw - ext4 /dev/b rw\n\
            5 4 8:3 / /w/x/in rw - ext4 /dev/c rw\n\
            6 1 0:5 / /w rw - tmpfs none rw\n\
            7 2 8:4 / /m/a rw - ext4 /dev/d rw\n";
        let mut mounts = parse(table);
        let at = |mounts: &[Mount], path: &str| holding(mounts, Path::new(path)).map(|m| m.id);
        // 3 hides 2, and with it 7; 6 hides 4, and with it 5.
        let paths = ["/", "/m", "/m/a/f", "/w", "/w/x/in/f", "/z"];
        let ids = [1, 3, 3, 6, 6, 1].map(Some);
        assert_eq!(paths.map(|path| at(&mounts, path)), ids);
        // Whatever the order of the lines: a mount may be moved.
        mounts.reverse();
        assert_eq!(paths.map(|path| at(&mounts, path)), ids);
        let dev = |minor| rustix::fs::makedev(8, minor);
        let best = |mounts: &[Mount], minor| best(mounts, dev(minor)).map(|m| m.id);
        assert_eq!([1, 2, 3, 4].map(|n| best(&mounts, n)), [Some(1), Some(3), None, None]);
        // Where nothing hides 4, it shows more than 3 does.
        mounts.retain(|m| m.id != 6);
        assert_eq!(best(&mounts, 2), Some(4));
        // In a changed root, that of the other mounts is not listed.
        mounts.retain(|m| m.id != 1);
        assert_eq!(
            ["/z", "/m", "/w/x/in/f"].map(|path| at(&mounts, path)),
            [None, Some(3), Some(5)]
        );
    }

    #[test]
    fn a_table_that_goes_in_circles_ends() {
        let mounts = parse(
            b"1 2 8:1 / / rw - ext4 a rw\n2 1 8:1 / / rw - ext4 a rw\n3 3 8:1 / / rw - ext4 a rw\n",
        );
        assert!(holding(&mounts, Path::new("/a")).is_some_and(|m| m.id == 3));
        assert_eq!(best(&mounts, rustix::fs::makedev(8, 1)).map(|m| m.id), Some(3));
    }

    #[test]
    fn the_root_mount_is_found() {
        assert!(of_path(Path::new("/")).unwrap().point.is_absolute());
    }
}
