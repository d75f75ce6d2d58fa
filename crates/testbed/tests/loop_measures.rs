//! The testbed measures what the kernel really did: counters, caches, copies, the database,
//! processes.

use fragmend_sys::cache::cached_pages;
use fragmend_testbed::database::{Database, Growth};
use fragmend_testbed::measure::{drop_pages, measured};
use fragmend_testbed::process::Running;
use fragmend_testbed::reader::Reader;
use fragmend_testbed::replay::{self, Mode};
use fragmend_testbed::{fio, fragment, image::Image, tools};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn loop_direct_requests_split_at_every_break() {
    let image = Image::ext4(256 * MIB);
    let path = image.path().join("file");
    fragment::interleaved(&path, 8 * MIB, &fragment::FRAGPICKER_EXTENTS, true).unwrap();
    let load = replay::sequential(8 * MIB);
    drop_pages(&path);
    let ((), cost) = measured(&image, || replay::replay(&path, &load, Mode::Direct).unwrap());
    // 32 rounds of 32 single blocks and one whole request; the allocator's first
    // preallocation hides a few breaks, a metadata read may add some.
    let splits = 32 * 33;
    let reads = cost.device.reads + cost.device.reads_merged;
    assert!((splits - 64..=splits + 16).contains(&reads), "{cost:?}");
    assert!(cost.device.read_bytes >= 8 * MIB);
}

#[test]
fn loop_a_cold_cache_reads_from_the_device_and_a_warm_one_does_not() {
    let image = Image::ext4(256 * MIB);
    let path = image.path().join("file");
    fragment::interleaved(&path, 4 * MIB, &[MIB], true).unwrap();
    let load = replay::sequential(4 * MIB);
    let read = || replay::replay(&path, &load, Mode::Buffered).unwrap();
    drop_pages(&path);
    let ((), cold) = measured(&image, read);
    assert!(cold.device.read_bytes >= 4 * MIB, "{cold:?}");
    // Something else may read the device meanwhile; one undisturbed read is enough.
    let warm: Vec<_> = (0..20).map(|_| measured(&image, read).1.device.read_bytes).collect();
    assert!(warm.contains(&0), "{warm:?}");
}

#[test]
fn loop_a_copy_has_the_same_content_and_layout() {
    let image = Image::ext4(256 * MIB);
    let path = image.path().join("file");
    fragment::interleaved(&path, 4 * MIB, &fragment::FRAGPICKER_EXTENTS, true).unwrap();
    let copy = image.copy();
    let copied = copy.path().join("file");
    assert_ne!(image.device(), copy.device());
    assert!(fragment::is_intact(&copied, 4 * MIB).unwrap());
    assert_eq!(tools::extents(&path), tools::extents(&copied));
    // The copy is independent.
    std::fs::remove_file(&copied).unwrap();
    assert!(fragment::is_intact(&path, 4 * MIB).unwrap());
    copy.fsck();
}

#[test]
fn loop_a_database_truly_fragments_and_answers_the_same_from_a_cold_cache() {
    let image = Image::ext4_with(128 * MIB, &["-m", "0", "-N", "16384"], "");
    let growth = Growth {
        commits: 100,
        evictions: 12,
        entry_bytes: 32 << 10,
        archive_bytes: 32 * MIB,
        seed: 5,
    };
    let database = Database::grow(image.path(), growth);
    assert!(database.bytes() > 100 * 64 * 1000, "{} bytes", database.bytes());
    let extents = tools::extents(database.path());
    assert!(extents > 100, "only {extents} extents");
    assert_eq!(database.integrity(), "ok");
    let queries = database.queries(50, 9);
    assert_eq!(queries.count(), 51);
    let (first, cost) = measured(&image, || database.run(&queries));
    assert!(cost.device.reads > 100, "{cost:?}");
    assert_eq!(first.lines().count(), 51);
    assert!(first.starts_with("256|"), "{first}");
    assert_eq!(first, database.run(&queries));
    image.fsck();
}

#[test]
fn loop_a_reader_and_fio_report_their_waits() {
    let image = Image::ext4(256 * MIB);
    let path = image.path().join("file");
    fragment::interleaved(&path, 16 * MIB, &[MIB], true).unwrap();
    let reader = Reader::start(&path, 4096, Duration::from_micros(100), 1);
    let options = ["rw=randread", "bs=4k", "direct=1", "runtime=1", "time_based"];
    let outcome = fio::run(&path, &options);
    let waits = reader.finish();
    assert!(waits.requests() > 100, "{}", waits.requests());
    let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|share| waits.quantile(share));
    assert!(Duration::from_micros(5) < p50 && p50 <= p99 && p99 <= longest);
    assert!(outcome.read.iops > 100.0 && outcome.write.bytes == 0, "{outcome:?}");
    assert!(outcome.read.p50 > Duration::ZERO && outcome.read.p50 <= outcome.read.p99);
}

#[test]
fn loop_nothing_is_left_behind() {
    let image = Image::ext4(64 * MIB);
    let (device, scratch) = (image.device().to_owned(), image.scratch().to_owned());
    let sleeper = Running::start(Command::new("sleep").arg("1000"));
    let pid = sleeper.id();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    drop(sleeper);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    drop(image);
    assert!(!scratch.exists());
    let backing = format!("/sys/block/{}/loop/backing_file", device.trim_start_matches("/dev/"));
    // Another test may have taken the same device by now, with a file of its own.
    let file = std::fs::read_to_string(backing).unwrap_or_default();
    assert!(!file.contains(&*scratch.to_string_lossy()), "{file}");
}

#[test]
fn loop_dropping_pages_drops_those_of_one_file() {
    let dir = std::env::temp_dir();
    let image = Image::ext4(64 * MIB);
    let [path, other] = ["file", "other"].map(|name| image.path().join(name));
    for path in [&path, &other] {
        fragment::interleaved(path, MIB, &[MIB], false).unwrap();
    }
    let cached = |path: &Path| cached_pages(File::open(path).unwrap(), 0..MIB).unwrap();
    drop_pages(&path);
    assert_eq!((cached(&path), cached(&other)), (0, MIB / 4096));
    let ((), cost) = measured(&image, || {
        std::fs::read(&path).unwrap();
    });
    assert!(cost.device.read_bytes >= MIB, "{cost:?} (images are in {})", dir.display());
}
