//! The drives of these tests: small ones that the cleaner has to work for, and ones with zones.

use crate::support::drives::{SMALL_BLOCK, flash, path};
use crate::support::lossy::Lossy;
use fragmend_flash::inplace::{InPlace, InPlaceDrive, Media};
use fragmend_flash::zones::Zoned;
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::Settings;

/// Parameters for drives with blocks of 512 bytes: segments of 16 blocks, nodes of 8 addresses, and a page cache that is written back early.
pub fn small() -> Settings {
    Settings {
        segment_bytes: 16 * SMALL_BLOCK,
        node_addresses: 8,
        cache_blocks: 64,
        dirty_blocks: 24,
        ..Settings::default()
    }
}

/// A machine whose drive has 32 segments, and loses any part of what was not flushed.
pub fn tight_lossy(seed: u64) -> Machine {
    Machine::new(Box::new(Lossy::new(SMALL_BLOCK as u32, 32 * 16, seed)), true, path())
}

/// A zoned drive of four dies, whose zones have `pages_per_block` pages of four units on each.
fn zoned(unit: u32, blocks_per_plane: u32, pages_per_block: u32) -> Zoned {
    let mut drive = flash(unit, blocks_per_plane, pages_per_block);
    drive.geometry.over_provisioning_per_mille = 300;
    // What is not a full program unit yet stays in the buffer, for each open zone.
    drive.buffer.bytes *= 8;
    drive.buffer.protected = true;
    Zoned::new(&drive, 14, true).expect("a drive")
}

fn machine(drive: Zoned) -> Machine {
    Machine::new(Box::new(drive), true, path())
}

/// Blocks of a zone of the small zoned drive.
const SMALL_ZONE: u32 = 4 * 4 * 4;

/// A machine with 26 zones of 64 blocks of 512 bytes.
pub fn small_zoned(_seed: u64) -> Machine {
    machine(zoned(SMALL_BLOCK as u32, 34, 4))
}

/// Parameters for it.
pub fn small_zones() -> Settings {
    Settings { zone_blocks: Some(SMALL_ZONE), ..small() }
}

/// A machine with 110 zones of 1 MiB in blocks of 4 KiB.
pub fn large_zoned() -> Machine {
    machine(zoned(4096, 144, 16))
}

/// Parameters for it: each zone is two segments.
pub fn large_zones() -> Settings {
    Settings { segment_bytes: 512 << 10, zone_blocks: Some(4 * 16 * 4), ..Settings::default() }
}

/// A machine whose drive of so many blocks of 4 KiB is memory, and keeps no content.
pub fn fast(blocks: u32) -> Machine {
    let drive = InPlaceDrive {
        bytes: u64::from(blocks) * 4096,
        unit_bytes: 4096,
        command_ns: 5_000,
        link_bytes_per_second: 2_500_000_000,
        media: Media::Memory {},
    };
    Machine::new(Box::new(InPlace::new(&drive)), false, path())
}
