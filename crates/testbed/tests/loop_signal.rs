//! A signal leaves nothing behind either: this test runs itself as a child, and ends it.

use fragmend_testbed::image::Image;
use fragmend_testbed::process::Running;
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for the child, which then mounts an image and waits.
const CHILD: &str = "FRAGMEND_TESTBED_HOLD_IMAGE";

#[test]
fn loop_a_signal_unmounts_detaches_and_deletes() {
    if std::env::var_os(CHILD).is_some() {
        hold_an_image();
    }
    for signal in [Signal::INT, Signal::TERM] {
        let this = std::env::current_exe().unwrap();
        let mut command = Command::new(this);
        command.args(["--exact", "loop_a_signal_unmounts_detaches_and_deletes", "--nocapture"]);
        command.env(CHILD, "1").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Running::start(&mut command);
        let out = child.child().stdout.take().unwrap();
        let line = BufReader::new(out)
            .lines()
            .map(|l| l.unwrap())
            .find_map(|l| l.split_once("held: ").map(|(_, rest)| rest.to_owned()))
            .expect("the child holds an image");
        let [scratch, sleeper] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(Path::new(scratch).join("mnt/lost+found").exists());
        child.signal(signal);
        let ended = child.wait();
        assert!(!ended.status.success(), "{}", ended.status);
        assert!(!Path::new(scratch).exists(), "{scratch} is still there");
        // Until init reaps it, a zombie without a program is left.
        let program = std::fs::read_link(Path::new("/proc").join(sleeper).join("exe"));
        assert!(program.is_err(), "process {sleeper} still runs {program:?}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(scratch), "{scratch} is still mounted");
    }
}

fn hold_an_image() -> ! {
    let image = Image::ext4(64 << 20);
    let sleeper = Running::start(Command::new("sleep").arg("1000").stdout(Stdio::null()));
    println!("held: {} {}", image.scratch().display(), sleeper.id());
    loop {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
}
