//! Rewriting a range in place, for file systems that have no way of their own to move data: what
//! its engine (`engine.rs`, where the crash argument is) and `recover` share.
//!
//! | module | its job |
//! |---|---|
//! | `engine`, `mover`, `probe` | the engine: whom it serves, its steps, and whether a file system can do what it takes |
//! | `ground` | what the file systems of files and records must promise |
//! | `below` | whether a disk lies in memory |
//! | `limits` | what keeps a process from finishing what it has begun |
//! | [`record`] | the format of a record: whose range it is, and a checksummed copy of its bytes |
//! | [`journal`] | the directory that records lie in, one user at a time |
//! | [`draft`] | a record in the making |
//! | `note` | how far a rewrite came, and what was done to its file afterwards |
//! | `place` | the bytes of a range: what is missing, putting them there for good |
//! | `privileges` | what writing takes away from a program's file |
//! | `whose` | which file a record is of |
//! | `refused` | what is in memory only, because the disk has refused it |
//! | [`recover`] | from records back to whole files |

mod below;
pub mod draft;
pub(crate) mod engine;
pub(crate) mod ground;
pub mod journal;
pub(crate) mod limits;
pub(crate) mod mover;
pub(crate) mod note;
pub(crate) mod place;
pub(crate) mod privileges;
mod probe;
pub mod record;
pub mod recover;
pub(crate) mod refused;
mod whose;
