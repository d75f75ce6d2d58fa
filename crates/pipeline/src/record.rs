//! The first stage: which threads read and write what.

use crate::survey::{self, MOST_ORDERED};
use crate::{Error, Event, Observer};
use fragmend_engines::engine;
use fragmend_layout::printable_path;
use fragmend_sys::mounts;
use fragmend_sys::output::{self, Audience, Output};
use fragmend_trace::record::{Options, Rolled, Rolling, Summary};
use fragmend_trace::{Existing, Filter, Op, Order, Trace, TraceError};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Checks that files below `paths` can be recorded and planned for, as far as that takes no privilege.
///
/// # Errors
/// The first path that does not exist, or is nothing that can be watched; [`Error::Unsupported`] for one on whose file system nothing
/// is ever planned.
pub fn can_record(paths: &[PathBuf]) -> Result<(), Error> {
    fragmend_trace::record::check(&Options::new("the trace", paths.to_vec()))?;
    for path in paths {
        let mount = mounts::of_path(path).map_err(Error::at(path))?;
        let path = || printable_path(path).to_string();
        engine::local(&mount).map_err(|why| Error::Unsupported { path: path(), why })?;
    }
    Ok(())
}

/// Records until the duration is over or `stop` is set, whichever comes first.
///
/// # Errors
/// When a filter cannot be met, privilege or kernel support is missing, or the output cannot be
/// written. No file is left then.
pub fn record(options: &Options, stop: &AtomicBool, observe: &Observer) -> Result<Summary, Error> {
    let mut watching = false;
    let recorded = fragmend_trace::record::record(options, stop, &mut |progress| {
        if !std::mem::replace(&mut watching, true) {
            observe(Event::Watching);
        }
        observe(Event::Recorded(progress));
    });
    Ok(recorded?)
}

/// Records until `stop` is set, and reports what was accessed each `period`, without loading and attaching the recorder anew.
/// What reaches a device stays in its order where one of the file systems is on a device that seeks.
///
/// `report` must return soon, as that of [`fragmend_trace::record::rolling`], which says more.
///
/// # Errors
/// As [`record`].
pub fn rolling(
    options: &Options,
    period: Duration,
    stop: &AtomicBool,
    report: &mut dyn FnMut(Rolled),
) -> Result<(), Error> {
    let seeks = |path: &PathBuf| {
        survey::device(path).is_ok_and(|device| !device.profile.cost.seeks().is_empty())
    };
    let rolling = Rolling { period, ordered: options.paths.iter().any(seeks) };
    Ok(fragmend_trace::record::rolling(options, rolling, stop, report)?)
}

/// A recording whose trace is read again, perhaps several times: from the file that was written, whatever another
/// user has put in its place meanwhile.
pub struct Recording {
    options: Options,
    file: Arc<File>,
    /// The name that the file gets.
    kept: Option<Output>,
}

impl Recording {
    /// A recording of `paths`; the trace is kept at `output`, or is in a file without a name that is freed with
    /// this value.
    ///
    /// # Errors
    /// [`Error::Temporary`] where a file without a name cannot be made; [`Error::Trace`] where the trace cannot be
    /// kept at `output`.
    pub fn new(
        paths: Vec<PathBuf>,
        length: Duration,
        output: Option<&Path>,
    ) -> Result<Self, Error> {
        let mut options = Options::new(output.unwrap_or(Path::new("the trace")), paths);
        options.duration = Some(length);
        let kept = output.map(|at| begin(at, options.existing)).transpose()?;
        let file = match &kept {
            Some(kept) => kept.file().try_clone(),
            None => tempfile::tempfile(),
        };
        let file = Arc::new(file.map_err(Error::Temporary)?);
        options.unnamed = Some(Arc::clone(&file));
        Ok(Self { options, file, kept })
    }

    /// How it is recorded, to be changed before that: what it may cost, and the memory for it.
    pub fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Records; to be called once.
    ///
    /// # Errors
    /// As [`record`]; or another program has put another file in the place of the trace.
    pub fn run(&mut self, stop: &AtomicBool, observe: &Observer) -> Result<Summary, Error> {
        let summary = record(&self.options, stop, observe)?;
        if let Some(kept) = self.kept.take() {
            kept.commit().map_err(|e| TraceError::output(&self.options.output, e))?;
        }
        Ok(summary)
    }

    /// The recorded trace, in the order of a cold start if one is planned for (`cold`).
    ///
    /// # Errors
    /// [`Error::Trace`] before it was recorded.
    pub fn trace(&self, cold: bool) -> Result<Trace, Error> {
        let order = Some(Order { up_to: MOST_ORDERED, cold });
        let everything = Filter { order, turns: true, ..Filter::default() };
        Ok(fragmend_trace::read_open(&self.file, &self.options.output, &everything)?)
    }

    /// The same where memory is short: equal accesses are counted once if what missed the page cache was recorded.
    ///
    /// # Errors
    /// As [`trace`](Self::trace).
    pub fn counted_trace(&self) -> Result<Trace, Error> {
        let order = Some(Order { up_to: MOST_ORDERED, cold: false });
        let filter = Filter { fold_if_misses: true, order, turns: true, ..Filter::default() };
        Ok(fragmend_trace::read_open(&self.file, &self.options.output, &filter)?)
    }

    /// Shows every access to `visit`, with its process, in the order of the trace.
    ///
    /// # Errors
    /// As [`trace`](Self::trace).
    pub fn each_event(&self, visit: &mut dyn FnMut(&fragmend_trace::Event)) -> Result<(), Error> {
        Ok(fragmend_trace::each_event(&self.file, &self.options.output, visit)?)
    }

    /// What was read from the device and written, without its order.
    ///
    /// # Errors
    /// As [`trace`](Self::trace).
    pub(crate) fn counts(&self) -> Result<Trace, Error> {
        let ops = vec![Op::Read, Op::Miss, Op::Write];
        let filter = Filter { ops, fold_if_misses: true, turns: true, ..Filter::default() };
        Ok(fragmend_trace::read_open(&self.file, &self.options.output, &filter)?)
    }
}

/// Begins the file of a trace that is kept.
fn begin(at: &Path, existing: Existing) -> Result<Output, TraceError> {
    let failed = |e| TraceError::output(at, e);
    // First, because this refuses a pipe or a device, the opening of which may have effects.
    let output = Output::create(at, Audience::Owner).map_err(failed)?;
    existing.permits(at, output::replaces(at).map_err(failed)?)?;
    Ok(output)
}
