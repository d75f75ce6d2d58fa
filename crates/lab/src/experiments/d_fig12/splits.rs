//! The throughput that the artefact loses where the kernel splits a write: 640 KiB are more than a request
//! may have, and all requests of the write name the same predecessor. With renewed hints each request names
//! its own. The paper has no such figure.

use crate::file::{Allocator, FileOnDrive};
use crate::random::Random;
use crate::row::Row;
use crate::setup::Setup;
use fragmend_flash::command::Hint;
use fragmend_flash::drive::Placement;
use fragmend_flash::host::{Host, SplitHints};
use fragmend_flash::ssd::Ssd;

/// Units of an append: 640 KiB, two requests and a half.
const APPEND: u32 = 160;
const APPENDS: u32 = 64;
/// Units of a call that reads.
const CALL: u32 = 256;

/// The throughput of reads of such a file, in per cent of that of a file that was appended to without other
/// writes in between.
pub fn rows(setup: &Setup, seed: u64) -> Vec<Row> {
    let mut flash = setup.flash().clone();
    flash.firmware.placement = Placement::DieAffine;
    let measure = |split_hints, alone: bool| {
        let mut path = setup.host.clone();
        path.split_hints = split_hints;
        let mut random = Random::new(seed, "splits");
        let mut ssd = Ssd::new(&flash).expect("a parsed drive");
        let mut host = Host::new(&path, &mut ssd, 0);
        let (mut space, mut file) = (Allocator::from(0), FileOnDrive::default());
        for _ in 0..APPENDS {
            file.append(&mut host, &mut space, APPEND).expect("room");
            if !alone {
                host.write(&[space.take(random.within(1, 64))], Hint::None).expect("room");
            }
        }
        let stale = host.stale_hints;
        let start = host.wait_until_idle();
        file.read(&mut host, CALL).expect("a read");
        (1e9 / (host.now - start) as f64, stale)
    };
    let (ideal, _) = measure(SplitHints::Renewed, true);
    let mut rows = Vec::new();
    for (split, what) in [
        (SplitHints::Repeated, "repeated"),
        (SplitHints::Dropped, "dropped"),
        (SplitHints::Renewed, "renewed"),
    ] {
        let (ours, stale) = measure(split, false);
        let name = format!("appends of 640 KiB, hints {what} when split");
        rows.push(Row::ours(format!("{name}: of ideal"), "%", ours / ideal * 100.0));
        rows.push(Row::ours(format!("{name}: stale hints"), "", stale as f64));
    }
    rows
}
