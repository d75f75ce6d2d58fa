//! Versions of what fragmend writes for other programs to read. Each is raised when a field changes its meaning
//! or is removed; a new field leaves it as it is.

/// JSON documents and events on standard output: `schema_version` of every verb, and of the lab's reports.
pub const DOCUMENT: u32 = 1;
/// Plan files.
pub const PLAN_FILE: u32 = 1;
/// Trace files: columns and metadata together.
pub const TRACE_FILE: u32 = 3;
/// The oldest trace files that are still read: they lack the column `bytes`.
pub const OLDEST_TRACE_FILE: u32 = 1;
/// Profiles of devices that `probe` keeps.
pub const PROFILE_FILE: u32 = 1;
