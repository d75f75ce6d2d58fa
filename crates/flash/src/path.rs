//! What a host's way to a drive costs and allows, as somebody describes it. [`crate::host`] goes
//! along it.

use serde::{Deserialize, Serialize};

/// What a host's way to a drive costs and allows. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPath {
    /// A system call, there and back.
    pub system_call_ns: u64,
    /// Finding where a stretch of a file lies (iomap), each.
    pub stretch_ns: u64,
    /// That besides, where a stretch does not go on where the last one ended: the file system has
    /// not yet looked at its extent.
    #[serde(default)]
    pub extent_ns: u64,
    /// A bio, without its pages.
    pub bio_ns: u64,
    /// A page of 4 KiB in a bio.
    pub page_ns: u64,
    /// That besides, for a page of the caller's buffer that the caller has never used: it must be
    /// found and cleared first.
    #[serde(default)]
    pub new_page_ns: u64,
    /// A request, until it is with the drive.
    pub request_ns: u64,
    /// The end of a request, on the processor that waits for it.
    pub end_ns: u64,
    /// To be put to sleep until the drive is done, and woken.
    #[serde(default)]
    pub wake_ns: u64,
    /// The plug goes out with so many requests.
    pub plug_requests: u32,
    /// It also does with a request of so many bytes.
    pub plug_bytes: u32,
    /// The largest request.
    pub request_bytes: u32,
    /// Requests that there may be, in the plug or under way.
    pub queue_depth: u32,
    /// How far buffered reads of a file from its start to its end read ahead; 0: not at all, as with
    /// direct I/O.
    #[serde(default)]
    pub readahead_bytes: u32,
    /// The largest bio: 256 pages.
    #[serde(default = "bio_bytes")]
    pub bio_bytes: u32,
    /// What becomes of the hint of a write that is split.
    #[serde(default)]
    pub split_hints: SplitHints,
}

/// What becomes of a write's hint when it is split into several requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitHints {
    /// Each request has it, so all but the first name the wrong predecessor (FAST'24's artefact).
    #[default]
    Repeated,
    /// The first one has it, the others none.
    Dropped,
    /// Each names the unit before its own.
    Renewed,
}

fn bio_bytes() -> u32 {
    1 << 20
}
