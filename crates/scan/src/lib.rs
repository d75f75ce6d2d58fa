//! Reads the layouts of files on live file systems, many files at a time.
//!
//! Two phases. [`files`] walks the given paths and returns a [`Tree`]: names and inode numbers, compact, no
//! file opened. [`measure()`] (or [`in_batches`], for layouts themselves) then reads each file's layout, in
//! inode order, from the fastest source that can be trusted, and hands on the results, batch by batch. Nothing
//! here is ever written, and whatever cannot be read is counted with its [`Cause`], never dropped in silence.
//!
//! | module | its job |
//! |---|---|
//! | [`walk`] | the parallel walk |
//! | `listing` | how many names a directory may have |
//! | [`tree`] | what it found, compact: a million files in some 50 MB |
//! | [`filesystem`] | the file system of a device number: kind, block size, queue limits |
//! | [`fiemap`] | source 1: open each file and use FIEMAP |
//! | [`ext4`] | source 2: read ext4's own inode tables from the block device |
//! | [`f2fs`] | no source of layouts: the segments of an F2FS |
//! | [`mod@space`] | free space and metadata of a file system |
//! | [`xfs`] | source 3: read the owner of every block from XFS |
//! | `bulk` | which of 2 and 3 serves a file system |
//! | [`engine`] | batches over the sources, in parallel, results in order |
//! | [`mod@measure`] | figures per file and in total |
//!
//! Neighbours: `layout` defines extents and measures, `sys` the kernel's interfaces; `plan` uses
//! [`layout_of`] and [`files`], the `scan` verb uses [`measure()`].

mod bulk;
mod covered;
pub mod engine;
pub mod error;
pub mod ext4;
pub mod f2fs;
pub mod fiemap;
pub mod filesystem;
pub mod journal;
mod listing;
pub mod measure;
mod open;
pub mod quantiles;
pub mod space;
pub mod tree;
pub mod walk;
pub mod xfs;

pub use engine::{Source, in_batches};
pub use error::{Cause, ScanError};
pub use fiemap::layout_of;
pub use filesystem::FileSystem;
pub use measure::{FileMeasures, MeasuredBatch, Totals, measure, measure_with};
pub use open::Opener;
pub use space::{FoundSpace, NotKnown, space};
pub use tree::{Entry, SkippedEntry, Tree};
pub use walk::{WalkOptions, files};
