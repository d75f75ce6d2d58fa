//! Rewriting a range in place, for file systems that have no way of their own to move data: what
//! the engine (`engine/rewrite.rs`, where the crash argument is) and `recover` share.
//!
//! | module | its job |
//! |---|---|
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
pub(crate) mod ground;
pub mod journal;
pub(crate) mod limits;
pub(crate) mod note;
pub(crate) mod place;
pub(crate) mod privileges;
pub mod record;
pub mod recover;
pub(crate) mod refused;
mod whose;
