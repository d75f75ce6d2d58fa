//! Simulated file systems on the simulated drives of `fragmend-flash`. Each is a [`Volume`](fragmend_layout::Volume), so that the
//! production planner and mover work on it as on a mounted one, and passes the conformance suite, power cuts included.
//!
//! | module | its job |
//! |---|---|
//! | [`machine`] | a drive, the host's path to it, programs and their clocks, power cuts |
//! | `wired` | the drive of a machine, until the power fails |
//! | [`file_system`] | what programs do with files |
//! | [`inplace`] | one that updates in place, in the manner of ext4 |
//! | [`cow`] | one that copies on write, in the manner of Btrfs |
//! | [`segments`] | a log-structured one, in the manner of F2FS |
//! | [`mounted`] | what the first two have in common: calls, data, commits, the mover |
//! | [`cache`], [`readahead`] | the page cache, and what reads bring into it |
//! | [`files`], [`leaves`] | inodes and names in memory; where extents are on the drive |
//! | [`space`], [`owners`] | free blocks and how they are allocated; blocks that several files share |
//! | [`extent_map`], [`ranges`] | where the blocks of a file are; sets of blocks |
//! | [`record`] | metadata as bytes of blocks |
//! | [`janusd`] | janusd on the host: files joined by remaps, files spread over dies |
//! | [`monitor`] | which ranges reach the drive (InDeF) |
//! | [`cuts`] | power cuts at every command of a load, for tests and the lab |
//! | [`error`] | why something could not be done |
//!
//! Metadata is on the drive: what is mounted after a power cut is what the drive's blocks say, on a drive that keeps content. On
//! one that keeps none the same commands take the same time, and only a drive that is never cut off is of use.

#![allow(clippy::single_range_in_vec_init)] // lists of ranges, often of one

pub mod cache;
pub mod cow;
pub mod cuts;
pub mod error;
pub mod extent_map;
pub mod file_system;
pub mod files;
pub mod inplace;
pub mod janusd;
pub mod leaves;
pub mod machine;
pub mod monitor;
pub mod mounted;
pub mod owners;
pub mod ranges;
pub mod readahead;
pub mod record;
pub mod segments;
pub mod space;
mod wired;
