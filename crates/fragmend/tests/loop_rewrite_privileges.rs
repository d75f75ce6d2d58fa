//! What a write to a file removes, and other programs set while it is rewritten: its capabilities
//! (`setcap`), which are set without opening it. And the priority of I/O while programs wait for it.

mod support;

use fragmend_sys::priority::is_idle;
use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use rustix::fs::XattrFlags;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use support::rewrite::{
    FRAGMEND, go_on, is_stopped, killed_at, outcomes, recover, stopped_at, stopped_by,
};
use support::{SIZE, fragmented};

const NAME: &str = "security.capability";

/// `struct vfs_cap_data` of version 2, effective, with one capability (linux/capability.h).
fn capability(number: u8) -> Vec<u8> {
    let mut value = vec![0; 20];
    value[..4].copy_from_slice(&0x0200_0001u32.to_le_bytes());
    value[4..8].copy_from_slice(&(1u32 << number).to_le_bytes());
    value
}

fn set(path: &Path, value: &[u8]) {
    rustix::fs::setxattr(path, NAME, value, XattrFlags::empty()).unwrap();
}

fn capability_of(path: &Path) -> Option<Vec<u8>> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, NAME, &mut value).ok()?;
    Some(value[..length].to_vec())
}

#[test]
fn loop_capabilities_that_are_set_before_the_first_change_leave_a_file_alone() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        for step in ["copied", "leased", "sealed"] {
            let path = fragmented(&image, step);
            let stopped = stopped_at(&image, &path, step);
            set(&path, &capability(10));
            let told = go_on(stopped).expect(&[2]);
            assert!(told.contains("file capabilities, which writing takes away"), "{step}: {told}");
            assert_eq!(capability_of(&path), Some(capability(10)), "{step}: {told}");
            assert!(is_intact(&path, SIZE).unwrap(), "{step}");
            assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0, "{step}");
        }
    }
}

#[test]
fn loop_capabilities_that_are_set_meanwhile_stay() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        for step in ["punched", "allocated", "half-written", "written", "synced"] {
            let path = fragmented(&image, step);
            let stopped = stopped_at(&image, &path, step);
            set(&path, &capability(10));
            let told = go_on(stopped).expect(&[0]);
            assert!(told.contains("\"outcome\":\"moved\""), "{step}: {told}");
            assert_eq!(capability_of(&path), Some(capability(10)), "{step}: {told}");
            assert!(is_intact(&path, SIZE).unwrap(), "{step}");
        }
        // The capabilities that were set last stay, and removed ones stay removed.
        for last in [Some(capability(12)), None] {
            let path = fragmented(&image, "twice");
            let stopped = stopped_by(&image, &path, "punched=stop,half-written=stop");
            set(&path, &capability(10));
            stopped.signal(Signal::CONT);
            // It stops itself again.
            std::thread::sleep(std::time::Duration::from_millis(50));
            let stopped = stopped.wait_until(is_stopped);
            assert_eq!(capability_of(&path), Some(capability(10)));
            match &last {
                Some(value) => set(&path, value),
                None => rustix::fs::removexattr(&path, NAME).unwrap(),
            }
            go_on(stopped).expect(&[0]);
            assert_eq!(capability_of(&path), last);
        }
    }
}

#[test]
fn loop_capabilities_that_were_set_after_a_kill_stay_when_bytes_are_put_back() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let path = fragmented(&image, "file");
        image.sync();
        killed_at(&image, &path, "punched");
        set(&path, &capability(10));
        let (told, code) = recover(&[&image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
        assert_eq!(capability_of(&path), Some(capability(10)), "{told}");
        assert!(is_intact(&path, SIZE).unwrap());
    }
}

/// A program that waits for the file waits for this process's requests, so those are not of the class
/// that schedulers serve last.
#[test]
fn loop_nothing_is_idle_while_others_wait() {
    let image = Image::ext4(320 << 20);
    for (step, idle) in [("copied", true), ("leased", false), ("half-written", false)] {
        let path = fragmented(&image, step);
        let stopped = stopped_at(&image, &path, step);
        assert_eq!(is_idle(stopped.id() as i32), Some(idle), "{step}");
        go_on(stopped).expect(&[0]);
    }
    let path = fragmented(&image, "file");
    killed_at(&image, &path, "punched");
    let mut command = Command::new("ionice");
    command.args(["-c", "3", FRAGMEND, "recover"]).arg(image.path());
    command.env("FRAGMEND_STOP_AT", "allocated=stop");
    let stopped = Running::start(&mut command).wait_until(is_stopped);
    assert_eq!(is_idle(stopped.id() as i32), Some(false));
    stopped.signal(Signal::CONT);
    stopped.wait().expect(&[0]);
    assert!(is_intact(&path, SIZE).unwrap());
    assert!(finish(Command::new(FRAGMEND).arg("recover").arg(image.path())).status.success());
}
