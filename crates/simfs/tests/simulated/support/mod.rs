//! What the tests of all simulated file systems share: the conformance fixture over any of them, and drives. Their power cuts are those of
//! `fragmend_simfs::cuts`.

pub mod drives;
pub mod fixture;
pub mod lossy;

pub use fragmend_simfs::cuts::{self, Kind, Random, Seen};
