//! What a process has used of memory and processors, and in which state it is, as the kernel says.

use std::path::PathBuf;
use std::time::Duration;

/// A process that is looked at.
#[derive(Clone, Copy, Debug)]
pub enum Process {
    /// This one.
    This,
    /// The one of this number.
    Id(u32),
}

impl Process {
    /// The most memory of it that was ever resident, in bytes (proc_pid_status(5): `VmHWM`); `None` if it is gone, or has
    /// ended and was not waited for.
    pub fn peak_bytes(self) -> Option<u64> {
        let text = self.read("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib * 1024)
    }

    /// Its processor time, in user mode and in the kernel, to a hundredth of a second (proc_pid_stat(5): `utime`, `stime`);
    /// `None` if it is gone.
    pub fn processor_time(self) -> Option<Duration> {
        ticks(&self.read("stat")?, 11)
    }

    /// The same of the children that it has waited for (`cutime`, `cstime`).
    pub fn of_its_children(self) -> Option<Duration> {
        ticks(&self.read("stat")?, 13)
    }

    /// Its state (proc_pid_stat(5)): `R`, `S`, `D`, `T`, `Z`...; `None` if it is gone.
    pub fn state(self) -> Option<char> {
        self.read("stat")?.rsplit_once(") ")?.1.chars().next()
    }

    fn read(self, name: &str) -> Option<String> {
        let of = match self {
            Self::This => "self".into(),
            Self::Id(id) => id.to_string(),
        };
        std::fs::read_to_string(PathBuf::from("/proc").join(of).join(name)).ok()
    }
}

/// The sum of two fields of a line of `/proc/PID/stat`, from the one so many behind the program's name.
fn ticks(stat: &str, from: usize) -> Option<Duration> {
    // The name, in brackets, can contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(from);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let ticks = next()? + next()?;
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
        assert_eq!(ticks(line, 11), Some(3 * hundredth));
        assert_eq!(ticks(line, 13), Some(430 * hundredth));
        assert_eq!(ticks(line, 11).zip(ticks(line, 13)).map(|(a, b)| a + b), Some(433 * hundredth));
        assert_eq!(ticks("7 (a) Z 1 7 7 0 -1 4228 0 0 0 0 1", 11), None);
        assert_eq!(ticks("7 (a) Z 1 7 7 0 -1 4228 0 0 0 0 1 2 30", 13), None);
    }

    #[test]
    fn this_process_has_used_something() {
        let peak = Process::This.peak_bytes().unwrap();
        assert_eq!(Process::Id(std::process::id()).peak_bytes().unwrap() >> 20, peak >> 20);
        assert!((1 << 20..1 << 40).contains(&peak), "{peak}");
        assert!(Process::This.processor_time().is_some());
        assert_eq!(Process::Id(u32::MAX).processor_time(), None);
        // Of its first thread, which waits for this one.
        assert!(matches!(Process::This.state(), Some('R' | 'S')));
        assert_eq!(Process::Id(u32::MAX).state(), None);
    }
}
