//! Who reads and writes what: the [`Access`], the eBPF recorder, and the Parquet trace file.

mod access;

pub use access::{Access, FileAccesses, Op};
