//! Layouts off live file systems.

pub mod fiemap;

pub use fiemap::layout_of;
