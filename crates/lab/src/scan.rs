//! Layouts of real files, as `fragmend scan --json --layouts` writes them, on a simulated drive.
//!
//! A file's data is at its real addresses. Where the real device is larger, the gaps between the files' data are shortened, all by the
//! same share, until the last of it ends with the drive: extents keep their lengths, their order, and what adjoins what; distances, and
//! where an extent begins within a stripe, do not stay. Only data has a place: holes and what was never written read as zeroes, and data
//! in inodes has no address.

use crate::described::BadFile;
use crate::file::FileOnDrive;
pub use fragmend_flash::command::Units;
use fragmend_layout::{PathText, ScannedLayout};
use fragmend_sys::input;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::Path;

/// The largest document that is read, in bytes.
pub const LARGEST: u64 = 1 << 30;

/// What is read of the document of `fragmend scan`.
#[derive(Clone, Debug, Deserialize)]
pub struct Scan {
    /// The files, in the order of the document.
    pub files: Vec<ScannedFile>,
}

/// A file of a scan.
#[derive(Clone, Debug, Deserialize)]
pub struct ScannedFile {
    /// Its path.
    #[serde(flatten)]
    pub path: PathText,
    /// Its size.
    pub bytes: u64,
    /// Where it is; none without `--layouts`.
    pub layout: Option<ScannedLayout>,
}

/// Files at their places on a simulated drive.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The files that have data, by path.
    pub files: BTreeMap<String, FileOnDrive>,
    /// The units that they use, in the order of the drive; neither adjoins the one before it.
    pub used: Vec<Units>,
    /// The share of the gaps that is left, in parts of a million; a million where the drive is large enough.
    pub gaps_ppm: u64,
}

impl Placed {
    /// The unit after the last one that is used.
    pub fn end(&self) -> u32 {
        self.used.last().map_or(0, |last| last.end())
    }
}

impl Scan {
    /// Reads a document.
    ///
    /// # Errors
    /// It cannot be read, or is not such a document, and in which line.
    pub fn read(path: &Path) -> Result<Self, BadFile> {
        let bad = |line, why: String| BadFile { file: path.display().to_string(), line, why };
        let file = input::open(path).map_err(|e| bad(1, e.to_string()))?;
        let bytes = file.metadata().map_err(|e| bad(1, e.to_string()))?.len();
        if bytes > LARGEST {
            return Err(bad(1, format!("it is longer than {LARGEST} bytes")));
        }
        let parsed = serde_json::from_reader(BufReader::new(file));
        parsed.map_err(|e| bad(e.line().max(1), e.to_string()))
    }

    /// The same of a text; `file` is its name.
    ///
    /// # Errors
    /// It is not such a document, and in which line.
    pub fn parse(text: &str, file: &str) -> Result<Self, BadFile> {
        let bad = |e: serde_json::Error| BadFile {
            file: file.to_owned(),
            line: e.line().max(1),
            why: e.to_string(),
        };
        serde_json::from_str(text).map_err(bad)
    }

    /// The files on a drive of so many units.
    ///
    /// # Errors
    /// Why they have no place there.
    pub fn onto(&self, unit_bytes: u32, units: u32) -> Result<Placed, Misfit> {
        let unit = u64::from(unit_bytes);
        let mut device = None;
        let mut files: Vec<(&str, Vec<(u64, u64)>)> = Vec::new();
        let mut paths = BTreeSet::new();
        for file in &self.files {
            let path = file.path.path.as_str();
            if !paths.insert(path) {
                return Err(Misfit::Twice(path.into()));
            }
            let layout = file.layout.as_ref().ok_or_else(|| Misfit::NoLayout(path.into()))?;
            if *device.get_or_insert(layout.device) != layout.device {
                return Err(Misfit::Devices);
            }
            let mut extents = Vec::new();
            for extent in layout.extents.iter().filter(|extent| extent.kind.is_addressed()) {
                if !extent.physical.is_multiple_of(unit) {
                    return Err(Misfit::Unit { path: path.into(), unit });
                }
                let (start, end) = (extent.physical / unit, extent.physical_end().div_ceil(unit));
                extents.extend((start < end).then_some((start, end)));
            }
            // Extents that a file shares with itself count each time.
            let all = extents.iter().map(|(start, end)| end - start).fold(0, u64::saturating_add);
            if all > u64::from(u32::MAX) {
                let size = u64::from(units) * unit;
                return Err(Misfit::TooSmall { used: all.saturating_mul(unit), size });
            }
            files.push((path, extents));
        }
        let used = union(files.iter().flat_map(|(_, extents)| extents.iter().copied()));
        let places = places(&used, units.into(), unit)?;
        let mut placed = BTreeMap::new();
        for (path, extents) in files.into_iter().filter(|(_, extents)| !extents.is_empty()) {
            let mut file = FileOnDrive::default();
            for (start, end) in extents {
                let at = used.partition_point(|(begin, _)| *begin <= start) - 1;
                let place = places.starts[at] + (start - used[at].0);
                file.push(Units::new(place as u32, (end - start) as u32));
            }
            placed.insert(path.to_owned(), file);
        }
        let used = used.iter().zip(&places.starts);
        let used =
            used.map(|((start, end), place)| Units::new(*place as u32, (end - start) as u32));
        Ok(Placed { files: placed, used: used.collect(), gaps_ppm: places.gaps_ppm })
    }
}

/// Why files have no place on a drive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// A file has no layout.
    #[error("{0} has no layout: scan with --json --layouts")]
    NoLayout(String),
    /// Two files have the same path.
    #[error("{0} is in the scan twice: a scan has each path once")]
    Twice(String),
    /// The files are on several file systems.
    #[error("the files are of more than one file system: scan one")]
    Devices,
    /// An extent begins within a unit.
    #[error("{path}: an extent does not begin at a multiple of the drive's units of {unit} bytes")]
    Unit {
        /// The file.
        path: String,
        /// Bytes of a unit.
        unit: u64,
    },
    /// The drive is too small.
    #[error("the files have {used} bytes of data, the drive only {size}")]
    TooSmall {
        /// Bytes of data.
        used: u64,
        /// Bytes of the drive.
        size: u64,
    },
}

/// The ranges that these cover, in order, without overlap; neither adjoins the one before it.
fn union(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut sorted: Vec<(u64, u64)> = ranges.collect();
    sorted.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in sorted {
        match joined.last_mut().filter(|(_, last)| start <= *last) {
            Some((_, last)) => *last = end.max(*last),
            None => joined.push((start, end)),
        }
    }
    joined
}

/// Where each used range begins on the drive.
struct Places {
    starts: Vec<u64>,
    gaps_ppm: u64,
}

fn places(used: &[(u64, u64)], units: u64, unit: u64) -> Result<Places, Misfit> {
    let end = used.last().map_or(0, |(_, end)| *end);
    if end <= units {
        return Ok(Places {
            starts: used.iter().map(|(start, _)| *start).collect(),
            gaps_ppm: 1_000_000,
        });
    }
    let all: u64 = used.iter().map(|(start, end)| end - start).sum();
    let left = units
        .checked_sub(all)
        .ok_or(Misfit::TooSmall { used: all.saturating_mul(unit), size: units * unit })?;
    let gaps = u128::from(end - all);
    let (mut starts, mut before) = (Vec::with_capacity(used.len()), 0);
    for (start, end) in used {
        // The gaps before it, all together, are shortened: rounding does not add up.
        let gaps_before = u128::from(start - before) * u128::from(left) / gaps;
        starts.push(before + gaps_before as u64);
        before += end - start;
    }
    Ok(Places { starts, gaps_ppm: (u128::from(left) * 1_000_000 / gaps) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 4096;

    fn scan(files: &[(&str, &[(u64, u64)])]) -> Scan {
        let file = |(path, extents): &(&str, &[(u64, u64)])| {
            let extents: Vec<String> = extents
                .iter()
                .map(|(place, count)| {
                    let (place, count) = (place * UNIT, count * UNIT);
                    format!(r#"{{"logical":0,"physical":{place},"length":{count},"kind":"data"}}"#)
                })
                .collect();
            let extents = extents.join(",");
            format!(
                r#"{{"path":"{path}","bytes":1,"layout":{{"device":7,"extents":[{extents}]}}}}"#
            )
        };
        let files: Vec<String> = files.iter().map(file).collect();
        let text = format!("{{\"schema_version\":1,\n\"files\":[{}]}}", files.join(",\n"));
        Scan::parse(&text, "scan.json").unwrap()
    }

    #[test]
    fn files_are_at_their_places_where_these_are_on_the_drive() {
        let two = scan(&[("/a", &[(10, 4), (20, 4)]), ("/b", &[(14, 2)]), ("/none", &[])]);
        let placed = two.onto(4096, 100).unwrap();
        assert_eq!(placed.files["/a"].within(0, 8), [Units::new(10, 4), Units::new(20, 4)]);
        assert_eq!(placed.files["/b"].within(0, 2), [Units::new(14, 2)]);
        assert_eq!((placed.files.len(), placed.end(), placed.gaps_ppm), (2, 24, 1_000_000));
        assert_eq!(placed.used, [Units::new(10, 6), Units::new(20, 4)]);
    }

    #[test]
    fn gaps_are_shortened_for_a_smaller_drive() {
        let two = scan(&[("/a", &[(1000, 4), (1_004_000, 4)]), ("/b", &[(1004, 2)])]);
        let placed = two.onto(4096, 110).unwrap();
        let a = placed.files["/a"].within(0, 8);
        assert_eq!(a.len(), 2);
        assert_eq!(
            placed.files["/b"].within(0, 2),
            [Units::new(a[0].end(), 2)],
            "they still adjoin"
        );
        assert!(a[0].start == 0 && a[1].end() <= 110 && a[1].start > 100, "{a:?}");
        assert_eq!(placed.gaps_ppm, 99);
        // Ten units of data need ten units.
        assert!(two.onto(4096, 10).is_ok());
        let small = two.onto(4096, 9).unwrap_err();
        assert_eq!(small, Misfit::TooSmall { used: 10 * UNIT, size: 9 * UNIT });
    }

    #[test]
    fn what_cannot_be_placed_is_refused_with_its_reason() {
        let mut other = scan(&[("/a", &[(1, 1)]), ("/b", &[(2, 1)])]);
        assert_eq!(
            other.onto(8192, 100).unwrap_err(),
            Misfit::Unit { path: "/a".into(), unit: 8192 }
        );
        let twice = scan(&[("/a", &[(1, 1)]), ("/b", &[]), ("/a", &[(2, 1)])]);
        assert_eq!(twice.onto(4096, 100), Err(Misfit::Twice("/a".into())));
        // Each extent fits, and the file has more than 2^32 units.
        let long = scan(&[("/a", &[(0, 3 << 30), (0, 3 << 30)])]);
        assert!(matches!(long.onto(4096, u32::MAX), Err(Misfit::TooSmall { .. })));
        let far = scan(&[("/a", &[(u64::MAX / UNIT - 1, 1), (0, u64::MAX / UNIT)])]);
        assert!(matches!(far.onto(4096, u32::MAX), Err(Misfit::TooSmall { .. })));
        other.files[1].layout.as_mut().unwrap().device = 8;
        assert_eq!(other.onto(4096, 100), Err(Misfit::Devices));
        other.files[0].layout = None;
        assert_eq!(other.onto(4096, 100), Err(Misfit::NoLayout("/a".into())));
        let bad = Scan::parse("{\"files\":[\n{\"path\":1,\"bytes\":1}]}", "scan.json").unwrap_err();
        assert_eq!(bad.line, 2);
        assert!(bad.why.contains("expected a string"), "{bad}");
    }
}
