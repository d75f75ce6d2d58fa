//! The description of drives that write in place.

use crate::geometry::{Inconsistent, check_rates, check_times};
use crate::timeline::transfer_ns;
use serde::{Deserialize, Serialize};

/// A drive that writes in place. Times are nanoseconds, rates bytes a second. JSON has the field names of the
/// first version; [`crate::drive::former_name`] has those that files may still use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InPlaceDrive {
    /// Its size.
    pub bytes: u64,
    /// Bytes of a unit, in which its commands count.
    pub unit_bytes: u32,
    /// Time of any command besides its access.
    pub command_ns: u64,
    /// Rate of the link to the host, which transfers data as the media deliver it.
    pub link_bytes_per_second: u64,
    /// What stores the bytes.
    pub media: Media,
}

/// What stores the bytes of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Media {
    /// Memory, which needs no time and loses its content in a power cut.
    Memory {},
    /// One head over rotating tracks, with readahead.
    Disk {
        /// Time of a rotation.
        rotation_ns: u64,
        /// Time of a seek to the next track.
        seek_least_ns: u64,
        /// Time of a seek over all tracks.
        seek_most_ns: u64,
        /// Rate under the head.
        bytes_per_second: u64,
        /// How many bytes it reads ahead.
        ahead_bytes: u64,
    },
    /// Flash behind a controller that does one command at a time and keeps only segments of its mapping in
    /// memory.
    Card {
        /// Time to find and sense what does not begin where the last access ended; what does was read ahead.
        #[serde(default)]
        access_ns: u64,
        /// Rate of the flash.
        bytes_per_second: u64,
        /// Time to load a segment of the mapping.
        map_miss_ns: u64,
        /// Bytes of the drive that a segment maps.
        #[serde(rename(serialize = "map_stretch_bytes"), alias = "map_stretch_bytes")]
        map_segment_bytes: u64,
        /// Segments that are in memory at once.
        #[serde(rename(serialize = "map_stretches"), alias = "map_stretches")]
        map_segments: u32,
    },
    /// Cells that work in parallel, each on its own parts of the address range.
    Parallel {
        /// Time to access a part.
        access_ns: u64,
        /// The same to write it, if that differs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        write_ns: Option<u64>,
        /// Bytes of a part.
        part_bytes: u32,
        /// How many parts are accessed at once.
        ways: u32,
    },
}

/// The most parts that are accessed at once: a drive has a time line for each.
const MOST_WAYS: u32 = 1 << 16;
/// The most segments of a mapping in memory: each access looks through all of them.
const MOST_SEGMENTS: u32 = 1 << 12;

fn none_is_zero(fields: &[(&'static str, u64)]) -> Result<(), Inconsistent> {
    let zero = fields.iter().find(|(_, value)| *value == 0);
    zero.map_or(Ok(()), |(field, _)| Err(Inconsistent::new(field, "must not be 0")))
}

impl InPlaceDrive {
    /// Checks the description.
    ///
    /// # Errors
    /// The first inconsistent field.
    pub fn check(&self) -> Result<(), Inconsistent> {
        none_is_zero(&[("bytes", self.bytes), ("unit_bytes", self.unit_bytes.into())])?;
        let check_rate = |field, rate| check_rates(&[(field, rate)], self.unit_bytes);
        check_rate("link_bytes_per_second", self.link_bytes_per_second)?;
        if self.bytes / u64::from(self.unit_bytes) > u64::from(u32::MAX) {
            return Err(Inconsistent::new("bytes", "more than 2^32 units"));
        }
        check_times(&[("command_ns", self.command_ns)])?;
        match self.media {
            Media::Memory {} => Ok(()),
            Media::Disk {
                rotation_ns,
                seek_least_ns,
                seek_most_ns,
                bytes_per_second,
                ahead_bytes,
            } => {
                if seek_most_ns < seek_least_ns {
                    return Err(Inconsistent::new("seek_most_ns", "less than seek_least_ns"));
                }
                check_times(&[("rotation_ns", rotation_ns), ("seek_most_ns", seek_most_ns)])?;
                none_is_zero(&[("rotation_ns", rotation_ns)])?;
                check_rate("bytes_per_second", bytes_per_second)?;
                check_times(&[("ahead_bytes", transfer_ns(ahead_bytes, bytes_per_second))])
            }
            Media::Card {
                access_ns,
                bytes_per_second,
                map_miss_ns,
                map_segment_bytes,
                map_segments,
            } => {
                check_times(&[("access_ns", access_ns), ("map_miss_ns", map_miss_ns)])?;
                if map_segment_bytes < u64::from(self.unit_bytes) {
                    return Err(Inconsistent::new("map_segment_bytes", "less than a unit"));
                }
                if map_segments > MOST_SEGMENTS {
                    let why = format!("more than {MOST_SEGMENTS}");
                    return Err(Inconsistent::new("map_segments", why));
                }
                check_rate("bytes_per_second", bytes_per_second)
            }
            Media::Parallel { access_ns, write_ns, part_bytes, ways } => {
                check_times(&[("access_ns", access_ns), ("write_ns", write_ns.unwrap_or(0))])?;
                if ways > MOST_WAYS {
                    return Err(Inconsistent::new("ways", format!("more than {MOST_WAYS}")));
                }
                none_is_zero(&[("part_bytes", part_bytes.into())])
            }
        }
    }

    /// Units that the host sees.
    pub fn units(&self) -> u32 {
        (self.bytes / u64::from(self.unit_bytes)) as u32
    }
}
