//! Carries out a plan, on volumes and in an environment that the caller passes.
//!
//! Nothing in the plan is believed: identity, size and layout of every file are read again just before it is
//! touched, and any difference is a skip with its reason. Nothing here knows whether a volume is a mounted file
//! system or a simulated one: the kernel's are in `fragmend-engines`.
//!
//! | module | its job |
//! |---|---|
//! | [`drive`] | how what moves a file is taken through its ranges: by part, by range, by group, all at once |
//! | [`run`] | the plan, file by file, batch by batch, step by step |
//! | `look` | the last check of a range before it is touched |
//! | [`environment`] | time, other programs' load, our own input and output |
//! | [`measurement`] | prediction beside measurement, which `auto` adds to the summary |
//! | [`pace`] | how fast, and when to yield to others |
//! | [`receipt`] | what was done: events, receipts, the summary |

pub mod drive;
pub mod environment;
mod look;
pub mod measurement;
pub mod pace;
pub mod receipt;
pub mod run;

pub use environment::{Environment, OwnIo};
pub use measurement::Measurement;
pub use pace::Rate;
pub use receipt::{
    BesideReaders, Event, FreeSegments, Listener, Outcome, Receipt, Skipped, Summary,
};
pub use run::{ApplyError, Options, Volumes, apply};
