//! A plan file: an accepted plan is consistent, and is the same each time it is read, also after it
//! was written again.

use crate::bytes::{InMemory, with_file};
use fragmend_plan::{Plan, PlanFile, PlanSource, PlannedFile};
use std::collections::HashMap;
use std::fs::File;

/// A plan file.
pub fn run(input: &[u8]) -> bool {
    with_file(input, |file| {
        let plan = match PlanFile::new(opened(file), file.path()) {
            Ok(plan) => plan,
            Err(e) => {
                assert!(!e.to_string().contains('\n'), "{e}");
                return false;
            }
        };
        assert!(PlanFile::is_one(&opened(file)), "read, but not recognised");
        let files = files(&plan);
        sensible(&plan, &files);
        // Reading it strictly and leniently has the same result; a repeated key is refused by one of them.
        if let Ok(whole) = serde_json::from_slice::<Plan>(input) {
            assert_eq!(whole.devices(), plan.devices());
            if plan.totals().listed_twice == 0 {
                let asked = whole.files.iter().filter(|file| !file.ranges.is_empty());
                assert!(asked.eq(&files));
            }
            let again = serde_json::to_vec(&whole).expect("a plan is data");
            let reread: Plan = serde_json::from_slice(&again).expect("what was written is read");
            assert_eq!(reread.files, whole.files);
        }
        true
    })
}

fn opened(file: &InMemory) -> File {
    File::open(file.path()).expect("a file that was just written")
}

fn files(plan: &PlanFile) -> Vec<PlannedFile> {
    let mut files = Vec::new();
    plan.each(&mut |file| files.push(file.clone())).expect("as it was a moment ago");
    files
}

fn sensible(plan: &PlanFile, files: &[PlannedFile]) {
    let totals = plan.totals();
    let ranges: usize = files.iter().map(|file| file.ranges.len()).sum();
    assert_eq!(totals.ranges, ranges as u64);
    // Where the last range of each file ends: a repeated file must continue after it.
    let mut ends = HashMap::new();
    let mut bytes = 0u64;
    for file in files {
        let device = plan.devices().iter().rfind(|d| d.device == file.file.device);
        let block = device.expect("a listed device").block_bytes;
        let path = file.path.to_path().expect("a path");
        assert!(path.is_absolute() && path.starts_with(&totals.root));
        let end = ends.entry(file.file).or_insert(0);
        for range in file.ranges.iter().map(|range| range.range()) {
            assert!(range.start >= *end && !range.is_empty(), "out of order");
            assert!(range.start.is_multiple_of(block) && range.end.is_multiple_of(block));
            assert!(range.end <= file.size.next_multiple_of(block), "beyond the file");
            *end = range.end;
            bytes = bytes.saturating_add(range.len());
        }
    }
    assert_eq!(bytes, totals.bytes);
    assert!(totals.files >= ends.len() as u64);
}
