//! What the tests of moving share: the engines' own support, and what needs the binary.

#![allow(dead_code)] // each test file uses its part

pub mod deaf;
#[path = "../../../engines/tests/support/mod.rs"]
mod engines;
pub mod records;
pub mod rewrite;

#[allow(unused_imports)]
pub use engines::*;
