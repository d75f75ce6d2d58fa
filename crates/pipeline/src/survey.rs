//! The second stage: the input of planning. The files of a trace, or of a walk, each with its present layout,
//! and the devices that they are on.
//!
//! Files are identified by device, inode and generation, never by their path alone: a renamed file is found
//! again, and one that could not be found is in [`Survey::left_alone`] with the reason.

mod mounted;
mod observed;
mod segments;
mod slow;

use crate::{Error, Event, Observer};
use fragmend_engines::engine;
use fragmend_layout::{FileId, Layout, ObservedLoad, Skip, SkipReason};
use fragmend_plan::file::LeftAlone;
use fragmend_plan::{Device, Part, SlowFile, Survey, SurveyedFile};
use fragmend_scan::{Cause, Entry, Source, WalkOptions, fiemap};
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::{btrfs, root};
use fragmend_trace::{DeviceMeta, FileAccesses, Meta, Order, Sampling, Trace};
use mounted::{FoundFile, MOST_HINTS, Mounts, SurveyedMount};
use rustix::fs::{Mode, OFlags};
pub use segments::segments;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Surveys the files of a trace below `paths` (all of them if there are none), or without a trace every
/// fragmented file below `paths`.
///
/// # Errors
/// A path that does not exist or cannot be walked; [`Error::Unsupported`] where nothing can be moved on
/// the file systems of all files.
pub fn survey(
    trace: Option<Trace>,
    paths: &[PathBuf],
    observe: &Observer,
) -> Result<Survey, Error> {
    match trace {
        Some(trace) => {
            // Those of all files, whichever are below the paths.
            let recorded = observed::of_disks(&trace.meta, &trace.files);
            let mut survey = traced(trace.files, &trace.meta.paths, paths, observe)?;
            survey.misses = trace.meta.has_misses();
            survey.unread = trace.skipped;
            let device_reads = observed::device_reads(&trace.meta);
            let part = |sampling: Sampling| Part {
                places_ppm: sampling.places_ppm,
                place_bytes: sampling.region_bytes,
                device_reads,
            };
            let sampling = trace.meta.sampling.filter(|sampling| sampling.places_ppm < 1_000_000);
            survey.part = sampling.map(part);
            survey.ordered = trace.ordered;
            survey.loads = observed::by_file_system(&survey.devices, &trace.meta.loads);
            let of_load = |(number, load): (&u64, &ObservedLoad)| {
                Some((*number, *recorded.get(&load.device)?))
            };
            survey.recorded = survey.loads.iter().filter_map(of_load).collect();
            Ok(survey)
        }
        None => walked(paths, observe),
    }
}

/// The files of an earlier survey with the same accesses, and with their layouts as they are now. What was left alone then is
/// not looked up again.
///
/// # Errors
/// As [`survey`].
pub fn again(earlier: Survey, paths: &[PathBuf], observe: &Observer) -> Result<Survey, Error> {
    let accesses = |file: SurveyedFile| FileAccesses {
        file: file.layout.file,
        path: Some(file.path),
        accesses: file.accesses,
        ranks: file.ranks,
        recorded: file.recorded,
    };
    let files = earlier.files.into_iter().map(accesses).collect();
    let now = traced(files, &[], paths, observe)?;
    Ok(Survey { files: now.files, devices: now.devices, left_alone: now.left_alone, ..earlier })
}

/// What has slow ranges and is to be planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichSlow {
    /// Files that were surveyed: those of a trace.
    Surveyed,
    /// Others below the paths, too: without a trace.
    All,
}

/// Adds what probes have measured of files to a survey of `paths` (of all files if there are none). A file that is not the
/// probed one any more is left alone, and so is each range that is not where it was, or not in one extent.
///
/// # Errors
/// A path that does not exist.
pub fn add_slow(
    survey: &mut Survey,
    measured: Vec<SlowFile>,
    paths: &[PathBuf],
    which: WhichSlow,
) -> Result<(), Error> {
    slow::add(survey, measured, &absolute(paths)?, which)
}

/// The accesses of a trace whose order is kept at most: some hundred MiB of them while a plan is made, and hours of what a
/// disk does.
pub const MOST_ORDERED: u64 = 4_000_000;

/// The order that a plan needs of a trace that was recorded so, `cold` if a cold start is planned for: where none of its file
/// systems is on a device that seeks, none.
pub fn order(meta: &Meta, cold: bool) -> Option<Order> {
    let recorded: Vec<PathBuf> = meta.paths.iter().map(|p| unescaped(p)).collect();
    let mut mounts = Mounts::default();
    let mut seeks = |device: &DeviceMeta| {
        let mount = mounts.of(device.device, recorded.iter().map(PathBuf::as_path));
        mount.is_some_and(|mount| !mount.device.profile.cost.seeks().is_empty())
    };
    let needed = meta.devices.iter().any(&mut seeks);
    needed.then_some(Order { up_to: MOST_ORDERED, cold })
}

/// The file system of a path, and the device below it.
///
/// # Errors
/// [`Error::Path`] where the path cannot be examined, or no mount shows its file system.
pub fn device(path: &Path) -> Result<Device, Error> {
    let number = std::fs::metadata(path).map_err(Error::at(path))?.dev();
    let mut mounts = Mounts::default();
    let mount = mounts.of(number, [path].into_iter());
    let not_mounted = || Error::at(path)(io::Error::other("its file system is not mounted"));
    Ok(mount.ok_or_else(not_mounted)?.device.clone())
}

/// What was found so far.
#[derive(Default)]
struct Collected {
    survey: Survey,
    /// Files on file systems where nothing can be moved.
    unsupported: Vec<LeftAlone>,
}

const NO_FIEMAP: &str = "its file system does not report where files are (no FIEMAP)";

impl Collected {
    fn leave(&mut self, path: &Path, reason: SkipReason, detail: impl Into<String>) {
        self.leave_for(path, &Skip::new(reason, detail));
    }

    fn leave_for(&mut self, path: &Path, skip: &Skip) {
        self.survey.left_alone.push(LeftAlone::new(path, skip));
    }

    /// Adds a file that was opened, with its layout if it is known, and what was seen on it.
    fn take(
        &mut self,
        mount: &SurveyedMount,
        path: PathBuf,
        opened: &OwnedFd,
        layout: std::io::Result<Layout>,
        seen: FileAccesses,
    ) {
        let unsupported = |reason, why| LeftAlone::new(&path, &Skip::new(reason, why));
        let layout = match layout {
            Ok(layout) => layout,
            Err(e) if fiemap::is_unsupported(&e) => {
                return self
                    .unsupported
                    .push(unsupported(SkipReason::NoLayout, NO_FIEMAP.to_owned()));
            }
            Err(e) => {
                let why = format!("its layout cannot be read: {e}");
                return self.leave(&path, SkipReason::Failed, why);
            }
        };
        // Files of a file system without an engine of its own are planned for all the same: their layouts are
        // known, planning moves nothing, and `--engine rewrite` may be asked for.
        if let Err(why) = engine::local(&mount.mount) {
            return self.unsupported.push(unsupported(SkipReason::Unsupported, why));
        }
        if let Err(skip) = engine::may_move(mount.device.file_system, opened) {
            return self.leave(&path, skip.reason, "");
        }
        let FileAccesses { accesses, ranks, recorded, .. } = seen;
        let file = SurveyedFile::new(path, layout, accesses, &mount.device);
        let has_other_names = rustix::fs::fstat(opened).is_ok_and(|stat| stat.st_nlink > 1);
        self.survey.files.push(SurveyedFile { ranks, recorded, has_other_names, ..file });
    }

    /// The survey, on the devices of `mounts`.
    fn survey(mut self, mounts: Mounts) -> Result<Survey, Error> {
        if let (true, Some(first)) = (self.survey.files.is_empty(), self.unsupported.first()) {
            let (path, why) = (first.path.path.clone(), first.reason.clone());
            return Err(Error::Unsupported { path, why });
        }
        self.survey.devices = mounts.devices();
        self.survey.left_alone.append(&mut self.unsupported);
        Ok(self.survey)
    }
}

/// The traced files below `roots` (all of them if there are none), with their present layouts; `recorded` are
/// the paths that the trace was recorded for, as the trace has them.
///
/// # Errors
/// As [`survey`].
pub fn traced(
    files: Vec<FileAccesses>,
    recorded: &[String],
    roots: &[PathBuf],
    observe: &Observer,
) -> Result<Survey, Error> {
    let roots = absolute(roots)?;
    let below = |path: &Path| roots.is_empty() || roots.iter().any(|r| path.starts_with(r));
    let recorded: Vec<PathBuf> = recorded.iter().map(|p| unescaped(p)).collect();
    let known: HashMap<u64, Vec<PathBuf>> = paths_by_device(&files);
    let mut found = Collected::default();
    let mut mounts = Mounts::default();
    observe(Event::ToSurvey(files.len() as u64));
    let mut unnamed: Vec<FileAccesses> = Vec::new();
    let mut space = Fiemap::default();
    for file in files {
        observe(Event::Surveyed(1));
        let device = file.file.device;
        let hints = known.get(&device).into_iter().flatten().chain(&roots).chain(&recorded);
        let hints = hints.map(PathBuf::as_path);
        // A file without a known path may have been below any of `roots`.
        let concerns = |path: Option<&PathBuf>| path.is_none_or(|p| below(p));
        let named = || {
            let number = || format!("inode {}", file.file.inode).into();
            file.path.clone().unwrap_or_else(number)
        };
        let Some(mount) = mounts.of(device, hints) else {
            if concerns(file.path.as_ref()) {
                found.leave(&named(), SkipReason::NotMounted, "its file system is not mounted now");
            }
            continue;
        };
        match mount.open(file.file, file.path.as_deref()) {
            Ok(FoundFile { fd, path: Some(path) }) => {
                if below(&path) {
                    let layout = fiemap::layout_with(&mut space, &fd);
                    found.take(mount, path, &fd, layout, file);
                }
            }
            Ok(FoundFile { path: None, .. }) => unnamed.push(file),
            Err(skip) if concerns(file.path.as_ref()) => found.leave_for(&named(), &skip),
            Err(_) => {}
        }
    }
    name(unnamed, &roots, &recorded, &mut mounts, &mut found);
    found.survey(mounts)
}

/// Adds files that were found by their number alone: with a name if a walk finds one, and without one if no
/// paths were asked for. There is one walk for all of them.
fn name(
    unnamed: Vec<FileAccesses>,
    roots: &[PathBuf],
    recorded: &[PathBuf],
    mounts: &mut Mounts,
    found: &mut Collected,
) {
    if unnamed.is_empty() {
        return;
    }
    let mut names: HashMap<(u64, u64), Option<PathBuf>> =
        unnamed.iter().map(|f| ((f.file.device, f.file.inode), None)).collect();
    let devices: HashSet<u64> = unnamed.iter().map(|f| f.file.device).collect();
    let places = places_on(&devices, if roots.is_empty() { recorded } else { roots });
    if let Ok(tree) = fragmend_scan::files(&places, &WalkOptions::default(), &|_| {}) {
        for entry in tree.entries() {
            let number = (tree.file_system(entry).dev, entry.inode);
            if let Some(name) = names.get_mut(&number).filter(|_| tree.can_be_opened_by_path(entry))
            {
                *name = Some(tree.path(entry));
            }
        }
    }
    let mut space = Fiemap::default();
    for file in unnamed {
        let FileId { device, inode, .. } = file.file;
        let Some(mount) = mounts.of(device, std::iter::empty()) else { continue };
        let by_number = || mount.by_number(inode, "its name is not known");
        let path = match names.remove(&(device, inode)).flatten() {
            Some(path) => path,
            None if roots.is_empty() => by_number(),
            None => {
                let path = file.path.clone().unwrap_or_else(by_number);
                let why = "moved since it was seen, and not to a place below the paths";
                found.leave(&path, SkipReason::Elsewhere, why);
                continue;
            }
        };
        match mount.open(file.file, None) {
            Ok(FoundFile { fd, .. }) => {
                let layout = fiemap::layout_with(&mut space, &fd);
                found.take(mount, path, &fd, layout, file);
            }
            Err(skip) => found.leave_for(&path, &skip),
        }
    }
}

/// Those of `places` that are on these file systems, to be walked each within its own, without what is below another
/// of them: a forged trace may name any number of places.
fn places_on(devices: &HashSet<u64>, places: &[PathBuf]) -> Vec<PathBuf> {
    let names = OFlags::PATH | OFlags::CLOEXEC;
    let on = |place: &PathBuf| {
        let place = place.canonicalize().ok()?;
        let file = rustix::fs::open(&place, names, Mode::empty()).ok()?;
        let device = rustix::fs::fstat(&file).ok()?.st_dev;
        // A subvolume below it has another number.
        let has_subvolumes = || btrfs::holds(&file).unwrap_or(false);
        (devices.contains(&device) || has_subvolumes())
            .then(|| ((device, root::mount_id(&file)), place))
    };
    let mut found: Vec<_> = places.iter().filter_map(on).collect();
    // What is below a directory follows it, and on the same mount no other one is in between.
    found.sort();
    let mut kept: Vec<(_, PathBuf)> = Vec::new();
    for (mount, place) in found {
        if kept.last().is_none_or(|(last, above)| *last != mount || !place.starts_with(above)) {
            kept.push((mount, place));
        }
    }
    kept.into_iter().map(|(_, place)| place).collect()
}

/// Some paths of each device in a trace, for finding its file system: the first few suffice.
fn paths_by_device(files: &[FileAccesses]) -> HashMap<u64, Vec<PathBuf>> {
    let mut known: HashMap<u64, Vec<PathBuf>> = HashMap::new();
    for file in files {
        let of_device = known.entry(file.file.device).or_default();
        of_device.extend(file.path.clone().filter(|_| of_device.len() < MOST_HINTS));
    }
    known
}

fn unescaped(path: &str) -> PathBuf {
    fragmend_trace::file::text::unescape_path(path.as_bytes())
}

/// The reason for a file whose path is longer than [`PATH_MAX`](fragmend_layout::PATH_MAX).
const TOO_LONG: &str = "its path is too long";

/// Every fragmented file below `paths`, for policies without a trace.
///
/// # Errors
/// As [`survey`].
pub fn walked(paths: &[PathBuf], observe: &Observer) -> Result<Survey, Error> {
    let paths = absolute(paths)?;
    let mut tree = fragmend_scan::files(&paths, &WalkOptions::default(), &|_| {})?;
    if let Some(error) = tree.take_failed().into_iter().next() {
        return Err(error.into());
    }
    let mut found = Collected::default();
    for skip in tree.skips() {
        found.leave_for(&tree.skipped_path(skip), &skip.cause.into());
    }
    let mut mounts = Mounts::default();
    type Batch = Vec<(Entry, Result<Layout, Cause>)>;
    observe(Event::ToSurvey(tree.entries().len() as u64));
    fragmend_scan::in_batches(
        &tree,
        Source::Auto,
        |batch: &mut Batch, _, entry, layout| {
            observe(Event::Surveyed(1));
            match layout {
                Ok(l) if l.breaks().next().is_none() => {}
                Ok(l) => batch.push((*entry, Ok(l.clone()))),
                Err(cause) => batch.push((*entry, Err(cause))),
            }
        },
        |batch| {
            for (entry, layout) in batch {
                let path = tree.path(&entry);
                let layout = match layout {
                    Ok(layout) => layout,
                    Err(cause) => {
                        found.leave_for(&path, &cause.into());
                        continue;
                    }
                };
                let hints = std::iter::once(path.as_path());
                let Some(mount) = mounts.of(layout.file.device, hints) else {
                    found.leave(&path, SkipReason::NotMounted, "its mount is not visible");
                    continue;
                };
                let short = tree.can_be_opened_by_path(&entry);
                match mount.open(layout.file, short.then_some(&path)) {
                    Ok(file) => {
                        let inode = layout.file.inode;
                        let known = || if short { path } else { mount.by_number(inode, TOO_LONG) };
                        let path = file.path.unwrap_or_else(known);
                        let unseen = FileAccesses::of(layout.file);
                        found.take(mount, path, &file.fd, Ok(layout), unseen);
                    }
                    Err(skip) if !short && skip.reason == SkipReason::PermissionDenied => {
                        let why = "its path is too long, and finding it by its number needs root";
                        found.leave(&path, skip.reason, why);
                    }
                    Err(skip) => found.leave_for(&path, &skip),
                }
            }
            Ok(())
        },
    )?;
    found.survey(mounts)
}

/// Paths in the form in which the kernel will report them.
///
/// # Errors
/// A path that does not exist.
pub fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let full = |p: &PathBuf| p.canonicalize().map_err(Error::at(p));
    paths.iter().map(full).collect()
}
