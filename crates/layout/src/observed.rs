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
        self.reads_and_bytes().0
    }

    /// Requests of reads, and their bytes.
    pub fn reads_and_bytes(&self) -> (u64, u64) {
        let reads = self.requests.iter().filter(|r| !r.write);
        // A trace may say anything.
        reads.fold((0, 0), |(count, bytes): (u64, u64), r| {
            (count.saturating_add(r.count), bytes.saturating_add(r.bytes))
        })
    }

    /// How many reads of programs were in flight at a time, on average, if there were so many `reads` in the requests of the
    /// load (which may be unknown: 0), each of one or more requests; at least 1. `None` if no read was seen.
    ///
    /// Where there were more reads than bursts, a burst is several reads that a program issued together: beside what was
    /// in flight before, each of them meets half of the others, on average. Where there were fewer, bursts are those of others,
    /// or a part of a read was done before the rest was issued. Reads of which a part is done are in flight as others
    /// are: where only requests were counted, each read counts as the part of its requests that is not done.
    pub fn depth(&self, reads: f64) -> Option<f64> {
        let bursts = self.read_bursts.max(1) as f64;
        let requests = self.reads() as f64;
        // What is read of holes, or comes from one compressed extent, is no request of its own.
        let reads = reads.min(requests);
        let in_burst = (reads / bursts).max(1.0);
        let before = match self.bursts_before {
            Some(before) => before as f64 / bursts * in_burst,
            None => {
                let per_read = if reads > 0.0 { requests / reads } else { 1.0 };
                self.in_flight_before as f64 / bursts / per_read.max(1.0)
            }
        };
        let together = (in_burst - 1.0) / 2.0;
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
        let load = |count, in_flight_before| ObservedLoad {
            read_bursts: 10,
            in_flight_before,
            requests: vec![ObservedRequests {
                write: false,
                up_to_bytes: 4096,
                up_to_in_flight: 128,
                count,
                bytes: count * 4096,
                in_flight: count * 40,
                total_ns: 1,
            }],
            ..ObservedLoad::default()
        };
        assert_eq!(ObservedLoad::default().depth(1.0), None);
        // One program that waits for each of its reads, of 32 requests.
        assert_eq!(load(320, 0).depth(10.0), Some(1.0));
        // 31 others of one request each, and 3 others of 8 each.
        assert_eq!(load(10, 310).depth(10.0), Some(32.0));
        assert_eq!(load(80, 240).depth(10.0), Some(4.0));
        // A program that issues 9 reads of 8 requests each, and waits for all of them.
        assert_eq!(load(720, 0).depth(90.0), Some(5.0));
        // Of each read in flight half of the requests are done; and each burst is nine reads.
        let before = |bursts, load| ObservedLoad { bursts_before: Some(bursts), ..load };
        let parts = before(30, load(80, 120));
        assert_eq!((parts.depth(10.0), load(80, 120).depth(10.0)), (Some(4.0), Some(2.5)));
        assert_eq!(before(10, load(720, 0)).depth(90.0), Some(14.0));
        // Of these bursts the trace has one read, or none; and it has reads that were no requests.
        assert_eq!([0.0, 1.0, 10.0].map(|reads| parts.depth(reads)), [Some(4.0); 3]);
        assert_eq!(load(10, 0).depth(1e9), Some(1.0));
    }
}
