//! A process ends although a device does not answer what it asked: the process that asks is left behind, and holds nothing up.

use fragmend_sys::apart;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::Running;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// `FS_IOC_SETFLAGS` waits in the kernel while the file system is frozen, as a command waits for a drive.
const FS_IOC_SETFLAGS: libc::c_ulong = 0x4008_6602;
/// The variable with the file that is asked, for the process that must end.
const FILE: &str = "FRAGMEND_ASKED";
const NAME: &str = "loop_a_process_ends_before_what_it_asked";

#[test]
fn loop_a_process_ends_before_what_it_asked() {
    if let Some(file) = std::env::var_os(FILE) {
        return asks(file.as_ref());
    }
    let image = Image::ext4(32 << 20);
    let file = image.path().join("file");
    File::create(&file).unwrap();
    image.sync();
    let freeze = |how: &str| run("fsfreeze", [how.as_ref(), image.path().as_os_str()]);
    freeze("--freeze");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--nocapture"]).env(FILE, &file);
    let running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    // It has ended when its output is closed.
    let waits = std::thread::spawn(move || running.wait());
    let started = Instant::now();
    while !waits.is_finished() && started.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let has_ended = waits.is_finished();
    freeze("--unfreeze");
    let ended = waits.join().unwrap();
    assert!(has_ended, "it waited for the answer: {ended:?}");
    assert!(ended.expect(&[0]).contains("no answer"));
}

/// Asks in a thread, and ends without the answer.
fn asks(file: &Path) {
    let file = File::open(file).unwrap();
    let (send, answer) = channel();
    std::thread::spawn(move || {
        // SAFETY: the kernel reads an int.
        let asked = unsafe { apart::ioctl(&file, FS_IOC_SETFLAGS, |_: &mut libc::c_int| {}) };
        send.send(asked.map(|(returned, _)| returned))
    });
    let answer = answer.recv_timeout(Duration::from_millis(500));
    assert!(answer.is_err(), "{answer:?}");
    println!("no answer");
    std::process::exit(0);
}
