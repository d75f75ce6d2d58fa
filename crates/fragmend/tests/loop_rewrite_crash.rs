//! `--engine rewrite` loses no byte, at whatever instant it ends: after every step of the crash
//! argument (`engines/src/rewrite/engine.rs`) there is a kill and a power cut, and a recovery.

mod support;

use fragmend_sys::shutdown::cut_power;
use fragmend_testbed::file_system::{EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::steps::OF_REWRITE;
use fragmend_testbed::tools::extents;
use rustix::process::Signal;
use std::fs::File;
use std::path::PathBuf;
use support::rewrite::{killed_at, outcomes, recover, stopped_at};

const KIB: u64 = 1 << 10;
const BYTES: u64 = 1024 * KIB + 1808; // the last block is partial

static ENGINES: [&FileSystem; 2] = [&EXT4, &XFS];

/// A fragmented file of its own for each step: XFS allocates a new one in its place in fewer extents.
fn fresh(image: &Image, name: &str) -> PathBuf {
    let path = image.path().join(name);
    interleaved(&path, BYTES, &[4096], true).unwrap();
    image.sync();
    assert!(extents(&path) > 100, "{}", extents(&path));
    path
}

/// The outcomes that `recover` must report after a process ended right after this step.
fn expected(step: &str) -> &'static [&'static str] {
    match step {
        "copied" | "leased" => &["never_begun"],
        "punched" | "allocated" | "half-written" => &["restored"],
        "removed" => &[],
        _ => &["whole"],
    }
}

#[test]
fn loop_a_kill_after_every_step_is_recovered_from() {
    for engine in ENGINES {
        let image = Image::of(engine, 320 << 20);
        for step in OF_REWRITE {
            println!("{}: {step}", engine.name);
            let file = fresh(&image, step);
            killed_at(&image, &file, step);
            assert_eq!(is_intact(&file, BYTES).unwrap(), expected(step) != ["restored"]);
            let (told, code) = recover(&[&"--dry-run", &image.path()]);
            assert_eq!(code, i32::from(expected(step) == ["restored"]), "{told}");
            let (told, code) = recover(&[&image.path()]);
            assert_eq!(
                (outcomes(&told).iter().map(String::as_str).collect(), code),
                (expected(step).to_vec(), 0),
                "{step}: {told}"
            );
            assert!(is_intact(&file, BYTES).unwrap(), "{step}");
            // Again: nothing is left.
            let (told, code) = recover(&[&image.path()]);
            assert_eq!((outcomes(&told).len(), code), (0, 0), "{step}: {told}");
            assert!(!image.path().join(".fragmend-rewrite").exists());
            image.fsck();
            assert!(is_intact(&file, BYTES).unwrap(), "{step}, cold");
        }
    }
}

#[test]
fn loop_a_power_cut_after_every_step_is_recovered_from() {
    for engine in ENGINES {
        let image = Image::of(engine, 320 << 20);
        // What is durable by then: as little as possible, or everything.
        for committed in [false, true] {
            for step in OF_REWRITE {
                let file = fresh(&image, &format!("{step}-{committed}"));
                let stopped = stopped_at(&image, &file, step);
                if committed {
                    image.sync();
                }
                cut_power(File::open(image.path()).unwrap()).unwrap();
                stopped.signal(Signal::KILL);
                stopped.wait();
                image.remount();
                let (told, code) = recover(&[&image.path()]);
                let found = outcomes(&told);
                println!("{}: {step}, committed {committed}: {found:?}", engine.name);
                assert_eq!(code, 0, "{step}: {told}");
                if committed {
                    assert_eq!(found, expected(step), "{step}: {told}");
                } else if !["copied", "leased", "removed"].contains(&step) {
                    assert_eq!(found.len(), 1, "the record was durable: {step}: {told}");
                }
                image.fsck();
                assert!(is_intact(&file, BYTES).unwrap(), "{step}");
                assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0, "{step}");
            }
        }
    }
}
