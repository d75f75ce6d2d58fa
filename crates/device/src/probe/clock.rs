//! The clock that times reads: that on the wall, or that of a drive of the lab which is served as a block device
//! (`fragmend lab serve`). Such a drive has its own time: the file `clock` beside its `disk` contains it.

use super::reader::Failed;
use fragmend_sys::mounts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Which clock a result is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClockKind {
    /// That on the wall.
    Wall,
    /// The virtual time of a served drive of the lab.
    Served,
}

/// A clock.
#[derive(Debug)]
pub enum Clock {
    /// That on the wall.
    Wall,
    /// The file that contains the virtual time.
    Served(File),
}

/// The source of the mounts in which drives are served, in mountinfo.
const SOURCE: &str = "fragmend-lab";
/// The longest content of a clock: the digits of 2^64, and a line break.
const LONGEST: usize = 24;

impl Clock {
    /// Which it is.
    pub fn kind(&self) -> ClockKind {
        match self {
            Self::Wall => ClockKind::Wall,
            Self::Served(_) => ClockKind::Served,
        }
    }

    /// The present virtual time, in nanoseconds; `None` for the clock on the wall, which the reads are timed by.
    ///
    /// # Errors
    /// When the file cannot be read, or contains something else.
    pub fn read(&self) -> Result<Option<u64>, Failed> {
        let Self::Served(file) = self else { return Ok(None) };
        let mut text = [0; LONGEST];
        let bytes = file.read_at(&mut text, 0)?;
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "the drive's clock is no time");
        Ok(Some(parse(&text[..bytes]).ok_or_else(strange)?))
    }
}

/// Nanoseconds in decimal digits, and a line break.
pub fn parse(text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b"\n")?;
    let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    valid.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// The clock of the drive that a loop device's backing file belongs to; `None` if it is no served drive, as far as
/// can be seen from here.
///
/// # Errors
/// When it is one and its clock cannot be opened, or mountinfo cannot be read.
pub fn beside(backing_file: &Path) -> io::Result<Option<(File, PathBuf)>> {
    if backing_file.file_name() != Some("disk".as_ref()) {
        return Ok(None);
    }
    let mounts = mounts::all()?;
    let served = mounts::holding(&mounts, backing_file)
        .is_some_and(|mount| mount.source == SOURCE && mount.fs_type.starts_with("fuse"));
    if !served {
        return Ok(None);
    }
    let path = backing_file.with_file_name("clock");
    Ok(Some((File::open(&path)?, path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_clock_is_digits_and_a_line_break() {
        assert_eq!(parse(b"0\n"), Some(0));
        assert_eq!(parse(b"18446744073709551615\n"), Some(u64::MAX));
        for wrong in [&b""[..], b"\n", b"12", b"-1\n", b"+1\n", b"1 \n", b"18446744073709551616\n"]
        {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_clock_is_read_anew_each_time() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"1234\n").unwrap();
        let clock = Clock::Served(file.try_clone().unwrap());
        assert_eq!(clock.read().unwrap(), Some(1234));
        file.write_all_at(b"99999\n", 0).unwrap();
        assert_eq!(clock.read().unwrap(), Some(99999));
        file.set_len(0).unwrap();
        assert!(clock.read().is_err());
        assert_eq!(Clock::Wall.read().unwrap(), None);
    }

    #[test]
    fn a_file_named_disk_elsewhere_has_no_clock() {
        assert!(beside(Path::new("/tmp/disk")).unwrap().is_none());
        assert!(beside(Path::new("/tmp/other")).unwrap().is_none());
    }
}
