//! Features and mount options that change the order in which writes reach a disk, in every
//! combination that makes sense: a cell of the matrix is one file system with its options, and what
//! `fragmend apply` has to do there. A cell can be made again from its name alone.

use crate::mount::Mount;
use crate::scenario::{
    BTRFS_SIZE, BY_BOTH, BY_EXT4, BY_SHARING, BY_SWAPPING, EXT4_SIZE, Promise, Scenario, Second,
    Size, XFS_SIZE, engine, exchanging,
};
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, LaterFeature, XFS};
use fragmend_testbed::loop_device::LoopDevice;
use fragmend_testbed::random::Random;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// One choice of a list: a word of the cell's name, arguments of mkfs, mount options. The first of
/// a list is the default.
type Variant = (&'static str, &'static [&'static str], &'static str);

/// ext4: block size, direct reads, journal, features, allocation.
const EXT4_VARIANTS: [&[Variant]; 5] = [
    &[("4k", &["-b", "4096"], ""), ("2k", &["-b", "2048"], ""), ("1k", &["-b", "1024"], "")],
    &[("", &[], ""), ("lock", &[], "dioread_lock"), ("nolock", &[], "dioread_nolock")],
    &[("", &[], ""), ("checksum", &[], "journal_checksum"), ("external", &[], "")],
    &[
        ("", &[], ""),
        ("inline", &["-O", "inline_data"], ""),
        ("quota", &["-O", "quota"], ""),
        ("verity", &["-O", "verity"], ""),
        ("casefold", &["-O", "casefold"], ""),
    ],
    &[("", &[], ""), ("nodelalloc", &[], "nodelalloc"), ("discard", &[], "discard")],
];

/// XFS: block size, sharing, exchanging, owners, log.
const XFS_VARIANTS: [&[Variant]; 5] = [
    &[
        ("4k", &["-b", "size=4096"], ""),
        ("2k", &["-b", "size=2048"], ""),
        ("1k", &["-b", "size=1024"], ""),
    ],
    &[("reflink", &["-m", "reflink=1"], ""), ("", &["-m", "reflink=0"], "")],
    &[("", &[], ""), ("exchange", &[], "")],
    &[("", &["-m", "rmapbt=0"], ""), ("rmap", &["-m", "rmapbt=1"], "")],
    &[("", &[], ""), ("smalllog", &["--unsupported", "-l", "size=13m"], ""), ("external", &[], "")],
];

/// Btrfs: copies, copy on write or compression, space cache.
const BTRFS_VARIANTS: [&[Variant]; 3] = [
    &[
        ("single", &["-d", "single", "-m", "single"], ""),
        ("dup", &["-d", "dup", "-m", "dup"], ""),
        ("raid1", &["-d", "raid1", "-m", "raid1"], ""),
    ],
    &[
        ("", &[], ""),
        ("nocow", &[], "nodatacow"),
        ("zstd", &[], "compress=zstd"),
        ("lzo", &[], "compress=lzo"),
    ],
    &[("", &[], ""), ("v1", &["-R", "^free-space-tree"], "space_cache=v1")],
];

/// A cell of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The file system, and every choice that is not the default, joined by `+`.
    pub name: String,
    /// Index of the choice in each list.
    variants: Vec<usize>,
    kind: Base,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Ext4,
    Xfs,
    Btrfs,
}

impl Base {
    const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    fn lists(self) -> &'static [&'static [Variant]] {
        match self {
            Self::Ext4 => &EXT4_VARIANTS,
            Self::Xfs => &XFS_VARIANTS,
            Self::Btrfs => &BTRFS_VARIANTS,
        }
    }

    fn base(self) -> &'static FileSystem {
        match self {
            Self::Ext4 => &EXT4,
            Self::Xfs => &XFS,
            Self::Btrfs => &BTRFS,
        }
    }

    fn size(self) -> Size {
        match self {
            Self::Ext4 => EXT4_SIZE,
            Self::Xfs => XFS_SIZE,
            Self::Btrfs => BTRFS_SIZE,
        }
    }
}

impl Cell {
    fn new(kind: Base, variants: Vec<usize>) -> Self {
        let chosen = kind.lists().iter().zip(&variants).map(|(list, n)| list[*n].0);
        let words = std::iter::once(kind.name()).chain(chosen).filter(|word| !word.is_empty());
        let name = words.collect::<Vec<_>>().join("+");
        Self { name, variants, kind }
    }

    fn has(&self, word: &str) -> bool {
        self.name.split('+').any(|w| w == word)
    }

    /// Whether the choices can be combined, and whether `fragmend` can move files there.
    fn makes_sense(&self) -> bool {
        match self.kind {
            // An external journal has the file system's block size.
            Base::Ext4 => !self.has("external") || self.has("4k"),
            Base::Xfs => self.has("reflink") || self.has("rmap") || self.has("exchange"),
            Base::Btrfs => true,
        }
    }

    /// Its scenario; the strings are leaked.
    fn scenario(&self) -> Scenario {
        let base = self.kind.base();
        let lists = self.kind.lists();
        let chosen = || lists.iter().zip(&self.variants).map(|(list, n)| list[*n]);
        let replaced = |arg: &&str| {
            // Options of the base file system that the cell chooses itself.
            !matches!(*arg, "-b" | "4096" | "-m" | "reflink=1")
        };
        let make = base.make.iter().copied().filter(replaced);
        let make: Vec<&str> =
            make.chain(chosen().flat_map(|(_, args, _)| args.iter().copied())).collect();
        let options: Vec<&str> =
            chosen().map(|(_, _, option)| option).filter(|o| !o.is_empty()).collect();
        let expects = match self.kind {
            Base::Ext4 => BY_EXT4,
            Base::Xfs if self.has("reflink") => BY_SHARING,
            Base::Xfs => BY_SWAPPING,
            // lzo does not shrink the files' content, so Btrfs stores it uncompressed.
            Base::Btrfs if self.has("zstd") => BY_BOTH,
            Base::Btrfs => BY_SHARING,
        };
        let file_system = FileSystem {
            name: self.name.clone().leak(),
            make: make.leak(),
            options: options.join(",").leak(),
            beside_copy: base.beside_copy,
            moved_by: expects,
            check: base.check,
            later: self.has("exchange").then_some(LaterFeature::EXCHANGE),
        };
        let file_system: &'static FileSystem = Box::leak(Box::new(file_system));
        let scenario = engine(file_system.name, file_system, self.kind.size(), expects);
        let exchanges = self.has("exchange");
        let scenario = if exchanges { exchanging(scenario, self.has("reflink")) } else { scenario };
        let unordered = self.kind == Base::Ext4
            && (self.has("nodelalloc") || self.has("external") && !self.has("lock"));
        Scenario {
            promise: if unordered { Promise::WhatWasSynced } else { scenario.promise },
            whole_files: scenario.expects == BY_SWAPPING,
            second: match self.kind {
                Base::Ext4 => self.has("external").then_some(Second::Journal),
                Base::Xfs => self.has("external").then_some(Second::Log),
                Base::Btrfs => self.has("raid1").then_some(Second::Mirror),
            },
            // DUP stores everything twice.
            bytes: if self.has("dup") { scenario.bytes * 2 } else { scenario.bytes },
            ..scenario
        }
    }
}

/// Every cell that makes sense.
pub fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for kind in Base::ALL {
        let mut variants: Vec<Vec<usize>> = vec![Vec::new()];
        for list in kind.lists() {
            let longer = |variants: Vec<usize>| {
                (0..list.len()).map(move |n| variants.iter().copied().chain([n]).collect())
            };
            variants = variants.into_iter().flat_map(longer).collect();
        }
        cells.extend(variants.into_iter().map(|variants| Cell::new(kind, variants)));
    }
    cells.retain(Cell::makes_sense);
    cells
}

/// Features of ext4 that the running kernel cannot mount: cells with them are skipped.
#[derive(Clone, Debug, Default)]
pub struct UnsupportedFeatures(Vec<&'static str>);

impl UnsupportedFeatures {
    /// Tries the features that a kernel may be built without.
    ///
    /// # Panics
    /// When there is no space for an image.
    pub fn probe() -> Self {
        let cannot = |word: &&str| {
            let dir = tempfile::tempdir().expect("a directory");
            let (disk, mnt) = (dir.path().join("disk"), dir.path().join("mnt"));
            let made = File::create(&disk).and_then(|file| file.set_len(32 << 20));
            made.and_then(|()| fs::create_dir(&mnt)).expect("an image");
            EXT4.make(&disk, &["-O", word]);
            let device = LoopDevice::attach(&disk);
            let node = Path::new(device.node());
            let mounted = Mount::new(&EXT4, node, &mnt, "");
            let cannot = mounted.is_err();
            mounted.into_iter().for_each(Mount::unmount);
            device.detach();
            cannot
        };
        Self(["quota", "verity", "casefold"].into_iter().filter(cannot).collect())
    }

    /// Whether this kernel can mount the cell.
    pub fn allows(&self, cell: &Cell) -> bool {
        !self.0.iter().any(|word| cell.has(word))
    }
}

impl std::fmt::Display for UnsupportedFeatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return write!(f, "this kernel can mount every cell");
        }
        let features = self.0.join(", ");
        write!(f, "not tried, because this kernel cannot mount it: ext4 with {features}")
    }
}

/// Draws `count` cells that can be mounted, by seed: file systems in turn, each cell once.
pub fn draw(count: usize, seed: u64, unsupported: &UnsupportedFeatures) -> Vec<Cell> {
    let mut random = Random::new(seed);
    let mut cells = all();
    cells.retain(|cell| unsupported.allows(cell));
    random.shuffle(&mut cells);
    let mut drawn: Vec<Cell> = Vec::new();
    for kind in Base::ALL.into_iter().cycle() {
        if drawn.len() == count || cells.is_empty() {
            break;
        }
        if let Some(n) = cells.iter().position(|cell| cell.kind == kind) {
            drawn.push(cells.swap_remove(n));
        }
    }
    drawn
}

/// The scenario of the cell with this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    static KNOWN: Mutex<BTreeMap<String, &'static Scenario>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(scenario) = known.get(name) {
        return Some(scenario);
    }
    let cell = all().into_iter().find(|cell| cell.name == name)?;
    let scenario: &'static Scenario = Box::leak(Box::new(cell.scenario()));
    known.insert(name.to_owned(), scenario);
    Some(scenario)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_cell_has_a_name_of_its_own_and_a_scenario() {
        let cells = all();
        let names: BTreeSet<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), cells.len());
        assert!(cells.len() > 300, "{}", cells.len());
        let scenario = named("ext4+1k+nolock+quota").unwrap();
        assert_eq!(scenario.file_system.options, "dioread_nolock");
        assert!(
            scenario.file_system.make.ends_with(&["-b", "1024", "-O", "quota"]),
            "{scenario:?}"
        );
        assert!(named("ext4+3k").is_none());
        let drawn = draw(9, 7, &UnsupportedFeatures::default());
        assert_eq!(drawn, draw(9, 7, &UnsupportedFeatures::default()));
        assert_eq!(drawn.iter().filter(|cell| cell.kind == Base::Xfs).count(), 3);
    }
}
