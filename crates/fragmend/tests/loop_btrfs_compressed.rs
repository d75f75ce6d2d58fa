//! Compressed files of Btrfs: measured by what compression allows, and moved without a change of it.

mod support;

use fragmend_apply::{Options, Rate};
use fragmend_layout::SkipReason;
use fragmend_plan::{Policy, Settings};
use fragmend_sys::btrfs::Compression::{self, Lzo, Zlib, Zstd};
use fragmend_sys::inode::flags;
use fragmend_testbed::file_system::{BTRFS, BTRFS_ZSTD};
use fragmend_testbed::fio;
use fragmend_testbed::fragment::{alternating, compressible, content, holds, interleave};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::random::Random;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::btrfs::{btrfs, compress, data_used, how, squeezed, stored};
use support::conformance::{looks, shared_bytes};
use support::{SIZE, apply, apply_with, plan, plan_with, reasons, write_plan};

const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");
/// As many compressed extents as [`SIZE`] needs.
const FEWEST: u64 = SIZE / (128 << 10);

/// What `looks` returns, the time of change and the attributes.
fn all_looks(path: &Path) -> impl PartialEq + std::fmt::Debug {
    let m = path.metadata().unwrap();
    let attributes = fragmend_sys::inode::attributes(File::open(path).unwrap()).unwrap();
    (looks(path), (m.ctime(), m.ctime_nsec()), attributes)
}

/// A command without `CAP_SYS_ADMIN`, which reading trees needs.
fn as_a_user(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin", "--inh-caps=-all", program]);
    command
}

fn scanned(mut scan: Command, path: &Path) -> Value {
    let text = finish(scan.arg("scan").arg("--json").arg(path)).expect(&[0]);
    serde_json::from_str::<Value>(&text).unwrap()["totals"].clone()
}

#[test]
fn loop_compressed_files_are_mended_as_they_are_compressed() {
    let image = &Image::of(&BTRFS, 512 << 20);
    let ways: [(&str, Compression); 4] =
        [("zlib", Zlib), ("lzo", Lzo), ("zstd", Zstd), ("force=zlib", Zlib)];
    let name = |then: &str, now: &str| format!("{then}-{now}").replace([':', '='], "-");
    let mut files = Vec::new();
    // The mount compresses in another way than when the file was written.
    for (then, way) in ways {
        for now in ["no", "lzo", "zstd:1", "zlib", "force=zstd"] {
            compress(image, then);
            let file = squeezed(image, &name(then, now));
            assert!(how(&file).iter().all(|c| *c == way));
            compress(image, now);
            let (before, blocks) = (all_looks(&file), file.metadata().unwrap().blocks());
            let made = plan(&[&file], Policy::WholeFile);
            assert_eq!((made.summary.bytes_to_move, made.summary.space_cost_bytes), (SIZE, 0));
            let (summary, receipts) = apply(&made);
            assert_eq!((summary.skipped.len(), summary.moved_bytes), (0, SIZE), "{summary:?}");
            // The kernel chooses where each chunk is; how many there are is certain.
            let after = receipts[0].extents_after.unwrap();
            assert!(after <= FEWEST, "{receipts:?}");
            assert_eq!(how(&file), [way].repeat(FEWEST as usize), "{then}, mounted with {now}");
            assert_eq!(all_looks(&file), before, "{then}, mounted with {now}");
            assert_eq!(file.metadata().unwrap().blocks(), blocks);
            assert!(holds(&file, SIZE, compressible).unwrap());
            assert_eq!(plan(&[&file], Policy::WholeFile).files, [], "nothing is left to do");
            files.push(file.clone());
        }
    }
    image.fsck();
    for file in files {
        assert!(holds(&file, SIZE, compressible).unwrap(), "{file:?}");
    }
}

#[test]
fn loop_the_level_of_the_mount_is_kept() {
    let image = &Image::of(&BTRFS, 512 << 20);
    // Noise of eight different bytes: how much it shrinks depends on the level.
    let eight = |at: u64, buffer: &mut [u8]| {
        content(at, buffer);
        buffer.iter_mut().for_each(|byte| *byte = b'a' + (*byte & 7));
    };
    let space_of = |path: &Path| stored(path).iter().map(|e| e.stored).sum::<u64>();
    let mut fresh = Vec::new();
    for level in ["zstd:1", "zstd:3"] {
        compress(image, level);
        let at = |what: &str| image.path().join(format!("{what}-{}", &level[5..]));
        let mut bytes = vec![0; SIZE as usize];
        eight(0, &mut bytes);
        fs::write(at("whole"), bytes).unwrap();
        alternating(&at("fragmented"), SIZE, 32 << 10, eight).unwrap();
        let (summary, _) = apply(&plan(&[&at("fragmented")], Policy::WholeFile));
        assert_eq!(summary.moved_bytes, SIZE, "{summary:?}");
        assert_eq!(
            space_of(&at("fragmented")),
            space_of(&at("whole")),
            "as if written anew by {level}"
        );
        fresh.push(space_of(&at("whole")));
    }
    assert_ne!(fresh[0], fresh[1], "the levels do not differ enough to tell");
}

#[test]
fn loop_attributes_and_properties_that_compress_stay() {
    let image = &Image::of(&BTRFS, 512 << 20);
    let at = |name: &str| image.path().join(name);
    let dirs: [(&str, &[&str], Compression); 3] = [
        ("attribute", &["chattr", "+c"], Zlib),
        ("property", &["setfattr", "-n", "btrfs.compression", "-v", "lzo"], Lzo),
        ("refused", &["setfattr", "-n", "btrfs.compression", "-v", "zstd"], Zstd),
    ];
    for (name, mark, way) in dirs {
        fs::create_dir(at(name)).unwrap();
        run(mark[0], mark[1..].iter().map(AsRef::as_ref).chain([at(name).as_os_str()]));
        let file = squeezed(image, &format!("{name}/file"));
        assert_eq!(how(&file)[0], way, "{name}");
        if name == "refused" {
            // The file is not to be compressed any more; what is compressed stays so.
            run("setfattr", ["-x".as_ref(), "btrfs.compression".as_ref(), file.as_os_str()]);
            run("chattr", ["+m".as_ref(), file.as_os_str()]);
        }
        let before = all_looks(&file);
        let (summary, _) = apply(&plan(&[&file], Policy::WholeFile));
        assert_eq!((summary.skipped.len(), summary.moved_bytes), (0, SIZE), "{summary:?}");
        assert_eq!(how(&file), [way].repeat(FEWEST as usize), "{name}");
        assert_eq!(all_looks(&file), before, "{name}");
        assert!(holds(&file, SIZE, compressible).unwrap());
    }
    image.fsck();
}

#[test]
fn loop_a_well_laid_compressed_file_is_not_fragmented() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let file = image.path().join("file");
    let mut bytes = vec![0; SIZE as usize];
    compressible(0, &mut bytes);
    fs::write(&file, &bytes).unwrap();
    image.sync();
    assert_eq!(stored(&file).len() as u64, FEWEST);
    let bad = squeezed(image, "bad");
    // The kernel reports to root alone where each extent ends; others get the same figures without it.
    for user in [false, true] {
        let fragmend = || if user { as_a_user(FRAGMEND) } else { Command::new(FRAGMEND) };
        let good = scanned(fragmend(), &file);
        let figure = |totals: &Value, name: &str| totals[name].as_u64().unwrap();
        let counted = (figure(&good, "extents"), figure(&good, "ideal_extents"));
        assert_eq!((counted, figure(&good, "fragmented_files")), ((FEWEST, FEWEST), 0), "{good}");
        assert_eq!(figure(&good, "requests_now"), figure(&good, "requests_best"), "{good}");
        let bad = scanned(fragmend(), &bad);
        let counted = (figure(&bad, "extents"), figure(&bad, "ideal_extents"));
        assert_eq!(counted, (SIZE >> 15, FEWEST), "{bad}");
        assert_eq!(figure(&bad, "requests_now"), SIZE >> 15);
    }
    assert_eq!(plan(&[&file], Policy::WholeFile).files, []);
    assert_eq!(plan(&[&file], Policy::Bypass).files, []);
}

#[test]
fn loop_only_root_is_told_how_a_file_is_compressed() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let file = squeezed(image, "file");
    let before = (stored(&file), all_looks(&file));
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&file], Policy::WholeFile), &plan_file);
    let mut command = as_a_user(FRAGMEND);
    command.args(["apply", "--json", "--rate", "max"]).arg(&plan_file);
    let said = finish(&mut command).expect(&[2]);
    assert!(said.contains("\"permission_denied\"") && said.contains("run as root"), "{said}");
    assert_eq!((stored(&file), all_looks(&file)), before);
}

#[test]
fn loop_what_is_compressed_in_part_moves_part_by_part() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let file = squeezed(image, "file");
    // Behind it, plain data in fragments.
    let (plain, dummy) =
        (File::options().write(true).open(&file).unwrap(), File::create(image.path().join("d")));
    interleave(&plain, &dummy.unwrap(), SIZE, SIZE, &[4096]).unwrap();
    drop(plain);
    image.sync();
    let before = (fs::read(&file).unwrap(), all_looks(&file));
    let mut made = plan(&[&file], Policy::WholeFile);
    let ranges = &made.files[0].ranges;
    assert_eq!(ranges.iter().map(|r| r.length).collect::<Vec<_>>(), [SIZE, SIZE]);
    // A plan that was edited to move both as one range.
    let mut both = made.clone();
    both.files[0].ranges.pop();
    both.files[0].ranges[0].length = 2 * SIZE;
    let (summary, _) = apply(&both);
    assert_eq!(reasons(&summary, &file), [SkipReason::Encoded], "{summary:?}");
    // A range whose end divides an extent: that extent stays.
    made.files[0].ranges[0].length = SIZE - 4096;
    let last = *stored(&file).last().unwrap();
    let (summary, receipts) = apply(&made);
    assert_eq!(summary.ranges_moved, 2, "{receipts:?}");
    assert_eq!(receipts[1].extents_after, Some(1), "plain data in one extent");
    assert_eq!(*stored(&file).last().unwrap(), last);
    assert_eq!(stored(&file).len() as u64, FEWEST + 1);
    assert_eq!((fs::read(&file).unwrap(), all_looks(&file)), before);
    image.fsck();
    assert_eq!(fs::read(&file).unwrap(), before.0);
}

/// Overwrites a block in each 32 KiB of a compressed file.
fn overwritten(file: &Path) -> Vec<u8> {
    let open = File::options().write(true).open(file).unwrap();
    for at in (8192..SIZE).step_by(32 << 10) {
        let mut block = vec![0; 4096];
        compressible(at, &mut block);
        open.write_all_at(&block, at).unwrap();
        open.sync_all().unwrap();
    }
    fs::read(file).unwrap()
}

#[test]
fn loop_blocks_written_to_a_compressed_file_are_compressed_with_it() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let whole = vec![0; SIZE as usize];
    let file = image.path().join("file");
    fs::write(&file, whole).unwrap();
    image.sync();
    let bytes = overwritten(&file);
    assert_eq!(stored(&file).len() as u64, SIZE / (32 << 10) + FEWEST, "around the blocks");
    // The mount's present option decides whether they are compressed.
    compress(image, "no");
    let before = all_looks(&file);
    let made = plan(&[&file], Policy::WholeFile);
    let (summary, _) = apply(&made);
    assert_eq!(reasons(&summary, &file), [SkipReason::Encoded], "{summary:?}");
    compress(image, "lzo");
    let (summary, receipts) = apply(&made);
    assert_eq!((summary.skipped.len(), summary.moved_bytes), (0, SIZE), "{summary:?}");
    assert!(receipts[0].extents_after.unwrap() <= FEWEST, "{receipts:?}");
    assert_eq!(how(&file), [Zstd].repeat(FEWEST as usize));
    assert_eq!((all_looks(&file), fs::read(&file).unwrap()), (before, bytes.clone()));
    image.fsck();
    assert_eq!(fs::read(&file).unwrap(), bytes);
}

/// A compressed file that does not compress when it is written anew: the kernel marks it then.
fn does_not_shrink(image: &Image) -> std::path::PathBuf {
    let file = image.path().join("file");
    // In each fragment, one half compresses. When that is overwritten, nothing does.
    let half = |at: u64, buffer: &mut [u8]| {
        let middle = buffer.len() / 2;
        content(at, buffer);
        buffer[..middle].fill(0);
    };
    alternating(&file, SIZE, 32 << 10, half).unwrap();
    let open = File::options().write(true).open(&file).unwrap();
    let mut block = vec![0; 16 << 10];
    for at in (0..SIZE).step_by(32 << 10) {
        content(at, &mut block);
        open.write_all_at(&block, at).unwrap();
        open.sync_all().unwrap();
    }
    drop(open);
    // Those writes have left the mark; the owner removes it.
    run("chattr", ["-m".as_ref(), file.as_os_str()]);
    assert_eq!((marks(&file) & flags::NO_COMPRESSION, stored(&file).len()), (0, 32));
    file
}

fn marks(file: &Path) -> u32 {
    fragmend_sys::inode::attributes(File::open(file).unwrap()).unwrap()
}

#[test]
fn loop_what_does_not_shrink_leaves_no_mark() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let file = does_not_shrink(image);
    let before = looks(&file);
    let (summary, _) = apply(&plan(&[&file], Policy::WholeFile));
    // The receipt reports the result: the data was compressed, and is plain now.
    assert_eq!(summary.moved_bytes, SIZE - (16 << 10), "all but the blocks ahead: {summary:?}");
    assert_eq!(reasons(&summary, &file), [SkipReason::LayoutChanged], "{summary:?}");
    assert!(summary.skipped[0].detail.contains("not compressed by zstd now"), "{summary:?}");
    assert_eq!(stored(&file).len(), 0);
    assert_eq!(marks(&file) & flags::NO_COMPRESSION, 0, "a mark that is not the owner's");
    assert_eq!(looks(&file), before);
    image.fsck();
    assert!(holds(&file, SIZE, content).unwrap());
}

/// Removing the kernel's mark sets all attributes at once: what another program sets meanwhile, the
/// same mark or another one, must not be undone.
#[test]
fn loop_attributes_that_others_set_meanwhile_stay() {
    for theirs in ["+m", "+A"] {
        let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
        let file = does_not_shrink(image);
        let stopped = stopped_at_the_mark(image, &file);
        run("chattr", [theirs.as_ref(), file.as_os_str()]);
        the_mark_stays(stopped, &file, "the file was changed");
    }
}

/// A program that has the file open may be about to set a mark.
#[test]
fn loop_the_mark_stays_while_others_have_it_open() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let file = does_not_shrink(image);
    let stopped = stopped_at_the_mark(image, &file);
    let _theirs = File::open(&file).unwrap();
    the_mark_stays(stopped, &file, "others have the file open");
}

/// `apply`, stopped before it removes the kernel's mark.
fn stopped_at_the_mark(image: &Image, file: &Path) -> Running {
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[file], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--rate", "max", "--json"]).arg(plan_file);
    command.env("FRAGMEND_STOP_AT", "marked=stop").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let stopped = Running::start(&mut command).wait_until(support::rewrite::is_stopped);
    assert_ne!(marks(file) & flags::NO_COMPRESSION, 0, "the kernel's mark");
    stopped
}

/// Continues it, and checks that all attributes stay as they are now.
fn the_mark_stays(stopped: Running, file: &Path, because: &str) {
    let set = marks(file);
    stopped.signal(rustix::process::Signal::CONT);
    let said = stopped.wait().expect(&[2]);
    assert_eq!(marks(file), set, "{said}");
    assert!(said.contains(&format!("the mark stays, because {because}")), "{said}");
    assert!(holds(file, SIZE, content).unwrap());
}

#[test]
fn loop_holes_unwritten_space_and_the_end_of_a_compressed_file_stay() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let file = squeezed(image, "file");
    let change = |offset: u64, length: u64, mode: &str| {
        let (offset, length) = (offset.to_string(), length.to_string());
        let args = [mode, "-o", &offset, "-l", &length].map(AsRef::as_ref);
        run("fallocate", args.into_iter().chain([file.as_os_str()]));
    };
    change(128 << 10, 64 << 10, "-p");
    change(512 << 10, 64 << 10, "-z");
    change(SIZE, 256 << 10, "-n");
    File::options().write(true).open(&file).unwrap().set_len(SIZE - 100).unwrap();
    image.sync();
    let holes = |path: &Path| {
        let layout = fragmend_scan::layout_of(File::open(path).unwrap()).unwrap();
        let unwritten = layout.extents().iter().filter(|e| !e.kind.is_addressed());
        (layout.runs().collect::<Vec<_>>(), unwritten.copied().collect::<Vec<_>>())
    };
    let before = (fs::read(&file).unwrap(), all_looks(&file), holes(&file));
    let (summary, _) = apply(&plan(&[&file], Policy::WholeFile));
    assert!(summary.ranges_moved >= 3 && summary.skipped.is_empty(), "{summary:?}");
    image.fsck();
    assert_eq!((fs::read(&file).unwrap(), all_looks(&file), holes(&file)), before);
    assert!(how(&file).iter().all(|c| *c == Zstd));
}

#[test]
fn loop_a_compressed_file_that_a_snapshot_shares() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let at = |name: &str| image.path().join(name);
    btrfs(&["subvolume", "create"], &[&at("source")]);
    let file = squeezed(image, "source/file");
    btrfs(&["subvolume", "snapshot", "-r"], &[&at("source"), &at("snap")]);
    let snap = at("snap/file");
    let (used, before) = (data_used(image), (stored(&snap), all_looks(&snap)));
    let settings = Settings { policy: Policy::WholeFile, unshare: true, ..Settings::default() };
    assert_eq!(plan(&[&file], Policy::WholeFile).files, []);
    let made = plan_with(&[&file], &settings);
    // The stored bytes count, not those that are read.
    let cost: u64 = stored(&file).iter().map(|e| e.stored).sum();
    assert!(cost < SIZE / 2, "{cost}");
    assert_eq!(made.summary.space_cost_bytes, cost);
    let (summary, _) = apply(&made);
    assert_eq!(reasons(&summary, &file), [SkipReason::Shared], "{summary:?}");
    assert_eq!((data_used(image), shared_bytes(&file)), (used, SIZE));
    let options = Options { unshare: true, rate: Rate::Unlimited, ..Options::default() };
    let (summary, _) = apply_with(&made, &options);
    let now: u64 = stored(&file).iter().map(|e| e.stored).sum();
    assert_eq!((summary.moved_bytes, summary.space_cost_bytes), (SIZE, now), "{summary:?}");
    assert_eq!((data_used(image), shared_bytes(&file)), (used + now, 0));
    assert!(now <= cost, "longer extents compress no worse: {cost} bytes, then {now}");
    assert_eq!((stored(&snap), all_looks(&snap)), before);
    image.fsck();
    assert!(holds(&file, SIZE, compressible).unwrap());
    assert!(holds(&snap, SIZE, compressible).unwrap());
}

#[test]
fn loop_writers_of_a_compressed_file_see_their_own_bytes() {
    const BYTES: u64 = 4 << 20;
    for (engine, direct, block) in
        [("psync", 0, "32k"), ("psync", 1, "4k"), ("mmap", 0, "4k"), ("io_uring", 0, "64k")]
    {
        let image = Image::of(&BTRFS_ZSTD, 512 << 20);
        let file = image.path().join("file");
        alternating(&file, BYTES, 32 << 10, compressible).unwrap();
        let (size, engine, direct) =
            (format!("size={BYTES}"), format!("ioengine={engine}"), format!("direct={direct}"));
        let bs = format!("bs={block}");
        // A pattern, so that it compresses; the header of each block contains when it was written.
        let load = [&size, "rw=randwrite", &bs, "verify=crc32c", "verify_pattern=0xfa", "loops=3"];
        let of_run = [&engine, &direct, "verify_backlog=64", "verify_fatal=1", "overwrite=1"];
        let seed = ["randseed=7"];
        let mut writer = fio::command(&file, &[&load[..], &of_run, &seed].concat());
        let mut writer = Running::start(writer.stdout(Stdio::piped()).stderr(Stdio::piped()));
        // Repeatedly while it writes: what it writes is soon fragmented.
        let (mut moved, mut left_alone) = (0, Vec::new());
        while writer.child().try_wait().unwrap().is_none() {
            let made = plan(&[&file], Policy::WholeFile);
            let (summary, receipts) = apply(&made);
            let ranges: usize = made.files.iter().map(|f| f.ranges.len()).sum();
            assert_eq!(receipts.len(), ranges, "every range has its receipt");
            moved += summary.moved_bytes;
            left_alone.extend(summary.skipped.iter().map(|s| s.reason));
        }
        let written = fio::parse(&writer.wait().expect(&[0])).write;
        assert!(written.bytes >= BYTES, "fio wrote {} bytes", written.bytes);
        left_alone.sort_unstable();
        left_alone.dedup();
        println!("{engine} {direct}: {moved} bytes moved, left alone: {left_alone:?}");
        image.fsck();
        fio::run(&file, &[&load[..], &seed, &["verify_only=1"]].concat());
    }
}

#[test]
fn loop_kills_lose_nothing_of_a_compressed_file() {
    const SEED: u64 = 0x0C0F_FEE5;
    const BYTES: u64 = 8 << 20;
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let (file, plan_file) = (image.path().join("file"), image.scratch().join("plan.json"));
    let mut random = Random::new(SEED);
    for round in 0..25 {
        let _ = fs::remove_file(&file);
        compress(image, "zstd");
        alternating(&file, BYTES, 32 << 10, compressible).unwrap();
        // The result of a step in progress when the process ends must not depend on the mount.
        compress(image, "no");
        let used = data_used(image);
        write_plan(&plan(&[&file], Policy::WholeFile), &plan_file);
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--quiet", "--rate", "max"]).arg(&plan_file);
        let apply = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        apply.signal(rustix::process::Signal::KILL);
        drop(apply.wait());
        assert!(holds(&file, BYTES, compressible).unwrap(), "seed {SEED:#x}, round {round}");
        assert!(how(&file).iter().all(|c| *c == Zstd), "seed {SEED:#x}, round {round}");
        assert!(data_used(image) <= used, "seed {SEED:#x}, round {round}");
    }
    image.fsck();
    assert!(holds(&file, BYTES, compressible).unwrap());
}
