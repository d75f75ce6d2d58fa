//! What the experiments of APSys'16 have in common: files that programs write at the same time with synchronous writes, on
//! the simulated F2FS, some of which are deleted, and the cleaner that is asked for a number of victims.
//!
//! The paper partitions its drives, and does not say how large the partitions are. Here the drive itself is smaller, by its capacity
//! alone. The paper has files fill the drive until the cleaner must run; here the cleaner in the background is asked, so that each segment
//! that has invalid blocks is cleaned once.

use crate::loads::schedule::Programs;
use crate::loads::writers::{Written, iozone};
use crate::loads::{Scale, read_whole};
use crate::presets;
use fragmend_layout::{ByteRange, Volume};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::{Cleaning, LogStructured, Settings};
use std::path::Path;

/// Bytes of a partition, for all that the experiments write.
const PARTITION: u64 = 2 << 30;
/// Writers' files are this name, and their number from 1.
const NAME: &str = "file";
/// Files that are deleted: those of further writers.
const DUMP: &str = "dump";
const ALL: ByteRange = ByteRange { start: 0, end: u64::MAX };

/// A file system with files that were written at the same time, some of them deleted.
pub struct Files(LogStructured);

impl Files {
    /// Writes `kept` and `deleted` at the same time, a thread for each file, to an empty partition of a drive; `deleted` are then
    /// removed, durably.
    ///
    /// # Panics
    /// The drive is too small.
    pub fn written(
        preset: &str,
        kept: &[Written],
        deleted: &[Written],
        cleaning: Cleaning,
    ) -> Self {
        let setup = presets::named(preset).expect("a preset").of_bytes(PARTITION);
        let machine = Machine::new(setup.device(), false, setup.host);
        let settings = Settings { cleaning, ..Settings::default() };
        let fs = LogStructured::format(&machine, &settings).expect("a drive that is large enough");
        let mut programs = Programs::default();
        iozone(&mut programs, &machine, NAME, kept, Scale::WHOLE);
        iozone(&mut programs, &machine, DUMP, deleted, Scale::WHOLE);
        programs.run(&fs).expect("space");
        for number in 1..=deleted.len() {
            fs.remove(Path::new(&format!("{DUMP}-{number}"))).expect("it was written");
        }
        fs.sync().expect("space");
        Self(fs)
    }

    /// Cleans until so many victims with blocks of files were copied, or no victim is left; returns how many there were.
    ///
    /// # Panics
    /// The drive is too small.
    pub fn clean(&self, most: u64) -> u64 {
        let mut cleaned = 0;
        while cleaned < most {
            let before = self.0.counts().blocks_copied;
            if self.0.clean(1).expect("space") == 0 {
                break;
            }
            // Victims whose blocks are nodes are not counted: no file is read through them.
            cleaned += u64::from(self.0.counts().blocks_copied > before);
        }
        cleaned
    }

    /// In how many fragments a file is, by its number.
    ///
    /// # Panics
    /// There is no such file.
    pub fn fragments(&self, number: usize) -> u64 {
        let path = format!("{NAME}-{number}");
        let file = self.0.find(Path::new(&path)).expect("it was kept");
        self.0.layout(file, Path::new(&path)).expect("its layout").fragments(ALL)
    }

    /// MB/s of reading a file whole through an empty page cache with calls of so many bytes, on an idle drive.
    ///
    /// # Panics
    /// There is no such file.
    pub fn mbs(&self, number: usize, call: u64) -> f64 {
        let file = self.0.find(Path::new(&format!("{NAME}-{number}"))).expect("it was kept");
        let machine = self.0.machine();
        self.0.drop_caches();
        machine.wait_until_idle();
        let began = machine.now_ns();
        let done = read_whole(&self.0, file, call, Access::Buffered).expect("the drive reads");
        done.read_bytes as f64 / (machine.now_ns() - began) as f64 * 1e3
    }
}
