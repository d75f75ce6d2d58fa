//! The workspace's generated files, made from the definitions that the binary runs.
//!
//! | module | its job |
//! |---|---|
//! | [`generate`] | every generated file: made, written, compared |
//! | [`mutate`] | what crash arguments stand on, taken out one at a time |
//! | [`suite`] | all tests, and what took longest |

pub mod generate;
pub mod mutate;
pub mod suite;
