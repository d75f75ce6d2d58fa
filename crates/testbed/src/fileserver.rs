//! Files that many threads create, append to, read and delete at once, all `O_DIRECT`, as Filebench's
//! personality `fileserver` does and FragPicker configures it (SOSP'21, section 5.4).
//!
//! There, fifty threads on many processors interleave their allocations: 48 to 56 % of the bytes had
//! to move. A guest has one processor, whose threads take turns between system calls only; so here
//! they write new files block by block. A file is fragmented where another thread wrote at the same
//! time, and contiguous where the others read or deleted: with two threads, about half.

use crate::fragment::content;
use crate::random::Random;
use crate::replay::{Aligned, Mode, Request};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The server's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Fileserver {
    /// Initial number of files, and about the final one.
    pub files: u64,
    /// Mean size of a new file in bytes; sizes are between half and three halves of it.
    pub mean_bytes: u64,
    /// Threads that work at once.
    pub threads: u64,
    /// Rounds of each: one file made, one appended to, one read, one deleted.
    pub rounds: u64,
    /// Decides sizes and choices. The result also depends on the order of the threads.
    pub seed: u64,
}

/// Bytes of one write to the first files (Filebench's `iosize`).
const ALONE_BYTES: u64 = 1 << 20;
/// Bytes of one write to a file that comes later.
const AMONG_OTHERS_BYTES: u64 = BLOCK;
/// Mean bytes of an append (`meanappendsize`); between a block and twice as many.
const APPEND_BYTES: u64 = 16 << 10;
/// Bytes of one read of `grep` (SOSP'21, section 5.4).
const GREP_BYTES: u64 = 32 << 10;
const BLOCK: u64 = 4096;

/// A file and the bytes in it.
type Served = (PathBuf, u64);

impl Fileserver {
    /// Makes the files in `dir`, lets the threads work, and returns what is there in the end.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn run(self, dir: &Path) -> io::Result<Vec<Served>> {
        std::fs::create_dir_all(dir)?;
        let mut random = Random::new(self.seed);
        let first = (0..self.files).map(|n| self.create(dir, n, ALONE_BYTES, &mut random));
        let files = Mutex::new(first.collect::<io::Result<Vec<Served>>>()?);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=self.threads)
                .map(|thread| {
                    let files = &files;
                    scope.spawn(move || self.work(dir, thread, files))
                })
                .collect();
            threads.into_iter().try_for_each(|t| t.join().expect("a thread of the server"))
        })?;
        let mut files = files.into_inner().expect("no thread panicked");
        files.sort();
        Ok(files)
    }

    fn work(self, dir: &Path, thread: u64, files: &Mutex<Vec<Served>>) -> io::Result<()> {
        let mut random = Random::new(self.seed ^ thread << 32);
        // Taken out of the list, a file is this thread's alone.
        let take = |random: &mut Random| {
            let mut files = files.lock().expect("no thread panicked");
            let n = random.below(files.len() as u64) as usize;
            files.swap_remove(n)
        };
        let give = |file| files.lock().expect("no thread panicked").push(file);
        for round in 0..self.rounds {
            give(self.create(dir, thread << 32 | round, AMONG_OTHERS_BYTES, &mut random)?);
            let (path, bytes) = take(&mut random);
            let more = (1 + random.below(2 * APPEND_BYTES / BLOCK)) * BLOCK;
            write(&path, bytes, more, more)?;
            give((path, bytes + more));
            let (path, bytes) = take(&mut random);
            crate::replay::replay(&path, &grep(bytes), Mode::Direct)?;
            give((path, bytes));
            std::fs::remove_file(take(&mut random).0)?;
        }
        Ok(())
    }

    fn create(self, dir: &Path, name: u64, step: u64, random: &mut Random) -> io::Result<Served> {
        let path = dir.join(format!("{name:016x}"));
        let blocks = self.mean_bytes / BLOCK;
        let bytes = (blocks / 2 + random.below(blocks)) * BLOCK;
        File::create_new(&path)?;
        write(&path, 0, bytes, step)?;
        Ok((path, bytes))
    }
}

/// The reads of `grep` over a file of `bytes` bytes.
pub fn grep(bytes: u64) -> Vec<Request> {
    let all = (0..bytes).step_by(GREP_BYTES as usize);
    all.map(|offset| Request { offset, len: GREP_BYTES.min(bytes - offset) }).collect()
}

/// Writes the file's content from `from` on, a fixed number of bytes at a time.
fn write(path: &Path, from: u64, bytes: u64, step: u64) -> io::Result<()> {
    let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let file = File::options().write(true).custom_flags(flags).open(path)?;
    let mut buffer = Aligned::new(step as usize);
    let end = from + bytes;
    for at in (from..end).step_by(step as usize) {
        let part = &mut buffer.bytes()[..step.min(end - at) as usize];
        content(at, part);
        file.write_all_at(part, at)?;
    }
    Ok(())
}
