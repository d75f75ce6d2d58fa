//! The files of one trace for the several plans of a run: the trace is read, the files are looked up and the drives are asked
//! once. What needs more memory than [`MOST_KEPT`] is not kept beside a plan that is being made: it is read and looked up anew.

use crate::ui::Ui;
use crate::view;
use fragmend_pipeline::{Error, Survey};
use fragmend_plan::wear::Drive;
use fragmend_sys::signals::Waiting;
use fragmend_trace::Trace;
use std::path::PathBuf;

/// The most that is kept of accesses and layouts, in bytes of memory: some two million accesses.
const MOST_KEPT: usize = 64 << 20;

/// The surveys of a trace.
pub struct Surveys<'a> {
    /// Reads the trace.
    read: Box<dyn Fn() -> Result<Trace, Error> + 'a>,
    paths: &'a [PathBuf],
    ui: &'a Ui,
    /// The trace, before it was surveyed.
    first: Option<Trace>,
    kept: Option<Survey>,
    drives: Option<Vec<Drive>>,
}

impl<'a> Surveys<'a> {
    /// Of a trace that was just read; `read` reads it again.
    pub fn new(
        trace: Trace,
        read: impl Fn() -> Result<Trace, Error> + 'a,
        paths: &'a [PathBuf],
        ui: &'a Ui,
    ) -> Self {
        Self { read: Box::new(read), paths, ui, first: Some(trace), kept: None, drives: None }
    }

    /// The files with their layouts: as they were when this was first called, if that was kept.
    ///
    /// # Errors
    /// As [`fragmend_pipeline::survey`], and those of reading the trace.
    pub fn survey(&mut self) -> Result<Survey, Error> {
        if let Some(kept) = &self.kept {
            return Ok(kept.clone());
        }
        // Nothing would be left half done: a signal may end the process in the middle of a long walk.
        let _waits = Waiting::begin();
        let trace = self.first.take().map_or_else(&self.read, Ok)?;
        let survey = view::plan::survey(Some(trace), self.paths, self.ui)?;
        self.kept = (survey.memory_bytes() <= MOST_KEPT).then(|| survey.clone());
        Ok(survey)
    }

    /// The same files with their layouts as they are now.
    ///
    /// # Errors
    /// As [`Self::survey`].
    pub fn survey_again(&mut self) -> Result<Survey, Error> {
        let Some(kept) = self.kept.take() else { return self.survey() };
        let _waits = Waiting::begin();
        view::plan::survey_again(kept, self.paths, self.ui)
    }

    /// Enters into a survey what the drives below report of their wear.
    pub fn enter_drives(&mut self, survey: &mut Survey) {
        let drives = self.drives.get_or_insert_with(|| fragmend_pipeline::drives(&survey.devices));
        survey.drives.clone_from(drives);
    }
}
