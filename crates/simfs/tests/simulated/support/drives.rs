//! The machines of the tests, each with one drive that keeps content.

use super::lossy::Lossy;
use fragmend_flash::drive::Drive;
use fragmend_flash::joined::Joined;
use fragmend_flash::ssd::Ssd;
use fragmend_simfs::cuts::drives::written_with_short_log;
pub use fragmend_simfs::cuts::drives::{flash, path};
use fragmend_simfs::machine::Machine;

/// Bytes of a block of the small drives.
pub const SMALL_BLOCK: u64 = 512;
/// Blocks of the small drives, at least.
const SMALL_BLOCKS: u32 = 1365;

fn machine_of(drive: &Drive) -> Machine {
    Machine::new(Box::new(Ssd::with_content(drive).expect("a drive")), true, path())
}

/// A machine with an SSD of 85 MiB.
pub fn large() -> Machine {
    machine_of(&flash(4096, 64, 32))
}

/// A machine with a flash SSD of some 680 KiB in blocks of 512 bytes. Its power cuts are decided by time alone.
pub fn small_ssd(_seed: u64) -> Machine {
    machine_of(&flash(SMALL_BLOCK as u32, 16, 8))
}

/// A machine with a drive of the same size that loses any part of what was not flushed.
pub fn small_lossy(seed: u64) -> Machine {
    let drive = Lossy::new(SMALL_BLOCK as u32, SMALL_BLOCKS, seed);
    Machine::new(Box::new(drive), true, path())
}

/// Blocks of the second drive of [`two_lossy`].
pub const APART: u32 = 48;

/// The same with a second drive, which loses what it likes, behind the first one's blocks.
pub fn two_lossy(seed: u64) -> Machine {
    let lossy = |blocks, seed| Box::new(Lossy::new(SMALL_BLOCK as u32, blocks, seed));
    let joined =
        Joined::new(lossy(SMALL_BLOCKS, seed), lossy(APART, !seed)).expect("as long units");
    Machine::new(Box::new(joined), true, path())
}

/// A machine with an SSD of 25 GB that keeps no content.
pub fn without_content() -> Machine {
    let mut drive = flash(4096, 0, 256);
    drive.geometry.over_provisioning_per_mille = 70;
    let block_bytes = u64::from(drive.geometry.pages_per_block) * 16384;
    drive.geometry.blocks_per_plane = (25_000_000_000_u64 * 107 / 100 / 4 / block_bytes) as u32;
    let ssd = Ssd::new(&drive).expect("a drive");
    Machine::new(Box::new(ssd), false, path())
}

/// A machine with a small SSD that was written before, whose defrag log is short.
pub fn short_log(_seed: u64) -> Machine {
    Machine::new(Box::new(written_with_short_log()), true, path())
}
