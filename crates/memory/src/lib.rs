//! A volume in memory: files in blocks of a disk that loses what is not durable, on a clock that advances only
//! with waits and operations. Every access to it is one numbered operation, and at any of them the power may be
//! cut, a call may fail, or another program may change a file ([`Fault`]).
//!
//! The generic half of `fragmend-apply` is tested on it, and a simulated file system begins with it: copy this
//! crate, and replace how [`disk`](self) computes the cost of a block and finds space.
//!
//! | module | its job |
//! |---|---|
//! | `world` | the clock, the reads of others, and what was read and written here |
//! | `fault` | what goes wrong, and when; what other programs do |
//! | `disk` | blocks, files, space; what a power cut leaves |
//! | `volume` | the disk as a [`Volume`](fragmend_layout::Volume) |
//! | `file` | one of its files as a [`Movable`](fragmend_layout::Movable) |
//!
//! How it moves data. All space is found before anything moves. A part is copied to its new place, the copy is
//! made durable and compared with the file, and the file's map is exchanged; the exchange is durable with the
//! next commit, after everything that was exchanged before. The old place is free after that commit and not
//! before. A program that wants to write to a file is let in once the moves in that file are committed. So a
//! power cut leaves each block of a file in its old or its new place, with the same bytes.
//!
//! Blocks may be allocated and never written; they read as zeroes. Files may share blocks: of what is shared only
//! the file that is relocated gets a new place, if it may, and a block is free once no file has it.

mod disk;
mod fault;
mod file;
mod volume;
mod world;

pub use fault::{Change, Fault};
pub use volume::Memory;
pub use world::World;
