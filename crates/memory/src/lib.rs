//! A volume in memory: files in blocks of a disk that forgets what is not durable, on a clock that moves only
//! when somebody waits or works. Whatever is done to it is one numbered operation, and at any of them the
//! power may be cut, a call may fail, or somebody else may change a file ([`Fault`]).
//!
//! It is what the generic half of `fragmend-apply` is tested on, and where a simulated file system
//! begins: copy this crate, and replace what [`disk`](self) says a block costs and where space is found.
//!
//! | module | its job |
//! |---|---|
//! | `world` | the clock, who else reads, and what was read and written here |
//! | `fault` | what goes wrong, and when |
//! | `disk` | blocks, files, space; what a power cut leaves |
//! | `volume` | the disk as a [`Volume`](fragmend_layout::Volume) |
//! | `file` | one of its files as a [`Movable`](fragmend_layout::Movable) |
//!
//! How it moves data. All space is found before anything moves. A part is copied to its new place, the copy is
//! waited for, compared with the file, and the file's map is exchanged; that is durable with the next
//! commit, behind everything that was exchanged before. What was left is free after that commit and not before. Whoever
//! wants to write to a file is let in once what has moved of it is committed. So a power cut leaves each
//! block of a file in its old or its new place, with the same bytes.

mod disk;
mod fault;
mod file;
mod volume;
mod world;

pub use fault::Fault;
pub use volume::Memory;
pub use world::World;
