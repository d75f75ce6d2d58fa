//! The drives below file systems, and what they report of their wear: an input of planning, like their profiles, so that a
//! plan follows from its survey alone.

use fragmend_device::health;
use fragmend_plan::Device;
use fragmend_plan::wear::Drive;
use std::collections::BTreeMap;

/// The most file systems below which drives are looked for, and the most drives that are asked. A forged plan may list any
/// number.
const MOST: usize = 256;

/// The drives below these file systems that keep an account of their wear, by their numbers, with what they report now or
/// why that is not known. Whatever a drive does, this needs [`health::PATIENCE`] at most. Nothing is written to any.
pub fn drives(file_systems: &[Device]) -> Vec<Drive> {
    let mut found: BTreeMap<u64, (health::Drive, Vec<u64>)> = BTreeMap::new();
    for file_system in file_systems.iter().take(MOST) {
        let path = file_system.mount.to_path().unwrap_or_default();
        for drive in health::below(&path, file_system.device) {
            let (_, on_it) = found.entry(drive.number).or_insert((drive, Vec::new()));
            on_it.push(file_system.device);
        }
    }
    let (asked, on_them): (Vec<_>, Vec<_>) = found.into_values().take(MOST).unzip();
    let answers = health::ask(&asked, health::PATIENCE);
    let drive = |((drive, devices), answer): ((health::Drive, Vec<u64>), _)| Drive {
        name: drive.name,
        devices,
        health: Result::map_err(answer, |why: health::NoAnswer| why.to_string()),
    };
    asked.into_iter().zip(on_them).zip(answers).map(drive).collect()
}
