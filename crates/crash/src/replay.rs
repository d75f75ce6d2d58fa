//! Inspects many cuts of a recording, in several threads.

use crate::cut::{Cut, View};
use crate::cut_disk::CutDisk;
use crate::inspect::{CutResults, inspect};
use crate::record::{Recording, in_guest};
use fragmend_testbed::cleanup::{self, Undo};
use fragmend_testbed::guest;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Inspects the disk after each of the cuts, in `threads` threads, or in one where the file system
/// cannot be mounted beside its copy. `soak` is the program that does so in a guest.
///
/// # Panics
/// When something fails that has nothing to do with the disk's content.
pub fn check(recording: &Recording, cuts: &[Cut], threads: usize, soak: &Path) -> CutResults {
    let mut results = CutResults::default();
    let threads = recording.scenario.file_system.beside_copy.map_or(1, |_| threads);
    let share = cuts.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = cuts
            .chunks(share)
            .map(|part| scope.spawn(move || check_in_order(recording, part, soak)))
            .collect();
        for part in parts {
            results.add(part.join().expect("the thread that looks at cuts"));
        }
    });
    results
}

fn check_in_order(recording: &Recording, cuts: &[Cut], soak: &Path) -> CutResults {
    if recording.scenario.in_guest && !guest::inside() {
        return check_in_guest(recording, cuts, soak);
    }
    let dir = fragmend_testbed::scratch::directory("cut");
    let _tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).expect("a directory");
    let base = recording.base().expect("the recording's image");
    let scenario = recording.scenario;
    let second = scenario.second.map(|_| scenario.bytes);
    let view = View::two(base, Arc::clone(&recording.log), scenario.atom, second)
        .expect("a view of the image");
    let mut disk = CutDisk::new(view).expect("a disk in memory");
    let results = inspect(recording, cuts, &mut disk, &mnt);
    disk.detach();
    results
}

/// Inspects all of them in one guest.
fn check_in_guest(recording: &Recording, cuts: &[Cut], soak: &Path) -> CutResults {
    let list = tempfile::NamedTempFile::new().expect("a file");
    serde_json::to_writer(&list, cuts).expect("space for a list");
    let mut command = Command::new(soak);
    let said = in_guest(command.arg("check").arg(&recording.dir).arg(list.path()));
    serde_json::from_str(&said).expect("what it came to")
}
