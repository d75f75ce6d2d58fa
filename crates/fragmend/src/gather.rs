//! What planning starts from, gathered from the live system: the files of a trace, or of a
//! walk, each with its layout as it is now, and the devices that they are on.
//!
//! Files are known by what they are (device, inode, generation), never by their path alone: what
//! was renamed is found again, and what could not be is in [`Gathered::left_alone`] with the reason.

mod mounted;

use anyhow::Context;
use fragmend_layout::{FileId, Layout};
use fragmend_plan::file::LeftAlone;
use fragmend_plan::readahead::Window;
use fragmend_plan::{Device, FileInput};
use fragmend_scan::{Source, WalkOptions, fiemap};
use fragmend_sys::fiemap::Fiemap;
use fragmend_trace::{Access, FileAccesses};
use indicatif::ProgressBar;
use mounted::{Mounted, Mounts};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The input of a plan.
#[derive(Default)]
pub struct Gathered {
    /// Files with their layouts.
    pub files: Vec<FileInput>,
    /// Every device that they are on.
    pub devices: Vec<Device>,
    /// Files that could not be considered.
    pub left_alone: Vec<LeftAlone>,
    /// Files on file systems where nothing can be moved.
    pub unsupported: Vec<LeftAlone>,
}

const NO_FIEMAP: &str = "its file system does not tell where files lie (no FIEMAP)";

impl Gathered {
    fn leave(&mut self, path: &Path, reason: impl Into<String>) {
        self.left_alone.push(LeftAlone { path: path.into(), reason: reason.into() });
    }

    /// Takes a file that was opened, with its layout if it is known.
    fn take(
        &mut self,
        mount: &Mounted,
        path: PathBuf,
        file: &OwnedFd,
        layout: std::io::Result<Layout>,
        accesses: Vec<Access>,
    ) {
        let unsupported = |reason| LeftAlone { path: path.as_path().into(), reason };
        let layout = match layout {
            Ok(layout) => layout,
            Err(e) if fiemap::is_unsupported(&e) => {
                return self.unsupported.push(unsupported(NO_FIEMAP.to_owned()));
            }
            Err(e) => return self.leave(&path, format!("its layout cannot be read: {e}")),
        };
        // Without an engine of its own, a file system's files are planned for all the same:
        // layouts are known, planning moves nothing, and `--engine rewrite` may be asked for.
        if let Err(reason) = fragmend_apply::engine::local(&mount.mount) {
            return self.unsupported.push(unsupported(reason));
        }
        if let Err(skip) = fragmend_apply::engine::may_move(mount.system.kind, file) {
            return self.leave(&path, skip.reason.to_string());
        }
        self.files.push(FileInput {
            path,
            layout,
            accesses,
            block_bytes: mount.system.block_bytes,
            limits: mount.system.limits(),
            window: Window::of(&mount.system.device),
        });
    }
}

/// The traced files below `roots` (all of them if there are none), as they lie now; `recorded` are
/// the paths that the trace was recorded for, as it has them.
///
/// # Errors
/// A root that does not exist.
pub fn traced(
    files: Vec<FileAccesses>,
    recorded: &[String],
    roots: &[PathBuf],
    bar: &ProgressBar,
) -> anyhow::Result<Gathered> {
    let roots = absolute(roots)?;
    let below = |path: &Path| roots.is_empty() || roots.iter().any(|r| path.starts_with(r));
    let recorded: Vec<PathBuf> = recorded.iter().map(|p| unescaped(p)).collect();
    let known: HashMap<u64, Vec<PathBuf>> = paths_by_device(&files);
    let mut found = Gathered::default();
    let mut mounts = Mounts::default();
    let mut unnamed: Vec<(FileAccesses, OwnedFd)> = Vec::new();
    let mut space = Fiemap::default();
    for file in files {
        bar.inc(1);
        let device = file.file.device;
        let hints = known.get(&device).into_iter().flatten().chain(&roots).chain(&recorded);
        let hints = hints.map(PathBuf::as_path);
        // Who knows where it was if not by its path? It may have been below any of `roots`.
        let concerns = |path: Option<&PathBuf>| path.is_none_or(|p| below(p));
        let named = || {
            let number = || format!("inode {}", file.file.inode).into();
            file.path.clone().unwrap_or_else(number)
        };
        let Some(mount) = mounts.of(device, hints) else {
            if concerns(file.path.as_ref()) {
                found.leave(&named(), "its file system is not mounted now");
            }
            continue;
        };
        match mount.open(file.file, file.path.as_deref()) {
            Ok(mounted::Found { fd, path: Some(path) }) => {
                if below(&path) {
                    let layout = fiemap::layout_with(&mut space, &fd);
                    found.take(mount, path, &fd, layout, file.accesses);
                }
            }
            Ok(mounted::Found { fd, path: None }) => unnamed.push((file, fd)),
            Err(reason) if concerns(file.path.as_ref()) => found.leave(&named(), reason),
            Err(_) => {}
        }
        if unnamed.len() >= MOST_OPEN {
            let some = std::mem::take(&mut unnamed);
            name(some, &roots, &recorded, &mut mounts, &mut found);
        }
    }
    name(unnamed, &roots, &recorded, &mut mounts, &mut found);
    found.devices = mounts.devices();
    Ok(found)
}

/// Files without a name that are held open at once.
const MOST_OPEN: usize = 256;

/// Takes files that were found by their number alone: with a name that a walk finds for them, and
/// without one where they were not asked for by path.
fn name(
    unnamed: Vec<(FileAccesses, OwnedFd)>,
    roots: &[PathBuf],
    recorded: &[PathBuf],
    mounts: &mut Mounts,
    found: &mut Gathered,
) {
    if unnamed.is_empty() {
        return;
    }
    let mut names: HashMap<(u64, u64), Option<PathBuf>> =
        unnamed.iter().map(|(f, _)| ((f.file.device, f.file.inode), None)).collect();
    let places = if roots.is_empty() { recorded } else { roots };
    if let Ok(tree) = fragmend_scan::files(places, &WalkOptions::default(), &|_| {}) {
        for entry in tree.entries() {
            let number = (tree.file_system(entry).dev, entry.inode);
            if let Some(name) = names.get_mut(&number) {
                *name = Some(tree.path(entry));
            }
        }
    }
    let mut space = Fiemap::default();
    for (file, fd) in unnamed {
        let FileId { device, inode, .. } = file.file;
        let Some(mount) = mounts.of(device, std::iter::empty()) else { continue };
        let by_number =
            || mount.mount.point.join(format!("(inode {inode}, its name is not known)"));
        let path = match names.remove(&(device, inode)).flatten() {
            Some(path) => path,
            None if roots.is_empty() => by_number(),
            None => {
                let path = file.path.clone().unwrap_or_else(by_number);
                found.leave(&path, "moved since it was seen, and not to a place below the paths");
                continue;
            }
        };
        let layout = fiemap::layout_with(&mut space, &fd);
        found.take(mount, path, &fd, layout, file.accesses);
    }
}

/// The paths in a trace, for finding file systems: the first few of each suffice.
fn paths_by_device(files: &[FileAccesses]) -> HashMap<u64, Vec<PathBuf>> {
    const FEW: usize = 64;
    let mut known: HashMap<u64, Vec<PathBuf>> = HashMap::new();
    for file in files {
        let of_device = known.entry(file.file.device).or_default();
        of_device.extend(file.path.clone().filter(|_| of_device.len() < FEW));
    }
    known
}

fn unescaped(path: &str) -> PathBuf {
    fragmend_trace::file::text::unescape_path(path.as_bytes())
}

/// Every fragmented file below `paths`, for policies without a trace.
///
/// # Errors
/// A path that cannot be walked.
pub fn walked(paths: &[PathBuf], bar: &ProgressBar) -> anyhow::Result<Gathered> {
    let paths = absolute(paths)?;
    let tree = fragmend_scan::files(&paths, &WalkOptions::default(), &|_| {})?;
    if let Some(error) = tree.failed().first() {
        anyhow::bail!("{error}");
    }
    let mut found = Gathered::default();
    for skip in tree.skips() {
        found.leave(&tree.skipped_path(skip), skip.reason.to_string());
    }
    let mut mounts = Mounts::default();
    type Batch = Vec<(PathBuf, Result<Layout, String>)>;
    bar.set_length(tree.entries().len() as u64);
    fragmend_scan::in_batches(
        &tree,
        Source::Auto,
        |batch: &mut Batch, _, entry, layout| {
            bar.inc(1);
            match layout {
                Ok(l) if l.breaks().next().is_none() => {}
                Ok(l) => batch.push((tree.path(entry), Ok(l.clone()))),
                Err(reason) => batch.push((tree.path(entry), Err(reason.to_string()))),
            }
        },
        |batch| {
            for (path, layout) in batch {
                let layout = match layout {
                    Ok(layout) => layout,
                    Err(reason) => {
                        found.leave(&path, reason);
                        continue;
                    }
                };
                let hints = std::iter::once(path.as_path());
                let Some(mount) = mounts.of(layout.file.device, hints) else {
                    found.leave(&path, "its mount is not visible");
                    continue;
                };
                match mount.open(layout.file, Some(&path)) {
                    Ok(file) => {
                        let path = file.path.unwrap_or(path);
                        found.take(mount, path, &file.fd, Ok(layout), Vec::new());
                    }
                    Err(reason) => found.leave(&path, reason),
                }
            }
            Ok(())
        },
    )?;
    found.devices = mounts.devices();
    Ok(found)
}

/// Paths as the kernel will report them.
///
/// # Errors
/// A path that does not exist.
pub fn absolute(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let full = |p: &PathBuf| p.canonicalize().with_context(|| p.display().to_string());
    paths.iter().map(full).collect()
}
