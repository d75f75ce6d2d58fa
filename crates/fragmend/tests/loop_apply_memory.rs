//! A plan of a million ranges is read, checked and applied in bounded memory, whether they are in
//! one file or each in another.

mod support;

use fragmend_layout::FileId;
use fragmend_plan::{Plan, PlannedFile, PlannedRange, Policy};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::finish;
use fragmend_testbed::tools::extents;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use support::{SIZE, fragmented, plan, redirected, write_plan};

/// Bytes of resident memory that `fragmend apply` may need at most, whatever the plan's length.
const LIMIT: u64 = 200_000_000;
const MILLION: u64 = 1_000_000;

/// Runs a program, and prints its peak of resident memory (`ru_maxrss`, KiB) as the last line.
const WITH_PEAK: &str = "
import resource,subprocess,sys
code=subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
";

fn range(template: &PlannedRange, length: u64, n: u64) -> PlannedRange {
    PlannedRange { offset: n * length, length, ..template.clone() }
}

#[test]
fn loop_a_million_ranges_fit_in_200_megabytes() {
    let image = Image::ext4(256 << 20);
    let file = fragmented(&image, "file");
    let before = extents(&file);
    let mut made: Plan = plan(&[&file], Policy::WholeFile);
    let (template, id) = (made.files[0].ranges[0].clone(), made.files[0].file);
    // Sixteen that really move.
    made.files[0].ranges = (0..16).map(|n| range(&template, SIZE / 16, n)).collect();
    let sparse = image.path().join("sparse");
    let half = MILLION / 2;
    File::create(&sparse).and_then(|f| f.set_len(half * 8192)).unwrap();
    let mut long = redirected(&made, &sparse).files.remove(0);
    long.size = half * 8192;
    long.ranges = (0..half).map(|n| range(&template, 8192, n)).collect();
    made.files.push(long);
    made.files.extend((16..half).map(|n| PlannedFile {
        path:
            image.path().join(format!("gone/with/a/name/of/usual/length/{n:08}")).as_path().into(),
        file: FileId { inode: MILLION + n, ..id },
        size: 8192,
        ranges: vec![range(&template, 8192, 0)],
    }));
    let plan_file = image.scratch().join("plan.json");
    write_plan(&made, &plan_file);
    drop(made);

    let mut command = Command::new("python3");
    command.args(["-c", WITH_PEAK, env!("CARGO_BIN_EXE_fragmend"), "apply", "--rate", "max"]);
    let said = finish(command.arg(&plan_file)).expect(&[2]);
    let peak = said.lines().last().and_then(|l| l.parse::<u64>().ok()).expect("its peak") * 1024;
    println!("{} bytes of plan, {peak} bytes of memory", plan_file.metadata().unwrap().len());
    assert!(peak < LIMIT, "{peak} bytes of memory");
    // Every range was checked, and those that could be moved were.
    let number = |line: &str| {
        line.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>().ok()
    };
    let line = |with: &str| said.lines().find(|l| l.contains(with)).and_then(number);
    let (moved, skipped) = (line("ranges moved"), line("ranges in all"));
    let (moved, skipped) = (moved.expect("a count"), skipped.expect("another"));
    assert_eq!(moved + skipped, MILLION);
    assert!((1..=16).contains(&moved), "{moved}");
    assert!(extents(&file) < before && is_intact(Path::new(&file), SIZE).unwrap());
}
