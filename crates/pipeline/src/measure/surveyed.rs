//! The files of a sample, as long as they are those that were surveyed. Programs delete and replace files meanwhile: the reads of
//! a few are left out, so that they do not keep the others from being timed.

use super::{CouldNot, Sample};
use crate::event::LeftOut;
use fragmend_apply::measurement::NotMeasured;
use fragmend_layout::FileId;
use fragmend_sys::{inode, input};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;

/// Leaves the reads of files out that cannot be read any more as they were surveyed, and returns how many they are.
///
/// # Errors
/// Why the first of them cannot be read, if fewer than half of the reads are left.
pub(super) fn leave_out_others(sample: &mut Sample) -> Result<LeftOut, CouldNot> {
    // By the index of the file: the end of what is read of it.
    let mut ends: BTreeMap<usize, u64> = BTreeMap::new();
    for read in sample.runs.iter().flat_map(|run| &run.reads) {
        let end = ends.entry(read.file).or_default();
        *end = read.range.end.max(*end);
    }
    let other = |(file, end): (usize, u64)| Some((file, open(sample, file, end).err()?));
    let others: BTreeMap<usize, CouldNot> = ends.into_iter().filter_map(other).collect();
    let Some(why) = others.values().next() else { return Ok(LeftOut::default()) };
    let all = sample.size().0;
    for run in &mut sample.runs {
        run.reads.retain(|read| !others.contains_key(&read.file));
    }
    sample.runs.retain(|run| !run.reads.is_empty());
    let reads = all - sample.size().0;
    if reads > all / 2 {
        return Err(why.clone());
    }
    Ok(LeftOut { files: others.len() as u64, reads })
}

/// Opens a file of a sample past the page cache, if it is the surveyed one and has all bytes up to `end`.
///
/// # Errors
/// See [`CouldNot`].
pub(super) fn open(sample: &Sample, index: usize, end: u64) -> Result<File, CouldNot> {
    let (path, wanted) = (&sample.files[index].path, sample.files[index].layout.file);
    let named = |e: io::Error| {
        let refused = [ErrorKind::InvalidInput, ErrorKind::Unsupported];
        let refused = refused.contains(&e.kind());
        let why = if refused { NotMeasured::Refused } else { NotMeasured::Failed };
        CouldNot::new(why, format!("{}: {e}", sample.name(index)))
    };
    let changed = |how: &str| {
        let detail = format!("{} {how}", sample.name(index));
        CouldNot::new(NotMeasured::Failed, detail)
    };
    let file = input::open_direct(path).map_err(named)?;
    let found = file.metadata().map_err(named)?;
    // A file that is made anew may get the number of the one that was deleted.
    let generation = inode::generation_or_zero(&file).map_err(named)?;
    let identity = FileId { device: found.dev(), inode: found.ino(), generation };
    if identity != wanted {
        Err(changed("is another file now"))
    } else if found.len() < end {
        Err(changed("has become shorter"))
    } else {
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{Access, DeviceProfile, FsKind, Layout, Op};
    use fragmend_plan::{Device, Settings, Survey, SurveyedFile};
    use std::fs;
    use std::path::Path;

    const MIB: u64 = 1 << 20;

    /// A sample of reads of the files of a directory, so many of each.
    fn sample(dir: &Path, reads: &[(&str, u64)]) -> Sample {
        let device = Device {
            device: 0,
            mount: dir.into(),
            file_system: FsKind::Ext4,
            total_bytes: 1 << 30,
            block_bytes: 4096,
            profile: DeviceProfile::unknown(),
        };
        let file = |(name, reads): &(&str, u64)| {
            let path = dir.join(name);
            fs::write(&path, vec![1; MIB as usize]).unwrap();
            let found = fs::metadata(&path).unwrap();
            let generation = inode::generation_or_zero(File::open(&path).unwrap()).unwrap();
            let id = FileId { device: found.dev(), inode: found.ino(), generation };
            let read = |n| Access {
                offset: n * 8192,
                length: 4096,
                count: 1,
                thread: 0,
                op: Op::Read,
                direct: true,
                windowed: false,
            };
            let accesses = (0..*reads).map(read).collect();
            SurveyedFile::new(path, Layout::new(id, MIB), accesses, &device)
        };
        let files = reads.iter().map(file).collect();
        let plan = fragmend_plan::make(Survey::default(), &Settings::default());
        Sample::draw(Survey { files, ordered: true, ..Survey::default() }, &plan, 1)
    }

    #[test]
    fn reads_of_files_that_are_others_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name| dir.path().join(name);
        let mut sample =
            sample(dir.path(), &[("stays", 9), ("vanishes", 4), ("shrinks", 3), ("anew", 2)]);
        assert_eq!(leave_out_others(&mut sample), Ok(LeftOut::default()));
        assert_eq!(sample.size(), (18, 18 * 4096));
        fs::remove_file(of("vanishes")).unwrap();
        File::options().write(true).open(of("shrinks")).unwrap().set_len(4096).unwrap();
        fs::write(of("new"), vec![1; MIB as usize]).unwrap();
        fs::rename(of("new"), of("anew")).unwrap();
        assert_eq!(leave_out_others(&mut sample), Ok(LeftOut { files: 3, reads: 9 }));
        assert_eq!(sample.size(), (9, 9 * 4096));
        assert_eq!(leave_out_others(&mut sample), Ok(LeftOut::default()));
    }

    #[test]
    fn nothing_is_timed_where_few_reads_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut sample = sample(dir.path(), &[("stays", 4), ("vanishes", 5)]);
        fs::remove_file(dir.path().join("vanishes")).unwrap();
        let refused = leave_out_others(&mut sample).unwrap_err();
        assert_eq!(refused.why, NotMeasured::Failed);
        assert!(refused.detail.contains("vanishes"), "{}", refused.detail);
    }
}
