//! The log-structured file system: conformance, power cuts, barriers that are left out, the cleaner.

mod barriers;
mod cleaner;
mod conformance;
mod cuts;
mod drives;
mod in_device;
mod meanwhile;
mod refused;

use crate::support::Kind;
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::{LogStructured, Primitive, Settings};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A log-structured file system with these parameters.
pub struct Segments {
    settings: Settings,
    primitive: Primitive,
    /// The one that was mounted last, and blocks that the cleaner has copied in those before it.
    last: RefCell<Option<LogStructured>>,
    copied: Cell<u64>,
}

impl Segments {
    pub fn new(settings: Settings) -> Self {
        let primitive = Primitive::ThroughHost;
        Self { settings, primitive, last: RefCell::default(), copied: Cell::default() }
    }

    /// The same, where this moves data.
    pub fn by(primitive: Primitive, settings: Settings) -> Self {
        Self { primitive, ..Self::new(settings) }
    }

    /// The same, whose drive copies by itself what is moved.
    pub fn in_device(settings: Settings) -> Self {
        Self::by(Primitive::InDevice, settings)
    }

    /// Blocks that the cleaner has copied, or the drive.
    pub fn copied(&self) -> u64 {
        let counts = self.last.borrow().as_ref().map(LogStructured::counts).unwrap_or_default();
        let copied = match self.primitive {
            Primitive::ThroughHost | Primitive::BlockByBlock => counts.blocks_copied,
            Primitive::InDevice => counts.copied_in_device,
        };
        self.copied.get() + copied
    }
}

impl Kind for Segments {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        LogStructured::format(machine, &self.settings).map(drop)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        let mounted = LogStructured::mount(machine, &self.settings)?;
        mounted.set_primitive(self.primitive)?;
        self.copied.set(self.copied());
        self.last.replace(Some(mounted.clone()));
        Ok(Rc::new(mounted))
    }
}
