//! Rewriting a range in place, for file systems that have no way of their own to move data: what
//! its engine (`engine.rs`, where the crash argument is) and `recover` share.
//!
//! | module | its job |
//! |---|---|
//! | `engine`, `mover`, `probe` | the engine: which file systems it serves, its steps, and whether a file system can do what it needs |
//! | `ground` | what the file systems of files and records must promise |
//! | `below` | whether a disk is in memory |
//! | `limits` | what keeps a process from finishing what it has begun |
//! | [`record`] | the format of a record: which range it is of, and a checksummed copy of its bytes |
//! | [`journal`] | the directory that holds the records, used by one process at a time |
//! | [`names`] | the names in it |
//! | [`parent`] | the directory that a journal is in, in which no other user may rename it |
//! | [`draft`] | a record that is being made |
//! | `note` | how far a rewrite came, and whether its file was changed afterwards |
//! | `leased` | a leased file, and each change to it |
//! | `leaving` | a file that is left alone after its record was made |
//! | `place` | the bytes of a range: which are missing, and writing them durably |
//! | `rewriter` | where more space is to be had while a range is written again |
//! | `overlay` | file systems to which an overlay writes |
//! | `privileges` | what a write to a program's file clears |
//! | `whose` | which file a record is of |
//! | `refused` | data that is in memory only, because the disk has refused it |
//! | `unchanged` | whether a file is as its copy, before it is touched |
//! | [`recover`], `recovered` | from records back to whole files; what became of each record |
//! | `mending` | what recovering does with one record and its file |

mod below;
pub mod draft;
pub(crate) mod engine;
pub(crate) mod ground;
pub mod journal;
mod leased;
mod leaving;
pub(crate) mod limits;
mod mending;
pub(crate) mod mover;
pub mod names;
pub(crate) mod note;
mod overlay;
pub mod parent;
pub(crate) mod place;
pub(crate) mod privileges;
mod probe;
pub mod record;
pub mod recover;
mod recovered;
pub(crate) mod refused;
mod rewriter;
mod unchanged;
mod whose;

/// What the user is told, in one line.
fn joined(told: impl Iterator<Item = String>) -> Option<String> {
    told.reduce(|one, other| format!("{one}; {other}"))
}
