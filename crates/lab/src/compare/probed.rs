//! What `fragmend probe FILE` measures of the files that a load has read: which ranges are slower than their fragments explain. The
//! production probe reads them past the page cache, on the idle drive and in its virtual time, as it reads a file that is mounted.

use crate::raw;
use fragmend_device::probe::meter::Meter;
use fragmend_device::probe::ranges::{self, PART, Part};
use fragmend_device::probe::reader::{Failed, Read, Reader};
use fragmend_flash::command::Units;
use fragmend_layout::{ByteRange, CostModel, FileAccesses, FileId, Layout};
use fragmend_plan::{SlowFile, SlowRange};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::machine::Machine;
use fragmend_sys::fiemap::Mapped;
use std::path::Path;
use std::time::Duration;

/// No clock on the wall ends a probe of a drive that answers in virtual time.
const NO_LIMIT: Duration = Duration::from_secs(u32::MAX as u64);

/// The slow ranges of the files that were read, by the costs of their drive. The machine's present program waits until the drive is idle again.
///
/// # Errors
/// A file cannot be read.
pub fn slow_files(
    files: &dyn FileSystem,
    seen: &[FileAccesses],
    costs: &CostModel,
    seed: u64,
) -> Result<Vec<SlowFile>, Error> {
    let slow = seen.iter().map(|of_file| slow_ranges(files, of_file.file, costs, seed));
    let slow = slow.collect();
    files.machine().wait_until_idle();
    slow
}

fn slow_ranges(
    files: &dyn FileSystem,
    file: FileId,
    costs: &CostModel,
    seed: u64,
) -> Result<SlowFile, Error> {
    let damaged = |why: &dyn std::fmt::Display| Error::Damaged(why.to_string());
    let layout = files.layout(file, Path::new("")).map_err(|skip| damaged(&skip))?;
    let whole = ByteRange::at(0, layout.size);
    let run = |f: fragmend_layout::Fragment| Mapped {
        logical: f.range.start,
        physical: f.physical,
        length: f.range.len(),
        flags: 0,
    };
    let runs: Vec<Mapped> = layout.fragments_within(whole).map(run).collect();
    let mappings = ranges::parts(&runs, layout.size);
    let data_bytes = runs.iter().map(|run| run.length).sum();
    let mut reader = FileReader { machine: files.machine(), layout: &layout };
    let limits = ranges::most(&reader, &mappings, NO_LIMIT);
    let mut meter = Meter::new(&mut reader, limits, &|| false);
    let measured = ranges::measure(&mut meter, seed, (mappings, data_bytes), costs);
    let measured = measured.map_err(|why| damaged(&why))?;
    let slow = |part: &Part| SlowRange {
        range: ByteRange { start: part.range.start, end: part.range.end },
        physical: part.physical,
        fragments: part.fragments,
        ns: part.ns as u64,
        expected_ns: part.expected_ns as u64,
        part_bytes: PART,
        granularity_bytes: None,
    };
    let ranges = measured.parts.iter().filter(|part| part.is_slow()).map(slow).collect();
    Ok(SlowFile { path: Path::new("").into(), file, ranges })
}

/// A file of a simulated file system, read past the page cache.
struct FileReader<'a> {
    machine: &'a Machine,
    layout: &'a Layout,
}

impl Reader for FileReader<'_> {
    fn capacity_bytes(&self) -> u64 {
        self.layout.size
    }

    fn unit_bytes(&self) -> u32 {
        self.machine.block_bytes() as u32
    }

    fn max_request_bytes(&self) -> u32 {
        self.machine.path().request_bytes
    }

    fn max_depth(&self) -> u32 {
        self.machine.path().queue_depth
    }

    /// A read of several fragments is as many requests, as many in flight as the drive accepts where all reads are.
    fn elapsed(&mut self, reads: &[Read], depth: u32, _: &dyn Fn() -> bool) -> Result<u64, Failed> {
        let block = self.machine.block_bytes();
        let mut units = Vec::new();
        for read in reads {
            let range = ByteRange::at(read.at, read.bytes.into());
            let fragments = self.layout.fragments_within(range);
            units.extend(fragments.map(|f| {
                Units::new((f.physical / block) as u32, f.range.len().div_ceil(block) as u32)
            }));
        }
        let path = self.machine.path();
        let depth = if depth as usize >= reads.len() { units.len() as u32 } else { depth };
        let depth = depth.min(path.queue_depth) as usize;
        let now = self.machine.now_ns();
        Ok(self.machine.with_drive(|drive| {
            let start = now.max(drive.idle_at());
            raw::read_from(drive, start, units.into_iter(), depth, path.request_ns) - start
        }))
    }

    fn holds_data(&mut self, at: u64) -> Result<Option<bool>, Failed> {
        let block = ByteRange::at(at, self.machine.block_bytes());
        Ok(Some(self.layout.fragments_within(block).next().is_some()))
    }
}
