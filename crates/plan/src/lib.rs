//! What is worth moving: a pure function of (accesses, layouts, profile, observed loads, policy, budget).
//!
//! The currency is time: seconds that programs wait for the device in one replay of what was recorded. Requests are how it
//! comes about.
//!
//! No clock, no system call, no randomness: the same input results in the same plan, byte for byte.
//!
//! | module | its step |
//! |---|---|
//! | [`survey`] | what a plan is made from: the files of any volume, with their layouts |
//! | [`input`] | how it is made: policy, budget |
//! | [`requests`] | accesses to device requests: alignment, end of file |
//! | `in_order` | what is in flight beside each other where one thread reads |
//! | `bounded` | accesses cut to where a file has data |
//! | [`readahead`] | what the page cache fetches for buffered reads |
//! | [`merge`] | overlapping requests to windows (FragPicker's algorithm 1) |
//! | [`costs`] | what reads cost on each device, at the depth that was seen |
//! | `recorded` | the reads of a trace, whatever is planned for |
//! | `depth` | how many reads were in flight, and whether others than the trace's were among them |
//! | [`fragments`] | how a request is split and what it costs, now and after a move |
//! | [`ways`], [`between`] | the way of a disk's head from one read to the next, within a file and from one to another |
//! | [`slow`] | what reads lose in ranges that are slow in one fragment |
//! | [`turns`] | of a thinned out recording, in which turns requests were recorded |
//! | `chance` | which ranges pay for themselves by more than chance |
//! | `cut` | where a choice by what ranges save for their price ends |
//! | `heat` | whether a window would be hot without one of its turns |
//! | `halves` | what one half of the turns chooses, judged by the other |
//! | [`unseen`] | what a thinned out recording stands for, and has not seen |
//! | [`outlook`] | one replay in time, and what each break costs |
//! | [`select`] | the policies |
//! | `choose` | what a policy wants, judged by the costs themselves |
//! | `chosen` | what of it is to be moved |
//! | [`cleaned`] | what becomes of segments |
//! | `explain` | chosen ranges with their figures and reasons |
//! | [`losses`] | what each file loses, also where nothing pays |
//! | [`verdict`] | whether the plan is worth it, and why not |
//! | [`curve`](mod@curve) | bytes against time |
//! | [`wear`] | what the writing means to the drives |
//! | [`make`](mod@make) | from a survey to a [`Plan`], step by step |
//! | `fit` | no plan is larger than what its reader accepts |
//! | [`file`] | the plan as a file: its structure, writing it |
//! | [`source`] | the plan as it is carried out, file by file; reading it |
//! | `parallel` | one call for each of many items, on all processors |
//! | `check` | whether it makes sense |

pub mod between;
mod bounded;
mod chance;
mod check;
mod choose;
mod chosen;
pub mod cleaned;
mod costs;
pub mod curve;
mod cut;
mod depth;
mod explain;
pub mod file;
mod fit;
pub mod fragments;
mod halves;
mod heat;
mod in_order;
pub mod input;
pub mod losses;
pub mod make;
pub mod merge;
pub mod outlook;
mod parallel;
pub mod readahead;
mod recorded;
pub mod requests;
pub mod select;
pub mod slow;
pub mod source;
pub mod survey;
mod tally;
pub mod turns;
pub mod unseen;
pub mod verdict;
pub mod ways;
pub mod wear;

pub use check::Totals;
pub use cleaned::Cleaned;
pub use costs::{OneMore, Timed, in_flight_of_streams};
pub use curve::CurvePoint;
pub use file::{Device, Plan, PlanError, PlannedFile, PlannedRange, Summary};
pub use fragments::Bill;
pub use in_order::{Fetches, one_thread};
pub use input::{Basis, Policy, Settings};
pub use losses::FileLoss;
pub use make::{make, with_curve, with_losses};
pub use recorded::RecordedReads;
pub use requests::Request;
pub use select::iodp::Priorities;
pub use slow::{SlowFile, SlowRange};
pub use source::{PlanFile, PlanSource};
pub use survey::{Part, Survey, SurveyedFile};
pub use verdict::Why;
