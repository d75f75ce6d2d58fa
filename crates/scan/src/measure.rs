//! Figures of every file, and of all files together.

use crate::quantiles::Quantiles;
use crate::tree::SkippedEntry;
use crate::{Cause, Entry, ScanError, Source, Tree, in_batches};
use fragmend_layout::{Log2Histogram, Measures, ScannedLayout};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Mutex;

/// One file's figures.
#[derive(Clone, Copy, Debug)]
pub struct FileMeasures {
    /// Which file; [`Tree::path`] names it.
    pub entry: Entry,
    /// Its size in bytes.
    pub bytes: u64,
    /// The measures of its layout.
    pub measures: Measures,
}

/// The files of one batch, in inode order.
#[derive(Default)]
pub struct MeasuredBatch {
    /// The files that were measured.
    pub files: Vec<FileMeasures>,
    /// Their layouts, if these were asked for: as many, in the same order; else none.
    pub layouts: Vec<ScannedLayout>,
    /// The files that could not be measured.
    pub skips: Vec<SkippedEntry>,
    further_names: u64,
    fragments: Fragments,
}

#[derive(Default)]
struct Fragments {
    sizes: Log2Histogram,
    distances: Log2Histogram,
    size_quantiles: Quantiles,
    distance_quantiles: Quantiles,
}

/// Sums over all files. Counts unless the name says otherwise.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Files measured.
    pub files: u64,
    /// Their sizes in bytes.
    pub bytes: u64,
    /// Files with more extents than they need.
    pub fragmented_files: u64,
    /// Sums of all measures; the two medians are those of all fragments.
    pub measures: Measures,
    /// Lengths of all fragments, in bytes.
    pub frag_sizes: Log2Histogram,
    /// Distances between neighbouring fragments of a file, in bytes.
    pub frag_distances: Log2Histogram,
    /// What was left out, by cause, with the walk's skips.
    pub skipped: BTreeMap<Cause, u64>,
    /// Further names of files that are counted under another name.
    pub further_names: u64,
}

/// Measures every file of `tree`; `sink` gets batches in inode order.
///
/// # Errors
/// As [`in_batches`].
pub fn measure(
    tree: &Tree,
    source: Source,
    sink: impl FnMut(&MeasuredBatch) -> io::Result<()> + Send,
) -> Result<Totals, ScanError> {
    measure_with(tree, source, false, sink)
}

/// The same; batches hold the layouts, too, if `layouts`.
///
/// # Errors
/// As [`in_batches`].
pub fn measure_with(
    tree: &Tree,
    source: Source,
    layouts: bool,
    mut sink: impl FnMut(&MeasuredBatch) -> io::Result<()> + Send,
) -> Result<Totals, ScanError> {
    let mut totals = Totals { further_names: tree.further_names(), ..Totals::default() };
    tree.skips().iter().for_each(|s| *totals.skipped.entry(s.cause).or_default() += 1);
    let mut all = Fragments::default();
    // Where directories do not have the files' own numbers, hard links are noticed only once a file is open;
    // which of its names is kept is then a matter of chance.
    let seen = Mutex::new(HashSet::new());
    in_batches(
        tree,
        source,
        |batch: &mut MeasuredBatch, fs, entry, layout| match layout {
            Err(cause) => batch.skips.push(SkippedEntry::file(entry, cause)),
            Ok(layout) => {
                if !fs.inode_numbers_hold() {
                    let id = (layout.file.device, layout.file.inode);
                    if !seen.lock().unwrap_or_else(|e| e.into_inner()).insert(id) {
                        batch.further_names += 1;
                        return;
                    }
                }
                let fragments = &mut batch.fragments;
                let measures = Measures::of(layout, &fs.limits(), |size, distance| {
                    fragments.record(size, distance);
                });
                batch.files.push(FileMeasures { entry: *entry, bytes: layout.size, measures });
                batch.layouts.extend(layouts.then(|| ScannedLayout::from(layout)));
            }
        },
        |batch: MeasuredBatch| {
            totals.further_names += batch.further_names;
            batch.files.iter().for_each(|f| totals.add(f));
            batch.skips.iter().for_each(|s| *totals.skipped.entry(s.cause).or_default() += 1);
            all.merge(&batch.fragments);
            sink(&batch)
        },
    )?;
    totals.measures.median_frag_size = all.size_quantiles.median();
    totals.measures.median_frag_distance = all.distance_quantiles.median();
    totals.frag_sizes = all.sizes;
    totals.frag_distances = all.distances;
    Ok(totals)
}

impl Fragments {
    fn record(&mut self, size: u64, distance: Option<u64>) {
        self.sizes.record(size);
        self.size_quantiles.record(size);
        if let Some(distance) = distance {
            self.distances.record(distance);
            self.distance_quantiles.record(distance);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.sizes.merge(&other.sizes);
        self.distances.merge(&other.distances);
        self.size_quantiles.merge(&other.size_quantiles);
        self.distance_quantiles.merge(&other.distance_quantiles);
    }
}

impl Totals {
    fn add(&mut self, file: &FileMeasures) {
        let (t, m) = (&mut self.measures, &file.measures);
        self.files += 1;
        self.bytes += file.bytes;
        self.fragmented_files += u64::from(m.extents > m.ideal_extents);
        t.extents += m.extents;
        t.ideal_extents += m.ideal_extents;
        t.requests_now += m.requests_now;
        t.requests_best += m.requests_best;
        t.data_bytes += m.data_bytes;
        t.unwritten_bytes += m.unwritten_bytes;
        t.shared_bytes += m.shared_bytes;
        t.encoded_bytes += m.encoded_bytes;
        t.inline_bytes += m.inline_bytes;
    }
}
