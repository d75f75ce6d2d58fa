//! The sources that need not open files: a row for each file system that has one.

use crate::{FileSystem, ext4, xfs};
use fragmend_layout::{FsKind, Layout};

/// One file system's layouts in bulk.
pub(crate) trait Bulk: Sync {
    /// Reads the layouts of `inodes`; `visit` gets each position once, in any order, with `None` where FIEMAP
    /// must be used.
    fn layouts(
        &self,
        inodes: &mut dyn Iterator<Item = u64>,
        visit: &mut dyn FnMut(usize, Option<Layout>),
    );
}

/// From its inode tables.
impl Bulk for ext4::Bulk {
    fn layouts(
        &self,
        inodes: &mut dyn Iterator<Item = u64>,
        visit: &mut dyn FnMut(usize, Option<Layout>),
    ) {
        self.layouts(&mut self.worker(), inodes, visit);
    }
}

/// From its reverse mapping.
impl Bulk for xfs::Map {
    fn layouts(
        &self,
        inodes: &mut dyn Iterator<Item = u64>,
        visit: &mut dyn FnMut(usize, Option<Layout>),
    ) {
        inodes.enumerate().for_each(|(i, number)| visit(i, self.layout(number)));
    }
}

type Opened = Result<Box<dyn Bulk>, String>;

/// A file system that can be read in bulk.
struct Row {
    kind: FsKind,
    open: fn(&FileSystem) -> Opened,
    /// Whether that is faster than FIEMAP for so many files.
    pays: fn(&FileSystem, usize) -> bool,
}

static ROWS: [Row; 2] = [
    Row { kind: FsKind::Ext4, open: |fs| Ok(Box::new(ext4::Bulk::open(fs)?)), pays: |_, _| true },
    Row { kind: FsKind::Xfs, open: |fs| Ok(Box::new(xfs::Map::read(fs)?)), pays: xfs::Map::pays },
];

/// Opens the source of a file system.
///
/// # Errors
/// Why there is none, in words for people.
pub(crate) fn open(fs: &FileSystem) -> Opened {
    row(fs).map_or_else(
        || Err(format!("it is {}, not ext4 or XFS", fs.type_name)),
        |row| (row.open)(fs),
    )
}

/// The same, but only where that is faster for `files` files than FIEMAP.
pub(crate) fn if_it_pays(fs: &FileSystem, files: usize) -> Option<Box<dyn Bulk>> {
    let row = row(fs)?;
    if (row.pays)(fs, files) { (row.open)(fs).ok() } else { None }
}

fn row(fs: &FileSystem) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.kind == fs.kind)
}
