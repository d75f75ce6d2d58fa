//! Where the data of all files below a path is: what a map of the file system is drawn from.

use crate::Error;
use fragmend_layout::{ByteRange, Layout};
use fragmend_scan::{Source, WalkOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The places of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Addresses of each extent, and whether its file is in several fragments.
    pub extents: Vec<(ByteRange, bool)>,
    /// Files whose layout is known.
    pub files: u64,
    /// Those of them that are in several fragments.
    pub fragmented: u64,
    /// Files, and directories, that could not be looked at.
    pub skipped: u64,
}

impl Places {
    fn add(&mut self, layout: &Layout) {
        let fragmented = layout.breaks().next().is_some();
        self.files += 1;
        self.fragmented += u64::from(fragmented);
        let placed = layout.extents().iter().filter(|extent| extent.kind.is_placed());
        self.extents.extend(placed.map(|e| (ByteRange::at(e.physical, e.length), fragmented)));
    }
}

/// Reads the layouts of all files below `path`, on its file system alone. `found` is called with each further number of files
/// while they are listed.
///
/// # Errors
/// A path that does not exist or cannot be walked; or it ended early, because `stop` was set.
pub fn below(
    path: &Path,
    found: &(dyn Fn(u64) + Sync),
    stop: &AtomicBool,
) -> Result<Places, Error> {
    let mut tree = fragmend_scan::files(&[path.to_owned()], &WalkOptions::default(), found)?;
    if let Some(error) = tree.take_failed().into_iter().next() {
        return Err(error.into());
    }
    let mut all = Places { skipped: tree.skips().len() as u64, ..Places::default() };
    let each = |batch: &mut Places, _: &_, _: &_, layout: Result<&Layout, _>| match layout {
        Ok(layout) => batch.add(layout),
        Err(_) => batch.skipped += 1,
    };
    fragmend_scan::in_batches(&tree, Source::Auto, each, |mut batch: Places| {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        all.extents.append(&mut batch.extents);
        all.files += batch.files;
        all.fragmented += batch.fragmented;
        all.skipped += batch.skipped;
        Ok(())
    })?;
    Ok(all)
}
