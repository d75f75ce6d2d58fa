//! The log-structured file system: conformance, power cuts, barriers that are left out, the cleaner.

#[path = "../support/mod.rs"]
mod support;

mod barriers;
mod cleaner;
mod conformance;
mod cuts;
mod drives;

use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::{LogStructured, Settings};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use support::Kind;

/// A log-structured file system with these parameters.
pub struct Segments {
    settings: Settings,
    /// The one that was mounted last, and blocks that the cleaner has copied in those before it.
    last: RefCell<Option<LogStructured>>,
    copied: Cell<u64>,
}

impl Segments {
    pub fn new(settings: Settings) -> Self {
        Self { settings, last: RefCell::default(), copied: Cell::default() }
    }

    /// Blocks that the cleaner has copied.
    pub fn copied(&self) -> u64 {
        let last = self.last.borrow().as_ref().map_or(0, |last| last.counts().blocks_copied);
        self.copied.get() + last
    }
}

impl Kind for Segments {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        LogStructured::format(machine, &self.settings).map(drop)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        let mounted = LogStructured::mount(machine, &self.settings)?;
        self.copied.set(self.copied());
        self.last.replace(Some(mounted.clone()));
        Ok(Rc::new(mounted))
    }
}
