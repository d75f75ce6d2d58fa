//! How many reads were in flight on each device while the trace was recorded, and whether others than the trace's were
//! among them.
//!
//! Both follow from the recording where it has what reached the device. Where that is imitated, it is imitated for
//! the files that are planned for alone, and the trace has no more than these and its direct reads to say how many there were.

use crate::costs::Costs;
use crate::make::Kept;
use crate::recorded::RecordedReads;
use crate::select::Analysed;
use crate::ways::Ways;
use fragmend_layout::ObservedLoad;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a disk has done so many times the reads of a trace, others were between them.
const MOST_OTHERS: f64 = 1.25;

/// What was recorded of the devices.
pub(crate) struct Observed {
    /// What they answered, by the device number of the file system.
    pub loads: BTreeMap<u64, ObservedLoad>,
    /// Of that, the reads of the trace.
    pub recorded: BTreeMap<u64, RecordedReads>,
    /// Whether the trace has what missed the page cache.
    pub misses: bool,
}

impl Observed {
    /// Puts the depth that was seen on each device into its costs. On a device that seeks and has done more than the reads of
    /// the trace, the ways between those are forgotten, and the result is true.
    pub fn enter(
        &self,
        costs: &mut BTreeMap<u64, Arc<Costs>>,
        kept: &[Kept],
        analysed: &mut [Analysed],
    ) -> bool {
        let mut any_others = false;
        for (device, load) in &self.loads {
            let Some(of_device) = costs.get_mut(device) else { continue };
            let mut files: Vec<&mut Analysed> = kept
                .iter()
                .zip(analysed.iter_mut())
                .filter_map(|(kept, file)| (kept.file.device == *device).then_some(file))
                .collect();
            let replay = Replay::of(&files);
            let reads = match self.recorded.get(device) {
                Some(reads) if self.misses => *reads,
                direct => replay.imitated(load, direct.copied().unwrap_or_default()),
            };
            let others = replay.part.is_some() && replay.is_less_than(load, &reads);
            any_others |= others;
            *of_device = Arc::new(Costs::clone(of_device).at_depth_of(load, &reads));
            for file in &mut files {
                file.costs = Arc::clone(of_device);
                if others {
                    file.ways = Ways::default();
                }
            }
        }
        any_others
    }
}

/// One replay of the files of a device that are planned for, as they are now.
struct Replay {
    reads: RecordedReads,
    requests: f64,
    /// Of the accesses in the trace's order, the share that is theirs; `None` if there is no order.
    part: Option<f64>,
}

impl Replay {
    fn of(files: &[&mut Analysed]) -> Self {
        let (mut fetches, mut streamed, mut requests, mut bytes) = (0u128, 0u128, 0u128, 0u128);
        let (mut ranked, mut last) = (0, 0);
        for file in files {
            let fetched = file.requests.iter().filter(|r| r.fetches > 0);
            file.fragments.each_split(fetched, file.limits.max_request, |r, split| {
                let count = u128::from(r.fetches);
                fetches += count;
                streamed += count * u128::from(r.streamed);
                requests += count * u128::from(split.requests);
                bytes += count * u128::from(split.bytes);
            });
            let (of_file, last_of_file) = file.ways.ranked();
            (ranked, last) = (ranked + of_file, last_of_file.max(last));
        }
        let [reads, streamed, bytes] = [fetches, streamed, bytes].map(|n| n as f64);
        Self {
            reads: RecordedReads { reads, streamed, bytes },
            requests: requests as f64,
            part: (ranked > 0).then(|| ranked as f64 / f64::from(last.max(1))),
        }
    }

    /// The reads of a trace that does not have what missed the page cache, but has these direct ones: all are like those that
    /// are planned for, which were no more than the requests that the device has answered.
    fn imitated(&self, load: &ObservedLoad, direct: RecordedReads) -> RecordedReads {
        let Self { reads: planned, requests, part } = self;
        let per_read = (requests / planned.reads.max(1.0)).max(1.0);
        let all = *planned * part.unwrap_or(1.0).recip();
        let reads = all.reads.min(load.reads() as f64 / per_read).max(direct.reads);
        RecordedReads {
            reads,
            streamed: planned.streamed / planned.reads.max(1.0) * reads,
            bytes: all.bytes.max(direct.bytes),
        }
    }

    /// Whether a device has done more than the `reads` of the trace. Bytes do not depend on where the data was. Short reads of others
    /// are few bytes: they are other bursts, and other requests, where reads did not become more bursts or requests than they would now.
    fn is_less_than(&self, load: &ObservedLoad, reads: &RecordedReads) -> bool {
        let (requests, bytes) = load.reads_and_bytes();
        let more = |all: u64, ours: f64| all as f64 > ours * MOST_OTHERS;
        let requests_now = self.requests / self.part.unwrap_or(1.0);
        more(bytes, reads.bytes)
            || more(requests.min(load.read_bursts), reads.reads) && more(requests, requests_now)
    }
}
