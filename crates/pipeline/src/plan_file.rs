//! Plan files on this machine: opened as any input is, written as any output is.

use fragmend_plan::{Plan, PlanError, PlanFile};
use fragmend_sys::input;
use fragmend_sys::output::{Audience, Output};
use std::io::{self, BufWriter};
use std::path::Path;

/// Opens and checks a plan file.
///
/// # Errors
/// Every kind of [`PlanError`].
pub fn open(path: &Path) -> Result<PlanFile, PlanError> {
    PlanFile::new(input::open(path).map_err(at(path))?, path)
}

/// Whether there is a plan at `path`, of whatever version.
pub fn is_at(path: &Path) -> bool {
    input::open(path).is_ok_and(|file| PlanFile::is_one(&file))
}

/// Writes a plan to `path`, readable by its owner alone, because it contains the names of other users' files.
/// The file is there whole or not at all.
///
/// # Errors
/// [`PlanError::Io`].
pub fn write(plan: &Plan, path: &Path) -> Result<(), PlanError> {
    let write = || -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 16, Output::create(path, Audience::Owner)?);
        plan.write_to(&mut file)?;
        file.into_inner().map_err(|e| e.into_error())?.commit().map(drop)
    };
    write().map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> PlanError {
    move |source| PlanError::Io { path: path.display().to_string(), source }
}
