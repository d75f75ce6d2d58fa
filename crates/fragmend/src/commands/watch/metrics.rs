//! Where the daemon's figures go: to an HTTP server and a file, as the policy says.

use crate::ui::Ui;
use anyhow::anyhow;
use fragmend_layout::printable_path;
use fragmend_metrics::{ServeError, Server, Text, file};
use fragmend_watch::Status;
use fragmend_watch::policy::Metrics;
use std::cell::RefCell;
use std::path::Path;

/// The daemon's figures, exposed.
pub struct Exposed(RefCell<State>);

struct State {
    metrics: Metrics,
    server: Option<Server>,
    text: Text,
    /// Why the file could not be written the last time, so that this is said once.
    refused: Option<String>,
}

/// That the file cannot be written, and why.
fn unwritable(path: &Path, why: &str) -> String {
    format!("{} cannot be written: {why}", printable_path(path))
}

/// Checks that the figures can be where a policy says; what only root can see, others are told.
///
/// # Errors
/// Why the server cannot listen, or the file cannot be written.
pub fn check(metrics: &Metrics, ui: &Ui) -> anyhow::Result<()> {
    if let Some(at) = metrics.listen {
        Server::check(at)?;
    }
    let Some(path) = &metrics.textfile else { return Ok(()) };
    match file::check(path) {
        Err(e) if super::is_denied(&e) => {
            ui.warn(format!("{}: {e}; only root can see it", printable_path(path)));
            Ok(())
        }
        checked => checked.map_err(|e| anyhow!(unwritable(path, &e.to_string()))),
    }
}

impl Exposed {
    /// Begins with the figures of a daemon that has done nothing yet.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(metrics: &Metrics) -> Result<Self, ServeError> {
        let text = Text::of(&Status::default());
        let server = metrics.listen.map(|at| Server::start(at, text.clone())).transpose()?;
        let metrics = metrics.clone();
        Ok(Self(RefCell::new(State { metrics, server, text, refused: None })))
    }

    /// Goes on as another policy says.
    ///
    /// # Errors
    /// [`ServeError`]: nothing has changed then.
    pub fn change(&self, metrics: &Metrics) -> Result<(), ServeError> {
        let mut state = self.0.borrow_mut();
        if metrics.listen != state.metrics.listen {
            let text = state.text.clone();
            state.server = metrics.listen.map(|at| Server::start(at, text)).transpose()?;
        }
        state.metrics = metrics.clone();
        Ok(())
    }

    /// Whether the file could not be written the last time.
    pub fn has_failed(&self) -> bool {
        self.0.borrow().refused.is_some()
    }

    /// Shows a new status.
    pub fn show(&self, status: &Status, ui: &Ui) {
        let mut state = self.0.borrow_mut();
        state.text = Text::of(status);
        if let Some(server) = &state.server {
            server.set(state.text.clone());
        }
        let Some(path) = &state.metrics.textfile else { return };
        let refused = file::write(path, &state.text).err().map(|e| e.to_string());
        if let Some(why) = refused.as_ref().filter(|_| refused != state.refused) {
            ui.warn(unwritable(path, why));
        }
        state.refused = refused;
    }
}
