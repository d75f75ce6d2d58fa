//! A plan to be carried out, file by file: in memory, or in its file, of which no more than one planned file is
//! held at a time.
//!
//! A plan file is read through several times. [`PlanFile::new`] checks all of it, so that a damaged, foreign
//! or badly edited plan is refused before anything is touched; each [`PlanSource::each`] reads the same open
//! file again, and checks again what it hands on.

mod flat;
mod parse;

pub use parse::MOST_RANGES;

use crate::check::{Checker, Totals};
use crate::file::{Device, FORMAT, Plan, PlanError, PlannedFile};
use fragmend_layout::schema;
use parse::{Head, Whole, parse};
pub(crate) use parse::{Mark, at_most};
use std::fs::File;
use std::path::Path;

/// The largest plan file that is accepted and written, in bytes.
pub(crate) const LARGEST_FILE: u64 = 2 << 30;

/// A plan to be carried out.
pub trait PlanSource {
    /// The devices that the plan lists.
    fn devices(&self) -> &[Device];
    /// What the plan asks for.
    fn totals(&self) -> Totals;
    /// Shows every file to `visit`, in the order in which to mend them.
    ///
    /// # Errors
    /// When the plan has changed since it was opened.
    fn each(&self, visit: &mut dyn FnMut(&PlannedFile)) -> Result<(), PlanError>;
}

impl PlanSource for Plan {
    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.files.iter().for_each(|f| totals.add(f));
        totals
    }

    fn each(&self, visit: &mut dyn FnMut(&PlannedFile)) -> Result<(), PlanError> {
        self.files.iter().for_each(visit);
        Ok(())
    }
}

/// A plan file that was checked and makes sense.
#[derive(Debug)]
pub struct PlanFile {
    name: String,
    file: File,
    devices: Vec<Device>,
    totals: Totals,
}

impl PlanFile {
    /// Checks an open file, which messages call `path`. `fragmend_pipeline::plan_file` opens one.
    ///
    /// # Errors
    /// Every kind of [`PlanError`]; never a panic, whatever the file holds.
    pub fn new(file: File, path: &Path) -> Result<Self, PlanError> {
        let name = path.display().to_string();
        let head = head_of(&file, &name)?;
        let foreign = |why: String| PlanError::Foreign { path: name.clone(), why };
        match head.schema_version {
            Some(Mark::Number(v)) if v == u64::from(schema::PLAN_FILE) => {}
            Some(Mark::Number(found)) => return Err(PlanError::Version { path: name, found }),
            _ => return Err(foreign("no schema_version".into())),
        }
        let head = Head { with_devices: true, ..Head::default() }.read(&file, &name)?;
        let devices = head.devices.ok_or_else(|| foreign("no devices".into()))?;
        let mut plan = Self { name, file, devices, totals: Totals::default() };
        plan.totals = plan.read(&mut drop)?;
        Ok(plan)
    }

    /// Whether an open file is a plan, of whatever version.
    pub fn is_one(file: &File) -> bool {
        head_of(file, "").is_ok()
    }

    /// Reads the plan through and checks it; `visit` gets each file that contradicts nothing.
    fn read(&self, visit: &mut dyn FnMut(PlannedFile)) -> Result<Totals, PlanError> {
        let contradicted = |what| PlanError::Contradictory { path: self.name.clone(), what };
        let mut checker = Checker::new(&self.devices).map_err(contradicted)?;
        let mut problem = None;
        let whole = Whole(|mut file: PlannedFile| match checker.file(&mut file) {
            Ok(()) => {
                if !file.ranges.is_empty() {
                    visit(file);
                }
                true
            }
            Err(what) => {
                problem = Some(what);
                false
            }
        });
        let read = parse(&self.file, &self.name, whole);
        match problem {
            Some(what) => Err(contradicted(what)),
            None => read.map(|()| checker.totals()),
        }
    }
}

impl PlanSource for PlanFile {
    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn totals(&self) -> Totals {
        self.totals.clone()
    }

    fn each(&self, visit: &mut dyn FnMut(&PlannedFile)) -> Result<(), PlanError> {
        self.read(&mut |file| visit(&file)).map(drop)
    }
}

/// Reads the head of a file, which must mark it as a plan.
fn head_of(file: &File, name: &str) -> Result<Head, PlanError> {
    let io_error = |source| PlanError::Io { path: name.to_owned(), source };
    let foreign = |why: String| PlanError::Foreign { path: name.to_owned(), why };
    if file.metadata().map_err(io_error)?.len() > LARGEST_FILE {
        return Err(foreign("too large".into()));
    }
    let head = Head::default().read(file, name)?;
    if !matches!(&head.format, Some(Mark::Text(format)) if format == FORMAT) {
        return Err(foreign(format!("no \"format\": \"{FORMAT}\"")));
    }
    Ok(head)
}
