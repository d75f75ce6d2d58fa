//! The file server's bars, as in the artefact's fileserver_append.f and fileserver_read.f: 10,000 files of 128
//! KiB; ten threads append 32 KiB (or 16, half a flash page) at a time to random ones, until a file has 600 KiB
//! on average (section 5.2); then ten threads open, read and close random files, with direct calls of 1 MiB
//! and without a pause.
//!
//! Three things make it slower than a drive with enough in flight would be.
//!
//! - The threads have processors of their own, so the requests of ten files meet at the drive one by one.
//! - Each append is an extent of its own (the paper's files had 15.7 of them), as each thread places what it writes where its processor
//!   does: `ext4.rs`. So each is a request of its own, also where two of a file are in one flash page, which is sensed twice then.
//! - No file begins where a flash page does (`ext4::WRITTEN_BEFORE`): reads touch one flash page more than they need, an append of a
//!   page's size is on two dies, and so is one of half a page if it begins in the second half but for its beginning. Only where appends of
//!   16 KiB begin at a half of a page does none cross its end; see the rows of small appends for what that is worth.
//!
//! What reaches the drive at once is what a file was appended to since the last commit, 2.5 appends of 32 KiB. That takes little from what
//! random dies cost.

use super::ext4::Ext4;
use crate::file::FileOnDrive;
use crate::random::Random;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::host::{HostPath, read_together, windows};
use fragmend_layout::FileId;
use fragmend_simfs::machine::Program;

/// One file in four: what a die has to do does not depend on their number.
const FILES: usize = 10_000 / 4;
/// Units of a file before the appends, and on average after them.
const PREALLOCATED: u32 = (128 << 10) / 4096;
const GROWN: u32 = (600 << 10) / 4096;
/// For how long the appends go on (fileserver_append.f: `set $runtime=30`).
const APPENDING_NS: u64 = 30_000_000_000;
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
    /// Blocks that were written to the drive before.
    pub written_before: u32,
    pub seed: u64,
}

impl Load<'_> {
    /// MiB/s of reads of files that were written one after the other.
    pub fn contiguous(&self) -> f64 {
        self.measured(Placement::RoundRobin, false)
    }

    /// MiB/s of reads of files that were appended to in turns.
    pub fn fragmented(&self, placement: Placement) -> f64 {
        self.measured(placement, true)
    }

    fn measured(&self, placement: Placement, fragmented: bool) -> f64 {
        let mut random = Random::new(self.seed, "fileserver");
        let ext4 =
            Ext4::new(self.flash, self.path, placement, FILES as u32 + 1, self.written_before);
        let files = self.write(&ext4, &mut random, fragmented);
        let files: Vec<FileOnDrive> = files.into_iter().map(|file| ext4.on_drive(file)).collect();
        let calls = (0..THREADS).map(|thread| {
            // Each thread has every tenth file, in a random order of its own.
            let mut own: Vec<&FileOnDrive> = files.iter().skip(thread).step_by(THREADS).collect();
            for left in (1..own.len()).rev() {
                own.swap(left, random.below(left as u32 + 1) as usize);
            }
            own.into_iter().flat_map(|file| windows(&file.within(0, file.units()), CALL))
        });
        let (calls, pause_ns) = (calls.collect(), CALLS_BETWEEN * self.path.system_call_ns);
        let ns = ext4.machine.with_drive(|drive| {
            let start = drive.idle_at();
            read_together(self.path, drive, start, calls, pause_ns).expect("reads") - start
        });
        let bytes = files.iter().map(|file| f64::from(file.units()) * 4096.0).sum::<f64>();
        bytes / f64::from(1 << 20) / (ns as f64 / 1e9)
    }

    /// The files.
    fn write(&self, ext4: &Ext4, random: &mut Random, fragmented: bool) -> Vec<FileId> {
        let appends = FILES as u32 * (GROWN - PREALLOCATED) / self.append;
        let order: Vec<usize> = (0..appends).map(|_| random.below(FILES as u32) as usize).collect();
        let files: Vec<FileId> = (0..FILES).map(|n| ext4.create(&n.to_string())).collect();
        let mut sizes = vec![PREALLOCATED; FILES];
        if fragmented {
            files.iter().for_each(|file| ext4.write(*file, 0, PREALLOCATED));
            self.append(ext4, &files, &mut sizes, &order);
        } else {
            order.into_iter().for_each(|file| sizes[file] += self.append);
            files.iter().zip(sizes).for_each(|(file, units)| ext4.write(*file, 0, units));
        }
        ext4.sync();
        files
    }

    /// Appends by the threads in turn, over [`APPENDING_NS`].
    fn append(&self, ext4: &Ext4, files: &[FileId], sizes: &mut [u32], order: &[usize]) {
        let machine = &ext4.machine;
        let threads: Vec<Program> = (0..THREADS).map(|_| machine.add_program()).collect();
        let each_ns = APPENDING_NS / (order.len() / THREADS).max(1) as u64;
        let began = machine.now_ns();
        for (n, file) in order.iter().enumerate() {
            machine.switch_to(threads[n % THREADS]);
            machine.wait_until(began + (n / THREADS) as u64 * each_ns);
            ext4.write(files[*file], sizes[*file], self.append);
            sizes[*file] += self.append;
        }
    }
}
