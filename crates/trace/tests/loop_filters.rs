//! Filters, folding, loss and identity: what a recording keeps, counts and reports as missing.

mod support;

use fragmend_testbed::file_system::{BTRFS, XFS};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::measure::drop_pages;
use fragmend_testbed::overlay::Overlay;
use fragmend_trace::record::{Options, record};
use fragmend_trace::{Access, Existing, Level, Op, TraceError};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use support::{accesses_of, python, ranges, traced, volume};

/// Reads one byte of each given file.
const READ_EACH: &str = "
import os, sys
for name in sys.argv[1:]:
    f = os.open(name, os.O_RDONLY); os.pread(f, 1, 0); os.close(f)
";

fn image() -> Image {
    let image = Image::ext4(256 << 20);
    for directory in ["in/deep/deeper", "out"] {
        std::fs::create_dir_all(image.path().join(directory)).unwrap();
    }
    for file in ["in/a", "in/deep/deeper/b", "out/c", "linked"] {
        std::fs::write(image.path().join(file), vec![1; 1 << 20]).unwrap();
    }
    std::fs::hard_link(image.path().join("linked"), image.path().join("in/link")).unwrap();
    image
}

#[test]
fn loop_only_what_lies_below_the_path_is_seen() {
    let image = image();
    let at = |name: &str| image.path().join(name);
    let read = || {
        python(
            READ_EACH,
            &[&at("linked"), &at("out/c"), &at("in/a"), &at("in/deep/deeper/b"), &at("in/link")],
        );
    };
    let (_, trace) = traced(&image, |o| o.paths = vec![at("in")], read);
    let inodes: Vec<u64> = trace.files.iter().map(|f| f.file.inode).collect();
    let inode = |name: &str| std::fs::metadata(at(name)).unwrap().ino();
    // The hard-linked file was read by its outer name first: that one does not count.
    assert_eq!(inodes, [inode("in/a"), inode("in/deep/deeper/b"), inode("linked")]);
    assert_eq!(trace.files[2].accesses.len(), 1);

    let (_, trace) = traced(&image, |o| o.paths = vec![at("out/c")], read);
    assert_eq!(trace.files.len(), 1);
    assert_eq!(trace.files[0].path, Some(at("out/c")));

    let (summary, trace) = traced(&image, |_| {}, read);
    assert_eq!((summary.files, trace.files.len()), (4, 4));
    let device = std::fs::metadata(image.path()).unwrap().dev();
    assert!(trace.files.iter().all(|f| f.file.device == device));
    let file = std::fs::File::open(at("in/a")).unwrap();
    assert_eq!(
        accesses_of(&trace, "in/a").file.generation,
        fragmend_sys::inode::generation(&file).unwrap()
    );
}

/// What is written beside a directory and then renamed or linked into it is below it from then on, and what is renamed
/// out of it no longer.
#[test]
fn loop_what_is_renamed_into_the_path_is_seen() {
    let image = image();
    let at = |name: &str| image.path().join(name);
    std::fs::create_dir(at("out/tree")).unwrap();
    std::fs::write(at("out/tree/d"), vec![1; 4096]).unwrap();
    let moves = "
import time
root = sys.argv[1]
def read(name):
    f = os.open(root + name, os.O_RDONLY); os.pread(f, 7, 0); os.close(f)
for into in (os.rename, os.link):
    name = into.__name__ + 'd'
    f = os.open(root + '/out/' + name, os.O_RDWR | os.O_CREAT); os.write(f, bytes(4096)); os.close(f)
    read('/out/' + name)
    into(root + '/out/' + name, root + '/in/' + name)
    read('/in/' + name)
read('/out/tree/d')
os.rename(root + '/out/tree', root + '/in/tree')
# A directory above a file is not looked at for a second.
time.sleep(1.1)
read('/in/tree/d')
read('/in/a')
os.rename(root + '/in/a', root + '/out/a')
read('/out/a')
";
    let code = format!("import os, sys{moves}");
    let (_, trace) =
        traced(&image, |o| o.paths = vec![at("in")], || python(&code, &[image.path()]));
    for name in ["in/renamed", "in/linkd", "in/tree/d", "out/a"] {
        let inode = std::fs::metadata(at(name)).unwrap().ino();
        let file = trace.files.iter().find(|file| file.file.inode == inode);
        let reads = file.map_or(0, |f| f.accesses.iter().filter(|a| a.op == Op::Read).count());
        // Of `out/a`, the read at its place of before.
        assert_eq!(reads, 1, "{name}");
    }
}

/// An overlay's files have inodes of their own without blocks; the layers below see the misses.
#[test]
fn loop_reads_through_an_overlay_are_misses_below_it() {
    let image = image();
    let overlay = Overlay::over(&image);
    std::fs::write(overlay.lower.join("f"), vec![1; 1 << 20]).unwrap();
    let output = image.scratch().join("overlay.parquet");
    let stop = AtomicBool::new(false);
    let options = Options::new(&output, vec![overlay.merged.clone()]);
    let refused = record(&options, &stop, &mut |_| ()).unwrap_err().to_string();
    assert!(refused.contains("--level miss") && refused.contains("lowerdir="), "{refused}");
    assert!(!output.exists());

    drop_pages(&overlay.lower.join("f"));
    let through = overlay.merged.join("f");
    let below = |o: &mut Options| {
        o.paths = vec![overlay.lower.clone()];
        o.level = Level::Miss;
    };
    let (_, trace) = traced(&image, below, || drop(run("cat", [&through])));
    assert_eq!(volume(&accesses_of(&trace, "lower/f").accesses).1, 1 << 20);
}

/// Subvolumes of Btrfs repeat inode numbers, and each has a device number of its own.
#[test]
fn loop_other_file_systems_are_seen_by_identity() {
    for file_system in [&XFS, &BTRFS] {
        let image = Image::of(file_system, 320 << 20);
        let at = |name: &str| image.path().join(name);
        for directory in ["one", "two"] {
            match file_system.name {
                "btrfs" => {
                    let args = ["subvolume", "create"].map(AsRef::as_ref);
                    drop(run("btrfs", args.into_iter().chain([at(directory).as_os_str()])));
                }
                _ => std::fs::create_dir(at(directory)).unwrap(),
            }
            std::fs::write(at(directory).join("f"), vec![1; 1 << 20]).unwrap();
        }
        let (one, two) = (at("one/f"), at("two/f"));
        let read = || python(READ_EACH, &[&one, &two, &two]);
        let (_, trace) = traced(&image, |_| {}, read);
        let seen: BTreeMap<_, _> =
            trace.files.iter().map(|f| (f.path.clone().unwrap(), f.accesses.len())).collect();
        let want = BTreeMap::from([(one.clone(), 1), (two.clone(), 2)]);
        assert_eq!(seen, want, "{}", file_system.name);
        for file in &trace.files {
            let stat = file.path.as_ref().unwrap().metadata().unwrap();
            assert_eq!((file.file.device, file.file.inode), (stat.dev(), stat.ino()));
        }
        let (_, trace) = traced(&image, |o| o.paths = vec![at("two")], read);
        assert_eq!(trace.files.len(), 1, "{}", file_system.name);
        assert_eq!(trace.files[0].path, Some(two.clone()));
        let (_, trace) = traced(&image, |o| o.paths = vec![one.clone()], read);
        assert_eq!((trace.files.len(), trace.files[0].path.clone()), (1, Some(one.clone())));
    }
}

#[test]
fn loop_only_the_processes_asked_for_are_seen() {
    let image = image();
    let (mine, other) = (image.path().join("in/a"), image.path().join("out/c"));
    // Waits for a line, then has a child of its own read.
    let mut parent = Command::new("sh")
        .args(["-c", "read go; sh -c 'head -c 100 \"$0\" >/dev/null' \"$0\"; read done"])
        .arg(&mine)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = parent.stdin.take().unwrap();
    let (_, trace) = traced(
        &image,
        |o| o.pids = vec![parent.id()],
        || {
            use std::io::Write;
            run("cat", [&other]);
            stdin.write_all(b"go\n").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(500));
            run("cat", [&other]);
        },
    );
    drop(stdin);
    parent.wait().unwrap();
    assert_eq!(trace.files.len(), 1);
    assert_eq!(volume(&accesses_of(&trace, "in/a").accesses).0, 1);

    let (_, trace) = traced(
        &image,
        |o| o.comm = Some("head".into()),
        || {
            run("cat", [&other]);
            run("head", [Path::new("-c10"), &mine]);
        },
    );
    assert_eq!(trace.files.len(), 1, "only head");
    accesses_of(&trace, "in/a");

    let as_nobody = |file: &Path| {
        run(
            "setpriv",
            [Path::new("--reuid=65534"), "--clear-groups".as_ref(), "cat".as_ref(), file],
        )
    };
    run("chmod", [Path::new("a+rx"), image.path(), image.scratch()]);
    let (_, trace) = traced(
        &image,
        |o| o.uid = Some(65534),
        || {
            run("cat", [&other]);
            as_nobody(&mine);
        },
    );
    assert_eq!(trace.files.len(), 1, "only nobody");
    accesses_of(&trace, "in/a");
}

#[test]
fn loop_only_the_cgroup_asked_for_is_seen() {
    let image = image();
    let (mine, other) = (image.path().join("in/a"), image.path().join("out/c"));
    let mounts = fragmend_sys::mounts::all().unwrap();
    let mounted = mounts.iter().find(|m| m.fs_type == "cgroup2").map(|m| m.point.clone());
    let cgroups = mounted.expect("a cgroup2 mount");
    let group = tempfile::Builder::new().prefix("fragmend-test-").tempdir_in(&cgroups).unwrap();
    let group = group.keep();
    let inner = group.join("inner");
    std::fs::create_dir(&inner).unwrap();
    let (_, trace) = traced(
        &image,
        |o| o.cgroup = Some(group.clone()),
        || {
            run("cat", [&other]);
            let join = format!("echo $$ > {}/cgroup.procs; exec cat \"$0\"", inner.display());
            run("sh", [Path::new("-c"), join.as_ref(), &mine]);
        },
    );
    std::fs::remove_dir(&inner).unwrap();
    std::fs::remove_dir(&group).unwrap();
    assert_eq!(trace.files.len(), 1);
    accesses_of(&trace, "in/a");
}

#[test]
fn loop_deleted_and_oddly_named_files_are_kept_by_identity() {
    let image = image();
    python(
        "
import os, sys
open(os.path.join(os.fsencode(sys.argv[1]), b'odd\\n\\xff'), 'wb').write(b'x' * 100)
",
        &[image.path()],
    );
    let (_, trace) = traced(
        &image,
        |_| {},
        || {
            python(
                "
import os, sys
top = os.fsencode(sys.argv[1])
f = os.open(os.path.join(top, b'odd\\n\\xff'), os.O_RDONLY); os.pread(f, 100, 0)
g = os.open(os.path.join(top, b'gone'), os.O_RDWR | os.O_CREAT)
os.unlink(os.path.join(top, b'gone'))
os.write(g, b'y' * 10)
",
                &[image.path()],
            );
        },
    );
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"odd\n\xff");
    assert_eq!(trace.files[0].path, Some(image.path().join(odd)));
    assert_eq!(trace.files[1].path, None);
    assert_eq!(ranges(&trace.files[1]), [(Op::Write, 0, 10)]);
}

/// Random preads and one sequential pass, the same every time.
const LOAD: &str = "
import os, random, sys
random.seed(7)
f = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(5000): os.pread(f, 4096, random.randrange(200) * 4096 + 1)
for at in range(0, 1 << 20, 4096): os.pread(f, 4096, at)
";

#[test]
fn loop_folding_counts_the_same_accesses() {
    let image = image();
    let load = || python(LOAD, &[&image.path().join("in/a")]);
    let (plain, trace) = traced(&image, |_| {}, load);
    let mut counts: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    for access in &accesses_of(&trace, "in/a").accesses[..5000] {
        *counts.entry((access.offset, access.length)).or_default() += 1;
    }
    let (folded, trace) = traced(&image, |o| o.max_ranges = Some(100_000), load);
    assert_eq!(folded.totals, plain.totals);
    assert!(folded.meta.folded && folded.meta.lost == 0 && folded.meta.coarsened == 0);
    let file = accesses_of(&trace, "in/a");
    let (windows, exact): (Vec<&Access>, Vec<&Access>) =
        file.accesses.iter().partition(|a| a.windowed);
    // Random reads that are adjacent by chance are a stream, too; most are not.
    let exact_total: u64 = exact.iter().map(|a| u64::from(a.count)).sum();
    assert!((4900..=5001).contains(&exact_total), "{exact_total}");
    for access in exact {
        let seen = counts.get(&(access.offset, access.length)).copied().unwrap_or(0);
        assert!(u64::from(access.count) <= seen + 1, "{access:?} was seen {seen} times");
    }
    // The sequential pass enters every readahead window.
    let window = trace.meta.devices[0].readahead_bytes.unwrap();
    let mut covered: u64 = 0;
    for access in windows {
        assert_eq!(access.offset % window.min(4096), 0);
        covered = covered.max(access.offset + u64::from(access.length));
    }
    assert_eq!(covered, 1 << 20);
}

#[test]
fn loop_a_full_fold_table_grows_coarse_and_then_admits_loss() {
    let image = image();
    let load = || python(LOAD, &[&image.path().join("in/a")]);
    // The file is eight ranges of 128 KiB: with those that straddle two, all fit in a quarter of
    // 120.
    let (summary, trace) = traced(&image, |o| o.max_ranges = Some(120), load);
    assert!(summary.meta.coarsened > 0);
    assert_eq!(summary.meta.lost, 0);
    let file = accesses_of(&trace, "in/a");
    assert!(file.accesses.iter().any(|a| a.offset % (128 << 10) == 0 && a.length == 128 << 10));
    let (summary, trace) = traced(&image, |o| o.max_ranges = Some(4), load);
    assert!(summary.meta.lost > 0);
    assert_eq!(trace.meta.lost, summary.meta.lost);
}

/// Batches in which the kernel returns the ranges are of different lengths.
#[test]
fn loop_all_ranges_of_a_large_fold_table_are_read() {
    const RANGES: u64 = 300_000;
    let image = image();
    let load = "
import os, sys
f = os.open(sys.argv[1], os.O_RDWR)
os.truncate(f, 1 << 30)
for n in range(300000): os.pread(f, 1, n * 7919 % 300007 * 3000)
";
    let file = image.path().join("in/a");
    for ranges in [400_000, 100_000] {
        let (summary, trace) = traced(
            &image,
            |o| {
                o.max_ranges = Some(ranges);
                o.level = Level::Syscall;
            },
            || python(load, &[&file]),
        );
        let counted: u64 =
            accesses_of(&trace, "in/a").accesses.iter().map(|a| u64::from(a.count)).sum();
        assert_eq!((counted, summary.meta.lost), (RANGES, 0), "{ranges}: {:?}", summary.meta);
        assert_eq!(summary.meta.coarsened > 0, ranges == 100_000);
    }
}

#[test]
fn loop_what_does_not_fit_the_buffer_is_counted() {
    let image = image();
    let burst = "
import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(200000): os.pread(f, 1, 0)
";
    let file = image.path().join("in/a");
    let (summary, trace) = traced(&image, |o| o.buffer_bytes = 1, || python(burst, &[&file]));
    assert_eq!(summary.events(), 200_000);
    assert!(summary.meta.lost > 0);
    assert_eq!(summary.rows + summary.meta.lost, 200_000);
    assert_eq!(trace.meta.lost, summary.meta.lost);
    assert_eq!(volume(&accesses_of(&trace, "in/a").accesses).0, summary.rows);
    let (summary, _) = traced(&image, |_| {}, || python(burst, &[&file]));
    assert_eq!((summary.rows, summary.meta.lost), (200_000, 0));
}

#[test]
fn loop_the_recorder_does_not_record_itself() {
    let image = image();
    let (summary, trace) = traced(
        &image,
        |o| o.output = image.path().join("trace.parquet"),
        || python(READ_EACH, &[&image.path().join("in/a")]),
    );
    assert_eq!((summary.events(), trace.files.len()), (1, 1));
}

#[test]
fn loop_a_bad_request_is_refused_and_leaves_nothing() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    let refuse = |change: &dyn Fn(&mut fragmend_trace::record::Options)| {
        let path = image.path().to_owned();
        let mut options = fragmend_trace::record::Options::new(&output, vec![path]);
        options.existing = Existing::ReplaceTrace;
        change(&mut options);
        let stop = AtomicBool::new(true);
        let error = record(&options, &stop, &mut |_| {}).unwrap_err();
        assert!(!output.exists());
        assert_eq!(std::fs::read_dir(image.scratch()).unwrap().count(), 1, "the mount point");
        error
    };
    let absent = refuse(&|o| o.paths = vec!["/absent/path".into()]);
    assert!(matches!(absent, TraceError::Io { .. }));
    assert!(absent.to_string().contains("/absent/path"));
    assert!(matches!(refuse(&|o| o.pids = vec![4_000_000]), TraceError::Request(_)));
    assert!(matches!(refuse(&|o| o.cgroup = Some("/tmp".into())), TraceError::Request(_)));
    assert!(matches!(refuse(&|o| o.paths = vec!["/dev/null".into()]), TraceError::Request(_)));
    assert!(matches!(refuse(&|o| o.output = "/absent/t".into()), TraceError::Output { .. }));
    assert!(matches!(refuse(&|o| o.buffer_bytes = u32::MAX), TraceError::Request(_)));
}
