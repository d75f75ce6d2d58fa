//! The identity of loop devices: of what is really behind them, whatever is at the path, and never waiting for it.

use fragmend_device::profile::{Identity, NoIdentity};
use fragmend_sys::block::BlockDevice;
use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::loop_device::{LoopDevice, unmount};
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::{run, try_run};
use fragmend_testbed::scratch;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

fn image(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    path
}

/// The identity of a node's device, which must come soon.
fn identity(node: &str) -> Result<Identity, NoIdentity> {
    let device = BlockDevice::from_dev(Path::new(node).metadata().unwrap().rdev()).unwrap();
    let (send, receive) = channel();
    std::thread::spawn(move || send.send(Identity::of(&device)));
    receive.recv_timeout(Duration::from_secs(20)).expect("it waits for something")
}

#[test]
fn loop_another_file_at_the_path_is_no_identity_and_a_pipe_is_not_waited_for() {
    let dir = scratch::for_disks();
    let path = image(dir.path(), "a.img");
    let device = LoopDevice::attach(&path);
    let first = identity(device.node()).unwrap();
    assert_eq!(identity(device.node()), Ok(first));
    fs::remove_file(&path).unwrap();
    assert_eq!(identity(device.node()), Err(NoIdentity));
    // What the kernel names it now.
    let named = dir.path().join("a.img (deleted)");
    mknodat(CWD, &named, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert_eq!(identity(device.node()), Err(NoIdentity));
    fs::remove_file(&named).unwrap();
    image(dir.path(), "a.img (deleted)");
    assert_eq!(identity(device.node()), Err(NoIdentity));
    device.detach();
}

#[test]
fn loop_direct_io_makes_it_another_device() {
    let dir = scratch::for_disks();
    let device = LoopDevice::attach(&image(dir.path(), "a.img"));
    let of = |direct: &str| {
        run("losetup", [&format!("--direct-io={direct}"), device.node()]);
        identity(device.node()).unwrap()
    };
    let (direct, cached) = (of("on"), of("off"));
    assert!(!direct.is_cached() && cached.is_cached(), "{direct:?} {cached:?}");
    assert_ne!((&direct.id, direct.file_name()), (&cached.id, cached.file_name()));
    assert_eq!(of("on"), direct);
    device.detach();
}

/// Two parts of one image.
#[test]
fn loop_each_part_of_a_file_is_a_device() {
    let dir = scratch::for_disks();
    let image = image(dir.path(), "a.img");
    let whole = LoopDevice::attach(&image);
    let of = |args: &[&str]| {
        let args = args.iter().map(OsStr::new).chain([image.as_os_str()]);
        let node =
            run("losetup", [OsStr::new("--find"), OsStr::new("--show")].into_iter().chain(args));
        let found = identity(node.trim());
        run("losetup", ["--detach", node.trim()]);
        found.unwrap().id
    };
    let direct = "--direct-io=on";
    let first = of(&[direct]);
    assert_eq!(first, identity(whole.node()).unwrap().id);
    let parts = [of(&[direct, "--offset=1048576"]), of(&[direct, "--offset=2097152"])];
    assert!(parts[0] != first && parts[0] != parts[1] && parts[1] != first, "{first} {parts:?}");
    whole.detach();
}

/// A node in /dev stays when another disk is attached to it.
#[test]
fn loop_of_a_block_device_it_is_the_identity_of_that_device() {
    let dir = scratch::for_disks();
    let below = LoopDevice::attach(&image(dir.path(), "a.img"));
    let node = below.node().to_owned();
    let above = LoopDevice::attach(Path::new(&node));
    let (first, whole) = (identity(above.node()).unwrap(), identity(&node).unwrap());
    assert!(first.id.contains(&whole.id), "{first:?} {whole:?}");
    above.detach();
    below.detach();
    let image = image(dir.path(), "b.img");
    // Another test may have it for a while.
    let attached = || try_run("losetup", [node.as_ref(), image.as_os_str()]);
    let tried = (0..200).map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        attached()
    });
    tried.into_iter().find_map(Result::ok).expect("its node is free at last");
    let above = LoopDevice::attach(Path::new(&node));
    let second = identity(above.node());
    above.detach();
    run("losetup", ["--detach", &node]);
    assert_ne!(second.unwrap().id, first.id);
}

/// Two copies of a file system, in each of which is the same file, as far as the file system knows.
#[test]
fn loop_a_file_in_a_copy_of_its_file_system_is_another_device() {
    let dir = scratch::for_disks();
    let [one, two] = ["one.img", "two.img"].map(|name| dir.path().join(name));
    File::create(&one).unwrap().set_len(32 << 20).unwrap();
    EXT4.make(&one, &[]);
    let places = ["first", "second"].map(|name| {
        let place = dir.path().join(name);
        fs::create_dir(&place).unwrap();
        place
    });
    let mount = |image: &Path, at: &Path| {
        let device = LoopDevice::attach(image);
        (MountGuard::mount(&[device.node()], at), device)
    };
    let (mounted, device) = mount(&one, &places[0]);
    image(&places[0], "inner.img");
    unmount(device.node().as_ref(), &places[0]);
    drop(mounted);
    device.detach();
    fs::copy(&one, &two).unwrap();

    let outer = [mount(&one, &places[0]), mount(&two, &places[1])];
    let inner = [0, 1].map(|n| LoopDevice::attach(&places[n].join("inner.img")));
    let now = || [0, 1].map(|n| identity(inner[n].node()));
    let [first, second] = now().map(Result::unwrap);
    assert!(first.id != second.id && first.file_name() != second.file_name(), "{first:?}");
    assert_eq!(now(), [Ok(first), Ok(second)]);

    // Then nothing is known of the disks that distinguishes them.
    fs::remove_file(&one).unwrap();
    fs::remove_file(&two).unwrap();
    assert_eq!(now(), [Err(NoIdentity), Err(NoIdentity)]);
    let [left, gone] = inner;
    let again = LoopDevice::attach(&places[0].join("inner.img"));
    gone.detach();
    assert_eq!(identity(left.node()).unwrap(), identity(again.node()).unwrap());
    again.detach();
    left.detach();
    for ((mounted, device), place) in outer.into_iter().zip(&places) {
        unmount(device.node().as_ref(), place);
        drop(mounted);
        device.detach();
    }
}
