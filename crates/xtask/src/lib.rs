//! Chores of the workspace: generated files, mutations, the test suite.
//!
//! | module | its job |
//! |---|---|
//! | [`generate`] | every generated file: made, written, compared |
//! | [`licences`] | those of dependencies: whether they are allowed, and the list |
//! | [`mutate`] | what crash arguments rely on, removed one at a time |
//! | [`suite`] | all tests, and the slowest of them |

pub mod generate;
pub mod licences;
pub mod mutate;
pub mod suite;
