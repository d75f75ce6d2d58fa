//! Every kind of file that needs care: it is moved with its bytes intact, or left alone with a
//! reason. One image per group, real attributes, real holders of the files.

mod support;

use fragmend_apply::Outcome;
use fragmend_layout::SkipReason;
use fragmend_pipeline::plan_file;
use fragmend_plan::Policy;
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::Running;
use fragmend_testbed::tools::extents;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use support::conformance::kinds;
use support::{
    SIZE, apply, apply_forced, fragmented, holder, left_alone, plan, reasons, redirected,
    write_plan,
};

#[test]
fn loop_attributes_are_respected() {
    let image = Image::ext4(128 << 20);
    let chattr = |flag: &'static str| {
        move |path: &Path| {
            run("chattr", [flag.as_ref(), path.as_os_str()]);
        }
    };
    left_alone(&image, "immutable", SkipReason::Immutable, chattr("+i"));
    left_alone(&image, "append-only", SkipReason::AppendOnly, chattr("+a"));
    for name in ["immutable", "append-only"] {
        run("chattr", ["-ia".as_ref(), image.path().join(name).as_os_str()]);
    }
    // Data journalling needs a capability that a test may lack: it is set on the unmounted disk.
    left_alone(&image, "journalled", SkipReason::JournalledData, |_| {
        image.unmount();
        run("debugfs", ["-w", "-R", "set_inode_field /journalled flags 0x84000", image.device()]);
        image.mount_with("");
    });
    // As ext3 has files: mapped by blocks.
    let template = plan(&[&fragmented(&image, "template")], Policy::WholeFile);
    let blocks = image.path().join("no-extents");
    File::create(&blocks).unwrap();
    run("chattr", ["-e".as_ref(), blocks.as_os_str()]);
    fs::write(&blocks, vec![7; SIZE as usize]).unwrap();
    image.sync();
    let (summary, _) = apply(&redirected(&template, &blocks));
    assert_eq!(reasons(&summary, &blocks), [SkipReason::NoExtents], "{summary:?}");
    image.fsck();
    for name in ["immutable", "append-only", "journalled"] {
        assert!(is_intact(&image.path().join(name), SIZE).unwrap(), "{name}");
    }
    assert_eq!(fs::read(&blocks).unwrap(), vec![7; SIZE as usize]);
}

#[test]
fn loop_files_in_use_are_left_alone_where_they_must_be() {
    let image = Image::ext4(128 << 20);
    let swap = fragmented(&image, "swap");
    let swap_plan = plan(&[&swap], Policy::WholeFile);
    fs::set_permissions(&swap, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    run("mkswap", [&swap]);
    run("swapon", [&swap]);
    let (swapped, forced) = (apply(&swap_plan).0, apply_forced(&swap_plan).0);
    run("swapoff", [&swap]);
    assert_eq!(reasons(&swapped, &swap), [SkipReason::Busy], "{swapped:?}");
    assert_eq!(reasons(&forced, &swap), [SkipReason::SwapFile], "{forced:?}");

    // A program that is running: a copy of a real one, in fragments.
    let program = image.path().join("program");
    let bytes = fs::read("/bin/sleep").unwrap();
    interleaved(&program, bytes.len() as u64, &[4096], true).unwrap();
    File::options().write(true).open(&program).unwrap().write_all_at(&bytes, 0).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    image.sync();
    let program_plan = plan(&[&program], Policy::WholeFile);
    let running = Running::start(Command::new(&program).arg("60"));
    let (summary, _) = apply(&program_plan);
    drop(running);
    assert_eq!(reasons(&summary, &program), [SkipReason::Executing], "{summary:?}");
    assert_eq!(fs::read(&program).unwrap(), bytes);

    let leased = fragmented(&image, "leased");
    let leased_plan = plan(&[&leased], Policy::WholeFile);
    let lease = holder(
        &leased,
        "import fcntl,os,sys,signal\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n\
         f=os.open(sys.argv[1],os.O_RDWR)\nfcntl.fcntl(f,fcntl.F_SETLEASE,fcntl.F_WRLCK)\n\
         os.write(1,b'r')\nsys.stdin.read()",
    );
    let (summary, _) = apply(&leased_plan);
    drop(lease);
    assert_eq!(reasons(&summary, &leased), [SkipReason::Leased], "{summary:?}");
    image.fsck();
    assert!(is_intact(&leased, SIZE).unwrap());
}

#[test]
fn loop_things_that_are_no_regular_files() {
    let image = Image::ext4(64 << 20);
    let file = fragmented(&image, "file");
    let template = plan(&[&file], Policy::WholeFile);
    let dir = image.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let device = image.path().join("device");
    run("mknod", [device.as_os_str(), "b".as_ref(), "7".as_ref(), "250".as_ref()]);
    let pipe = image.path().join("pipe");
    run("mkfifo", [&pipe]);
    for path in [&dir, &device, &pipe] {
        let (summary, _) = apply(&redirected(&template, path));
        assert_eq!(reasons(&summary, path), [SkipReason::NotRegular], "{path:?}");
    }
    // The right inode number with the wrong generation: the inode was reused.
    let mut reused = template.clone();
    reused.files[0].file.generation ^= 1;
    let (summary, _) = apply(&reused);
    assert_eq!(reasons(&summary, &file), [SkipReason::IdentityChanged]);
    assert!(is_intact(&file, SIZE).unwrap());
}

#[test]
fn loop_names_links_and_places() {
    use std::os::unix::ffi::OsStrExt;
    let image = Image::ext4(128 << 20);
    let odd = std::ffi::OsStr::from_bytes(b"new\nline \xff\xfe \"quoted\"");
    let odd = image.path().join(odd);
    interleaved(&odd, SIZE, &[4096], true).unwrap();
    let linked = fragmented(&image, "linked");
    let second = image.path().join("second-name");
    fs::hard_link(&linked, &second).unwrap();
    let renamed = fragmented(&image, "renamed");
    let deleted = fragmented(&image, "deleted");
    let held = File::open(&deleted).unwrap();

    let made = plan(&[image.path()], Policy::WholeFile);
    assert_eq!(made.files.len(), 4, "a file with two names is one file");
    // Through a plan file, as a user would.
    let plan_file = image.scratch().join("plan.json");
    write_plan(&made, &plan_file);
    let made = plan_file::open(&plan_file).unwrap();
    let moved_to = image.path().join("moved");
    fs::rename(&renamed, &moved_to).unwrap();
    fs::remove_file(&deleted).unwrap();

    let (summary, _) = apply(&made);
    assert_eq!(summary.ranges_moved, 3);
    assert_eq!(reasons(&summary, &deleted), [SkipReason::Busy], "it is open: {summary:?}");
    let (summary, mut receipts) = apply_forced(&made);
    assert_eq!((summary.ranges_moved, summary.ranges_skipped), (1, 3), "{summary:?}");
    receipts.retain(|r| r.outcome == Outcome::Moved);
    assert!(receipts.iter().all(|r| r.extents_after == Some(1)), "{receipts:?}");
    for path in [&odd, &linked, &second, &moved_to] {
        assert!(is_intact(path, SIZE).unwrap(), "{path:?}");
        assert_eq!(extents(path), 1);
    }
    // Deleted and still open: moved all the same, and still readable.
    let mut byte = [0; 8];
    held.read_exact_at(&mut byte, SIZE - 8).unwrap();
    let mut want = [0; 8];
    fragmend_testbed::fragment::content(SIZE - 8, &mut want);
    assert_eq!(byte, want);
    drop(held);
    image.fsck();
}

#[test]
fn loop_holes_stay_holes_and_the_end_stays_the_end() {
    let image = Image::ext4(128 << 20);
    // 10,000 bytes: the last block is partial.
    let odd_size = image.path().join("odd-size");
    interleaved(&odd_size, 10_000, &[4096], true).unwrap();
    let sparse = fragmented(&image, "sparse");
    let punch = |offset: u64, length: u64, mode: &str| {
        let (o, l) = (offset.to_string(), length.to_string());
        run(
            "fallocate",
            [
                mode.as_ref(),
                "-o".as_ref(),
                o.as_ref(),
                "-l".as_ref(),
                l.as_ref(),
                sparse.as_os_str(),
            ],
        );
    };
    punch(128 << 10, 64 << 10, "-p"); // a hole
    punch(512 << 10, 64 << 10, "-z"); // unwritten space
    punch(SIZE, 256 << 10, "-n"); // preallocated beyond the end
    image.sync();
    let before = fs::read(&sparse).unwrap();
    let (blocks, map) = (sparse.metadata().unwrap().blocks(), kinds(&sparse));
    let stamps = |path: &Path| {
        let m = path.metadata().unwrap();
        (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec())
    };
    let stamp = stamps(&sparse);

    let (summary, _) = apply(&plan(&[image.path()], Policy::WholeFile));
    assert!(summary.ranges_moved >= 4, "{summary:?}");
    assert_eq!(fs::read(&sparse).unwrap(), before);
    assert_eq!(sparse.metadata().unwrap().blocks(), blocks);
    assert_eq!(kinds(&sparse), map);
    assert_eq!(stamps(&sparse), stamp, "moving is not modifying");
    assert!(is_intact(&odd_size, 10_000).unwrap());
    assert_eq!(extents(&odd_size), 1);
    image.fsck();
    assert_eq!(fs::read(&sparse).unwrap(), before);
    assert!(is_intact(&odd_size, 10_000).unwrap());
}

#[test]
fn loop_inline_and_empty_files() {
    let image = Image::ext4_with(64 << 20, &["-O", "inline_data", "-I", "256"], "");
    let file = fragmented(&image, "file");
    let template = plan(&[&file], Policy::WholeFile);
    let inline = image.path().join("inline");
    fs::write(&inline, b"tiny").unwrap();
    image.sync();
    let made = redirected(&template, &inline);
    let (summary, _) = apply(&made);
    assert_eq!(reasons(&summary, &inline), [SkipReason::InlineData], "{summary:?}");
    assert_eq!(fs::read(&inline).unwrap(), b"tiny");
    fs::write(image.path().join("empty"), b"").unwrap();
    let made = plan(&[image.path()], Policy::WholeFile);
    assert_eq!(made.files.len(), 1, "only the fragmented one");
    assert!(apply(&made).0.ranges_moved >= 1);
    image.fsck();
    assert!(is_intact(&file, SIZE).unwrap());
}

#[test]
fn loop_mapped_files_move_under_their_mappings() {
    let image = Image::ext4(128 << 20);
    // One is mapped read-only, the other is written through a shared mapping all the time.
    let clean = fragmented(&image, "clean");
    let dirty = fragmented(&image, "dirty");
    let made = plan(&[&clean, &dirty], Policy::WholeFile);
    let reader = holder(
        &clean,
        "import mmap,os,sys\nf=os.open(sys.argv[1],os.O_RDONLY)\n\
         m=mmap.mmap(f,0,prot=mmap.PROT_READ)\nsum(m[::4096])\nos.write(1,b'r')\nsys.stdin.read()",
    );
    let mut writer = holder(
        &dirty,
        "import mmap,os,sys,select\nf=os.open(sys.argv[1],os.O_RDWR)\nm=mmap.mmap(f,0)\n\
         os.write(1,b'r')\nn=0\n\
         while not select.select([0],[],[],0)[0]:\n n+=1\n \
         for p in range(0,len(m),4096): m[p:p+8]=n.to_bytes(8,'little')\n\
         os.write(1,n.to_bytes(8,'little'))",
    );
    let (summary, _) = apply_forced(&made);
    // Whether the dirty one moved depends on which program was faster; its bytes are right in any case.
    drop(writer.child().stdin.take());
    let mut rounds = [0; 8];
    let out = writer.child().stdout.as_mut().unwrap();
    std::io::Read::read_exact(out, &mut rounds).unwrap();
    drop((reader, writer));
    assert_eq!(reasons(&summary, &clean), [], "{summary:?}");
    let other = reasons(&summary, &dirty);
    assert!(other.is_empty() || other == [SkipReason::Busy], "{other:?}");
    let check = |bytes: Vec<u8>| {
        for (page, chunk) in bytes.chunks(4096).enumerate() {
            assert_eq!(chunk[..8], rounds, "page {page}");
            let mut want = [0; 4096];
            fragmend_testbed::fragment::content(page as u64 * 4096, &mut want);
            assert_eq!(chunk[8..], want[8..], "page {page}");
        }
    };
    check(fs::read(&dirty).unwrap());
    image.fsck();
    check(fs::read(&dirty).unwrap());
    assert!(is_intact(&clean, SIZE).unwrap());
    assert_eq!(extents(&clean), 1);
}

#[test]
fn loop_beyond_four_gibibytes() {
    // Sparse: data at both ends of a file of 5 GiB and beyond 4 GiB of offset.
    let image = Image::ext4(256 << 20);
    let path = image.path().join("huge");
    let dummy = File::create(image.path().join("dummy")).unwrap();
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    let block = |at: u64| {
        let mut bytes = [0; 4096];
        fragmend_testbed::fragment::content(at, &mut bytes);
        bytes
    };
    let offsets: Vec<u64> =
        (0..64).map(|i| i * 4096).chain((0..64).map(|i| (5 << 30) + i * 4096)).collect();
    for (i, at) in offsets.iter().enumerate() {
        let how = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, how, *at, 4096).unwrap();
        rustix::fs::fallocate(&dummy, how, i as u64 * 4096, 4096).unwrap();
        file.write_all_at(&block(*at), *at).unwrap();
    }
    file.sync_all().unwrap();
    let before = extents(&path);
    assert!(before > 60, "{before}");
    let (summary, receipts) = apply_forced(&plan(&[&path], Policy::WholeFile));
    assert_eq!(summary.ranges_moved, 2, "{receipts:?}");
    assert!(receipts.iter().all(|r| r.extents_after == Some(1)), "{receipts:?}");
    drop((file, dummy));
    image.fsck();
    let file = File::open(&path).unwrap();
    let mut got = [0; 4096];
    for at in offsets {
        file.read_exact_at(&mut got, at).unwrap();
        assert_eq!(got, block(at), "{at}");
    }
    assert_eq!(file.metadata().unwrap().len(), (5 << 30) + 64 * 4096);
}
