//! How long an access to the media of a drive lasts.

use super::description::{InPlaceDrive, Media};
use crate::timeline::transfer_ns;

/// The media of a drive, and their state.
#[derive(Clone, Debug)]
pub(super) enum Mechanism {
    Memory,
    Disk(Disk),
    Card(Card),
    Parallel(Parallel),
}

impl Mechanism {
    pub fn new(drive: &InPlaceDrive) -> Self {
        match drive.media {
            Media::Memory {} => Self::Memory,
            Media::Disk {
                rotation_ns,
                seek_least_ns,
                seek_most_ns,
                bytes_per_second,
                ahead_bytes,
            } => Self::Disk(Disk {
                bytes: drive.bytes,
                rotation_ns,
                seek_least_ns,
                seek_most_ns,
                bytes_per_second,
                ahead_bytes,
                free_at: 0,
                head: 0,
            }),
            Media::Card {
                access_ns,
                bytes_per_second,
                map_miss_ns,
                map_segment_bytes,
                map_segments,
            } => Self::Card(Card {
                access_ns,
                bytes_per_second,
                map_miss_ns,
                map_segment_bytes,
                map_segments: map_segments as usize,
                free_at: 0,
                end: None,
                loaded: Vec::new(),
            }),
            Media::Parallel { access_ns, write_ns, part_bytes, ways } => Self::Parallel(Parallel {
                read_ns: access_ns,
                write_ns: write_ns.unwrap_or(access_ns),
                part_bytes: part_bytes.into(),
                free_at: vec![0; ways.max(1) as usize],
            }),
        }
    }

    /// Reads or writes `bytes` from byte `start` on; returns when that is done.
    pub fn access(&mut self, ready: u64, start: u64, bytes: u64, writes: bool) -> u64 {
        match self {
            Self::Memory => ready,
            Self::Disk(disk) => disk.access(ready, start, bytes),
            Self::Card(card) => card.access(ready, start, bytes),
            Self::Parallel(parallel) => parallel.access(ready, start, bytes, writes),
        }
    }

    /// When all accesses so far are done.
    pub fn idle_at(&self) -> u64 {
        match self {
            Self::Memory => 0,
            Self::Disk(disk) => disk.free_at,
            Self::Card(card) => card.free_at,
            Self::Parallel(parallel) => parallel.free_at.iter().copied().max().unwrap_or(0),
        }
    }
}

/// A disk. Its head reads ahead from where the last access ended.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    bytes: u64,
    rotation_ns: u64,
    seek_least_ns: u64,
    seek_most_ns: u64,
    bytes_per_second: u64,
    ahead_bytes: u64,
    free_at: u64,
    /// The byte that the head is over.
    head: u64,
}

impl Disk {
    fn access(&mut self, ready: u64, start: u64, bytes: u64) -> u64 {
        let rate = self.bytes_per_second;
        let gap = start.checked_sub(self.head).filter(|gap| *gap <= self.ahead_bytes);
        let done = match gap {
            // The disk has read ahead since the last access.
            Some(gap) => ready.max(self.free_at + transfer_ns(gap + bytes, rate)),
            None => {
                let there = ready.max(self.free_at) + self.seek_ns(start);
                let track = (rate.saturating_mul(self.rotation_ns / 1000) / 1_000_000).max(1);
                let angle = transfer_ns(start % track, rate);
                let rotation = self.rotation_ns;
                let wait = (angle + rotation - there % rotation) % rotation;
                there + wait + transfer_ns(bytes, rate)
            }
        };
        (self.head, self.free_at) = (start + bytes, done);
        done
    }

    /// Time of a seek to a byte. It grows with the square root of the distance, because heads accelerate and
    /// brake.
    fn seek_ns(&self, to: u64) -> u64 {
        let distance = to.abs_diff(self.head);
        if distance == 0 {
            return 0;
        }
        let share = (u128::from(distance) << 40) / u128::from(self.bytes.max(1));
        let root = (share as u64).isqrt();
        self.seek_least_ns + (((self.seek_most_ns - self.seek_least_ns) * root) >> 20)
    }
}

/// A memory card. It reads ahead from where the last access ended.
#[derive(Clone, Debug)]
pub(super) struct Card {
    access_ns: u64,
    bytes_per_second: u64,
    map_miss_ns: u64,
    map_segment_bytes: u64,
    map_segments: usize,
    free_at: u64,
    /// The byte at which the last access ended.
    end: Option<u64>,
    /// Segments of the mapping in memory; the least recently used one comes first.
    loaded: Vec<u64>,
}

impl Card {
    fn access(&mut self, ready: u64, start: u64, bytes: u64) -> u64 {
        let misses = self.load_segments(start, bytes);
        let access_ns = if self.end == Some(start) { 0 } else { self.access_ns };
        let begin = ready.max(self.free_at) + misses * self.map_miss_ns + access_ns;
        self.end = Some(start + bytes);
        // The next command begins only when this one is done.
        self.free_at = begin + transfer_ns(bytes, self.bytes_per_second);
        self.free_at
    }

    /// Loads the segments that map these bytes; returns how many were not in memory.
    fn load_segments(&mut self, start: u64, bytes: u64) -> u64 {
        let mut misses = 0;
        for segment in start / self.map_segment_bytes..=(start + bytes - 1) / self.map_segment_bytes
        {
            if let Some(at) = self.loaded.iter().position(|loaded| *loaded == segment) {
                self.loaded.remove(at);
            } else {
                misses += 1;
            }
            self.loaded.push(segment);
            if self.loaded.len() > self.map_segments {
                self.loaded.remove(0);
            }
        }
        misses
    }
}

/// Cells that work in parallel.
#[derive(Clone, Debug)]
pub(super) struct Parallel {
    read_ns: u64,
    write_ns: u64,
    part_bytes: u64,
    /// When each way is free.
    free_at: Vec<u64>,
}

impl Parallel {
    fn access(&mut self, ready: u64, start: u64, bytes: u64, writes: bool) -> u64 {
        let access_ns = if writes { self.write_ns } else { self.read_ns };
        let mut last = ready;
        for part in start / self.part_bytes..(start + bytes).div_ceil(self.part_bytes) {
            let way = self.way_of(part);
            let free_at = &mut self.free_at[way];
            *free_at = ready.max(*free_at) + access_ns;
            last = last.max(*free_at);
        }
        last
    }

    /// The way of a part. Each row of as many neighbouring parts as there are ways is on all ways, and begins
    /// at a pseudo-random one: parts of one row never share a way, scattered parts may.
    fn way_of(&self, part: u64) -> usize {
        let ways = self.free_at.len() as u64;
        let first = (part / ways).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        ((part + first) % ways) as usize
    }
}
