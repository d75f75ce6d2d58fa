//! The segments of the file systems below paths, for the policy that cleans them.

use crate::Error;
use fragmend_layout::SegmentTable;
use fragmend_scan::{FileSystem, f2fs};
use fragmend_sys::mounts;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reads the segments of the file systems that `paths` are on, by device number. They are synced first: the last checkpoint shows
/// where logs are open, and blocks that are not allocated yet would be in no segment.
///
/// # Errors
/// [`Error::NoSegments`] for a path on another file system; [`Error::Segments`] where they cannot be read.
pub fn segments(paths: &[PathBuf]) -> Result<BTreeMap<u64, SegmentTable>, Error> {
    let mut tables = BTreeMap::new();
    for path in paths {
        has_segments(path)?;
        let file = File::open(path).map_err(Error::at(path))?;
        let device = file.metadata().map_err(Error::at(path))?.dev();
        if tables.contains_key(&device) {
            continue;
        }
        rustix::fs::syncfs(&file).map_err(|e| Error::at(path)(e.into()))?;
        let fs = FileSystem::of(&file, device).map_err(Error::at(path))?;
        let table = f2fs::segment_table(&fs)
            .map_err(|source| Error::Segments { path: path.clone(), source })?;
        tables.insert(device, table);
    }
    Ok(tables)
}

/// Checks that a path is on a file system that has segments.
fn has_segments(path: &Path) -> Result<(), Error> {
    let mount = mounts::of_path(path).map_err(Error::at(path))?;
    if fragmend_layout::FsKind::from_name(&mount.fs_type).has_segments() {
        return Ok(());
    }
    Err(Error::NoSegments { path: path.to_owned(), file_system: mount.fs_type })
}
