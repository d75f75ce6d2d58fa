//! Output that is not read: a reader that has closed it, messages that cannot be written, a question
//! that is not answered. The exit code reports all the same what was done.

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::{fragmented, plan, write_plan};

const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

/// `fragmend apply --json PLAN | head -1`: it ends at the next safe point, with the rest left.
#[test]
fn loop_a_reader_that_goes_leaves_an_incomplete_apply() {
    let image = Image::ext4(128 << 20);
    let files = ["one", "two", "three"].map(|name| fragmented(&image, name));
    let plan_file = image.scratch().join("plan.json");
    let paths = files.each_ref().map(|file| file.as_path());
    write_plan(&plan(&paths, Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--json", "--rate", "512K"]).arg(&plan_file);
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut out = BufReader::new(running.child().stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["event"], "start", "{line}");
    drop(out);
    running.wait().expect(&[16, 18]);
}

/// Only messages are lost then.
#[test]
fn loop_messages_that_cannot_be_written_change_nothing() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let code = |args: &[&str]| {
        let mut command = Command::new(FRAGMEND);
        command.args(args).stdout(Stdio::null()).stderr(full()).status().unwrap().code()
    };
    assert_eq!(code(&["scan", "/nowhere"]), Some(4));
    assert_eq!(code(&["recover", "/proc"]), Some(8));
    let image = Image::ext4(128 << 20);
    let path = fragmented(&image, "file");
    let plan_file = image.scratch().join("plan.json");
    let names = [plan_file.to_str().unwrap(), path.to_str().unwrap()];
    assert_eq!(code(&["plan", "--policy", "whole-file", "-o", names[0], names[1]]), Some(0));
    assert_eq!(code(&["apply", names[0]]), Some(0));
}

/// Runs a program on a terminal until it asks its question, and sends it a signal; prints how it ended,
/// and after how many seconds.
const ASKED: &str = "
import os, pty, select, signal, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said, asked = b'', None
while True:
    if select.select([terminal], [], [], 0.02)[0]:
        try:
            said += os.read(terminal, 4096)
        except OSError:
            pass
    else:
        f = os.open(sys.argv[-1], os.O_RDONLY)
        os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
        while not asked and os.read(f, 4096):
            pass
        os.close(f)
    if b'[y/N]' in said and not asked:
        asked = time.time()
        os.kill(child, signal.SIGTERM)
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        break
    if asked and time.time() > asked + 10:
        os.kill(child, signal.SIGKILL)
print(os.waitstatus_to_exitcode(status), time.time() - asked if asked else said)
";

#[test]
fn loop_a_request_to_end_waits_for_no_answer() {
    let image = Image::ext4(128 << 20);
    let path = fragmented(&image, "file");
    let mut command = Command::new("timeout");
    command.args(["60", "python3", "-c", ASKED, FRAGMEND, "auto", "--duration", "1s"]);
    let told = finish(command.args(["--policy", "whole-file"]).arg(&path)).expect(&[0]);
    let (code, took) = told.trim().split_once(' ').unwrap();
    assert_eq!(code, "16", "{told}");
    assert!(took.parse::<f64>().unwrap() < 1.0, "{told}");
}
