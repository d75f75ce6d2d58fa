//! What a probe found out about a device, kept as a file for those who plan.
//!
//! A profile belongs to a whole disk, under the identity that the disk itself reports ([`identity`]). It is used only
//! if it is of this very disk with this very firmware, of a version that is known, and makes sense; else it counts as
//! absent, and the reason is reported ([`Unusable`]).

pub mod identity;
mod store;

pub use identity::{Identity, NoIdentity};
pub use store::{ENVIRONMENT, Unusable, directory, keep, parse, stored, stored_under};

use crate::kind::Kind;
use crate::probe::Measured;
use crate::probe::area::Content;
use crate::probe::clock::ClockKind;
use crate::probe::intervals::CannotTell;
use crate::probe::stripe::AtDistance;
use fragmend_layout::{CostModel, CostSource, ParallelUnits, RequestCost, schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Costs are not used if others used the device beside a larger share of the bursts.
const MOST_DISTURBED: f64 = 0.5;
/// What the costs of a loop device without direct I/O are.
pub const THROUGH_CACHE: &str = "it reads its file through the page cache of this machine, so these may be times of memory (`losetup --direct-io=on` makes it another device)";

/// A device as it was probed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfiledDevice {
    /// The kernel's name of what was read, for example `nvme0n1` or `sda1`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The disk's identity; `None` if it reports none.
    pub identity: Option<Identity>,
    /// Of a partition, where it begins on its disk.
    #[schemars(extend("x-unit" = "bytes"))]
    pub partition_start_bytes: Option<u64>,
}

/// What one more request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OneMoreRequest {
    /// Requests in flight.
    pub in_flight: u32,
    /// Nanoseconds by which reading the same bytes lasts longer, for each request that they are split further into.
    pub ns: i64,
}

/// Throughput at an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtInterval {
    /// From the start of a read to the start of the next.
    #[schemars(extend("x-unit" = "bytes"))]
    pub distance_bytes: u64,
    /// Throughput in MB (10^6 bytes) a second.
    pub mb_per_second: f64,
}

/// No drive has more dies than this.
const MOST_UNITS: u32 = 1 << 14;

/// What a probe found out about a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// Version of the format of profiles, and of this part of the document of `probe`.
    pub profile_version: u32,
    /// The device.
    pub device: ProfiledDevice,
    /// Data that goes to a die before the next die's turn; `null` if that cannot be told.
    #[schemars(extend("x-unit" = "bytes"))]
    pub die_granularity_bytes: Option<u64>,
    /// Data that goes to all dies before the first die's next turn; `null` if that cannot be told.
    #[schemars(extend("x-unit" = "bytes"))]
    pub stripe_bytes: Option<u64>,
    /// How sure both are, from 0 to 1: one minus the sum of the error probabilities of the comparisons that they rest
    /// on. The lesser of the next two; `null` if neither can be told.
    pub confidence: Option<f64>,
    /// How sure the granularity is.
    pub die_granularity_confidence: Option<f64>,
    /// How sure the stripe is.
    pub stripe_confidence: Option<f64>,
    /// Why they cannot be told.
    pub cannot_tell: Option<CannotTell>,
    /// What reads cost.
    pub costs: CostModel,
    /// What one more request costs, as FAST'24's figure 7 has it.
    pub one_more_request: Vec<OneMoreRequest>,
    /// Throughput of single units at intervals, as FAST'24's figure 8 has it; each was measured once.
    #[serde(default)]
    pub intervals: Vec<AtInterval>,
    /// The clock that these times are by.
    pub clock: ClockKind,
    /// What the areas held that were read.
    pub content: Content,
    /// Bytes that were read.
    #[schemars(extend("x-unit" = "bytes"))]
    pub read_bytes: u64,
    /// Requests that they were read with.
    pub read_requests: u64,
    /// How long it lasted, by the clock on the wall.
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds: f64,
    /// The share of bursts beside which other programs used the device; `null` where that cannot be seen.
    #[schemars(extend("x-unit" = "share"))]
    pub disturbed: Option<f64>,
    /// Whether everything was measured that was to be.
    pub complete: bool,
    /// When, in seconds since 1970.
    pub probed_at: u64,
}

impl Profile {
    /// The profile of a device that was measured.
    pub fn new(device: ProfiledDevice, measured: Measured, clock: ClockKind) -> Self {
        let Measured { costs, complete, geometry, content, spent, lasted } = measured;
        let confidence = |sure: Option<crate::probe::intervals::Sure>| sure.map(|s| s.confidence);
        let (granularity, stripe) = (geometry.granularity, geometry.stripe);
        let both = [confidence(granularity), confidence(stripe)];
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            profile_version: schema::PROFILE_FILE,
            device,
            die_granularity_bytes: granularity.map(|sure| sure.bytes),
            stripe_bytes: stripe.map(|sure| sure.bytes),
            confidence: both.into_iter().flatten().reduce(f64::min),
            die_granularity_confidence: both[0],
            stripe_confidence: both[1],
            cannot_tell: geometry.cannot_tell,
            one_more_request: one_more_request(&costs),
            costs,
            intervals: geometry.seen.iter().map(at_interval).collect(),
            clock,
            content,
            read_bytes: spent.bytes,
            read_requests: spent.requests,
            seconds: lasted.as_secs_f64(),
            disturbed: None,
            complete,
            probed_at: now.map_or(0, |now| now.as_secs()),
        }
    }

    /// What must be said wherever its costs are used: they may be others than programs meet. `None` if nothing is known
    /// against them.
    ///
    /// # Errors
    /// Why they are not to be used at all.
    pub fn caveat(&self) -> Result<Option<String>, String> {
        if !self.complete {
            return Err(
                "there was no time for all of it: probe it again with more (--seconds)".into()
            );
        }
        if let Some(share) = self.disturbed.filter(|share| *share > MOST_DISTURBED) {
            let percent = (share * 100.0).round();
            return Err(format!(
                "other programs used it beside {percent} % of the bursts: probe it again while it is idle"
            ));
        }
        let mut caveats = Vec::new();
        if self.device.identity.as_ref().is_some_and(Identity::is_cached) {
            caveats.push(THROUGH_CACHE);
        }
        if self.content == Content::Zeroes {
            caveats.push(
                "only zeroes were read: if nothing was written there, reads of data last longer",
            );
        }
        if self.clock == ClockKind::Served {
            caveats
                .push("by the clock of the drive of the lab that it is, not by that on the wall");
        }
        Ok((!caveats.is_empty()).then(|| caveats.join("; and ")))
    }

    /// The units of the device that work side by side, if both of their measures are known: a stripe is one turn of all of them. Data is
    /// on them by its address, as it was where the probe has read; on drives that place data by when it is written, that goes for
    /// what was written in order.
    pub fn parallel_units(&self) -> Option<ParallelUnits> {
        let (unit_bytes, stripe) = self.die_granularity_bytes.zip(self.stripe_bytes)?;
        let units = stripe.checked_div(unit_bytes)?;
        let units = u32::try_from(units).ok().filter(|units| *units <= MOST_UNITS)?;
        Some(ParallelUnits { units, unit_bytes })
    }

    /// What is wrong with it, beyond what parsing finds.
    pub fn senseless(&self) -> Option<&'static str> {
        let share = |share: Option<f64>| share.is_none_or(|share| (0.0..=1.0).contains(&share));
        let shares = [
            self.confidence,
            self.die_granularity_confidence,
            self.stripe_confidence,
            self.disturbed,
        ];
        let size = |bytes: Option<u64>| {
            bytes.is_none_or(|bytes| bytes > 0 && bytes.is_multiple_of(512) && bytes <= 1 << 40)
        };
        let fit = |(granularity, stripe): (u64, u64)| {
            stripe.is_multiple_of(granularity) && stripe > granularity
        };
        if self.costs.source != CostSource::Probed {
            Some("its costs were not probed")
        } else if !shares.into_iter().all(share) {
            Some("a share is not between 0 and 1")
        } else if !size(self.die_granularity_bytes) || !size(self.stripe_bytes) {
            Some("a size is no multiple of 512")
        } else if !self.die_granularity_bytes.zip(self.stripe_bytes).is_none_or(fit) {
            Some("the stripe is no multiple of the die granularity")
        } else if !self.seconds.is_finite() || self.seconds < 0.0 {
            Some("its duration is no time")
        } else {
            None
        }
    }
}

fn at_interval(at: &AtDistance) -> AtInterval {
    let bytes = f64::from(at.reads) * at.unit_bytes as f64;
    // Four digits: it is for a picture.
    let mb_per_second = (bytes * 1e5 / at.ns).round() / 100.0;
    AtInterval { distance_bytes: at.distance, mb_per_second }
}

/// The slope between the time of 8 MiB in requests of 32 KiB and in the longest ones, at some numbers in flight.
fn one_more_request(costs: &CostModel) -> Vec<OneMoreRequest> {
    const ALL: f64 = 8.0 * 1024.0 * 1024.0;
    const SHORT: u64 = 32 << 10;
    let longest = costs.reads().last().map_or(0, |cost| cost.request_bytes);
    let find = |bytes: u64, depth: u32| {
        let same = |c: &&RequestCost| c.request_bytes == bytes && c.in_flight == depth;
        let requests = ALL / bytes as f64;
        Some((requests, requests * costs.reads().iter().find(same)?.interval_ns as f64))
    };
    let slope = |in_flight: u32| {
        let (few, short) = find(longest, in_flight)?;
        let (many, long) = find(SHORT, in_flight)?;
        let ns = ((long - short) / (many - few)).round() as i64;
        (longest > SHORT).then_some(OneMoreRequest { in_flight, ns })
    };
    [1, 4, 32].into_iter().filter_map(slope).collect()
}
