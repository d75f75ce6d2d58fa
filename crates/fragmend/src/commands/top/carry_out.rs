//! The runs of plans, each in a thread of its own. A run that is to end does so at its next safe point.

use fragmend_apply::{Options, Summary};
use fragmend_engines::begin::Wanted;
use fragmend_top::{Change, Offer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

/// How plans are carried out, and the present run.
pub struct Runs {
    how: Arc<(Wanted, Options)>,
    send: Sender<Change>,
    /// Ends the present run.
    stop: Arc<AtomicBool>,
    /// What the last one has come to.
    last: Arc<Mutex<Option<Summary>>>,
}

impl Runs {
    /// No run yet.
    pub fn new(wanted: Wanted, options: Options, send: Sender<Change>) -> Self {
        let (stop, last) = Default::default();
        Self { how: Arc::new((wanted, options)), send, stop, last }
    }

    /// Begins a run. The last one has ended.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(&mut self, offer: Arc<Offer>) -> std::io::Result<()> {
        self.stop = Arc::default();
        let (how, send) = (Arc::clone(&self.how), self.send.clone());
        let (stop, last) = (Arc::clone(&self.stop), Arc::clone(&self.last));
        let work = move || {
            let (wanted, options) = &*how;
            let tell = |event| drop(send.send(Change::Run(Box::new(event))));
            let result = fragmend_pipeline::apply(&offer.plan, wanted, options, &stop, tell);
            let result = result.map_err(|error| format!("{:#}", anyhow::Error::from(error)));
            if let Ok(summary) = &result {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(summary.clone());
            }
            // Nobody listens any more once everything has ended.
            drop(send.send(Change::RunEnded(result.map(Box::new))));
        };
        std::thread::Builder::new().name("apply".into()).spawn(work).map(drop)
    }

    /// Ends the present run at its next safe point.
    pub fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// What the last run has come to.
    pub fn last(&self) -> Option<Summary> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
