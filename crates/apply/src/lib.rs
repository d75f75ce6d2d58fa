//! Moves what a plan says, safely, on a live file system.
//!
//! Nothing in the plan is believed: identity, size and layout of every file are looked at again
//! just before it is touched, and any surprise is a skip with its reason.
//!
//! | module | its job |
//! |---|---|
//! | [`engine`] | one module per file system: how blocks are exchanged, and why that is safe |
//! | [`rewrite`] | the copies that make rewriting in place safe, and recovering from them |
//! | `begin` | what must hold before anything is touched |
//! | `lock` | one mending at a time per file system |
//! | [`run`] | the plan, file by file, batch by batch, step by step |
//! | `look` | the last look at a range before it is touched |
//! | `point` | where a test stops a move |
//! | [`pace`] | how fast, and when to yield to others |
//! | [`receipt`] | what was done: events, receipts, the summary |

mod begin;
mod bytes;
pub mod engine;
mod lock;
mod look;
pub mod pace;
mod point;
pub mod receipt;
pub mod rewrite;
pub mod run;

pub use engine::{Choice, Refused};
pub use pace::Rate;
pub use receipt::{Event, Listener, Outcome, Receipt, Skipped, Summary};
pub use run::{ApplyError, Options, apply};
