//! The lab: experiments of the papers, on simulated drives, judged by what the papers report.
//!
//! | module | its job |
//! |---|---|
//! | [`described`] | files that describe something, and what is wrong with them |
//! | [`setup`] | a drive and the host's way to it, as a file says |
//! | [`presets`] | the drives of the papers |
//! | [`mod@file`] | files as stretches of a drive, written side by side |
//! | [`raw`] | reads of a drive without files |
//! | [`row`] | a figure, the paper's, and how far apart they may be |
//! | [`experiment`] | what can be run |
//! | [`experiments`] | one module for each |
//! | [`run`] | runs them, side by side, with the same result as one by one |
//! | [`workload`] | a load of one's own, as a file says |
//! | [`catalog`] | what there is |
//! | [`plot`] | pictures of them |
//! | [`random`] | numbers that follow from a seed |

pub mod catalog;
pub mod described;
pub mod experiment;
pub mod experiments;
pub mod file;
pub mod plot;
pub mod presets;
pub mod random;
pub mod raw;
pub mod row;
pub mod run;
pub mod setup;
pub mod workload;
