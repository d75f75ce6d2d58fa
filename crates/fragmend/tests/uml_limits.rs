//! As `loop_limits`, where many hosts' kernels lack what it takes: user quotas, and F2FS.

mod inside;
mod support;

use fragmend_plan::Policy;
use fragmend_testbed::file_system::{FileSystem, XFS, XFS_RMAP};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::finish;
use fragmend_testbed::tools::extents;
use inside::{f2fs, guest_tests};
use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{SIZE, conformance, fragmented, plan};

const MIB: u64 = 1 << 20;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

guest_tests! {
    uml_ext4_quotas_are_kept => quotas_are_kept(&ext4(), Donor::Roots);
    uml_xfs_quotas_are_kept => quotas_are_kept(&xfs(&XFS), Donor::Roots);
    uml_quotas_are_kept_where_files_are_swapped => quotas_are_kept(&xfs(&XFS_RMAP), Donor::Owners);
    uml_a_full_f2fs_is_left_alone => conformance::a_full_disk_is_left_alone(&f2fs());
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

/// Whose is the donor that root makes?
#[derive(PartialEq)]
enum Donor {
    Roots,
    Owners,
}

/// An owner with room for half a donor may not mend the file; root may, whose donor is its own.
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
    plan(&[&path], Policy::WholeFile).write(&plan_file).unwrap();
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(image.scratch(), readable).unwrap();
    let lies = extents(&path);
    let refused = |command: &mut Command| {
        let told = finish(command.args(["apply", "--rate", "max"]).arg(&plan_file)).expect(&[2]);
        let line = told.lines().find(|l| l.starts_with("left alone")).expect("the reason");
        assert!(line.contains("quota"), "{line}");
        assert_eq!((extents(&path), usage(image)), (lies, before));
    };
    let mut owner = Command::new("setpriv");
    refused(owner.args(["--reuid=65534", "--regid=65534", "--clear-groups", FRAGMEND]));
    if donor == Donor::Owners {
        refused(&mut Command::new(FRAGMEND));
        limit(image, 0);
    }
    finish(Command::new(FRAGMEND).args(["apply", "--rate", "max"]).arg(&plan_file)).expect(&[0]);
    assert_eq!(extents(&path), 1);
    // But for the extents' own blocks, of which there are fewer now.
    let mut after = usage(image);
    let patience = Instant::now() + Duration::from_secs(10);
    while after > before && Instant::now() < patience {
        // XFS takes a donor apart in its own time.
        std::thread::sleep(Duration::from_millis(50));
        after = usage(image);
    }
    assert!(after <= before && after >= SIZE, "{before} before, {after} after");
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
}
