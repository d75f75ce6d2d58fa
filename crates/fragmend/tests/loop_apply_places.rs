//! Files in unusual places: encrypted directories, an overlay, another mount namespace, a bind
//! mount. They are moved where that is safe, or left alone with a reason that says what to do.

mod support;

use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::overlay::Overlay;
use fragmend_testbed::process::{Finished, finish};
use fragmend_testbed::tools::{self, extents};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use support::{SIZE, apply, fragmented, plan, reasons, redirected, write_plan};

fn fragmend<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    finish(Command::new(tools::fragmend()).args(args))
}

/// Adds a key to the file system and encrypts an empty directory with it, as `fscryptctl` does
/// (FS_IOC_ADD_ENCRYPTION_KEY and FS_IOC_SET_ENCRYPTION_POLICY, linux/fscrypt.h).
const ENCRYPT: &str = "
import fcntl,os,struct,sys
d=os.open(sys.argv[1],os.O_RDONLY)
key=bytearray(struct.pack('=II32xII32x',2,0,64,0)+bytes(range(64)))
fcntl.ioctl(d,0xc0506617,key)
policy=struct.pack('=BBBBB3x',2,1,4,3,0)+bytes(key[8:24])
fcntl.ioctl(d,0x800c6613,policy)
";

#[test]
fn loop_encrypted_files_are_left_alone() {
    let image = Image::ext4_with(128 << 20, &["-O", "encrypt"], "");
    let template = plan(&[&fragmented(&image, "template")], Policy::WholeFile);
    let secret = image.path().join("secret");
    fs::create_dir(&secret).unwrap();
    run("python3", ["-c".as_ref(), ENCRYPT.as_ref(), secret.as_os_str()]);
    let file = fragmented(&image, "secret/file");
    let before = extents(&file);
    // Planning leaves it out already; a plan that was made elsewhere is refused for the same reason.
    let planned = plan(&[&file], Policy::WholeFile);
    assert_eq!(planned.files.len(), 0, "{planned:?}");
    let (summary, _) = apply(&redirected(&template, &file));
    assert_eq!(reasons(&summary, &file), [SkipReason::Encrypted], "{summary:?}");
    assert_eq!((summary.moved_bytes, extents(&file)), (0, before));
    assert!(is_intact(&file, SIZE).unwrap());
    image.fsck();
}

/// Kernels without fs-verity refuse to open such a file at all.
#[test]
fn loop_verity_files_are_left_alone() {
    let image = Image::ext4(128 << 20);
    let file = fragmented(&image, "sealed");
    let made = plan(&[&file], Policy::WholeFile);
    image.unmount();
    run("debugfs", ["-w", "-R", "set_inode_field /sealed flags 0x180000", image.device()]);
    image.mount_with("");
    let (summary, _) = apply(&made);
    let [reason] = reasons(&summary, &file)[..] else { panic!("{summary:?}") };
    assert!(matches!(reason, SkipReason::Verity | SkipReason::Unsupported), "{summary:?}");
    assert_eq!(summary.moved_bytes, 0);
}

#[test]
fn loop_an_overlay_says_where_to_go() {
    let image = Image::ext4(128 << 20);
    let overlay = Overlay::over(&image);
    let merged = &overlay.merged;
    let lower = fragmented(&image, "lower/file");
    let seen = merged.join("file");

    let scanned = fragmend([OsStr::new("scan"), merged.as_os_str()]);
    assert!(scanned.stdout.contains("file"), "{scanned:?}");
    let plan_file = image.scratch().join("plan.json");
    let options = ["plan", "--policy", "whole-file", "-o"].map(OsStr::new);
    let planned = fragmend(options.into_iter().chain([plan_file.as_os_str(), seen.as_os_str()]));
    assert_eq!(planned.status.code(), Some(4), "{planned:?}");
    assert!(planned.stderr.contains("overlay"), "{planned:?}");
    assert!(planned.stderr.contains("lower"), "which directories to name instead: {planned:?}");
    assert!(!plan_file.exists());

    // The lower file is moved below the overlay, and the overlay shows the same bytes.
    let (summary, _) = apply(&plan(&[&lower], Policy::WholeFile));
    assert_eq!((summary.ranges_moved, extents(&lower)), (1, 1), "{summary:?}");
    assert!(is_intact(&seen, SIZE).unwrap());
}

/// A container sees the file system at another path, or only a part of it.
#[test]
fn loop_another_mount_namespace_mends_its_own_files() {
    let image = Image::ext4(128 << 20);
    let service = image.path().join("service");
    fs::create_dir(&service).unwrap();
    let file = fragmented(&image, "service/file");
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&file], Policy::WholeFile), &plan_file);
    // Inside, only the subdirectory exists, bind-mounted elsewhere: the plan's paths lead
    // nowhere, but the inode numbers are valid.
    let inside = image.scratch().join("inside");
    fs::create_dir(&inside).unwrap();
    let script = format!(
        "mount --make-rprivate / && mount --bind {service} {inside} && umount {image} && \
         exec {fragmend} apply --json {plan}",
        service = service.display(),
        inside = inside.display(),
        image = image.path().display(),
        fragmend = tools::fragmend().display(),
        plan = plan_file.display(),
    );
    let out = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{stderr}\n{stdout}");
    let moved: Vec<&str> = stdout.lines().filter(|l| l.contains("\"event\":\"range\"")).collect();
    assert!(moved.len() == 1 && moved[0].contains("inside/file"), "{stdout}");
    assert_eq!(extents(&file), 1);
    assert!(is_intact(&file, SIZE).unwrap());
    image.fsck();
}
