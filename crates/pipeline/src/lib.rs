//! The whole path as functions: record, survey, plan, apply. A verb, a daemon, a test and a notebook call the
//! same functions; what they show, and which questions they ask, is left to them.
//!
//! | stage | from | to |
//! |---|---|---|
//! | [`record()`] | paths, for some time | a trace: which threads read and write what |
//! | [`rolling()`] | paths, until told to stop | a trace for each period |
//! | [`survey()`] | the trace, or paths alone | a [`Survey`]: files with their present layouts |
//! | [`drives()`] | the survey's devices | what the drives report of their wear, for [`Survey::drives`] |
//! | [`plan()`] | the survey and settings | a [`Plan`]: ranges, predictions, reasons |
//! | [`apply()`] | the plan | receipts, and their [`Summary`] |
//! | [`places`] | a path | where the data of all files below it is |
//! | [`measure`] | recorded reads, before and after | prediction beside measurement |
//!
//! Nothing here prints, asks, or knows of a terminal. The first two stages run long without a result, so they
//! report progress to an [`Observer`]. `apply` reports every receipt to a [`Listener`], and waits for a slow
//! one only while no program is kept out of a file.
//!
//! Neighbours: each stage's work is in the crate of its name (`trace`, `scan`, `plan`, `apply`); this crate
//! knows what one stage hands to the next, and how files of a trace are found again ([`survey`](mod@survey)).

mod apply;
mod drives;
mod error;
mod event;
pub mod measure;
pub mod places;
pub mod plan_file;
mod record;
pub mod survey;

pub use apply::{apply, can_move, moves_natively};
pub use drives::drives;
pub use error::Error;
pub use event::{Event, LeftOut, Observer, Replayed, unobserved};
pub use fragmend_apply::{Listener, Summary};
pub use fragmend_plan::{
    Plan, Survey, make as plan, with_curve as plan_with_curve, with_losses as plan_with_losses,
};
pub use record::{Recording, can_record, record, rolling};
pub use survey::{absolute, device, survey};
