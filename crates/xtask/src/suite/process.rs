//! A part of a binary as a process.

use super::binary::{Binary, Listed};
use super::parts::Part;
use super::room::IN_MEMORY;
use fragmend_testbed::usage::Process;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The command that runs tests of a binary in its room, as root, for a limited time.
pub(super) fn command(root: &Path, args: &[String], listed: &Listed, part: &Part) -> Command {
    let binary = &listed.binary;
    let mut command = Command::new(root.join("scripts/as-root"));
    let limit = listed.room.limit().to_string();
    command.arg(root.join("scripts/bounded")).arg(limit).args(listed.room.through());
    command
        .arg(&binary.program)
        .args(part.arguments())
        .args(args)
        .current_dir(&binary.directory)
        .stdin(Stdio::null());
    if let Some(disks) = disks(binary) {
        command.env("FRAGMEND_DISKS", disks);
    }
    command
}

/// Where a binary's disks are, if not in the temporary directory.
pub(super) fn disks(binary: &Binary) -> Option<OsString> {
    binary.is_in(&IN_MEMORY).then(|| std::env::var_os("DISKS_IN_MEMORY")).flatten()
}

/// Runs a command; returns the lines that it printed, whether it failed, and its processor time.
pub(super) fn run(mut command: Command) -> std::io::Result<(Vec<String>, bool, Option<Duration>)> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let lines = output.split(b'\n').map(|one| Ok(String::from_utf8_lossy(&one?).into_owned()));
    let lines = lines.collect::<std::io::Result<_>>()?;
    let used = processor_time(child.id());
    Ok((lines, !child.wait()?.success(), used))
}

/// Waits until this child has ended, and returns the processor time of it and of the children that it has waited
/// for, which stays until it is waited for here.
fn processor_time(child: u32) -> Option<Duration> {
    let id = Pid::from_raw(child.try_into().ok()?)?;
    waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok()?;
    let process = Process::Id(child);
    Some(process.processor_time()? + process.of_its_children()?)
}
