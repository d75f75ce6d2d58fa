//! Rewriting a range in place, for file systems that have no way of their own to move data: what
//! the engine (`engine/rewrite.rs`, where the crash argument is) and `recover` share.
//!
//! | module | its job |
//! |---|---|
//! | [`record`] | the format of a record: whose range it is, and a checksummed copy of its bytes |
//! | [`journal`] | the directory that records lie in, one user at a time |
//! | `place` | the bytes of a range: what is missing, putting them there for good |
//! | [`recover`] | from records back to whole files |

pub mod journal;
pub(crate) mod place;
pub mod record;
pub mod recover;
