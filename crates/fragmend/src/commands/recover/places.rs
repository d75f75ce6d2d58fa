//! Where `recover` looks for journals: at the tops of all mounts of the file systems that are meant, in the
//! directories above the paths that were given, or in the one directory that was named.
//!
//! `apply` keeps records at the top of the whole file system. Earlier versions kept them at the top of a
//! directory that was mounted alone, as in a container; so a file's record may be in any directory above it.

use crate::exit::Usage;
use anyhow::Context;
use fragmend_engines::engine;
use fragmend_engines::rewrite::journal::{DIRECTORY, ELSEWHERE};
use fragmend_engines::rewrite::recover::Serves;
use fragmend_layout::{FsKind, printable_path};
use fragmend_sys::mounts::{self, Mount};
use fragmend_sys::root::Root;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The mounts of file systems that rewriting is for.
#[derive(Debug)]
pub struct Mounts {
    /// Writable ones first, then those that show more of it; each directory of a file system once.
    reached: Vec<Mount>,
    given: Vec<Given>,
    /// What is said of those that were passed over, where no path was given.
    pub passed_over: Vec<String>,
}

/// A path that was given.
#[derive(Debug)]
struct Given {
    /// The mount that it is on.
    mount: Mount,
    /// Where it is on its file system, or the directory that it is in if it is no directory.
    inside: PathBuf,
    /// What it leads to on its file system.
    whole: PathBuf,
}

/// A journal to read.
#[derive(Debug)]
pub struct Place<'a> {
    /// Its path.
    pub journal: PathBuf,
    /// The file systems that it may serve.
    pub serves: Serves<'a>,
    /// Whether it, or the mount at whose top it is, was named.
    pub named: bool,
}

/// A directory of a file system, whichever mount shows it.
type Identity = (u64, PathBuf);

fn identity(mount: &Mount) -> Identity {
    (mount.dev, mount.root.clone())
}

impl Mounts {
    /// All of them, or those of the file systems of these paths.
    ///
    /// # Errors
    /// That a path is on none.
    pub fn of(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let all = mounts::all().context("the mount table")?;
        let near = mounts::near(&all);
        let given: Vec<Given> = paths
            .iter()
            .map(|path| Given::of(path).with_context(|| path.display().to_string()))
            .collect::<anyhow::Result<_>>()?;
        if let Some(why) = given.iter().find_map(|g| engine::local(&g.mount).err()) {
            return Err(Usage(why).into());
        }
        let mut found: Vec<Mount> = given.iter().map(|g| g.mount.clone()).collect();
        let is_meant = |m: &Mount| paths.is_empty() || given.iter().any(|g| g.mount.dev == m.dev);
        found.extend(near.iter().filter(|m| is_meant(m)).cloned());
        found.retain(|mount| engine::local(mount).is_ok());
        found.sort_by_key(|mount| (mount.has_option("ro"), mount.root.components().count()));
        let mut seen: HashSet<Identity> = HashSet::new();
        let mut reached = Vec::new();
        for mount in found {
            if !seen.contains(&identity(&mount))
                && let Some(mount) = with_directory(mount, &near)
                && seen.insert(identity(&mount))
            {
                reached.push(mount);
            }
        }
        if let (true, Some(path)) = (reached.is_empty(), paths.first()) {
            anyhow::bail!("{}: the top of its file system cannot be opened", printable_path(path));
        }
        let passed_over =
            if paths.is_empty() { unreached(&reached, &near, &all) } else { Vec::new() };
        Ok(Self { reached, given, passed_over })
    }

    /// The journals to read: a journal at the top of a mount serves that one alone, one in a directory its own
    /// file system, one elsewhere any that has its name.
    ///
    /// # Errors
    /// That the directory that was named cannot be read.
    pub fn journals(&self, named: Option<&Path>) -> anyhow::Result<Vec<Place<'_>>> {
        if let Some(dir) = named {
            return self.journals_in(dir);
        }
        let tops: HashSet<Identity> = self.given.iter().map(|g| identity(&g.mount)).collect();
        let top = |mount| Place {
            journal: mount_top(mount),
            serves: Serves::Itself(mount),
            named: tops.contains(&identity(mount)),
        };
        let mut places: Vec<_> = self.reached.iter().map(top).collect();
        let mut seen: HashSet<Identity> = self.reached.iter().map(identity).collect();
        for given in self.given.iter().filter(|g| !has_subvolumes(&g.mount)) {
            for dir in given.inside.ancestors() {
                if let Some((mount, path)) = self.shown(&given.mount, dir)
                    && seen.insert((mount.dev, dir.to_owned()))
                {
                    let (journal, serves) = (path.join(DIRECTORY), Serves::Itself(mount));
                    places.push(Place { journal, serves, named: false });
                }
            }
        }
        Ok(places)
    }

    /// The path of a directory of a file system, and the mount that shows it: `first`, through which the user
    /// came there, if it may be written to, or the best of the others.
    fn shown<'a>(&'a self, first: &'a Mount, dir: &Path) -> Option<(&'a Mount, PathBuf)> {
        let first_of_all = Some(first).filter(|m| !m.has_option("ro"));
        let mut mounts = first_of_all.into_iter().chain(&self.reached);
        mounts.find_map(|m| Some((m, path_on(m, first.dev, dir)?)))
    }

    /// The paths that were given, by the names that they have on the mount that a journal serves. A file's path
    /// is reported on that one.
    pub fn names_on(&self, serves: Serves<'_>) -> Vec<PathBuf> {
        let by = |given: &Given| {
            let on = |m: &Mount| path_on(m, given.mount.dev, &given.whole);
            match serves {
                Serves::Itself(mount) => on(mount),
                // The first one of the file system is taken.
                Serves::OneOf(mounts) => {
                    mounts.iter().find(|m| m.dev == given.mount.dev).and_then(on)
                }
            }
        };
        self.given.iter().filter_map(by).collect()
    }

    /// What is said where not all of a file system is mounted, so that records may be out of sight.
    pub fn partly_shown(&self) -> Vec<String> {
        let is_part = |mount: &&Mount| {
            let whole = |m: &Mount| m.dev == mount.dev && m.root == Path::new("/");
            !has_subvolumes(mount) && !self.reached.iter().any(whole)
        };
        let line = |mount: &Mount| {
            format!(
                "{}: of its file system {} alone is mounted, and records above that are not looked at; recover where all of it is mounted to have them looked at",
                printable_path(&mount.point),
                printable_path(&mount.root)
            )
        };
        let mut devices = HashSet::new();
        let parts = self.given.iter().map(|g| &g.mount).filter(is_part);
        parts.filter(|mount| devices.insert(mount.dev)).map(line).collect()
    }

    fn journals_in(&self, dir: &Path) -> anyhow::Result<Vec<Place<'_>>> {
        let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
        if !dir.is_dir() {
            let dir = printable_path(&dir);
            return Err(Usage(format!(
                "--journal {dir}: not a directory; name the one that was given to apply --journal"
            ))
            .into());
        }
        let place = |journal: PathBuf| {
            let at_top = self.reached.iter().find(|m| mount_top(m) == journal);
            let serves = at_top.map_or(Serves::OneOf(&self.reached), Serves::Itself);
            Place { journal, serves, named: true }
        };
        let is_journal = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(ELSEWHERE) || name == DIRECTORY
        };
        if is_journal(&dir) {
            return Ok(vec![place(dir)]);
        }
        let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
        let names =
            entries.collect::<Result<Vec<_>, _>>().with_context(|| dir.display().to_string())?;
        let mut journals: Vec<_> =
            names.iter().map(|entry| entry.path()).filter(|p| is_journal(p)).collect();
        journals.sort();
        Ok(journals.into_iter().map(place).collect())
    }
}

impl Given {
    fn of(path: &Path) -> std::io::Result<Self> {
        let (mount, path) = (mounts::of_path(path)?, path.canonicalize()?);
        let rest = path.strip_prefix(&mount.point).unwrap_or(Path::new(""));
        let whole: PathBuf = mount.root.join(rest).components().collect();
        let inside = if path.is_dir() { Some(&*whole) } else { whole.parent() };
        let inside = inside.unwrap_or(Path::new("/")).to_owned();
        Ok(Self { mount, inside, whole })
    }
}

fn mount_top(mount: &Mount) -> PathBuf {
    mount.point.join(DIRECTORY)
}

fn has_subvolumes(mount: &Mount) -> bool {
    FsKind::from_name(&mount.fs_type).has_subvolumes()
}

/// The path on a mount of what is at `inside` on the file system `dev`, if the mount shows that.
fn path_on(mount: &Mount, dev: u64, inside: &Path) -> Option<PathBuf> {
    let rest = inside.strip_prefix(&mount.root).ok().filter(|_| mount.dev == dev)?;
    Some(mount.point.join(rest))
}

/// What is said of local file systems none of whose mounts was reached, and of mounts that show more of theirs,
/// because others hide them, or they are not `near`.
fn unreached(reached: &[Mount], near: &[Mount], all: &[Mount]) -> Vec<String> {
    let no_root = mounts::holding(all, Path::new("/")).is_none();
    let of_root = no_root.then(|| {
        "/: not looked at, because the mount that it is on is not visible (chroot); recover outside".into()
    });
    let shows_more = |mount: &&Mount| {
        let mut same = reached.iter().filter(|m| m.dev == mount.dev).peekable();
        let out_of_reach = !near.contains(mount) || !mounts::is_visible(all, mount);
        (same.peek().is_none() || out_of_reach) && !same.any(|m| mount.root.starts_with(&m.root))
    };
    let line = |mount: &Mount| {
        format!(
            "{}: not looked at, because another mount hides it, or the way to it is over a file system that a program or a server answers for; unmount what hides it, or name it",
            printable_path(&mount.point)
        )
    };
    let local = all.iter().filter(|mount| engine::local(mount).is_ok());
    of_root.into_iter().chain(local.filter(shows_more).map(line)).collect()
}

/// The mount itself, or where only a file is mounted (as in every container), one of the same file
/// system that shows more; `None` where another mount hides it.
fn with_directory(mount: Mount, near: &[Mount]) -> Option<Mount> {
    match Root::of(&mount) {
        Ok(_) => Some(mount),
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            let same = near.iter().filter(|m| m.dev == mount.dev && Root::of(m).is_ok());
            same.min_by_key(|m| m.root.components().count()).cloned()
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The disk of `/` is one of this machine, so that it is local.
    #[test]
    fn what_is_hidden_is_said_to_be_unless_a_mount_shows_it() {
        let disk = mounts::all().unwrap().into_iter().find(|m| engine::local(m).is_ok());
        let disk = disk.expect("a local disk");
        let mount = |id, parent, root: &str, point: &str| Mount {
            id,
            parent,
            root: root.into(),
            point: point.into(),
            ..disk.clone()
        };
        let root = mount(1, 0, "/", "/");
        let root = Mount { dev: 0, fs_type: "tmpfs".into(), ..root };
        let whole = mount(2, 1, "/", "/m");
        let over = mount(3, 2, "/sub", "/m");
        let file = mount(4, 1, "/docker/hosts", "/etc/hosts");
        let all = [root.clone(), whole.clone(), over.clone(), file.clone()];
        let said = |reached: &[&Mount], all: &[Mount]| {
            let reached: Vec<Mount> = reached.iter().map(|m| (*m).clone()).collect();
            unreached(&reached, all, all).len()
        };
        assert_eq!(said(&[&over], &all), 1);
        assert!(unreached(std::slice::from_ref(&over), &all, &all)[0].starts_with("/m: "));
        assert_eq!(said(&[&whole], &all), 0);
        // In a container.
        assert_eq!(said(&[&over], &[root.clone(), over.clone(), file.clone()]), 0);
        assert_eq!(said(&[], &[root, file]), 1);
        // In a directory of a mount that is not visible.
        assert_eq!(said(&[&whole], std::slice::from_ref(&whole)), 1);
    }
}
