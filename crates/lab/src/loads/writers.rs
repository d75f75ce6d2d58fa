//! Writers that interleave: IOzone with several threads and synchronous writes, as APSys'16 uses it to fragment files
//! (sections 2.1 and 4): each record is durable before the next one is written, so that blocks are allocated to the files in turn.
//! Used by L-fig2, L-table1, L-fig6, L-fig7-table2.

use super::schedule::Programs;
use super::{Done, Load, Scale, write};
use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::machine::Machine;
use std::path::PathBuf;

/// A file that a thread of IOzone writes: how long it is, and how long each write, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Length of the file.
    pub file_kib: u64,
    /// Length of each write.
    pub record_kib: u64,
}

/// The eight files of APSys'16's table 2, which are written at the same time.
pub const TABLE_2: [Written; 8] = [
    Written { file_kib: 1 << 10, record_kib: 4 },
    Written { file_kib: 1 << 10, record_kib: 4 },
    Written { file_kib: 20 << 10, record_kib: 64 },
    Written { file_kib: 20 << 10, record_kib: 64 },
    Written { file_kib: 20 << 10, record_kib: 4 },
    Written { file_kib: 20 << 10, record_kib: 4 },
    Written { file_kib: 50 << 10, record_kib: 4 },
    Written { file_kib: 100 << 10, record_kib: 128 },
];

/// Adds a thread for each file: the first one writes `name-1`, and so on.
pub fn iozone(
    programs: &mut Programs,
    machine: &Machine,
    name: &str,
    all: &[Written],
    scale: Scale,
) {
    for (number, Written { file_kib, record_kib }) in all.iter().enumerate() {
        let path = format!("{name}-{}", number + 1);
        let records = scale.of(file_kib / record_kib);
        programs
            .add(machine, SyncWriter::new(path, records * (record_kib << 10), record_kib << 10));
    }
}

/// Appends to a new file, and makes each record durable.
#[derive(Clone, Debug)]
pub struct SyncWriter {
    path: PathBuf,
    file: Option<FileId>,
    left: ByteRange,
    record: u64,
}

impl SyncWriter {
    /// A writer of `bytes` bytes, `record` of them with each write.
    pub fn new(path: impl Into<PathBuf>, bytes: u64, record: u64) -> Self {
        Self { path: path.into(), file: None, left: ByteRange::at(0, bytes), record }
    }
}

impl Load for SyncWriter {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        let file = match self.file {
            Some(file) => file,
            None => *self.file.insert(files.create(&self.path)?),
        };
        let Some(part) = self.left.steps(self.record).next() else { return Ok(None) };
        let done = write(files, file, part, Access::Buffered)?;
        files.sync_file(file)?;
        self.left.start = part.end;
        Ok(Some(done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::double::Double;
    use fragmend_layout::Volume;
    use std::path::Path;

    #[test]
    fn records_of_threads_interleave() {
        let files = Double::new(1 << 16);
        let mut programs = Programs::default();
        let two =
            [Written { file_kib: 64, record_kib: 4 }, Written { file_kib: 64, record_kib: 8 }];
        iozone(&mut programs, files.machine(), "f", &two, Scale::one_in(2));
        let tally = programs.run(&files).unwrap();
        assert_eq!((tally.operations, tally.done.written_bytes), (8 + 4, 64 << 10));
        let extents = |name: &str| {
            let file = files.find(Path::new(name)).unwrap();
            files.layout(file, Path::new(name)).unwrap().extents().len()
        };
        assert!(
            extents("f-1") >= 4 && extents("f-2") == 4,
            "{} {}",
            extents("f-1"),
            extents("f-2")
        );
        assert_eq!(files.syncs(), 12);
    }
}
