//! What a device answered while a trace was recorded: a histogram that the recorder folds in the kernel.

use serde::{Deserialize, Serialize};

/// Requests of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedRequests {
    /// Whether they were writes.
    pub write: bool,
    /// Their length is at most this, a power of two, and more than half of it.
    pub up_to_bytes: u64,
    /// When each was issued, it was one of at most this many in flight on the device, a power of two, and of more
    /// than half as many.
    pub up_to_in_flight: u32,
    /// How many there were.
    pub count: u64,
    /// The sum of their lengths in bytes.
    pub bytes: u64,
    /// The sum of the numbers in flight, each with the request itself.
    pub in_flight: u64,
    /// The sum of their times from issue to completion, in nanoseconds.
    pub total_ns: u64,
}

/// What one device answered while a trace was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedLoad {
    /// Device number of the block device (not of a file system on several).
    pub device: u64,
    /// Its name, for example `nvme0n1`; for display only.
    pub name: String,
    /// By class, those without requests left out.
    pub requests: Vec<ObservedRequests>,
    /// Bursts of reads: reads that one thread issued one after the other without a completion between them.
    pub read_bursts: u64,
    /// The sum over these bursts of the requests in flight when each began, without itself.
    pub in_flight_before: u64,
    /// The sum over these bursts of the other bursts of which a request was in flight when each began; `None` in older
    /// traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts_before: Option<u64>,
    /// Reads that the device has completed during the whole recording, by its own counter, also where it was not watched;
    /// `None` where it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_reads: Option<u64>,
}

impl ObservedLoad {
    /// Requests of reads.
    pub fn reads(&self) -> u64 {
        // A trace may say anything.
        let counts = self.requests.iter().filter(|r| !r.write).map(|r| r.count);
        counts.fold(0, u64::saturating_add)
    }

    /// How many reads of programs were in flight at a time, on average, if each was split into `requests` requests
    /// on average; at least 1. `None` if no read was seen.
    ///
    /// A burst of more requests than one read has is several reads that a program issued together: beside what was in flight
    /// before, each of them meets half of the others, on average. Reads of which a part is done are in flight as others are:
    /// where only requests were counted, each read counts as the part of its requests that is not done.
    pub fn depth(&self, requests: f64) -> Option<f64> {
        let bursts = self.read_bursts.max(1) as f64;
        let reads = self.reads() as f64 / bursts / requests.max(1.0);
        let before = match self.bursts_before {
            Some(before) => before as f64 / bursts * reads.max(1.0),
            None => self.in_flight_before as f64 / bursts / requests.max(1.0),
        };
        let together = (reads - 1.0).max(0.0) / 2.0;
        (self.read_bursts > 0).then_some(1.0 + before + together)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_do_not_overflow() {
        let class = |up_to_bytes| ObservedRequests {
            write: false,
            up_to_bytes,
            up_to_in_flight: 1,
            count: u64::MAX - 1,
            bytes: u64::MAX,
            in_flight: u64::MAX,
            total_ns: u64::MAX,
        };
        let requests = vec![class(4096), class(1 << 17)];
        let load = ObservedLoad { requests, ..ObservedLoad::default() };
        assert_eq!(load.reads(), u64::MAX);
        assert!(crate::CostModel::observed(&load, false).is_err());
    }

    #[test]
    fn depth_is_of_reads_however_they_are_split() {
        let load = |read_bursts, in_flight_before| ObservedLoad {
            read_bursts,
            in_flight_before,
            ..ObservedLoad::default()
        };
        assert_eq!(load(0, 0).depth(1.0), None);
        // One program that waits for each of its reads.
        assert_eq!(load(10, 0).depth(32.0), Some(1.0));
        // 31 others of one request each, and 3 others of 8 each.
        assert_eq!(load(10, 310).depth(1.0), Some(32.0));
        assert_eq!(load(10, 240).depth(8.0), Some(4.0));
        // A program that issues 9 reads of 8 requests each, and waits for all of them.
        let requests = vec![ObservedRequests {
            write: false,
            up_to_bytes: 4096,
            up_to_in_flight: 128,
            count: 720,
            bytes: 720 * 4096,
            in_flight: 720 * 40,
            total_ns: 1,
        }];
        let together = ObservedLoad { requests, ..load(10, 0) };
        assert_eq!(together.depth(8.0), Some(5.0));
        // Of each read in flight half of the requests are done; and each burst is nine reads.
        let parts = ObservedLoad { bursts_before: Some(30), ..load(10, 120) };
        assert_eq!((parts.depth(8.0), load(10, 120).depth(8.0)), (Some(4.0), Some(2.5)));
        let together = ObservedLoad { bursts_before: Some(10), ..together };
        assert_eq!(together.depth(8.0), Some(14.0));
    }
}
