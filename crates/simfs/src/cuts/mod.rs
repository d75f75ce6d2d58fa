//! Power cuts at every command of a load: what is mounted afterwards is compared with what must be durable. Tests of all simulated file
//! systems use it, and the lab's experiment on power cuts.

mod driver;
pub mod drives;
mod load;
mod model;
mod windows;

pub use driver::{Cuts, Found};
pub use windows::{InWindow, Window};

use crate::error::Error;
use crate::file_system::FileSystem;
use crate::machine::Machine;
use fragmend_layout::{DeviceProfile, FileId, FsKind, Layout, Movable, Skip, Volume};
use std::path::Path;
use std::rc::Rc;

/// A kind of simulated file system, with the options that it is made and mounted with.
pub trait Kind {
    /// Makes an empty file system on the machine's drive, durably.
    fn format(&self, machine: &Machine) -> Result<(), Error>;
    /// Mounts what is on the machine's drive.
    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error>;
    /// Whether files can share blocks.
    fn shares(&self) -> bool {
        false
    }
    /// Whether the load has it [act](Self::act) now and then.
    fn acts(&self) -> bool {
        false
    }
    /// Whether every third step scatters a file and moves it, or has it [act](Self::act) instead: a short load has few moves otherwise.
    fn moves_often(&self) -> bool {
        false
    }
    /// Does what it does besides moving files, on what it has mounted last: nothing that programs see changes. Returns the bytes that were
    /// moved.
    ///
    /// # Errors
    /// The file system cannot, or the power is cut.
    fn act(&self, _: &dyn FileSystem) -> Result<u64, Error> {
        Ok(0)
    }
}

/// A mounted file system as a volume.
pub struct Seen(pub Rc<dyn FileSystem>);

impl Volume for Seen {
    fn label(&self) -> String {
        self.0.label()
    }

    fn kind(&self) -> FsKind {
        Volume::kind(&*self.0)
    }

    fn free_bytes(&self) -> Result<u64, Skip> {
        self.0.free_bytes()
    }

    fn total_bytes(&self) -> u64 {
        self.0.total_bytes()
    }

    fn block_bytes(&self) -> u64 {
        self.0.block_bytes()
    }

    fn profile(&self) -> Option<DeviceProfile> {
        Some(self.0.profile().unwrap_or_else(DeviceProfile::unknown))
    }

    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip> {
        self.0.files(visit)
    }

    fn layout(&self, file: FileId, hint: &Path) -> Result<Layout, Skip> {
        self.0.layout(file, hint)
    }

    fn open(&self, file: FileId, hint: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
        self.0.open(file, hint)
    }
}

/// A sequence of numbers that a seed determines (SplitMix64: Steele, Lea and Flood, OOPSLA'14).
pub struct Random(pub u64);

impl Random {
    /// The next one.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_number() % limit
    }
}
