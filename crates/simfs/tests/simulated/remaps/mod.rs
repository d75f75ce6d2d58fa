//! Remaps of the drive as what the file system in the manner of ext4 moves by, exclusive and shared: the conformance suite, what is refused,
//! power cuts at every command, each step of the commit protocol left out.

mod beyond;
mod conformance;
mod cuts;
mod refusals;

use crate::support::Kind;
use fragmend_flash::command::Units;
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::{Omit, Primitive, Remap};
use std::rc::Rc;

const EXCLUSIVE: Primitive = Primitive::Remap(Remap { shared: false, or_copy: false });
const SHARED: Primitive = Primitive::Remap(Remap { shared: true, or_copy: false });

/// A file system that moves by a primitive.
#[derive(Clone, Copy)]
struct Moves {
    by: Primitive,
    /// Blocks of the journal and inodes, on a small drive; as on any drive otherwise.
    small: Option<(u32, u32)>,
    omit: Option<Omit>,
    /// Whether files are remapped once they are written, and free space is gathered.
    beyond: bool,
}

impl Moves {
    fn options(&self, machine: &Machine) -> Options {
        let mut options = Options::of(machine);
        (options.primitive, options.defrag_on_write) = (self.by, self.beyond);
        (options.reservation, options.locality, options.inodes) = (false, false, 512);
        if let Some((journal, inodes)) = self.small {
            (options.blocks_per_group, options.journal_blocks, options.inodes) =
                (400, journal, inodes);
            options.settings.delayed_allocation = false;
        }
        options.settings.omit = self.omit;
        options
    }

    /// The blocks of its journal.
    fn journal(&self) -> Option<Units> {
        self.small.map(|(journal, _)| Units::new(1, journal))
    }
}

impl Kind for Moves {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        InPlace::format(machine, &self.options(machine))?;
        machine.flush()?;
        Ok(())
    }

    fn acts(&self) -> bool {
        self.beyond
    }

    fn act(&self, fs: &dyn FileSystem) -> Result<u64, Error> {
        Ok(fs.gather_free_space()?.blocks * fs.block_bytes())
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(InPlace::mount(machine, &self.options(machine))?))
    }
}
