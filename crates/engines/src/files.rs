//! All files of a mounted file system, by identity: see [`fragmend_scan`].

use fragmend_layout::{FileId, Skip, SkipReason};
use fragmend_scan::{Cause, Source, WalkOptions};
use std::path::{Path, PathBuf};

type Found = Vec<(PathBuf, Result<FileId, Cause>)>;

/// Calls `visit` with every regular file below the directory `root` that is on its file system, in inode order,
/// and with what could not be read.
///
/// # Errors
/// The directory cannot be walked at all.
pub(super) fn below(
    root: &Path,
    visit: &mut dyn FnMut(&Path, Result<FileId, Skip>),
) -> Result<(), Skip> {
    let failed = |e: &dyn std::fmt::Display| Skip::new(SkipReason::Failed, e.to_string());
    let tree = fragmend_scan::files(&[root.to_owned()], &WalkOptions::default(), &|_| {});
    let tree = tree.map_err(|e| failed(&e))?;
    if let Some(error) = tree.failed().first() {
        return Err(failed(error));
    }
    for skip in tree.skips() {
        visit(&tree.skipped_path(skip), Err(skip.cause.into()));
    }
    let mut all = Found::new();
    let walked = fragmend_scan::in_batches(
        &tree,
        Source::Auto,
        |batch: &mut Found, _, entry, layout| {
            batch.push((tree.path(entry), layout.map(|layout| layout.file)));
        },
        |batch| {
            all.extend(batch);
            Ok(())
        },
    );
    walked.map_err(|e| failed(&e))?;
    all.into_iter().for_each(|(path, file)| visit(&path, file.map_err(Skip::from)));
    Ok(())
}
