//! The file system of the applications' bars: ext4 as the artefact makes and mounts it (setdevice.sh, disablemeta.sh), on the simulated
//! drive.
//!
//! - `mke2fs -J device=`: the journal, of 1 GiB, is on a drive of its own, so that it takes no turns of dies; so large that nothing is
//!   checkpointed meanwhile. Nothing is measured while that drive is used, so it is memory.
//! - `nodelalloc`: a block gets its place in the call that writes it.
//! - `mb_stream_req` is 4.2 billion blocks: every file counts as small, and each processor places what it writes, of whichever file, in a
//!   run of 2 MiB of its own.
//! - Dirty data is not written back until it is 600 s old: it reaches the drive by a sync, or, as data is ordered, by the commit of the
//!   journal, 5 s after a change. A commit writes file by file, and what a file was appended to since the last one goes out together.
//!
//! The kernel passes hints on in every run; a drive that places in turn does not heed them.
//!
//! Files do not begin where a flash page does, because the drive was written before: [`WRITTEN_BEFORE`].

use super::drive;
use crate::file::FileOnDrive;
use fragmend_flash::command::Units;
use fragmend_flash::device::Device;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::host::HostPath;
use fragmend_flash::inplace::{InPlace as Memory, InPlaceDrive, Media};
use fragmend_flash::joined::Joined;
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::Settings;
use std::path::Path;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Blocks that were written to the drive before the first file: mke2fs 1.47 and the mount by Linux 6.18 of a file system of that size with
/// those options wrote 1,182, the kernel then zeroed the rest of the first inode table, 511, and further ones of 512 (traced:
/// `block_rq_issue`); the partition table is one more. What counts is the remainder by the blocks of a flash page: 6 of 8.
pub const WRITTEN_BEFORE: u32 = 1_182 + 511 + 1;
const JOURNAL_BYTES: u64 = 1 << 30;
const DIRTY_EXPIRE_NS: u64 = 600_000_000_000;

/// The file system, which was just made, and its machine.
pub struct Ext4 {
    pub machine: Machine,
    files: InPlace,
    /// The first unit behind its drive's.
    end: u32,
}

impl Ext4 {
    /// On a new drive with this placement, for `files` files at most. As much was written to it before as if it were `written` blocks, to
    /// whole flash pages.
    pub fn new(
        flash: &Drive,
        path: &HostPath,
        placement: Placement,
        files: u32,
        written: u32,
    ) -> Self {
        let ssd = drive(flash, placement);
        let journal = InPlaceDrive {
            bytes: JOURNAL_BYTES,
            unit_bytes: BLOCK as u32,
            command_ns: 0,
            link_bytes_per_second: 1 << 30,
            media: Media::Memory {},
        };
        let end = ssd.units();
        let joined = Joined::new(Box::new(ssd), Box::new(Memory::new(&journal)));
        let joined = joined.expect("units of 4 KiB");
        let machine = Machine::new(Box::new(joined), false, path.clone());
        let of_machine = Options::of(&machine);
        let options = Options {
            settings: Settings {
                delayed_allocation: false,
                hints: true,
                write_back_ns: DIRTY_EXPIRE_NS,
                ..of_machine.settings
            },
            journal_blocks: (JOURNAL_BYTES / BLOCK) as u32,
            journal_last: true,
            all_small: true,
            inodes: files + 1,
            ..of_machine
        };
        let files = InPlace::format(&machine, &options).expect("a large drive");
        let new = Self { machine, files, end };
        let page = flash.geometry.flash_page_bytes / flash.geometry.mapping_unit_bytes;
        // Of what was written, the first block of the journal is on the other drive.
        let so_far = (new.machine.counters().host_written - 1) as u32;
        let more = (written % page + page - so_far % page) % page;
        if more > 0 {
            let before = new.create("before");
            new.write(before, 0, more);
            new.sync_file(before);
        }
        new
    }

    /// A new file.
    pub fn create(&self, name: &str) -> FileId {
        self.files.create(Path::new(name)).expect("an inode")
    }

    /// Writes units of a file through the page cache, as the machine's present program.
    pub fn write(&self, file: FileId, from: u32, units: u32) {
        let range = ByteRange::at(u64::from(from) * BLOCK, u64::from(units) * BLOCK);
        self.files.write(file, range, Access::Buffered).expect("space");
    }

    /// `fsync`.
    pub fn sync_file(&self, file: FileId) {
        self.files.sync_file(file).expect("space");
    }

    /// `sync`.
    pub fn sync(&self) {
        self.files.sync().expect("space");
    }

    /// Where a file is.
    pub fn on_drive(&self, file: FileId) -> FileOnDrive {
        let layout = self.files.layout(file, Path::new("")).expect("a file");
        let mut found = FileOnDrive::default();
        for extent in layout.extents() {
            let (start, count) = (extent.physical / BLOCK, extent.length / BLOCK);
            found.push(Units::new(start as u32, count as u32));
        }
        found
    }

    /// A unit that no file has, counted from the end of the drive.
    pub fn unused(&self, number: u32) -> Units {
        Units::new(self.end - 1 - number, 1)
    }
}
