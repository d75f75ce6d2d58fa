//! Whether the files are what they must be, given what was durable.

use crate::bed::Promise;
use crate::content::{self, Found, WORD};
use crate::files::{CHURN, FileOf, MENDED, Role, floor, pieces};
use crate::marks::Mark;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What must be there, for each file of the run.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    files: Vec<OfFile<'a>>,
    promise: Promise,
    /// Said since a commit began, and before that since the last one was complete: where only
    /// commits count.
    waiting: [Vec<Mark>; 2],
}

#[derive(Clone, Debug)]
struct OfFile<'a> {
    file: &'a FileOf,
    /// Oldest version that each unit of [`UNIT`] bytes may have.
    oldest: Vec<u16>,
    /// Version from which on each unit may be zeroes; 0 for never.
    zeroed: Vec<u16>,
    /// Smallest size.
    bytes: u64,
    /// Largest size, of files that are cut off.
    most: u64,
    promise: Promise,
}

/// What may be where nothing was synced.
const OWN: &str = "its own bytes or zeroes";

/// Versions rise in units of so many bytes.
const UNIT: u64 = 512;

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// Which file, or what else.
    pub what: String,
    /// The first byte of it that is wrong.
    pub offset: u64,
    /// How many are.
    pub bytes: u64,
    /// What should be there.
    pub expected: String,
    /// What is.
    pub found: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, offset, bytes, expected, found } = self;
        write!(f, "{what}: byte {offset}: expected {expected}, found {found} ({bytes} bytes wrong)")
    }
}

/// What was looked at, and what was found.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Files compared.
    pub files: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Tags of files that lay half at their old place and half at their new one.
    pub half_moved: Vec<u32>,
    /// What was not as it must be.
    pub wrong: Vec<Wrong>,
}

impl<'a> Expected<'a> {
    /// What holds before any mark.
    pub fn at_first(files: &'a [FileOf], promise: Promise) -> Self {
        let of = |file: &'a FileOf| OfFile {
            file,
            oldest: vec![0; file.bytes.div_ceil(UNIT) as usize],
            zeroed: Vec::new(),
            most: file.bytes,
            bytes: if file.role == Role::Truncated { floor(file.bytes) } else { file.bytes },
            promise,
        };
        Self { files: files.iter().map(of).collect(), promise, waiting: Default::default() }
    }

    /// The sizes that a file may have: what is durable, and, where only checkpoints count, what no
    /// complete one has yet.
    fn sizes(&self, of: &OfFile) -> RangeInclusive<u64> {
        let (mut smallest, mut largest) = (of.bytes, of.most);
        for mark in self.waiting.iter().flatten() {
            if let Mark::Sizes { tag, least, most } = *mark
                && tag == of.file.tag
            {
                (smallest, largest) = (smallest.min(least), largest.max(most));
            }
        }
        smallest..=largest
    }

    /// What holds behind a mark.
    pub fn learn(&mut self, mark: Mark) {
        if self.promise != Promise::OfCheckpoints {
            return self.hold(mark);
        }
        let [since, before] = &mut self.waiting;
        match mark {
            Mark::Committing => before.append(since),
            Mark::Committed => {
                std::mem::take(before).into_iter().for_each(|mark| self.hold(mark));
            }
            Mark::Zeroing { .. } => self.hold(mark),
            mark => since.push(mark),
        }
    }

    fn hold(&mut self, mark: Mark) {
        match mark {
            Mark::Synced { tag, from, to, version } => {
                let Some(of) = self.files.iter_mut().find(|of| of.file.tag == tag) else { return };
                raise(&mut of.oldest, from, to, version);
            }
            Mark::Zeroing { tag, from, to, version } => {
                let Some(of) = self.files.iter_mut().find(|of| of.file.tag == tag) else { return };
                raise(&mut of.zeroed, from, to, version);
            }
            Mark::Sizes { tag, least, most } => {
                let Some(of) = self.files.iter_mut().find(|of| of.file.tag == tag) else { return };
                (of.bytes, of.most) = (least, most);
            }
            Mark::Grown { tag, bytes } => {
                let Some(of) = self.files.iter_mut().find(|of| of.file.tag == tag) else { return };
                of.bytes = of.bytes.max(bytes);
            }
            _ => {}
        }
    }

    /// Looks at every file below `root`.
    ///
    /// # Errors
    /// When something cannot be read: that too is a loss.
    pub fn check(&self, root: &Path) -> Result<Checked, Wrong> {
        let mut checked = Checked::default();
        for of in &self.files {
            let path = root.join(MENDED).join(&of.file.name);
            let read = fs::read(&path).map_err(|e| unreadable(&of.file.name, &e))?;
            checked.files += 1;
            checked.bytes += read.len() as u64;
            checked.wrong.extend(of.check(&path, &read, &self.sizes(of)));
            let (before, after) = (of.file.pieces, of.file.pieces_after);
            if of.file.role == Role::Still && after < before {
                let now = pieces(&path);
                if after < now && now < before {
                    checked.half_moved.push(of.file.tag);
                }
            }
        }
        let churn = root.join(CHURN);
        let entries = fs::read_dir(&churn).map_err(|e| unreadable(CHURN, &e))?;
        for entry in entries {
            let path = entry.map_err(|e| unreadable(CHURN, &e))?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let read = fs::read(&path).map_err(|e| unreadable(&name, &e))?;
            checked.files += 1;
            checked.bytes += read.len() as u64;
            let tag = name.parse().unwrap_or(0);
            // What its new blocks held before: see `Promise::OfCheckpoints`.
            let stale = self.promise == Promise::OfCheckpoints;
            let fine = |_, found| match found {
                Found::Zero | Found::Version(0) => true,
                Found::OtherFile(_) | Found::OtherPlace(_) | Found::Version(_) => stale,
                Found::Unknown(_) => false,
            };
            checked.wrong.extend(compare(
                &format!("{CHURN}/{name}"),
                tag,
                &read,
                &|_| OWN.to_owned(),
                fine,
            ));
        }
        Ok(checked)
    }
}

/// The units of the bytes `from..to` have at least this version.
fn raise(versions: &mut Vec<u16>, from: u64, to: u64, version: u16) {
    let units = (from / UNIT) as usize..to.div_ceil(UNIT) as usize;
    versions.resize(versions.len().max(units.end), 0);
    versions[units].iter_mut().for_each(|known| *known = version.max(*known));
}

fn unreadable(what: &str, error: &io::Error) -> Wrong {
    let expected = "it can be read".to_owned();
    Wrong { what: what.to_owned(), offset: 0, bytes: 0, expected, found: error.to_string() }
}

impl OfFile<'_> {
    /// What is wrong with a file that holds `read` and may have one of these sizes. No promise lets bytes
    /// be there that this file never had in that place.
    fn check(&self, path: &Path, read: &[u8], sizes: &RangeInclusive<u64>) -> Vec<Wrong> {
        let FileOf { name, tag, role, .. } = self.file;
        let of_unit =
            |versions: &[u16], at: u64| versions.get((at / UNIT) as usize).copied().unwrap_or(0);
        let oldest = |at: u64| of_unit(&self.oldest, at);
        let zeroed =
            |at: u64| of_unit(&self.zeroed, at) > 0 && of_unit(&self.zeroed, at) >= oldest(at);
        let floor = floor(self.file.bytes);
        let fine = |at: u64, found: Found| match (role, found) {
            (Role::Still, found) => found == Found::Version(0),
            // It was longer than what is durable: nobody was told what lies there.
            (Role::Living, Found::Version(_) | Found::Zero) if at >= *sizes.start() => true,
            (Role::Buffered | Role::Direct | Role::Mapped | Role::Living, Found::Version(v)) => {
                v >= oldest(at)
            }
            (Role::Living, Found::Zero) => zeroed(at),
            (Role::Buffered | Role::Direct | Role::Mapped | Role::Living, _) => false,
            (Role::Appended, Found::Version(0)) => true,
            (Role::Appended, found) => found == Found::Zero && at + WORD > self.bytes,
            (Role::Truncated, Found::Version(v)) => v == 0 || at >= floor,
            (Role::Truncated, found) => found == Found::Zero && at >= floor,
        };
        let expected = |at: u64| match role {
            Role::Living if zeroed(at) => format!("zeroes, or version {} or newer", oldest(at)),
            Role::Buffered | Role::Direct | Role::Mapped | Role::Living => {
                format!("version {} or newer", oldest(at))
            }
            Role::Truncated if at >= floor => OWN.to_owned(),
            Role::Appended if at + WORD > self.bytes => OWN.to_owned(),
            Role::Still | Role::Appended | Role::Truncated => "version 0".to_owned(),
        };
        let mut wrong: Vec<Wrong> =
            compare(name, *tag, read, &expected, fine).into_iter().collect();
        let mut differs = |what: &str, expected: String, found: String| {
            let what = format!("{name}: {what}");
            wrong.push(Wrong { what, offset: 0, bytes: 0, expected, found });
        };
        let size = read.len() as u64;
        let size_is_fine = match role {
            Role::Still | Role::Buffered | Role::Direct | Role::Mapped => size == self.bytes,
            Role::Living => sizes.contains(&size),
            Role::Appended => size >= self.bytes,
            Role::Truncated => size >= floor && size <= self.file.bytes,
        };
        if !size_is_fine {
            differs("size", self.bytes.to_string(), size.to_string());
        }
        if let (Role::Still, Ok(meta)) = (role, path.metadata()) {
            let now = (meta.mode(), (meta.mtime(), meta.mtime_nsec()));
            let then = (self.file.mode, self.file.modified);
            let times = self.promise == Promise::ButTimes;
            let touched = times && now.0 == then.0 && now.1 > then.1;
            if now != then && !touched {
                differs("mode and modification time", format!("{then:?}"), format!("{now:?}"));
            }
        }
        wrong
    }
}

/// Compares every word with what may be there; the last may be cut short.
fn compare(
    name: &str,
    tag: u32,
    read: &[u8],
    expected: &dyn Fn(u64) -> String,
    fine: impl Fn(u64, Found) -> bool,
) -> Option<Wrong> {
    let mut wrong: Option<Wrong> = None;
    for (n, bytes) in read.chunks(WORD as usize).enumerate() {
        let at = n as u64 * WORD;
        // What a shortened word would have said is taken from what it should.
        let whole = <[u8; 8]>::try_from(bytes).unwrap_or_else(|_| {
            let mut word = [0; 8];
            if bytes.iter().any(|b| *b != 0) {
                content::fill(tag, at, 0, &mut word);
            }
            word[..bytes.len()].copy_from_slice(bytes);
            word
        });
        let found = content::look(tag, at, whole);
        if fine(at, found) {
            continue;
        }
        wrong
            .get_or_insert_with(|| Wrong {
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
    use std::path::PathBuf;

    const BYTES: u64 = 8192;

    /// A directory with one file of each role, and one that came meanwhile.
    fn files(root: &Path) -> Vec<FileOf> {
        fs::create_dir_all(root.join(MENDED)).unwrap();
        fs::create_dir_all(root.join(CHURN)).unwrap();
        let roles = [Role::Still, Role::Buffered, Role::Appended, Role::Truncated];
        let make = |(tag, role): (u32, Role)| {
            let (name, mut bytes) = (format!("{role:?}"), vec![0; BYTES as usize]);
            content::fill(tag, 0, 0, &mut bytes);
            let path = root.join(MENDED).join(&name);
            fs::write(&path, bytes).unwrap();
            let meta = path.metadata().unwrap();
            let modified = (meta.mtime(), meta.mtime_nsec());
            let (mode, pieces, pieces_after) = (meta.mode(), 1, 1);
            FileOf { name, tag, role, bytes: BYTES, mode, modified, pieces, pieces_after }
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

    fn of(tag: u32, offset: u64, version: u16) -> [u8; 512] {
        let mut bytes = [0; 512];
        content::fill(tag, offset, version, &mut bytes);
        bytes
    }

    /// What is wrong after `change`, given what was durable.
    fn wrong(marks: &[Mark], change: impl Fn(&Path)) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let made = files(dir.path());
        change(dir.path());
        let mut expected = Expected::at_first(&made, Promise::Everything);
        marks.iter().for_each(|mark| expected.learn(*mark));
        let checked = expected.check(dir.path()).unwrap();
        assert_eq!(checked.files, 5);
        checked.wrong.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_may_be_there_is_let_be() {
        let mended = |root: &Path, name: &str| root.join(MENDED).join(name);
        assert_eq!(wrong(&[], |_| ()), Vec::<String>::new());
        // Not synced yet: new, in part new, or old.
        assert!(wrong(&[], |root| put(mended(root, "Buffered"), 512, &of(2, 512, 3))).is_empty());
        assert!(wrong(&[], |root| put(mended(root, "Buffered"), 8, &of(2, 8, 3))).is_empty());
        assert!(wrong(&[], |root| put(mended(root, "Appended"), 8192, &of(3, 8192, 0))).is_empty());
        assert!(wrong(&[], |root| put(mended(root, "Appended"), 8192, &[0; 512])).is_empty());
        assert!(wrong(&[], |root| put(mended(root, "Truncated"), 4096, &[0; 512])).is_empty());
        assert!(wrong(&[], |root| put(root.join(CHURN).join("1234"), 0, &[0; 64])).is_empty());
    }

    #[test]
    fn what_must_not_be_there_is_found() {
        let mended = |root: &Path, name: &str| root.join(MENDED).join(name);
        let synced = [Mark::Synced { tag: 2, from: 512, to: 1024, version: 3 }];
        let grown = [Mark::Grown { tag: 3, bytes: BYTES + 512 }];
        type Change<'a> = &'a dyn Fn(&Path);
        let cases: [(&[Mark], Change, &str); 9] = [
            (&[], &|root| put(mended(root, "Still"), 512, &of(9, 512, 0)), "file 9"),
            (&[], &|root| put(mended(root, "Still"), 512, &of(1, 1024, 0)), "its byte 1024"),
            (&[], &|root| put(mended(root, "Still"), 4096, &[0; 512]), "found zeroes (512 bytes"),
            (&[], &|root| put(mended(root, "Still"), 8192, &[0; 1]), "size"),
            (&synced, &|root| put(mended(root, "Buffered"), 512, &of(2, 512, 2)), "3 or newer"),
            (&synced, &|_| (), "found version 0"),
            (&grown, &|_| (), "size"),
            (&grown, &|root| put(mended(root, "Appended"), 8192, &[0; 512]), "zeroes"),
            (&[], &|root| put(mended(root, "Truncated"), 512, &[0; 8]), "zeroes"),
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
        let mut expected = Expected::at_first(&made, Promise::OfCheckpoints);
        marks.iter().for_each(|mark| expected.learn(*mark));
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

    /// Whether a checkpoint has it or not: nobody ever wrote that.
    #[test]
    fn where_only_checkpoints_count_a_file_still_holds_its_own_bytes() {
        let synced = Mark::Synced { tag: 2, from: 0, to: BYTES, version: 3 };
        let durable = [synced, Mark::Committing, Mark::Committed];
        let waits = [synced];
        let buffered = |root: &Path| root.join(MENDED).join("Buffered");
        let version_3 = |root: &Path| {
            (0..BYTES).step_by(512).for_each(|at| put(buffered(root), at as usize, &of(2, at, 3)));
        };
        assert_eq!(wrong_of_checkpoints(&durable, version_3), 0);
        assert_eq!(wrong_of_checkpoints(&waits, version_3), 0);
        for garbage in [[0; 512], [0xAA; 512], of(9, 512, 7), of(2, 1024, 3)] {
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
            &|root| put(root.join(MENDED).join("Truncated"), 4096, &of(9, 0, 0)),
            &|root| put(root.join(MENDED).join("Appended"), 8192, &[0xAA; 512]),
            &|root| put(root.join(CHURN).join("1234"), 0, &[0xAA; 64]),
        ];
        for change in others {
            assert_eq!(wrong_of_checkpoints(&[], change), 1);
        }
    }
}
