//! What is worth moving: a pure function of (accesses, layouts, profile, policy, budget).
//!
//! No clock, no system call, no randomness: the same input results in the same plan, byte for byte.
//!
//! | module | its step |
//! |---|---|
//! | [`survey`] | what a plan is made from: the files of any volume, with their layouts |
//! | [`input`] | how it is made: policy, budget |
//! | [`requests`] | accesses to device requests: alignment, end of file |
//! | `bounded` | accesses cut to where a file has data |
//! | [`readahead`] | what the page cache fetches for buffered reads |
//! | [`merge`] | overlapping requests to windows (FragPicker's algorithm 1) |
//! | [`fragments`] | what a request costs, now and after a move |
//! | [`select`] | the policies |
//! | [`make`] | from chosen ranges to a [`Plan`] with its reasons and its verdict |
//! | `fit` | no plan is larger than what its reader accepts |
//! | [`file`] | the plan as a file: its structure, writing it |
//! | [`source`] | the plan as it is carried out, file by file; reading it |
//! | `check` | whether it makes sense |

mod bounded;
mod check;
pub mod file;
mod fit;
pub mod fragments;
pub mod input;
pub mod make;
pub mod merge;
pub mod readahead;
pub mod requests;
pub mod select;
pub mod source;
pub mod survey;

pub use check::Totals;
pub use file::{Device, Plan, PlanError, PlannedFile, PlannedRange, Summary};
pub use input::{Policy, Settings};
pub use make::make;
pub use requests::Request;
pub use source::{PlanFile, PlanSource};
pub use survey::{Survey, SurveyedFile};
