//! Batches of files over the sources of layouts: in parallel, results handed on in order.
//!
//! A batch is a number of consecutive files of one file system, in inode order. While the receiver handles the
//! results of one group of batches, the next group is being read; no more than two groups are held at any time,
//! however many files there are.
//!
//! A name may lead to another file at the opening than in the walk: programs that write a new file and rename
//! it over an old one cause just that. The file that is found then may have been listed under its first name
//! too. Such strays wait until the end, and each is handed on, once, if it was not reached through an entry of
//! its own.

use crate::bulk::{self, Bulk};
use crate::fiemap;
use crate::open::Opener;
use crate::{Cause, Entry, FileSystem, ScanError, Tree};
use fragmend_layout::{Layout, SkipReason};
use fragmend_sys::fiemap::Fiemap;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const BATCH: usize = 2048;

/// Where layouts come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// In bulk where that is possible and faster, FIEMAP elsewhere.
    #[default]
    Auto,
    /// FIEMAP only.
    Fiemap,
    /// ext4's inode tables or XFS's reverse mapping; an error where they cannot be read. Files that
    /// only the kernel can interpret still go through FIEMAP.
    Bulk,
}

/// Reads the layout of every file of `tree` and lets `each` add it, or why there is none, to its batch's `B`.
/// `sink` gets the batches in the order of [`Tree::entries`].
///
/// # Errors
/// [`ScanError::NoBulk`] before anything was read; [`ScanError::Sink`] as soon as `sink` fails.
pub fn in_batches<B: Default + Send>(
    tree: &Tree,
    source: Source,
    each: impl Fn(&mut B, &FileSystem, &Entry, Result<&Layout, Cause>) + Sync,
    mut sink: impl FnMut(B) -> io::Result<()> + Send,
) -> Result<(), ScanError> {
    let mut mounted = Vec::new();
    let batches = batches(tree);
    for (i, fs) in tree.file_systems().iter().enumerate() {
        let of_fs = batches.iter().filter(|(at, _)| *at == i);
        let files = of_fs.map(|(_, range)| range.len()).sum();
        mounted.push(LayoutSource::new(fs, source, files)?);
    }
    let strays = Strays::default();
    let group = rayon::current_num_threads().max(2) * 4;
    let mut ready: Vec<B> = Vec::new();
    for group in batches.chunks(group) {
        let (sunk, next) = rayon::join(
            || std::mem::take(&mut ready).into_iter().try_for_each(&mut sink),
            || {
                let read = |(fs, range): &(usize, Range<usize>)| {
                    let job = Job {
                        tree,
                        strays: &strays,
                        mounted: &mounted[*fs],
                        entries: &tree.entries()[range.clone()],
                    };
                    job.run(&each)
                };
                group.into_par_iter().map(read).collect::<Vec<B>>()
            },
        );
        sunk?;
        ready = next;
    }
    ready.into_iter().try_for_each(&mut sink)?;
    let strays = strays.settled(tree);
    if strays.is_empty() {
        return Ok(());
    }
    let mut last = B::default();
    for (entry, found) in strays {
        let fs = mounted[tree.fs_index(&entry)].fs;
        each(&mut last, fs, &entry, found.as_ref().map_err(|r| *r));
    }
    Ok(sink(last)?)
}

/// Files that were found under the names of others.
#[derive(Default)]
struct Strays {
    found: Mutex<Vec<(Entry, Layout)>>,
    /// Files, by file system and number, that were not found under their own name any more.
    missed: Mutex<HashSet<(usize, u64)>>,
}

impl Strays {
    fn add(&self, entry: &Entry, layout: Layout) {
        self.found.lock().unwrap_or_else(|e| e.into_inner()).push((*entry, layout));
    }

    fn miss(&self, tree: &Tree, entry: &Entry) {
        let key = (tree.fs_index(entry), entry.inode);
        self.missed.lock().unwrap_or_else(|e| e.into_inner()).insert(key);
    }

    /// Each stray that was not handed on under its own name, once; for all other names that led to strays, that
    /// their file is gone.
    fn settled(self, tree: &Tree) -> Vec<(Entry, Result<Layout, Cause>)> {
        let mut found = self.found.into_inner().unwrap_or_else(|e| e.into_inner());
        let missed = self.missed.into_inner().unwrap_or_else(|e| e.into_inner());
        found.sort_by_key(|(entry, layout)| (layout.file, entry.dir, entry.name));
        let mut before = None;
        let settle = |(entry, layout): (Entry, Layout)| {
            let key = (tree.fs_index(&entry), layout.file.inode);
            let once = before.replace(layout.file) != Some(layout.file);
            let new = once && (!tree.has(key.0, key.1) || missed.contains(&key));
            (entry, if new { Ok(layout) } else { Err(SkipReason::Vanished.into()) })
        };
        found.into_iter().map(settle).collect()
    }
}

/// Cuts the entries into batches of one file system, at most [`BATCH`] long.
fn batches(tree: &Tree) -> Vec<(usize, Range<usize>)> {
    let mut out = Vec::new();
    let mut start = 0;
    for run in tree.entries().chunk_by(|a, b| tree.fs_index(a) == tree.fs_index(b)) {
        let fs = tree.fs_index(&run[0]);
        for from in (0..run.len()).step_by(BATCH) {
            out.push((fs, start + from..start + (from + BATCH).min(run.len())));
        }
        start += run.len();
    }
    out
}

/// A file system with its source of layouts.
struct LayoutSource<'a> {
    fs: &'a FileSystem,
    bulk: Option<Box<dyn Bulk>>,
    /// Files without FIEMAP, while none has had it: after a few of them, the others are not opened.
    refused: AtomicU32,
}

const ENOUGH_REFUSED: u32 = 8;
const SUPPORTED: u32 = u32::MAX;

impl<'a> LayoutSource<'a> {
    fn new(fs: &'a FileSystem, source: Source, files: usize) -> Result<Self, ScanError> {
        let bulk = match source {
            Source::Fiemap => None,
            Source::Auto => bulk::if_it_pays(fs, files),
            Source::Bulk => Some(
                bulk::open(fs)
                    .map_err(|why| ScanError::NoBulk { path: fs.label().to_owned(), why })?,
            ),
        };
        // Delayed allocation is in no inode table. A failure to flush it is no error: the layouts are then as
        // they are on the device.
        if bulk.is_some()
            && let Ok(dir) = fs.root()
        {
            let _ = rustix::fs::syncfs(&dir);
        }
        Ok(Self { fs, bulk, refused: AtomicU32::new(0) })
    }

    fn without_fiemap(&self) -> bool {
        (ENOUGH_REFUSED..SUPPORTED).contains(&self.refused.load(Relaxed))
    }

    fn saw(&self, supported: bool) {
        if supported {
            self.refused.store(SUPPORTED, Relaxed);
        } else if self.refused.load(Relaxed) < ENOUGH_REFUSED {
            self.refused.fetch_add(1, Relaxed);
        }
    }
}

/// One batch.
struct Job<'a> {
    tree: &'a Tree,
    strays: &'a Strays,
    mounted: &'a LayoutSource<'a>,
    entries: &'a [Entry],
}

impl Job<'_> {
    fn run<B: Default>(
        &self,
        each: impl Fn(&mut B, &FileSystem, &Entry, Result<&Layout, Cause>),
    ) -> B {
        let fs = self.mounted.fs;
        let mut out = B::default();
        let mut layouts: Vec<Option<Layout>> = vec![None; self.entries.len()];
        if let Some(bulk) = &self.mounted.bulk {
            // Inode 0 does not exist: the layout of a file that is covered by a mount is read through its path.
            let covered = |e: &Entry| self.tree.covered.contains(&(fs.dev, e.inode));
            let mut inodes = self.entries.iter().map(|e| if covered(e) { 0 } else { e.inode });
            bulk.layouts(&mut inodes, &mut |i, layout| layouts[i] = layout);
        }
        let mut opener = Opener::default();
        let mut space = Fiemap::default();
        for (entry, layout) in self.entries.iter().zip(layouts) {
            match layout {
                Some(layout) => each(&mut out, fs, entry, Ok(&layout)),
                None => match self.ask(&mut opener, &mut space, entry) {
                    Ok(layout) if self.is_stray(entry, &layout) => {
                        self.strays.miss(self.tree, entry);
                        self.strays.add(entry, layout);
                    }
                    Ok(layout) => each(&mut out, fs, entry, Ok(&layout)),
                    Err(cause) => {
                        if cause.reason() == SkipReason::Vanished {
                            self.strays.miss(self.tree, entry);
                        }
                        each(&mut out, fs, entry, Err(cause));
                    }
                },
            }
        }
        out
    }

    /// Whether an entry's name led to another file than the one that was listed. On file systems whose
    /// directories have other numbers (overlays), and for files with others mounted over them, the numbers
    /// prove nothing.
    fn is_stray(&self, entry: &Entry, layout: &Layout) -> bool {
        let fs = self.mounted.fs;
        fs.inode_numbers_hold()
            && layout.file.inode != entry.inode
            && !self.tree.covered.contains(&(fs.dev, entry.inode))
    }

    fn ask(&self, opener: &mut Opener, space: &mut Fiemap, entry: &Entry) -> Result<Layout, Cause> {
        if self.mounted.without_fiemap() {
            return Err(SkipReason::NoLayout.into());
        }
        let (file, stat) = opener.open(self.tree, entry).map_err(|e| Cause::from(&e))?;
        // A single file can be mounted over another. An overlay's files have many device numbers, so there only
        // the mount decides.
        let fs = self.mounted.fs;
        let elsewhere = if fs.inode_numbers_hold() {
            stat.st_dev != fs.dev
        } else {
            !opener.is_on_mount_of(&file, entry.dir)
        };
        if elsewhere {
            return Err(SkipReason::OtherFileSystem.into());
        }
        let layout = fiemap::layout_with(space, &file).map_err(|e| Cause::from(&e));
        match &layout {
            Ok(_) => self.mounted.saw(true),
            Err(cause) if cause.reason() == SkipReason::NoLayout => self.mounted.saw(false),
            Err(_) => {}
        }
        layout
    }
}
