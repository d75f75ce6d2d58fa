//! The first stage: which threads read and write what.

use crate::survey::MOST_ORDERED;
use crate::{Error, Event, Observer};
use fragmend_trace::record::{Options, Summary};
use fragmend_trace::{Filter, Order, Trace};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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

/// A recording whose trace is read again, perhaps several times.
pub struct Recording {
    options: Options,
}

impl Recording {
    /// A recording of `paths`; the trace is kept at `output`, or is in a file without a name that is freed with
    /// this value.
    ///
    /// # Errors
    /// [`Error::Temporary`] where a file without a name cannot be made.
    pub fn new(
        paths: Vec<PathBuf>,
        length: Duration,
        output: Option<&Path>,
    ) -> Result<Self, Error> {
        let mut options = Options::new(output.unwrap_or(Path::new("the trace")), paths);
        options.duration = Some(length);
        if output.is_none() {
            // Without a name: another user could replace a named file in a directory that he owns.
            let file = tempfile::tempfile().map_err(Error::Temporary)?;
            options.unnamed = Some(file.into());
        }
        Ok(Self { options })
    }

    /// Records.
    ///
    /// # Errors
    /// As [`record`].
    pub fn run(&self, stop: &AtomicBool, observe: &Observer) -> Result<Summary, Error> {
        record(&self.options, stop, observe)
    }

    /// The recorded trace, in the order of a cold start if one is planned for (`cold`).
    ///
    /// # Errors
    /// [`Error::Trace`] before it was recorded, or if another program has changed it since.
    pub fn trace(&self, cold: bool) -> Result<Trace, Error> {
        let order = Some(Order { up_to: MOST_ORDERED, cold });
        let (everything, output) = (Filter { order, ..Filter::default() }, &self.options.output);
        Ok(match &self.options.unnamed {
            Some(file) => fragmend_trace::read_open(file, output, &everything)?,
            None => fragmend_trace::read(output, &everything)?,
        })
    }
}
