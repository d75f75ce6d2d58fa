//! What planning starts from, gathered from the live system: the files of a trace, or of a
//! walk, each with its layout as it is now, and the devices that they are on.

use anyhow::Context;
use fragmend_layout::{FileId, Layout, PathText};
use fragmend_plan::file::LeftAlone;
use fragmend_plan::readahead::Window;
use fragmend_plan::{Device, FileInput};
use fragmend_scan::{FileSystem, Source, WalkOptions, fiemap};
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::handle;
use fragmend_sys::mounts::{self, Mount};
use fragmend_trace::Trace;
use indicatif::ProgressBar;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::io;
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

impl Gathered {
    fn leave(&mut self, path: &Path, reason: impl Into<String>) {
        self.left_alone.push(LeftAlone { path: path.into(), reason: reason.into() });
    }
}

/// The traced files below `roots` (all of them if there are none), as they lie now.
///
/// # Errors
/// A root that does not exist.
pub fn traced(trace: Trace, roots: &[PathBuf], bar: &ProgressBar) -> anyhow::Result<Gathered> {
    let roots = absolute(roots)?;
    let mut found = Gathered::default();
    let mut mounted: HashMap<u64, Option<Mounted>> = HashMap::new();
    let mut space = Fiemap::default();
    for file in trace.files {
        bar.inc(1);
        let device = file.file.device;
        let mount =
            mounted.entry(device).or_insert_with(|| Mounted::find(device, file.path.as_deref()));
        let named =
            file.path.clone().unwrap_or_else(|| format!("inode {}", file.file.inode).into());
        let below = |path: &Path| roots.is_empty() || roots.iter().any(|r| path.starts_with(r));
        let Some(mount) = mount else {
            if below(&named) {
                found.leave(&named, "its file system is not mounted now");
            }
            continue;
        };
        match mount.open(file.file, file.path.as_deref()) {
            Ok((fd, path)) if below(&path) => match fiemap::layout_with(&mut space, &fd) {
                Ok(layout) => mount.add(&mut found, path, &fd, layout, file.accesses),
                Err(e) if fiemap::is_unsupported(&e) => {
                    let reason = NO_FIEMAP.to_owned();
                    found.unsupported.push(LeftAlone { path: path.as_path().into(), reason });
                }
                Err(e) => found.leave(&path, format!("its layout cannot be read: {e}")),
            },
            Ok(_) => {}
            Err(reason) if below(&named) => found.leave(&named, reason),
            Err(_) => {}
        }
    }
    found.devices = mounted.into_values().flatten().map(|m| m.device).collect();
    found.devices.sort_by_key(|d| d.device);
    Ok(found)
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
    let mut mounted: HashMap<u64, Option<Mounted>> = HashMap::new();
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
                match layout {
                    Ok(layout) => {
                        let device = layout.file.device;
                        let mount = mounted
                            .entry(device)
                            .or_insert_with(|| Mounted::find(device, Some(&path)));
                        let Some(mount) = mount else {
                            found.leave(&path, "its mount is not visible");
                            continue;
                        };
                        match mount.open(layout.file, Some(&path)) {
                            Ok((fd, _)) => mount.add(&mut found, path, &fd, layout, Vec::new()),
                            Err(reason) => found.leave(&path, reason),
                        }
                    }
                    Err(reason) => found.leave(&path, reason),
                }
            }
            Ok(())
        },
    )?;
    found.devices = mounted.into_values().flatten().map(|m| m.device).collect();
    found.devices.sort_by_key(|d| d.device);
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

const NO_FIEMAP: &str = "its file system does not tell where files lie (no FIEMAP)";

/// A mounted file system, so that files on it can be found by inode number.
struct Mounted {
    mount: Mount,
    system: FileSystem,
    device: Device,
}

impl Mounted {
    fn find(dev: u64, hint: Option<&Path>) -> Option<Self> {
        let mounts = mounts::all().ok()?;
        let root = hint.and_then(|path| mounts::root_of(path).ok()).unwrap_or_default();
        let mount = mounts::of_root(&mounts, dev, &root)?;
        let root = std::fs::File::open(&mount.point).ok()?;
        let system = FileSystem::of(&root, dev).ok()?;
        let size = rustix::fs::fstatvfs(&root).ok()?;
        let device = Device {
            device: dev,
            mount: PathText::from(mount.point.as_path()),
            file_system: system.kind,
            total_bytes: size.f_blocks * size.f_frsize,
            block_bytes: system.block_bytes,
            profile: system.device.clone(),
        };
        Some(Self { mount, system, device })
    }

    /// Opens a file that was seen: at its path if it is still there, else by its inode number.
    /// Gives the path where it is now.
    fn open(&self, file: FileId, path: Option<&Path>) -> Result<(OwnedFd, PathBuf), String> {
        let FileId { device, inode, generation } = file;
        let path = path.unwrap_or(Path::new(""));
        let gone = "deleted since it was seen";
        let named =
            handle::find(&self.mount.point, path, handle::Identity { device, inode, generation })
                .map_err(|missing| match missing.by_inode.kind() {
                io::ErrorKind::PermissionDenied => {
                    "moved or deleted since, and finding it again takes root"
                }
                _ => gone,
            })?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = handle::reopen(named, flags).map_err(|e| format!("it cannot be opened: {e}"))?;
        // File systems without generations have 0 in the trace.
        if fragmend_sys::inode::generation(&fd).unwrap_or(0) != generation {
            return Err(gone.into());
        }
        let path = handle::path_of(&fd).ok_or("deleted, but still open somewhere")?;
        Ok((fd, path))
    }

    fn add(
        &self,
        found: &mut Gathered,
        path: PathBuf,
        file: &OwnedFd,
        layout: Layout,
        accesses: Vec<fragmend_trace::Access>,
    ) {
        // Without an engine of its own, a file system's files are planned for all the same:
        // layouts are known, planning moves nothing, and `--engine rewrite` may be asked for.
        if let Err(reason) = fragmend_apply::engine::local(&self.mount) {
            found.unsupported.push(LeftAlone { path: path.as_path().into(), reason });
            return;
        }
        if let Err(skip) = fragmend_apply::engine::may_move(self.system.kind, file) {
            found.leave(&path, skip.reason.to_string());
            return;
        }
        found.files.push(FileInput {
            path,
            layout,
            accesses,
            block_bytes: self.system.block_bytes,
            limits: self.system.limits(),
            window: Window::of(&self.system.device),
        });
    }
}
