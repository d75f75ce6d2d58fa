//! A file, as janusd reads it (section 3.2), with a given degree of logical and of physical fragmentation,
//! which a flash drive keeps apart: in how many fragments it is at the drive's addresses, and over how many
//! of the channels its flash pages are spread.

use crate::file::{Allocator, FileOnDrive};
use crate::setup::Setup;
use fragmend_flash::command::Hint;
use fragmend_flash::host::{Host, TimeSpent};
use fragmend_flash::ssd::Ssd;
use fragmend_simfs::file_system::Access;

/// Units of 4 KiB of the file of figure 8.
pub const FILE: u32 = (512 << 10) / 4096;
/// The degrees of logical fragmentation that most files have (section 3.2).
pub const DEGREES: [u32; 4] = [1, 2, 4, 8];
/// Where the file's addresses begin, behind those of what is written between its pages.
const ADDRESSES: u32 = 1 << 16;

/// What a read of the file took.
pub struct Read {
    /// Its time, by layer.
    pub spent: TimeSpent,
    /// Its requests.
    pub requests: u64,
}

/// Reads a file of so many units, which is in `fragments` fragments and on the first `channels` of the
/// channels, from its start to its end with one call: past the page cache, or through it, which is cold.
pub fn read(setup: &Setup, access: Access, units: u32, fragments: u32, channels: u32) -> Read {
    let mut ssd = setup.ssd();
    let mut host = Host::new(&setup.host, &mut ssd, 0);
    let file = write(&mut host, units, fragments, channels);
    let start = host.wait_until_idle();
    let mut host = Host::new(&setup.host, host.device, start);
    let extents = file.within(0, units);
    match access {
        Access::Direct => host.read(&extents),
        Access::Buffered => host.read_buffered(&extents),
    }
    .expect("a read");
    Read { spent: host.spent, requests: host.requests }
}

/// The file's flash pages go to the first channels in turn; what is written between them fills the others' turns.
fn write(host: &mut Host<Ssd>, units: u32, fragments: u32, channels: u32) -> FileOnDrive {
    let shape = host.device.shape();
    let (dies, page) = (shape.dies, shape.units_per_stripe_unit);
    let (mut space, mut between) = (Allocator::from(ADDRESSES), Allocator::from(0));
    let (mut file, mut next_die) = (FileOnDrive::default(), 0);
    for _ in 0..fragments {
        file.push(space.take(units / fragments));
        space.take(units);
    }
    for number in 0..units / page {
        let skipped = (number % channels + dies - next_die) % dies;
        if skipped > 0 {
            host.write(&[between.take(skipped * page)], Hint::None).expect("room");
        }
        host.write(&file.within(number * page, page), Hint::None).expect("room");
        next_die = (number % channels + 1) % dies;
    }
    host.flush().expect("a flush");
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn pages_are_on_the_first_channels_in_turn() {
        let setup = presets::named("simufs").unwrap();
        for (fragments, channels) in [(1, 8), (8, 8), (8, 6), (1, 4)] {
            let mut ssd = setup.ssd();
            let file = write(&mut Host::new(&setup.host, &mut ssd, 0), FILE, fragments, channels);
            assert_eq!(file.extents() as u32, fragments);
            let units = file.within(0, FILE).into_iter().flat_map(|extent| extent.each());
            for (n, unit) in units.enumerate() {
                let die = ssd.place_of(unit).map(|(die, _)| die);
                assert_eq!(die, Some(n as u32 / 2 % channels));
            }
        }
    }
}
