//! The description of a host's path to a drive: its costs and limits, which [`super::Host`] applies.

use crate::geometry::{Inconsistent, check_times};
use serde::{Deserialize, Serialize};

/// The costs and limits of a host's path to a drive. Times are nanoseconds. JSON has the field names of the
/// first version; [`crate::drive::former_name`] has those that files may still use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPath {
    /// A system call, entry and return.
    pub system_call_ns: u64,
    /// The look-up of an extent of a file (iomap).
    #[serde(rename(serialize = "stretch_ns"), alias = "stretch_ns")]
    pub lookup_ns: u64,
    /// Additional time of a look-up whose extent does not follow the last one on the drive, so that the file
    /// system has not cached it.
    #[serde(default, rename(serialize = "extent_ns"), alias = "extent_ns")]
    pub uncached_lookup_ns: u64,
    /// A bio, without its pages.
    pub bio_ns: u64,
    /// A page of 4 KiB in a bio.
    pub page_ns: u64,
    /// Additional time of such a page if the caller has never used this page of its buffer: the kernel must
    /// allocate and clear it first.
    #[serde(default)]
    pub new_page_ns: u64,
    /// A request, until it is submitted to the drive.
    pub request_ns: u64,
    /// The completion of a request, on the processor that waits for it.
    pub end_ns: u64,
    /// To fall asleep until the drive is done, and to wake up.
    #[serde(default)]
    pub wake_ns: u64,
    /// The plug is flushed at this many requests.
    pub plug_requests: u32,
    /// The plug is flushed once its last request has this many bytes.
    pub plug_bytes: u32,
    /// The largest request.
    pub request_bytes: u32,
    /// The most requests at a time, in the plug and in flight.
    pub queue_depth: u32,
    /// The readahead window of buffered reads of a file from its start to its end; 0: no readahead, as with
    /// direct I/O.
    #[serde(default)]
    pub readahead_bytes: u32,
    /// The largest bio; by default 256 pages.
    #[serde(default = "default_bio_bytes")]
    pub bio_bytes: u32,
    /// What becomes of the hint of a write that is split.
    #[serde(default)]
    pub split_hints: SplitHints,
}

impl HostPath {
    /// Checks the description.
    ///
    /// # Errors
    /// The first time that is too long.
    pub fn check(&self) -> Result<(), Inconsistent> {
        check_times(&[
            ("system_call_ns", self.system_call_ns),
            ("lookup_ns", self.lookup_ns),
            ("uncached_lookup_ns", self.uncached_lookup_ns),
            ("bio_ns", self.bio_ns),
            ("page_ns", self.page_ns),
            ("new_page_ns", self.new_page_ns),
            ("request_ns", self.request_ns),
            ("end_ns", self.end_ns),
            ("wake_ns", self.wake_ns),
        ])
    }
}

/// What becomes of the hint of a write that is split into several requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitHints {
    /// Each request has it, so that all but the first name the wrong predecessor (FAST'24's artefact).
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
