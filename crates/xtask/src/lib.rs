//! The workspace's generated files, made from the definitions that the binary runs.
//!
//! | module | its job |
//! |---|---|
//! | [`generate`] | every generated file: made, written, compared |

pub mod generate;
