//! A part of a binary as a process.

use super::binary::{Binary, Listed};
use super::parts::Part;
use super::room::IN_MEMORY;
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
/// for (proc_pid_stat(5): `utime`, `stime`, `cutime` and `cstime`, which stay until it is waited for here).
fn processor_time(child: u32) -> Option<Duration> {
    let id = Pid::from_raw(child.try_into().ok()?)?;
    waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok()?;
    ticks(&std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?)
}

/// The processor time that a line of `/proc/PID/stat` says.
fn ticks(stat: &str) -> Option<Duration> {
    // The program's name, in brackets, can contain anything; `utime` is the twelfth field after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = 0;
    for _ in 0..4 {
        ticks += fields.next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let hundredth =
            Duration::from_secs_f64(1.0 / rustix::param::clock_ticks_per_second() as f64);
        let line = "7 (a) b) Z 1 7 7 0 -1 4228 0 0 0 0 1 2 30 400 20 0 1 0 9 0 0";
        assert_eq!(ticks(line), Some(433 * hundredth));
        assert_eq!(ticks("7 (a) Z 1 7 7 0 -1 4228 0 0 0 0 1 2 30"), None);
    }
}
