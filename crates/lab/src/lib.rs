//! The lab: experiments of the papers on simulated drives, judged by the papers' figures.
//!
//! | module | its job |
//! |---|---|
//! | [`described`] | files that describe a drive or a load, and their errors |
//! | [`setup`] | a drive and the host's path to it, as a file describes them |
//! | [`presets`] | the drives of the papers |
//! | [`mod@file`] | files as extents of a drive |
//! | [`raw`] | reads of a drive without files |
//! | [`measured`] | a drive measured by the production probe |
//! | [`row`] | a figure, the paper's, and how far they may differ |
//! | [`experiment`] | what an experiment is |
//! | [`experiments`] | one module for each experiment |
//! | [`loads`] | what programs do with files: loads and ageing of simulated file systems |
//! | [`run`] | runs experiments in parallel, with the same results as one by one |
//! | [`workload`] | a load, as a file describes it |
//! | [`serve`] | a drive as a block device of this machine |
//! | [`bed`] | runs of planner and mover on simulated file systems |
//! | [`compare`] | all remedies side by side on one aged image |
//! | [`catalog`] | lists experiments and drives |
//! | [`plot`] | pictures of results |
//! | [`scan`] | layouts of real files on a simulated drive |
//! | [`trace`] | block traces, and their replay |
//! | [`random`] | pseudo-random numbers from a seed |

#[cfg(feature = "experiments")]
pub mod bed;
#[cfg(feature = "experiments")]
pub mod catalog;
#[cfg(feature = "experiments")]
pub mod compare;
pub mod described;
pub mod experiment;
#[cfg(feature = "experiments")]
pub mod experiments;
pub mod file;
#[cfg(feature = "experiments")]
pub mod loads;
#[cfg(feature = "experiments")]
pub mod measured;
pub mod plot;
pub mod presets;
pub mod random;
pub mod raw;
pub mod row;
#[cfg(feature = "experiments")]
pub mod run;
pub mod scan;
#[cfg(feature = "serve")]
pub mod serve;
pub mod setup;
pub mod trace;
pub mod workload;
