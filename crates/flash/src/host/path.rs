//! The description of a host's path to a drive: costs and limits. [`super::Host`] follows it.

use serde::{Deserialize, Serialize};

/// What a host's path to a drive costs and allows. Times are nanoseconds. JSON has the field names of
/// the first version; [`crate::drive::former_name`] has those that files may still use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPath {
    /// A system call, there and back.
    pub system_call_ns: u64,
    /// Looking up where an extent of a file is (iomap), for each extent.
    #[serde(rename(serialize = "stretch_ns"), alias = "stretch_ns")]
    pub lookup_ns: u64,
    /// What a look-up costs besides where the extent does not follow the last one on the drive: the
    /// file system has not looked at it yet.
    #[serde(default, rename(serialize = "extent_ns"), alias = "extent_ns")]
    pub uncached_lookup_ns: u64,
    /// A bio, without its pages.
    pub bio_ns: u64,
    /// A page of 4 KiB in a bio.
    pub page_ns: u64,
    /// What such a page costs besides if the caller has never used this page of its buffer: the
    /// kernel must find and clear it first.
    #[serde(default)]
    pub new_page_ns: u64,
    /// A request, until the drive has it.
    pub request_ns: u64,
    /// The end of a request, on the processor that waits for it.
    pub end_ns: u64,
    /// Falling asleep until the drive is done, and waking up.
    #[serde(default)]
    pub wake_ns: u64,
    /// The plug is flushed at this many requests.
    pub plug_requests: u32,
    /// The plug is flushed by a request of this many bytes.
    pub plug_bytes: u32,
    /// The largest request.
    pub request_bytes: u32,
    /// Most requests at a time, in the plug and in flight.
    pub queue_depth: u32,
    /// How far buffered reads of a file from its start to its end read ahead; 0: not at all, as with
    /// direct I/O.
    #[serde(default)]
    pub readahead_bytes: u32,
    /// The largest bio: 256 pages.
    #[serde(default = "default_bio_bytes")]
    pub bio_bytes: u32,
    /// What becomes of the hint of a write that is split.
    #[serde(default)]
    pub split_hints: SplitHints,
}

/// What becomes of the hint of a write that is split into several requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitHints {
    /// Each request has it, so all but the first name the wrong predecessor (FAST'24's artefact).
    #[default]
    Repeated,
    /// The first request has it, the others have none.
    Dropped,
    /// Each request names the unit before its own.
    Renewed,
}

fn default_bio_bytes() -> u32 {
    1 << 20
}
