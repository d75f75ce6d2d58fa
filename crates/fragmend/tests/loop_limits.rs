//! Limits other than a full disk: no inode for the donor, a quota that it exceeds, a limit of file
//! sizes, the floor of free space. No byte is lost, and the reason names the limit.
//!
//! A quota counts the donor while it exists: against the user who runs `apply`, on Btrfs against the
//! subvolume (qgroups), and on an XFS that swaps whole files against the file's owner. Exchanged
//! blocks count for one file as for the other, so usage is afterwards what it was before. User quotas
//! are tested in `uml_limits`, and thin devices in `loop_thin`.

mod support;

use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::finish;
use fragmend_testbed::tools::extents;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use support::{SIZE, apply, fragmented, plan, write_plan};

const MIB: u64 = 1 << 20;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");
/// The file systems that have primitives of their own.
static SYSTEMS: [&FileSystem; 5] = [&EXT4, &XFS, &XFS_EXCHANGE, &XFS_RMAP, &BTRFS];

#[test]
fn loop_without_a_free_inode_nothing_moves() {
    let image = Image::ext4_with(64 * MIB, &["-N", "32"], "");
    let path = fragmented(&image, "file");
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    let mut taken = 0;
    while File::create(image.path().join(format!("taken-{taken}"))).is_ok() {
        taken += 1;
    }
    let was = extents(&path);
    let said = finish(Command::new(FRAGMEND).args(["apply", "--rate", "max"]).arg(&plan_file));
    let told = said.expect(&[2]);
    let line = told.lines().find(|l| l.starts_with("left alone")).expect("the reason");
    assert!(line.contains("no space") && line.contains("no inode is free"), "{line}");
    assert_eq!(extents(&path), was);
    assert!(is_intact(&path, SIZE).unwrap());
    fs::remove_file(image.path().join("taken-0")).unwrap();
    finish(Command::new(FRAGMEND).args(["apply", "--rate", "max"]).arg(&plan_file)).expect(&[0]);
    assert_eq!(extents(&path), 1);
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
}

#[test]
fn loop_btrfs_quota_groups_are_kept() {
    let image = Image::of(&BTRFS, 512 * MIB);
    let volume = image.path().join("volume");
    let btrfs = |args: &[&str], path: &Path| {
        run("btrfs", args.iter().map(AsRef::as_ref).chain([path.as_os_str()]))
    };
    btrfs(&["quota", "enable"], image.path());
    btrfs(&["subvolume", "create"], &volume);
    let path = volume.join("file");
    interleaved(&path, 16 * MIB, &[4096], false).unwrap();
    let used = || {
        image.sync();
        btrfs(&["quota", "rescan", "-w"], image.path());
        let groups = btrfs(&["qgroup", "show", "-f", "--raw"], &volume);
        let line = groups.lines().find(|l| l.starts_with("0/")).expect("its group");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("bytes")
    };
    let before = used();
    btrfs(&["qgroup", "limit", "24M"], &volume);
    let made = plan(&[&path], Policy::WholeFile);
    let was = extents(&path);
    let (summary, receipts) = apply(&made);
    let quota = receipts.iter().filter(|r| r.reason == Some(SkipReason::Quota)).count();
    assert!(quota > 0 && !summary.failed(), "{summary:?}");
    assert!(extents(&path) <= was && is_intact(&path, 16 * MIB).unwrap());
    assert!(used() <= before + MIB, "{before} before, {} after", used());
    btrfs(&["qgroup", "limit", "none"], &volume);
    let (summary, _) = apply(&made);
    assert!(summary.ranges_moved > 0 && !summary.failed(), "{summary:?}");
    assert!(used() <= before + MIB, "{before} before, {} after", used());
    image.fsck();
    assert!(is_intact(&path, 16 * MIB).unwrap());
}

/// `ulimit -f`, in a shell around `fragmend`.
fn limited(args: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -c 0; ulimit -f 200; exec {FRAGMEND} {args}")]);
    command
}

/// A limit of file sizes does not end the process: what is behind it is left alone, and the reason names it.
#[test]
fn loop_a_limit_of_file_sizes_is_a_reason_and_not_the_end() {
    for file_system in SYSTEMS {
        let image = Image::of(file_system, 320 * MIB);
        let path = fragmented(&image, "file");
        let plan_file = image.scratch().join("plan.json");
        write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
        let was = extents(&path);
        let ended = finish(&mut limited(&format!("apply --json {}", plan_file.display())));
        println!("{}: {ended:?}", file_system.name);
        let last = ended.stdout.lines().next_back().expect("a summary");
        assert!(last.contains("\"event\":\"summary\"") && last.contains("ulimit -f"), "{last}");
        assert_eq!(ended.status.code(), Some(6), "{ended:?}");
        assert!(extents(&path) == was && is_intact(&path, SIZE).unwrap());
        // A limit that the file does not reach, but a donor with space to spare would.
        let script = format!("ulimit -f 4096; exec {FRAGMEND} apply {}", plan_file.display());
        finish(Command::new("sh").args(["-c", &script])).expect(&[0]);
        assert_eq!(extents(&path), 1, "{}", file_system.name);
        image.fsck();
        assert!(is_intact(&path, SIZE).unwrap());
    }
}

/// The same for output files: an error in one line, and no file.
#[test]
fn loop_a_limit_of_file_sizes_leaves_no_output() {
    let image = Image::ext4(128 * MIB);
    for n in 0..20 {
        interleaved(&image.path().join(format!("{n:0>200}")), 8 * 4096, &[4096], true).unwrap();
    }
    let (root, to) = (image.path().display(), image.scratch().join("output"));
    let plan = format!("plan --policy whole-file -o {} {root}", to.display());
    let scan = format!("scan --json {root} > {}", to.display());
    for args in [plan, scan] {
        let script = format!("ulimit -c 0; ulimit -f 4; exec {FRAGMEND} {args}");
        let ended = finish(Command::new("sh").args(["-c", &script]));
        assert_eq!(ended.status.code(), Some(4), "{args}: {ended:?}");
        assert!(ended.stderr.contains("ulimit -f"), "{args}: {ended:?}");
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{args}: {ended:?}");
        assert!(args.starts_with("scan") || !to.exists(), "{args}");
    }
}

/// While places are compared, the floor of free space is kept: a donor beside the first one is not necessary.
#[test]
fn loop_the_floor_of_free_space_is_kept_while_places_are_compared() {
    use fragmend_apply::{Options, Rate};
    use fragmend_testbed::file_system::XFS_RMAP as SWAPS;
    use std::sync::atomic::AtomicBool;
    for (file_system, hint) in [(&XFS, true), (&XFS, false), (&SWAPS, false), (&EXT4, false)] {
        let image = Image::of(file_system, 400 * MIB);
        let directory = image.path().join("directory");
        fs::create_dir(&directory).unwrap();
        let path = directory.join("file");
        interleaved(&path, 16 * MIB, &[4096], true).unwrap();
        if hint {
            run("xfs_io", ["-c", "extsize 40m", directory.to_str().unwrap()]);
        }
        image.sync();
        // Free space in runs of 1 MiB, so that no donor is in one extent.
        let filler = |n: u64| image.path().join(format!("filler-{n}"));
        let mut n = 0;
        while File::create(filler(n)).is_ok_and(|f| {
            rustix::fs::fallocate(f, rustix::fs::FallocateFlags::empty(), 0, MIB).is_ok()
        }) {
            n += 1;
        }
        (0..n).step_by(2).for_each(|n| fs::remove_file(filler(n)).unwrap());
        // XFS frees what was deleted in the background.
        image.remount();
        let root = image.path().to_owned();
        let free = || {
            let stat = rustix::fs::statvfs(&root).unwrap();
            stat.f_bavail * stat.f_frsize
        };
        let floor = free() - 20 * MIB;
        let options = Options {
            rate: Rate::BytesPerSecond(64 * MIB),
            free_floor_bytes: Some(floor),
            ..Options::default()
        };
        let made = plan(&[&path], Policy::WholeFile);
        let ended = AtomicBool::new(false);
        let least = std::thread::scope(|scope| {
            let (free, ended) = (&free, &ended);
            let watch = scope.spawn(move || {
                let mut least = free();
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    // While ext4 allocates, it counts a chunk twice for an instant.
                    let then = free();
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    least = least.min(free().max(then));
                }
                least
            });
            let (summary, _) = support::apply_with(&made, &options);
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            println!("{}: {summary:?}", file_system.name);
            watch.join().unwrap()
        });
        // Metadata needs space as well.
        let below = floor.saturating_sub(least);
        assert!(below < MIB, "{} (hint: {hint}): {below} bytes below the floor", file_system.name);
    }
}
