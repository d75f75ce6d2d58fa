//! Files of a simulated file system, fragmented as a scan found real ones.
//!
//! A file system's calls do not say where data is to be, so real addresses cannot be had there (a load's file has them on the bare drive:
//! [`crate::scan`]). What can be had is the order: extents are written in the order of their real addresses, each durable before the
//! next one, so that the allocator places them one after the other, with the extents of other files between those of a file. How near
//! that comes, [`compare`] says. Free space between files, and when it was written, is not in a scan.

use super::{Done, Load, write};
use crate::scan::Scan;
use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use std::path::Path;

/// Writes the extents of a scan, one with each operation.
pub struct Replica {
    extents: std::vec::IntoIter<Extent>,
    files: Vec<File>,
}

struct File {
    path: String,
    bytes: u64,
    id: Option<FileId>,
    /// Extents that are still to be written.
    left: usize,
}

/// An extent of the file with this number.
struct Extent {
    physical: u64,
    file: usize,
    range: ByteRange,
}

impl Replica {
    /// The files of a scan that have data with addresses.
    pub fn of(scan: &Scan) -> Self {
        let (mut files, mut extents) = (Vec::new(), Vec::new());
        for file in &scan.files {
            let all = file.layout.iter().flat_map(|layout| &layout.extents);
            let before = extents.len();
            extents.extend(all.filter(|extent| extent.kind.is_addressed()).map(|extent| Extent {
                physical: extent.physical,
                file: files.len(),
                range: extent.range(),
            }));
            let left = extents.len() - before;
            let path = file.path.path.clone();
            files.extend((left > 0).then_some(File { path, bytes: file.bytes, id: None, left }));
        }
        extents.sort_by_key(|extent| (extent.physical, extent.file));
        Self { extents: extents.into_iter(), files }
    }
}

impl Load for Replica {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        let Some(Extent { file, range, .. }) = self.extents.next() else { return Ok(None) };
        let file = &mut self.files[file];
        let id = match file.id {
            Some(id) => id,
            None => *file.id.insert(files.create(Path::new(&file.path))?),
        };
        let done = write(files, id, range, Access::Buffered)?;
        file.left -= 1;
        if file.left == 0 {
            files.truncate(id, file.bytes)?;
        }
        files.sync_file(id)?;
        Ok(Some(done))
    }
}

/// How many fragments the files have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Likeness {
    /// Files that are on both.
    pub files: u64,
    /// Their fragments in the scan.
    pub real: u64,
    /// Their fragments on the simulated file system.
    pub simulated: u64,
    /// Files with as many fragments here as there.
    pub alike: u64,
}

/// Compares the fragments of a scan's files with those of the files of the same paths.
///
/// # Errors
/// A layout cannot be read.
pub fn compare(scan: &Scan, files: &dyn FileSystem) -> Result<Likeness, Error> {
    let mut likeness = Likeness::default();
    for file in &scan.files {
        let (Some(real), path) = (&file.layout, Path::new(&file.path.path)) else { continue };
        let Ok(id) = files.find(path) else { continue };
        let here = files.layout(id, path).map_err(|skip| Error::Damaged(skip.to_string()))?;
        let count = |extents: &[fragmend_layout::Extent]| {
            let data = extents.iter().filter(|extent| extent.kind.is_addressed());
            data.count() as u64
        };
        let (real, simulated) = (count(&real.extents), count(here.extents()));
        likeness.files += 1;
        likeness.real += real;
        likeness.simulated += simulated;
        likeness.alike += u64::from(real == simulated);
    }
    Ok(likeness)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::double::Double;

    #[test]
    fn files_have_as_many_fragments_as_the_scan_has() {
        let extent = |logical: u64, physical: u64, length: u64| {
            let (logical, physical, length) = (logical << 12, physical << 12, length << 12);
            format!(
                r#"{{"logical":{logical},"physical":{physical},"length":{length},"kind":"data"}}"#
            )
        };
        let file = |path: &str, bytes: u64, extents: &[String]| {
            let extents = extents.join(",");
            format!(
                r#"{{"path":"{path}","bytes":{bytes},"layout":{{"device":1,"extents":[{extents}]}}}}"#
            )
        };
        let files = [
            file("/a", 40_000, &[extent(0, 900, 4), extent(4, 100, 4), extent(8, 500, 2)]),
            file("/b", 9 << 12, &[extent(0, 104, 4), extent(7, 502, 2)]),
            file("/none", 0, &[]),
        ];
        let scan = Scan::parse(&format!("{{\"files\":[{}]}}", files.join(",")), "s").unwrap();
        let double = Double::new(100);
        let done = Replica::of(&scan).finish(&double).unwrap();
        assert_eq!((done.written_bytes, double.count()), (16 << 12, 2));
        assert_eq!(double.size(double.find(Path::new("/a")).unwrap()), Ok(40_000));
        let likeness = compare(&scan, &double).unwrap();
        // On the double, /a's last two extents in the order of addresses adjoin in no way.
        assert_eq!(likeness, Likeness { files: 2, real: 5, simulated: 5, alike: 2 });
    }
}
