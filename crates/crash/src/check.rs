//! Whether the files are what they must be, given what was durable.

use crate::content::{self, Found, WORD};
use crate::files::{CHURN, FileOf, MENDED, Role, floor, pieces};
use crate::marks::Mark;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What must be there, for each file of the run.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    files: Vec<OfFile<'a>>,
}

#[derive(Clone, Debug)]
struct OfFile<'a> {
    file: &'a FileOf,
    /// Oldest version that each unit of [`UNIT`] bytes may have.
    oldest: Vec<u16>,
    /// Smallest size.
    bytes: u64,
}

/// Versions rise in units of so many bytes.
const UNIT: u64 = 512;

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Files that lay half at their old place and half at their new one.
    pub half_moved: u64,
    /// What was not as it must be.
    pub wrong: Vec<Wrong>,
}

impl<'a> Expected<'a> {
    /// What holds before any mark.
    pub fn at_first(files: &'a [FileOf]) -> Self {
        let of = |file: &'a FileOf| OfFile {
            file,
            oldest: vec![0; file.bytes.div_ceil(UNIT) as usize],
            bytes: if file.role == Role::Truncated { floor(file.bytes) } else { file.bytes },
        };
        Self { files: files.iter().map(of).collect() }
    }

    /// What holds behind a mark.
    pub fn learn(&mut self, mark: Mark) {
        match mark {
            Mark::Synced { tag, from, to, version } => {
                let Some(of) = self.files.iter_mut().find(|of| of.file.tag == tag) else { return };
                let units = (from / UNIT) as usize..to.div_ceil(UNIT) as usize;
                of.oldest[units].iter_mut().for_each(|oldest| *oldest = version.max(*oldest));
            }
            Mark::Grown { tag, bytes } => {
                let Some(of) = self.files.iter_mut().find(|of| of.file.tag == tag) else { return };
                of.bytes = of.bytes.max(bytes);
            }
            Mark::Moved { .. } => {}
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
            checked.wrong.extend(of.check(&path, &read));
            let (before, after) = (of.file.pieces, of.file.pieces_after);
            if of.file.role == Role::Still && after < before {
                let now = pieces(&path);
                checked.half_moved += u64::from(after < now && now < before);
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
            let fine = |_, found| matches!(found, Found::Zero | Found::Version(0));
            checked.wrong.extend(compare(
                &format!("{CHURN}/{name}"),
                tag,
                &read,
                &|_| "its own bytes or zeroes".to_owned(),
                fine,
            ));
        }
        Ok(checked)
    }
}

fn unreadable(what: &str, error: &io::Error) -> Wrong {
    let expected = "it can be read".to_owned();
    Wrong { what: what.to_owned(), offset: 0, bytes: 0, expected, found: error.to_string() }
}

impl OfFile<'_> {
    /// What is wrong with a file that holds `read`.
    fn check(&self, path: &Path, read: &[u8]) -> Vec<Wrong> {
        let FileOf { name, tag, role, .. } = self.file;
        let oldest = |at: u64| self.oldest.get((at / UNIT) as usize).copied().unwrap_or(0);
        let floor = floor(self.file.bytes);
        let fine = |at: u64, found: Found| match (role, found) {
            (Role::Still, found) => found == Found::Version(0),
            (Role::Buffered | Role::Direct | Role::Mapped, Found::Version(v)) => v >= oldest(at),
            (Role::Appended, found) => {
                found == Found::Version(0) || found == Found::Zero && at + WORD > self.bytes
            }
            (Role::Truncated, Found::Version(v)) => v == 0 || at >= floor,
            (Role::Truncated, found) => found == Found::Zero && at >= floor,
            (_, _) => false,
        };
        let expected = |at: u64| match role {
            Role::Buffered | Role::Direct | Role::Mapped => {
                format!("version {} or newer", oldest(at))
            }
            _ => "version 0".to_owned(),
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
            Role::Appended => size >= self.bytes,
            Role::Truncated => size >= floor && size <= self.file.bytes,
        };
        if !size_is_fine {
            differs("size", self.bytes.to_string(), size.to_string());
        }
        if let (Role::Still, Ok(meta)) = (role, path.metadata()) {
            let now = (meta.mode(), (meta.mtime(), meta.mtime_nsec()));
            let then = (self.file.mode, self.file.modified);
            if now != then {
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
