//! Test support: real file systems on loop devices, fragmented files, and what the kernel counts
//! while they are used. Everything cleans up after itself when dropped, also when a test fails.
//!
//! | module | its job |
//! |---|---|
//! | [`image`] | a file system in a sparse file on a loop device |
//! | [`fragment`] | files that are truly fragmented, as the papers make them |

pub mod fragment;
pub mod image;
