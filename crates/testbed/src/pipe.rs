//! A program that has put pages of a file into a pipe and closed the file.

use crate::process::Running;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

const BLOCK: u64 = 4096;
/// Offset and length, in bytes, of a range of the file around whose ends the pages are. Its ends are inside
/// folios, however large these are.
pub const RANGE: (u64, u64) = (259 * BLOCK, 501 * BLOCK);

/// Reads a file from its beginning, so that its folios grow, puts what is around both ends of the
/// range into a pipe, and closes the file. At the end it prints how many of those blocks have changed.
const SENDER: &str = "
import os, sys, fcntl
block, first, last = 4096, 259, 760
f = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
size = os.fstat(f).st_size
whole = b''.join(os.pread(f, 16384, at) for at in range(0, size, 16384))
r, w = os.pipe()
fcntl.fcntl(w, 1031, 1 << 20) # F_SETPIPE_SZ
sent = [n for edge in (first, last) for n in range(edge - 64, edge + 60)]
for n in sent:
    assert os.splice(f, w, block, offset_src=n * block) == block
os.close(f)
print('!', flush=True)
sys.stdin.read()
print(sum(os.read(r, block) != whole[n * block:][:block] for n in sent))
";

/// Pages of a file on their way.
pub struct Sent(Running);

impl Sent {
    /// Puts them into the pipe.
    ///
    /// # Panics
    /// When that fails.
    pub fn begin(path: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SENDER]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running::start(&mut command);
        let out = running.child().stdout.as_mut().expect("its output");
        out.read_exact(&mut [0]).expect("the pages are in the pipe");
        Self(running)
    }

    /// How many blocks have changed when they arrive.
    ///
    /// # Panics
    /// When the program fails.
    pub fn wrong(mut self) -> u32 {
        drop(self.0.child().stdin.take());
        let told = self.0.wait().expect(&[0]);
        told.lines().last().and_then(|last| last.parse().ok()).expect("a number")
    }
}
