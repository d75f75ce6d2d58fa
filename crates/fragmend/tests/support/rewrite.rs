//! What the tests of rewriting share: a process that is stopped at a given step, and `recover`.

use super::{SIZE, fragmented, plan, write_plan};
use fragmend_plan::Policy;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, Running, finish};
use fragmend_testbed::usage::Process;
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

/// `fragmend apply --engine rewrite` on a new plan for `file`, stopped by `at`, for example
/// `punched=kill`.
pub fn rewrite(image: &Image, file: &Path, at: &str) -> Command {
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[file], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--engine", "rewrite", "--rate", "max", "--json"]).arg(plan_file);
    command.env("FRAGMEND_STOP_AT", at).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it until it ends itself at `step`.
pub fn killed_at(image: &Image, file: &Path, step: &str) {
    let ended = finish(&mut rewrite(image, file, &format!("{step}=kill")));
    assert_eq!(ended.status.signal(), Some(9), "{step}: {}{}", ended.stdout, ended.stderr);
}

/// A file of this name whose bytes are a hole, and a record.
pub fn punched(image: &Image, name: &str) -> PathBuf {
    let file = fragmented(image, name);
    killed_at(image, &file, "punched");
    image.sync();
    assert_eq!(std::fs::read(&file).unwrap(), vec![0; SIZE as usize]);
    file
}

/// Runs it until it stops itself at `step`.
pub fn stopped_at(image: &Image, file: &Path, step: &str) -> Running {
    stopped_by(image, file, &format!("{step}=stop"))
}

/// Runs it until it stops itself; `at` may have further steps.
pub fn stopped_by(image: &Image, file: &Path, at: &str) -> Running {
    Running::start(&mut rewrite(image, file, at)).wait_until(is_stopped)
}

/// `fragmend recover --json` on all of an image, stopped at `step`.
pub fn recovering(image: &Image, step: &str) -> Running {
    let mut command = Command::new(FRAGMEND);
    command.args(["recover", "--json"]).arg(image.path());
    command.env("FRAGMEND_STOP_AT", format!("{step}=stop")).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(&mut command).wait_until(is_stopped)
}

/// Ends a process that is stopped.
pub fn kill(stopped: Running) {
    stopped.signal(Signal::KILL);
    drop(stopped.wait());
}

/// Continues a process that stops itself repeatedly, so many times, until it has stopped again.
pub fn stopped_again(mut stopped: Running, times: u32) -> Running {
    for _ in 0..times {
        stopped.signal(Signal::CONT);
        stopped = stopped.wait_until(is_stopped);
    }
    stopped
}

/// Whether a process is stopped by a signal.
pub fn is_stopped(pid: u32) -> bool {
    Process::Id(pid).state() == Some('T')
}

/// Continues a process wherever it stops, to its end; calls `meanwhile` when it has stopped for the first
/// time.
///
/// # Panics
/// When that lasts longer than a minute.
pub fn go_on_throughout(running: Running, meanwhile: impl FnOnce()) -> Finished {
    let mut meanwhile = Some(meanwhile);
    at_each_stop(running, |_| meanwhile.take().into_iter().for_each(|meanwhile| meanwhile()))
}

/// The same, and calls `meanwhile` whenever it has stopped.
///
/// # Panics
/// As [`go_on_throughout`].
pub fn at_each_stop(mut running: Running, mut meanwhile: impl FnMut(&Running)) -> Finished {
    let started = Instant::now();
    while running.child().try_wait().unwrap().is_none() {
        if is_stopped(running.id()) {
            meanwhile(&running);
            running.signal(Signal::CONT);
        }
        assert!(started.elapsed() < Duration::from_secs(60), "it hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
    running.wait()
}

/// Continues a process to its end.
pub fn go_on(stopped: Running) -> Finished {
    stopped.signal(Signal::CONT);
    stopped.wait()
}

/// Runs `fragmend recover` with these arguments; returns its document and its exit code.
pub fn recover(args: &[&dyn AsRef<std::ffi::OsStr>]) -> (Value, i32) {
    let mut command = Command::new(FRAGMEND);
    command.args(["recover", "--json"]).args(args.iter().map(AsRef::as_ref));
    let ended = finish(&mut command);
    let code = ended.status.code().unwrap_or_else(|| panic!("{ended:?}"));
    let value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
    (value, code)
}

/// The outcomes in a document of `recover`.
pub fn outcomes(document: &Value) -> Vec<String> {
    let records = document["records"].as_array().expect("records");
    records.iter().map(|r| r["outcome"].as_str().expect("an outcome").to_owned()).collect()
}

/// Recovers, and checks for this one outcome and exit code.
pub fn told(image: &Image, outcome: &str, code: i32) -> Value {
    let (told, got) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), got), (vec![outcome.to_owned()], code), "{told}");
    told
}

/// Runs `fragmend recover` with these arguments until it kills itself at `step`.
pub fn recovered_until(image: &Image, args: &[&str], step: &str) {
    let mut command = Command::new(FRAGMEND);
    command.arg("recover").args(args).arg(image.path());
    let ended = finish(command.env("FRAGMEND_STOP_AT", format!("{step}=kill")));
    assert_eq!(ended.status.signal(), Some(9), "{step}: {ended:?}");
}
