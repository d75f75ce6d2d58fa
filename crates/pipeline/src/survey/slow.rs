//! Slow ranges that probes have measured, added to a survey: of the very file that was probed, and only where its data still
//! is where it was. What was overwritten in place since then does not show, nor, of a range in several extents, that one behind the first
//! has moved; a range that is written anew without need costs a write, and no byte.

use super::mounted::Mounts;
use super::{Collected, WhichSlow};
use crate::Error;
use fragmend_layout::{FileAccesses, Skip, SkipReason};
use fragmend_plan::file::LeftAlone;
use fragmend_plan::{SlowFile, Survey, SurveyedFile};
use fragmend_scan::fiemap;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// See [`super::add_slow`]; `roots` are absolute.
pub(super) fn add(
    survey: &mut Survey,
    measured: Vec<SlowFile>,
    roots: &[PathBuf],
    which: WhichSlow,
) -> Result<(), Error> {
    let mut found = Collected::default();
    let mut mounts = Mounts::default();
    let mut known: HashMap<_, _> =
        survey.files.iter().enumerate().map(|(n, file)| (file.layout.file, n)).collect();
    let mut seen = HashSet::new();
    for slow in measured {
        // Checked when it was read.
        let path = slow.path.to_path().unwrap_or_default();
        let mut unused = |reason: &str| {
            let (path, reason) = (path.as_path().into(), reason.to_owned());
            survey.left_alone.push(LeftAlone { path, reason, code: None });
        };
        if !seen.insert(slow.file) {
            unused("it is in an earlier document, too, which is used");
            continue;
        }
        if slow.ranges.is_empty() {
            unused("the probe has found no range of it that is slower than its extents explain");
        }
        if let Some(n) = known.remove(&slow.file) {
            put(&mut survey.files[n], &slow, &mut survey.left_alone);
            continue;
        }
        if which == WhichSlow::Surveyed {
            unused("it has slow ranges, and no access to it is in the trace and below the paths");
            continue;
        }
        if let Err(skip) = open(&slow, &path, roots, &mut mounts, &mut found) {
            survey.left_alone.push(LeftAlone::new(&path, &skip));
        }
        if let Some(file) = found.survey.files.last_mut().filter(|f| f.layout.file == slow.file) {
            put(file, &slow, &mut survey.left_alone);
        }
    }
    let Collected { survey: more, mut unsupported } = found;
    if let (true, true, Some(first)) =
        (survey.files.is_empty(), more.files.is_empty(), unsupported.first())
    {
        let (path, why) = (first.path.path.clone(), first.reason.clone());
        return Err(Error::Unsupported { path, why });
    }
    survey.files.extend(more.files);
    survey.left_alone.extend(more.left_alone);
    survey.left_alone.append(&mut unsupported);
    for device in mounts.devices() {
        if survey.devices.iter().all(|known| known.device != device.device) {
            survey.devices.push(device);
        }
    }
    survey.devices.sort_by_key(|device| device.device);
    Ok(())
}

/// Surveys a file that no walk and no trace has shown.
///
/// # Errors
/// Why it is left alone.
fn open(
    slow: &SlowFile,
    path: &Path,
    roots: &[PathBuf],
    mounts: &mut Mounts,
    found: &mut Collected,
) -> Result<(), Skip> {
    let unmounted =
        || Skip::new(SkipReason::NotMounted, "its file system is not mounted now: probe it again");
    let hints = std::iter::once(path).chain(roots.iter().map(PathBuf::as_path));
    let mount = mounts.of(slow.file.device, hints).ok_or_else(unmounted)?;
    let file = mount.open(slow.file, Some(path)).map_err(|skip| match skip.reason {
        SkipReason::IdentityChanged | SkipReason::Vanished => {
            Skip { detail: format!("it is not the file that was probed: {skip}"), ..skip }
        }
        _ => skip,
    })?;
    let path = file.path.unwrap_or_else(|| path.to_owned());
    if !roots.is_empty() && !roots.iter().any(|root| path.starts_with(root)) {
        return Err(Skip::new(SkipReason::Elsewhere, "it is not below the paths that were given"));
    }
    let layout = fiemap::layout_of(&file.fd);
    found.take(mount, path, &file.fd, layout, FileAccesses::of(slow.file));
    Ok(())
}

/// Puts the ranges into a file that are where they were.
fn put(file: &mut SurveyedFile, slow: &SlowFile, left_alone: &mut Vec<LeftAlone>) {
    let gone = file.put_slow(&slow.ranges);
    if gone > 0 {
        let why = format!(
            "{gone} of its {} slow ranges are not where they were when it was probed, or not in as many extents: probe it again",
            slow.ranges.len()
        );
        left_alone.push(LeftAlone::new(&file.path, &Skip::new(SkipReason::LayoutChanged, why)));
    }
}
