//! Compares the files with what they must hold, given what was durable.

use crate::content::{self, WORD, WordFound};
use crate::expectation::FileExpectation;
use crate::files::{CHURN, MENDED, Role, TestFile, extent_count};
use crate::marks::Mark;
use crate::scenario::Promise;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;

/// What must hold for each file of the run.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    files: Vec<FileExpectation<'a>>,
    promise: Promise,
    /// Where only complete commits count: the marks since the last commit began, and those before
    /// it since the last complete one.
    pending: [Vec<Mark>; 2],
}

/// What a place that was never synced may hold.
pub(crate) const OWN: &str = "its own bytes or zeroes";

/// A difference from what must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// The file, or what else was checked.
    pub what: String,
    /// The first wrong byte of it.
    pub offset: u64,
    /// How many bytes are wrong.
    pub bytes: u64,
    /// What must be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, offset, bytes, expected, found } = self;
        write!(f, "{what}: byte {offset}: expected {expected}, found {found} ({bytes} bytes wrong)")
    }
}

/// What was compared, and the result.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Files compared.
    pub files: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Tags of files that were half at their old place and half at their new one.
    pub half_moved: Vec<u32>,
    /// All differences.
    pub wrong: Vec<Mismatch>,
}

impl<'a> Expected<'a> {
    /// What must hold before any mark.
    pub fn initial(files: &'a [TestFile], promise: Promise) -> Self {
        let expect = |file| FileExpectation::initial(file, promise);
        Self { files: files.iter().map(expect).collect(), promise, pending: Default::default() }
    }

    /// The sizes that a file may have: the durable ones, and, where only checkpoints count, those
    /// that no complete one covers yet.
    fn sizes(&self, expectation: &FileExpectation) -> RangeInclusive<u64> {
        let (mut smallest, mut largest) = (expectation.least, expectation.most);
        for mark in self.pending.iter().flatten() {
            if let Mark::Sizes { tag, least, most } = *mark
                && tag == expectation.file.tag
            {
                (smallest, largest) = (smallest.min(least), largest.max(most));
            }
        }
        smallest..=largest
    }

    /// Takes the next mark into account.
    pub fn apply(&mut self, mark: Mark) {
        if self.promise != Promise::CheckpointsOnly {
            return self.make_durable(mark);
        }
        let [since, before] = &mut self.pending;
        match mark {
            Mark::Committing => before.append(since),
            Mark::Committed => {
                std::mem::take(before).into_iter().for_each(|mark| self.make_durable(mark));
            }
            Mark::Zeroing { .. } | Mark::Writing { .. } => self.make_durable(mark),
            mark => since.push(mark),
        }
    }

    fn make_durable(&mut self, mark: Mark) {
        let tag = match mark {
            Mark::Synced { tag, .. }
            | Mark::Zeroing { tag, .. }
            | Mark::Writing { tag, .. }
            | Mark::Sizes { tag, .. }
            | Mark::Grown { tag, .. } => tag,
            _ => return,
        };
        let Some(file) = self.files.iter_mut().find(|e| e.file.tag == tag) else { return };
        file.apply(mark);
    }

    /// Compares every file below `root`.
    ///
    /// # Errors
    /// When something cannot be read: that, too, is a loss.
    pub fn check(&self, root: &Path) -> Result<Checked, Mismatch> {
        let mut checked = Checked::default();
        // One buffer for all: a fresh one would be zeroed by the kernel, page by page.
        let mut read = Vec::new();
        for expected in &self.files {
            let path = root.join(MENDED).join(&expected.file.name);
            read_into(&mut read, &path).map_err(|e| unreadable(&expected.file.name, &e))?;
            checked.files += 1;
            checked.bytes += read.len() as u64;
            checked.wrong.extend(expected.check(&path, &read, &self.sizes(expected)));
            let (before, after) = (expected.file.extents, expected.file.extents_after);
            if expected.file.role == Role::Untouched && after < before {
                let now = extent_count(&path);
                if after < now && now < before {
                    checked.half_moved.push(expected.file.tag);
                }
            }
        }
        let churn = root.join(CHURN);
        let entries = fs::read_dir(&churn).map_err(|e| unreadable(CHURN, &e))?;
        for entry in entries {
            let path = entry.map_err(|e| unreadable(CHURN, &e))?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            read_into(&mut read, &path).map_err(|e| unreadable(&name, &e))?;
            checked.files += 1;
            checked.bytes += read.len() as u64;
            let tag = name.parse().unwrap_or(0);
            let stale = self.promise.allows_stale_blocks();
            let allowed =
                |_, found| stale || matches!(found, WordFound::Zero | WordFound::Version(0));
            checked.wrong.extend(compare(
                &format!("{CHURN}/{name}"),
                tag,
                &read,
                &|_| OWN.to_owned(),
                allowed,
            ));
        }
        Ok(checked)
    }
}

/// Reads a whole file into a buffer in the place of what it holds.
fn read_into(buffer: &mut Vec<u8>, path: &Path) -> io::Result<()> {
    buffer.clear();
    File::open(path)?.read_to_end(buffer).map(drop)
}

fn unreadable(what: &str, error: &io::Error) -> Mismatch {
    let expected = "it can be read".to_owned();
    Mismatch { what: what.to_owned(), offset: 0, bytes: 0, expected, found: error.to_string() }
}

/// Compares every word with what is allowed; the last may be cut short. Returns the first
/// mismatch, with the count of all wrong bytes.
pub(crate) fn compare(
    name: &str,
    tag: u32,
    read: &[u8],
    expected: &dyn Fn(u64) -> String,
    allowed: impl Fn(u64, WordFound) -> bool,
) -> Option<Mismatch> {
    let mut wrong: Option<Mismatch> = None;
    for (n, bytes) in read.chunks(WORD as usize).enumerate() {
        let at = n as u64 * WORD;
        // The missing bytes of a shortened word are taken from the expected one.
        let whole = <[u8; 8]>::try_from(bytes).unwrap_or_else(|_| {
            let mut word = [0; 8];
            if bytes.iter().any(|b| *b != 0) {
                content::fill(tag, at, 0, &mut word);
            }
            word[..bytes.len()].copy_from_slice(bytes);
            word
        });
        let found = content::identify(tag, at, whole);
        if allowed(at, found) {
            continue;
        }
        wrong
            .get_or_insert_with(|| Mismatch {
                what: name.to_owned(),
                offset: at,
                bytes: 0,
                expected: expected(at),
                found: found.to_string(),
            })
            .bytes += bytes.len() as u64;
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    const BYTES: u64 = 8192;
    const TRUNCATED: Mark = Mark::Zeroing { tag: 4, from: 4096, to: BYTES, version: 1 };

    /// Makes a directory with one file of each role, and one in the churn directory.
    fn files(root: &Path) -> Vec<TestFile> {
        fs::create_dir_all(root.join(MENDED)).unwrap();
        fs::create_dir_all(root.join(CHURN)).unwrap();
        let roles = [Role::Untouched, Role::Buffered, Role::Appended, Role::Truncated];
        let make = |(tag, role): (u32, Role)| {
            let (name, mut bytes) = (format!("{role:?}"), vec![0; BYTES as usize]);
            content::fill(tag, 0, 0, &mut bytes);
            let path = root.join(MENDED).join(&name);
            fs::write(&path, bytes).unwrap();
            let meta = path.metadata().unwrap();
            let modified = (meta.mtime(), meta.mtime_nsec());
            let (mode, extents, extents_after) = (meta.mode(), 1, 1);
            TestFile { name, tag, role, bytes: BYTES, mode, modified, extents, extents_after }
        };
        let mut bytes = vec![0; 600];
        content::fill(1234, 0, 0, &mut bytes);
        fs::write(root.join(CHURN).join("1234"), bytes).unwrap();
        (1..).zip(roles).map(make).collect()
    }

    fn put(path: PathBuf, offset: usize, what: &[u8]) {
        let mut bytes = fs::read(&path).unwrap();
        bytes.resize(bytes.len().max(offset + what.len()), 0);
        bytes[offset..offset + what.len()].copy_from_slice(what);
        fs::write(path, bytes).unwrap();
    }

    fn unit(tag: u32, offset: u64, version: u16) -> [u8; 512] {
        let mut bytes = [0; 512];
        content::fill(tag, offset, version, &mut bytes);
        bytes
    }

    /// What is wrong after `change`, given what was durable.
    fn wrong(marks: &[Mark], change: impl Fn(&Path)) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let made = files(dir.path());
        change(dir.path());
        let mut expected = Expected::initial(&made, Promise::Everything);
        marks.iter().for_each(|mark| expected.apply(*mark));
        let checked = expected.check(dir.path()).unwrap();
        assert_eq!(checked.files, 5);
        checked.wrong.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn allowed_content_is_no_mismatch() {
        let mended = |root: &Path, name: &str| root.join(MENDED).join(name);
        assert_eq!(wrong(&[], |_| ()), Vec::<String>::new());
        // Not synced yet: new, in part new, or old.
        assert!(wrong(&[], |root| put(mended(root, "Buffered"), 512, &unit(2, 512, 3))).is_empty());
        assert!(wrong(&[], |root| put(mended(root, "Buffered"), 8, &unit(2, 8, 3))).is_empty());
        assert!(
            wrong(&[], |root| put(mended(root, "Appended"), 8192, &unit(3, 8192, 0))).is_empty()
        );
        assert!(wrong(&[], |root| put(mended(root, "Appended"), 8192, &[0; 512])).is_empty());
        let zeroes = |root: &Path| put(mended(root, "Truncated"), 4096, &[0; 512]);
        assert!(wrong(&[TRUNCATED], zeroes).is_empty());
        assert!(wrong(&[], |root| put(root.join(CHURN).join("1234"), 0, &[0; 64])).is_empty());
    }

    #[test]
    fn what_must_not_be_there_is_found() {
        let mended = |root: &Path, name: &str| root.join(MENDED).join(name);
        let synced = [Mark::Synced { tag: 2, from: 512, to: 1024, version: 3 }];
        let grown = [Mark::Grown { tag: 3, bytes: BYTES + 512 }];
        type Change<'a> = &'a dyn Fn(&Path);
        let cases: [(&[Mark], Change, &str); 10] = [
            (&[], &|root| put(mended(root, "Untouched"), 512, &unit(9, 512, 0)), "file 9"),
            (&[], &|root| put(mended(root, "Untouched"), 512, &unit(1, 1024, 0)), "its byte 1024"),
            (
                &[],
                &|root| put(mended(root, "Untouched"), 4096, &[0; 512]),
                "found zeroes (512 bytes",
            ),
            (&[], &|root| put(mended(root, "Untouched"), 8192, &[0; 1]), "size"),
            (&synced, &|root| put(mended(root, "Buffered"), 512, &unit(2, 512, 2)), "3 or newer"),
            (&synced, &|_| (), "found version 0"),
            (&grown, &|_| (), "size"),
            (&grown, &|root| put(mended(root, "Appended"), 8192, &[0; 512]), "zeroes"),
            (&[TRUNCATED], &|root| put(mended(root, "Truncated"), 512, &[0; 8]), "zeroes"),
            (&[], &|root| put(mended(root, "Truncated"), 4096, &[0; 8]), "zeroes"),
        ];
        for (n, (marks, change, said)) in cases.into_iter().enumerate() {
            let wrong = wrong(marks, change).join("\n");
            assert!(wrong.contains(said), "case {n}: {wrong}");
        }
    }

    /// How many files are wrong where only checkpoints count.
    fn wrong_of_checkpoints(marks: &[Mark], change: impl Fn(&Path)) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let made = files(dir.path());
        change(dir.path());
        let mut expected = Expected::initial(&made, Promise::CheckpointsOnly);
        marks.iter().for_each(|mark| expected.apply(*mark));
        expected.check(dir.path()).unwrap().wrong.len()
    }

    #[test]
    fn where_only_checkpoints_count_what_was_synced_waits_for_one() {
        let synced = Mark::Synced { tag: 2, from: 512, to: 1024, version: 3 };
        let marks = |marks: &[Mark]| wrong_of_checkpoints(marks, |_| ());
        assert_eq!(marks(&[synced, Mark::Committed]), 0);
        assert_eq!(marks(&[Mark::Committing, synced, Mark::Committed]), 0);
        assert_eq!(marks(&[synced, Mark::Committing]), 0);
        assert_eq!(marks(&[synced, Mark::Committing, Mark::Committed]), 1);
    }

    /// A block of the hole may be in the file before the data is that is written there; and in no other place.
    #[test]
    fn where_only_checkpoints_count_a_hole_that_is_written_to_may_hold_what_was_there_before() {
        let dir = tempfile::tempdir().unwrap();
        let all = files(dir.path());
        let path = dir.path().join(MENDED).join("Buffered");
        let mut file = all.iter().find(|f| f.tag == 2).unwrap().clone();
        file.role = Role::UsedLater;
        put(path.clone(), 4096, &[0xAA; 512]);
        let wrong = |marks: &[Mark]| {
            let mut expected =
                Expected::initial(std::slice::from_ref(&file), Promise::CheckpointsOnly);
            marks.iter().for_each(|mark| expected.apply(*mark));
            expected
                .check(dir.path())
                .unwrap()
                .wrong
                .iter()
                .filter(|w| w.what == "Buffered")
                .count()
        };
        let hole = Mark::Zeroing { tag: 2, from: 4096, to: 8192, version: 3 };
        let writing = |from, version| Mark::Writing { tag: 2, from, to: from + 512, version };
        assert_eq!(wrong(&[hole]), 1);
        assert_eq!(wrong(&[hole, writing(5120, 4)]), 0, "in the same block");
        assert_eq!(wrong(&[hole, writing(0, 4)]), 1, "in another one");
        assert_eq!(wrong(&[writing(4096, 2), hole]), 1, "before");
        let synced = Mark::Synced { tag: 2, from: 4096, to: 4608, version: 4 };
        let durable = [hole, writing(4096, 4), synced, Mark::Committing, Mark::Committed];
        assert_eq!(wrong(&durable), 1, "it is durable by now");
    }

    /// Bytes that were never written to a place are wrong there, whether or not a checkpoint covers it.
    #[test]
    fn where_only_checkpoints_count_a_file_still_holds_its_own_bytes() {
        let synced = Mark::Synced { tag: 2, from: 0, to: BYTES, version: 3 };
        let durable = [synced, Mark::Committing, Mark::Committed];
        let waits = [synced];
        let buffered = |root: &Path| root.join(MENDED).join("Buffered");
        let version_3 = |root: &Path| {
            (0..BYTES)
                .step_by(512)
                .for_each(|at| put(buffered(root), at as usize, &unit(2, at, 3)));
        };
        assert_eq!(wrong_of_checkpoints(&durable, version_3), 0);
        assert_eq!(wrong_of_checkpoints(&waits, version_3), 0);
        for garbage in [[0; 512], [0xAA; 512], unit(9, 512, 7), unit(2, 1024, 3)] {
            for marks in [&durable[..], &waits, &[]] {
                let change = |root: &Path| {
                    version_3(root);
                    put(buffered(root), 512, &garbage);
                };
                assert_eq!(
                    wrong_of_checkpoints(marks, change),
                    1,
                    "{marks:?} {:x?}",
                    &garbage[..8]
                );
            }
        }
        type Change<'a> = &'a dyn Fn(&Path);
        let others: [Change; 3] = [
            &|root| put(root.join(MENDED).join("Truncated"), 0, &unit(9, 0, 0)),
            &|root| put(root.join(MENDED).join("Appended"), 512, &[0xAA; 512]),
            &|root| put(root.join(MENDED).join("Untouched"), 0, &[0xAA; 64]),
        ];
        for change in others {
            assert_ne!(wrong_of_checkpoints(&[], change), 0);
        }
        // Where a file was never synced, anything is allowed that was on the disk before.
        let places = [("mended/Appended", 8192), ("mended/Truncated", 4096), ("churn/1234", 0)];
        for block in [unit(9, 0, 0), [0xAA; 512]] {
            for (name, at) in places {
                let stale = |root: &Path| put(root.join(name), at, &block);
                assert_eq!(wrong_of_checkpoints(&[TRUNCATED], stale), 0, "{name}");
            }
            let kept = |root: &Path| put(root.join("mended/Truncated"), 4096, &block);
            assert_eq!(wrong_of_checkpoints(&[], kept), 1, "never truncated");
        }
    }
}
