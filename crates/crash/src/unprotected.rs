//! A rewrite without a second copy: read, punch, write again, as FragPicker's released script does (SOSP'21,
//! section 4.3). It is a control: a cut must lose bytes, and that must be found.

use crate::apply::Moves;
use crate::files::{MENDED, Role, TestFile};

use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const RANGE: u64 = 128 << 10;

/// Rewrites every untouched file.
///
/// # Panics
/// When the file system refuses.
pub fn rewrite(root: &Path, files: &[TestFile]) -> Moves {
    let mut moves = Moves::default();
    for made in files.iter().filter(|f| f.role == Role::Untouched) {
        let path = root.join(MENDED).join(&made.name);
        let file = File::options().read(true).write(true).open(path).expect("a file of the run");
        for from in (0..made.bytes).step_by(RANGE as usize) {
            let mut bytes = vec![0; RANGE.min(made.bytes - from) as usize];
            file.read_exact_at(&mut bytes, from).expect("a read");
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, hole, from, bytes.len() as u64).expect("a hole");
            file.write_all_at(&bytes, from).expect("a write");
            std::thread::sleep(Duration::from_millis(10));
            moves.ranges += 1;
            moves.bytes += bytes.len() as u64;
        }
        file.sync_all().expect("fsync");
    }
    moves
}
