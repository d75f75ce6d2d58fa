//! Drives and loads of the lab: an error names its line; an accepted file does not overflow.

use fragmend_lab::described::BadFile;
use fragmend_lab::presets;
use fragmend_lab::setup::Setup;
use fragmend_lab::workload::Workload;
use std::path::Path;

/// A drive's file.
pub fn drive(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    match Setup::parse(text, "drive.toml") {
        Ok(setup) => {
            let (unit, capacity) = (setup.unit_bytes(), setup.capacity_bytes());
            assert!(unit > 0 && capacity >= u64::from(unit), "no room: {setup:?}");
            true
        }
        Err(bad) => names_its_line(text, &bad),
    }
}

/// A load's file, for a drive of its own choice, without files beside it.
pub fn load(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    // A directory that does not exist.
    let path = Path::new("/proc/self/fdinfo/none/load.toml");
    let own = Workload::parse(text, path, None);
    thread_local! {
        static FLASH: Setup = presets::named("nvmevirt-fast24").expect("a drive of the lab");
    }
    let given = Workload::parse(text, path, Some(FLASH.with(Setup::clone)));
    for bad in [own.as_ref().err(), given.as_ref().err()].into_iter().flatten() {
        names_its_line(text, bad);
    }
    own.is_ok() || given.is_ok()
}

/// An error of a file is in one of its lines.
pub(super) fn names_its_line(text: &str, bad: &BadFile) -> bool {
    assert!(bad.line >= 1 && bad.line <= text.matches('\n').count() + 1, "{bad}");
    false
}
