//! As `loop_limits`, for what many hosts' kernels lack: user and project quotas, and F2FS.

mod support;

use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_testbed::file_system::{FileSystem, XFS, XFS_RMAP};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::guest_tests;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::finish;
use fragmend_testbed::tools::extents;
use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{SIZE, apply, fragmented, plan, readable_by_all, write_plan};

const MIB: u64 = 1 << 20;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

guest_tests! {
    uml_ext4_quotas_are_kept => quotas_are_kept(&ext4(), Donor::Roots);
    uml_xfs_quotas_are_kept => quotas_are_kept(&xfs(&XFS), Donor::Roots);
    uml_quotas_are_kept_where_files_are_swapped => quotas_are_kept(&xfs(&XFS_RMAP), Donor::Owners);
    uml_project_quotas_are_kept => project_quotas_are_kept();
}

const USER: u32 = 65534;

/// Bytes that count against the user.
fn usage(image: &Image) -> u64 {
    image.sync();
    let all = run("repquota", ["-u".as_ref(), "-n".as_ref(), image.path().as_os_str()]);
    let line = all.lines().find(|l| l.starts_with(&format!("#{USER} ")));
    let blocks = line.and_then(|l| l.split_whitespace().nth(2)).unwrap_or("0");
    blocks.trim_end_matches('*').parse::<u64>().expect("KiB") << 10
}

fn limit(image: &Image, bytes: u64) {
    let (user, limit) = (USER.to_string(), (bytes >> 10).to_string());
    let options = ["-u", &user, "0", &limit, "0", "0"].map(AsRef::as_ref);
    run("setquota", options.into_iter().chain([image.path().as_os_str()]));
}

fn ext4() -> Image {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    for module in ["quota_tree", "quota_v2"] {
        run("insmod", [format!("/usr/lib/uml/modules/{release}/kernel/fs/quota/{module}.ko")]);
    }
    Image::ext4_with(128 * MIB, &["-O", "quota"], "usrquota")
}

fn xfs(file_system: &'static FileSystem) -> Image {
    let image = Image::of(file_system, 320 * MIB);
    image.unmount();
    image.mount_with("uquota");
    image
}

/// The user against whom root's donor counts.
#[derive(PartialEq)]
enum Donor {
    Roots,
    Owners,
}

/// An owner whose quota has space for half a donor cannot move the file; root can, if the donor counts
/// against root.
fn quotas_are_kept(image: &Image, donor: Donor) {
    let dir = image.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let path = fragmented(image, "dir/file");
    for own in [&dir, &path] {
        chown(own, Some(USER), Some(USER)).unwrap();
    }
    let before = usage(image);
    assert!(before >= SIZE, "{before}");
    limit(image, before + SIZE / 2);
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    readable_by_all(&plan_file);
    let was = extents(&path);
    let refused = |command: &mut Command| {
        let told = finish(command.args(["apply", "--rate", "max"]).arg(&plan_file)).expect(&[2]);
        let line = told.lines().find(|l| l.starts_with("left alone")).expect("the reason");
        assert!(line.contains("quota"), "{line}");
        assert_eq!((extents(&path), usage(image)), (was, before));
    };
    let mut owner = Command::new("setpriv");
    refused(owner.args(["--reuid=65534", "--regid=65534", "--clear-groups", FRAGMEND]));
    if donor == Donor::Owners {
        refused(&mut Command::new(FRAGMEND));
        limit(image, 0);
    }
    finish(Command::new(FRAGMEND).args(["apply", "--rate", "max"]).arg(&plan_file)).expect(&[0]);
    assert_eq!(extents(&path), 1);
    wait_until_no_more(before, || usage(image));
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
}

/// A directory whose quota is a little more than it contains, for which XFS reports a full disk: its
/// donors count, and usage is afterwards what it was before.
fn project_quotas_are_kept() {
    for file_system in [&XFS, &XFS_RMAP] {
        let image = Image::of(file_system, 320 * MIB);
        image.unmount();
        image.mount_with("pquota");
        let dir = image.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let quota = |command: &str| {
            let args = ["-x", "-c", command].map(AsRef::as_ref);
            run("xfs_quota", args.into_iter().chain([image.path().as_os_str()]))
        };
        quota(&format!("project -s -p {} 42", dir.display()));
        let used = || {
            image.sync();
            let told = quota("quota -p -N -b -v 42");
            let number = told.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
            number.unwrap_or_else(|| panic!("no KiB in {told:?}")) << 10
        };
        let path = fragmented(&image, "dir/file");
        let before = used();
        assert!(before >= SIZE, "{before}");
        let made = plan(&[&path], Policy::WholeFile);
        let was = extents(&path);
        quota(&format!("limit -p bhard={} 42", before + SIZE / 2));
        let (summary, receipts) = apply(&made);
        let quotas = receipts.iter().filter(|r| r.reason == Some(SkipReason::Quota)).count();
        assert!(quotas > 0 && summary.ranges_moved == 0 && !summary.failed(), "{receipts:?}");
        assert_eq!((extents(&path), used()), (was, before));
        // Space for the donor, and for little more.
        quota(&format!("limit -p bhard={} 42", before + SIZE + SIZE / 2));
        let (summary, receipts) = apply(&made);
        assert!(!summary.failed() && extents(&path) == 1, "{receipts:?}");
        wait_until_no_more(before, used);
        image.fsck();
        assert!(is_intact(&path, SIZE).unwrap());
    }
}

/// Checks that usage is what it was before, but for blocks of the mapping, of which there are fewer now.
fn wait_until_no_more(before: u64, used: impl Fn() -> u64) {
    let mut after = used();
    let patience = Instant::now() + Duration::from_secs(10);
    while after > before && Instant::now() < patience {
        // XFS frees a donor in the background.
        std::thread::sleep(Duration::from_millis(50));
        after = used();
    }
    assert!(after <= before && after >= SIZE, "{before} before, {after} after");
}
