//! The file systems of the running kernel as volumes: how each moves data safely, which programs may use the
//! file meanwhile, and what restores a file after a crash.
//!
//! | module | its job |
//! |---|---|
//! | [`begin`] | the volumes of a plan: what must hold before anything is touched |
//! | [`environment`] | clock, load and own input and output, as the kernel reports them |
//! | [`engine`] | which engine serves a mount, or why none does |
//! | `native` | the file systems with engines of their own, a row each |
//! | `mounted` | a mounted file system: finding, checking and opening its files |
//! | `files` | all files of a mounted file system |
//! | `lock` | one process at a time that moves data on a file system |
//! | `ext4`, `exchange`, `hold` | ext4: blocks exchanged with a donor's, others kept out until that is durable |
//! | `xfs`, `btrfs`, `copying`, `sample`, `turns` | copies that the kernel takes over if the file has not changed |
//! | `unpinned` | that no device writes to pages of a file, known beyond the end of a lease |
//! | `swap` | XFS: whole files swapped |
//! | `compressed` | Btrfs: compressed ranges, compressed anew |
//! | `f2fs` | F2FS: written to the log once more |
//! | [`rewrite`] | any other: a durable copy, a hole, the bytes written back; and recovering from that |
//! | `donor`, `pages`, `places`, `warm` | new space; pages read into the cache; what has moved; the cache as it was |
//! | `ordering` | what a mount must promise |
//! | [`primitive`] | the names of what moves data |
//! | `point` | where a test stops a move |
//! | `bytes`, `errno` | reads and writes that complete; what a system error means for a file |

pub mod begin;
mod btrfs;
mod bytes;
mod compressed;
mod copying;
mod donor;
pub mod engine;
pub mod environment;
mod errno;
mod exchange;
mod ext4;
mod f2fs;
mod files;
mod hold;
mod lock;
mod mounted;
mod native;
mod ordering;
mod pages;
mod places;
mod point;
pub mod primitive;
pub mod rewrite;
mod sample;
mod swap;
mod turns;
mod unpinned;
mod warm;
mod xfs;

pub use begin::{Opened, Unready, open};
pub use engine::{Choice, Refused};
use engine::{Engine, Moves, may_move};
pub use environment::Kernel;
use fragmend_apply::drive::Mover;
