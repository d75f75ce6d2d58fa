//! Drives that write where they read, so that nothing ever moves in them: disks with heads, memory
//! cards that take one command at a time, Optane, and memory itself (FragPicker's table 2, FAST'24's
//! figure 4).

use crate::command::{Command, Completion, Refused, Units};
use crate::geometry::Inconsistent;
use crate::host::Device;
use crate::timeline::{Timeline, transfer_ns};
use serde::{Deserialize, Serialize};

/// Such a drive. Times are nanoseconds, rates bytes a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InPlaceDrive {
    /// Its size.
    pub bytes: u64,
    /// What its commands count in.
    pub unit_bytes: u32,
    /// What a command costs, whatever it asks for.
    pub command_ns: u64,
    /// Rate of the link to the host.
    pub link_bytes_per_second: u64,
    /// What keeps the bytes.
    pub media: Media,
}

/// What keeps the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Media {
    /// Nothing that takes time.
    Memory {},
    /// One head over rotating tracks. It reads on ahead of what was asked for.
    Disk {
        /// A turn.
        rotation_ns: u64,
        /// To the next track.
        seek_least_ns: u64,
        /// Over all of them.
        seek_most_ns: u64,
        /// Under the head.
        bytes_per_second: u64,
        /// How far it reads ahead.
        ahead_bytes: u64,
    },
    /// Cells behind a controller that does one command after the other, and keeps but a part of its
    /// map in memory.
    Card {
        /// From the cells.
        bytes_per_second: u64,
        /// A stretch of the map that must be fetched.
        map_miss_ns: u64,
        /// What such a stretch maps.
        map_stretch_bytes: u64,
        /// How many of them are in memory.
        map_stretches: u32,
    },
    /// Cells that are read side by side, each part of the address range by its own.
    Parallel {
        /// A part.
        access_ns: u64,
        /// Its size.
        part_bytes: u32,
        /// How many work side by side.
        ways: u32,
    },
}

impl InPlaceDrive {
    /// Whether it can be.
    ///
    /// # Errors
    /// The first field that cannot.
    pub fn check(&self) -> Result<(), Inconsistent> {
        let none_is_zero = |fields: &[(&'static str, u64)]| {
            let zero = fields.iter().find(|(_, value)| *value == 0);
            zero.map_or(Ok(()), |(field, _)| Err(Inconsistent::new(field, "must not be 0")))
        };
        none_is_zero(&[
            ("bytes", self.bytes),
            ("unit_bytes", self.unit_bytes.into()),
            ("link_bytes_per_second", self.link_bytes_per_second),
        ])?;
        if self.bytes / u64::from(self.unit_bytes) > u64::from(u32::MAX) {
            return Err(Inconsistent::new("bytes", "more than 2^32 units"));
        }
        match self.media {
            Media::Memory {} => Ok(()),
            Media::Disk { rotation_ns, seek_least_ns, seek_most_ns, bytes_per_second, .. } => {
                if seek_most_ns < seek_least_ns {
                    return Err(Inconsistent::new("seek_most_ns", "less than seek_least_ns"));
                }
                let fields = [("rotation_ns", rotation_ns), ("bytes_per_second", bytes_per_second)];
                none_is_zero(&fields)
            }
            Media::Card { bytes_per_second, map_stretch_bytes, .. } => none_is_zero(&[
                ("bytes_per_second", bytes_per_second),
                ("map_stretch_bytes", map_stretch_bytes),
            ]),
            Media::Parallel { part_bytes, .. } => {
                none_is_zero(&[("part_bytes", part_bytes.into())])
            }
        }
    }
}

/// Such a drive at work.
#[derive(Clone, Debug)]
pub struct InPlace {
    drive: InPlaceDrive,
    now: u64,
    link: Timeline,
    /// When each of what works side by side is free; the first is all there is but for Optane.
    free_at: Vec<u64>,
    /// Where the head is, in bytes.
    head: u64,
    /// Stretches of the map in memory, the one that was used longest ago first.
    map: Vec<u64>,
}

impl InPlace {
    /// Idle, the head over the first byte.
    pub fn new(drive: &InPlaceDrive) -> Self {
        let ways = match drive.media {
            Media::Parallel { ways, .. } => ways.max(1),
            _ => 1,
        };
        Self {
            drive: drive.clone(),
            now: 0,
            link: Timeline::default(),
            free_at: vec![0; ways as usize],
            head: 0,
            map: Vec::new(),
        }
    }

    /// Reads or writes; gives when the media and the link are done.
    fn access(&mut self, arrival: u64, units: Units) -> u64 {
        let unit = u64::from(self.drive.unit_bytes);
        let (start, bytes) = (u64::from(units.start) * unit, u64::from(units.count) * unit);
        let ready = arrival + self.drive.command_ns;
        let done = match self.drive.media {
            Media::Memory {} => ready,
            Media::Disk { rotation_ns, bytes_per_second, ahead_bytes, .. } => {
                let free = self.free_at[0];
                let ahead = start.checked_sub(self.head).filter(|gap| *gap <= ahead_bytes);
                let done = match ahead {
                    // It has gone on reading since.
                    Some(gap) => ready.max(free + transfer_ns(gap + bytes, bytes_per_second)),
                    None => {
                        let there = ready.max(free) + self.seek_ns(start);
                        let track = (bytes_per_second * (rotation_ns / 1000) / 1_000_000).max(1);
                        let turn = transfer_ns(start % track, bytes_per_second);
                        let wait = (turn + rotation_ns - there % rotation_ns) % rotation_ns;
                        there + wait + transfer_ns(bytes, bytes_per_second)
                    }
                };
                self.head = start + bytes;
                self.free_at[0] = done;
                done
            }
            Media::Card { bytes_per_second, map_miss_ns, .. } => {
                let misses = self.map_misses(start, bytes);
                let begin = ready.max(self.free_at[0]) + misses * map_miss_ns;
                let end = begin + transfer_ns(bytes, bytes_per_second);
                // The next command comes only when this one is over.
                self.free_at[0] = end;
                end
            }
            Media::Parallel { access_ns, part_bytes, .. } => {
                let part = u64::from(part_bytes);
                let mut last = ready;
                for at in start / part..(start + bytes).div_ceil(part) {
                    // Each row of neighbours is over all ways, and begins at any of them: what is
                    // read in order never meets on one, what is scattered may.
                    let ways = self.free_at.len() as u64;
                    let begins = (at / ways).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
                    let way = (at + begins) % ways;
                    let free = &mut self.free_at[way as usize];
                    *free = ready.max(*free) + access_ns;
                    last = last.max(*free);
                }
                last
            }
        };
        let len = transfer_ns(bytes, self.drive.link_bytes_per_second);
        // The link takes over what the media has, as it comes.
        let from = done.saturating_sub(len).max(ready);
        self.link.reserve(self.now, from, len) + len
    }

    /// To bring the head over a byte: the square root of the way, as heads speed up and slow down.
    fn seek_ns(&self, to: u64) -> u64 {
        let Media::Disk { seek_least_ns, seek_most_ns, .. } = self.drive.media else { return 0 };
        let way = to.abs_diff(self.head);
        if way == 0 {
            return 0;
        }
        let share = (u128::from(way) << 40) / u128::from(self.drive.bytes.max(1));
        let root = (share as u64).isqrt();
        seek_least_ns + (((seek_most_ns - seek_least_ns) * root) >> 20)
    }

    /// Stretches of the map that an access must fetch.
    fn map_misses(&mut self, start: u64, bytes: u64) -> u64 {
        let Media::Card { map_stretch_bytes, map_stretches, .. } = self.drive.media else {
            return 0;
        };
        let mut misses = 0;
        for stretch in start / map_stretch_bytes..=(start + bytes - 1) / map_stretch_bytes {
            match self.map.iter().position(|known| *known == stretch) {
                Some(at) => drop(self.map.remove(at)),
                None => misses += 1,
            }
            self.map.push(stretch);
            if self.map.len() > map_stretches as usize {
                self.map.remove(0);
            }
        }
        misses
    }
}

impl Device for InPlace {
    fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused> {
        self.now = self.now.max(at);
        let done_ns = match command {
            Command::Read(units) | Command::Write { units, .. } => {
                let end = u64::from(units.start) + u64::from(units.count);
                if end * u64::from(self.drive.unit_bytes) > self.drive.bytes {
                    return Err(Refused::OutOfRange);
                }
                if units.count == 0 {
                    return Err(Refused::Length);
                }
                self.access(self.now, *units)
            }
            Command::Flush => self.free_at.iter().copied().fold(self.now, u64::max),
            Command::Trim(_) | Command::WriteZeroes(_) => self.now + self.drive.command_ns,
            _ => return Err(Refused::Unsupported),
        };
        Ok(Completion { done_ns, ..Completion::default() })
    }

    fn unit_bytes(&self) -> u32 {
        self.drive.unit_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> InPlace {
        InPlace::new(&InPlaceDrive {
            bytes: 1 << 40,
            unit_bytes: 4096,
            command_ns: 100_000,
            link_bytes_per_second: 600_000_000,
            media: Media::Disk {
                rotation_ns: 8_333_333,
                seek_least_ns: 500_000,
                seek_most_ns: 15_000_000,
                bytes_per_second: 180_000_000,
                ahead_bytes: 1 << 20,
            },
        })
    }

    fn read(drive: &mut InPlace, at: u64, start: u32, count: u32) -> u64 {
        drive.submit(at, &Command::Read(Units::new(start, count))).unwrap().done_ns
    }

    #[test]
    fn what_follows_needs_no_seek_and_a_turn_brings_the_rest() {
        let mut disk = disk();
        let first = read(&mut disk, 0, 0, 32);
        let next = read(&mut disk, first, 32, 32);
        assert!(next - first < 1_000_000, "{}", next - first);
        let far = read(&mut disk, next, 1 << 27, 1);
        assert!(far - next > 5_000_000 && far - next < 26_000_000, "{}", far - next);
        let back = read(&mut disk, far, 0, 1);
        assert!(back - far > 5_000_000);
    }

    #[test]
    fn a_card_does_one_after_the_other_and_ways_work_side_by_side() {
        let drive = |media| InPlaceDrive {
            bytes: 1 << 36,
            unit_bytes: 4096,
            command_ns: 10_000,
            link_bytes_per_second: 10_000_000_000,
            media,
        };
        let card = drive(Media::Card {
            bytes_per_second: 100_000_000,
            map_miss_ns: 500_000,
            map_stretch_bytes: 4 << 20,
            map_stretches: 2,
        });
        let mut card = InPlace::new(&card);
        let first = read(&mut card, 0, 0, 1);
        assert_eq!(first, 10_000 + 500_000 + 40_960);
        assert_eq!(read(&mut card, 0, 8, 1), first + 40_960, "its map is there, its turn is later");
        let media = Media::Parallel { access_ns: 10_000, part_bytes: 4096, ways: 4 };
        let mut ways = InPlace::new(&drive(media));
        assert_eq!(read(&mut ways, 0, 0, 4), 20_000);
        assert_eq!(read(&mut ways, 0, 4, 8), 40_000);
        // Four scattered parts meet here and there.
        let scattered = (0..64).map(|n| {
            let at = 1_000_000 * (n + 1);
            let first = n as u32 * 1024 + 64;
            let done = (0..4).map(|part| read(&mut ways, at, first + part * 257, 1));
            done.max().unwrap() - at
        });
        let worst = scattered.max().unwrap();
        assert!((30_000..=50_000).contains(&worst), "{worst}");
    }
}
