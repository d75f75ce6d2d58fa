//! The file server's bars, as in the artefact's fileserver_append.f and fileserver_read.f: 10,000 files of 128
//! KiB; ten threads append 32 KiB (or 16, half a flash page) at a time to random ones, until a file has 600 KiB
//! on average (section 5.2); then ten threads open, read and close random files, with direct calls of 1 MiB
//! and without a pause.
//!
//! Two things make it slower than a drive with enough in flight would be. The threads have processors of their
//! own, so the requests of ten files meet at the drive one by one. And files do not begin where a flash page
//! does: the file system has written its own blocks of 4 KiB before them, so that reads touch one flash page
//! more than they need, and an append of a page's size is on two dies. How many such blocks there were is not
//! known; the figures are means over all eight positions in a flash page of 32 KiB.

use super::drive;
use crate::file::{Allocator, FileOnDrive};
use crate::random::Random;
use fragmend_flash::command::Hint;
use fragmend_flash::device::Device;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::host::{Host, HostPath, read_together, windows};
use fragmend_flash::ssd::Ssd;
use rayon::prelude::*;

/// Positions in a flash page, and files of each; what a die has to do does not depend on their number.
const POSITIONS: u32 = 8;
const FILES: usize = 10_000 / POSITIONS as usize;
/// Units of a file before the appends, and on average after them.
const PREALLOCATED: u32 = (128 << 10) / 4096;
const GROWN: u32 = (600 << 10) / 4096;
/// Units of a call that reads, and the number of threads.
const CALL: u32 = 256;
const THREADS: usize = 10;
/// System calls between two reads: one that reads nothing, at the end of the file, close, open.
const CALLS_BETWEEN: u64 = 3;

/// How the files are written and read.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    pub flash: &'a Drive,
    pub path: &'a HostPath,
    /// Units of an append.
    pub append: u32,
    pub seed: u64,
}

impl Load<'_> {
    /// MiB/s of reads of files that were written one after the other.
    pub fn contiguous(&self) -> f64 {
        self.mean(Placement::RoundRobin, false)
    }

    /// MiB/s of reads of files that were appended to in turns.
    pub fn fragmented(&self, placement: Placement) -> f64 {
        self.mean(placement, true)
    }

    fn mean(&self, placement: Placement, fragmented: bool) -> f64 {
        let one = |position| self.measured(placement, fragmented, position);
        let each: Vec<f64> = (0..POSITIONS).into_par_iter().map(one).collect();
        each.iter().sum::<f64>() / f64::from(POSITIONS)
    }

    fn measured(&self, placement: Placement, fragmented: bool, position: u32) -> f64 {
        let mut random = Random::new(self.seed.wrapping_add(position.into()), "fileserver");
        let mut ssd = drive(self.flash, placement);
        let files = self.write(&mut ssd, &mut random, fragmented, position);
        let start = ssd.idle_at();
        let calls = (0..THREADS).map(|thread| {
            // Each thread has every tenth file, in a random order of its own.
            let mut own: Vec<&FileOnDrive> = files.iter().skip(thread).step_by(THREADS).collect();
            for left in (1..own.len()).rev() {
                own.swap(left, random.below(left as u32 + 1) as usize);
            }
            own.into_iter().flat_map(|file| windows(&file.within(0, file.units()), CALL))
        });
        let pause_ns = CALLS_BETWEEN * self.path.system_call_ns;
        let end = read_together(self.path, &mut ssd, start, calls.collect(), pause_ns);
        let ns = end.expect("reads") - start;
        let bytes = files.iter().map(|file| f64::from(file.units()) * 4096.0).sum::<f64>();
        bytes / f64::from(1 << 20) / (ns as f64 / 1e9)
    }

    /// The files, behind `position` units of the file system.
    fn write(
        &self,
        ssd: &mut Ssd,
        random: &mut Random,
        fragmented: bool,
        position: u32,
    ) -> Vec<FileOnDrive> {
        let appends = FILES as u32 * (GROWN - PREALLOCATED) / self.append;
        let order: Vec<usize> = (0..appends).map(|_| random.below(FILES as u32) as usize).collect();
        let mut host = Host::new(self.path, ssd, 0);
        let (mut space, mut files) = (Allocator::from(0), vec![FileOnDrive::default(); FILES]);
        if position > 0 {
            host.write(&[space.take(position)], Hint::None).expect("room");
        }
        if fragmented {
            for file in &mut files {
                file.append(&mut host, &mut space, PREALLOCATED).expect("room");
            }
            for file in order {
                files[file].append(&mut host, &mut space, self.append).expect("room");
            }
            return files;
        }
        let mut sizes = vec![PREALLOCATED; FILES];
        order.into_iter().for_each(|file| sizes[file] += self.append);
        for (file, units) in files.iter_mut().zip(sizes) {
            file.append(&mut host, &mut space, units).expect("room");
        }
        files
    }
}
