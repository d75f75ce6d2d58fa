//! Which programs use which files, and in which pattern they write: gathered row by row from a recording.
//!
//! A recording has the process and the command name of each access, not the cgroup: that is looked up when the recording
//! ends, and is not known of a process that has ended by then. Recordings that are folded in the kernel have no process.

use crate::policy::rules::Cgroups;
use fragmend_layout::{FileId, Op};
use fragmend_trace::Event;
use std::collections::{BTreeMap, HashMap};

/// The most files that are kept apart.
const MOST_FILES: usize = 100_000;
/// The most processes of a file that are kept apart.
const MOST_PROGRAMS: usize = 16;

/// What was seen of all files.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    files: HashMap<FileId, FileActivity>,
    /// Accesses to files beyond the most that are kept apart.
    pub left_out: u64,
}

/// What was seen of a file.
#[derive(Clone, Debug, Default)]
pub struct FileActivity {
    programs: BTreeMap<u32, Program>,
    /// Whether there were more.
    overflow: bool,
    /// How it was written.
    pub writing: Writing,
}

/// A process that used a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its command name, of at most 15 bytes.
    pub comm: String,
    /// Its cgroup without the leading slash, if it was there when the recording ended.
    pub cgroup: Option<String>,
    /// Bytes that it has written to the file.
    pub written_bytes: u64,
}

/// How a file was written while it was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writing {
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Writes that began where everything written so far had ended, or behind it.
    pub appends: u64,
    /// Bytes of those.
    pub appended_bytes: u64,
    /// The end of what was written.
    pub end: u64,
    /// Processes that wrote, up to the most that are kept apart.
    pub writers: u32,
}

impl Activity {
    /// Adds an access.
    pub fn add(&mut self, event: &Event) {
        if self.files.len() >= MOST_FILES && !self.files.contains_key(&event.file) {
            self.left_out += u64::from(event.count);
            return;
        }
        self.files.entry(event.file).or_default().add(event);
    }

    /// What was seen of a file.
    pub fn of(&self, file: FileId) -> Option<&FileActivity> {
        self.files.get(&file)
    }

    /// Enters the cgroup of each process, by `cgroup_of`, which is asked once for each.
    pub fn look_up(&mut self, cgroup_of: &dyn Fn(u32) -> Option<String>) {
        let mut known: HashMap<u32, Option<String>> = HashMap::new();
        for file in self.files.values_mut() {
            for (pid, program) in &mut file.programs {
                let cgroup = known.entry(*pid).or_insert_with(|| cgroup_of(*pid));
                program.cgroup.clone_from(cgroup);
            }
        }
    }
}

impl FileActivity {
    fn add(&mut self, event: &Event) {
        let is_write = event.op == Op::Write;
        if is_write {
            self.writing.add(event);
        }
        if event.pid == 0
            || self.programs.len() >= MOST_PROGRAMS && !self.programs.contains_key(&event.pid)
        {
            self.overflow = true;
            return;
        }
        let program = self.programs.entry(event.pid).or_default();
        if program.comm.is_empty() {
            let end = event.comm.iter().position(|b| *b == 0).unwrap_or(event.comm.len());
            program.comm = String::from_utf8_lossy(&event.comm[..end]).into_owned();
        }
        if is_write {
            self.writing.writers += u32::from(program.written_bytes == 0 && event.bytes > 0);
            program.written_bytes += event.bytes;
        }
    }

    /// Where the programs are that use it.
    pub fn cgroups(&self) -> Cgroups {
        let mut known: Vec<String> =
            self.programs.values().filter_map(|p| p.cgroup.clone()).collect();
        known.sort();
        known.dedup();
        let some_unknown = self.overflow || self.programs.values().any(|p| p.cgroup.is_none());
        Cgroups { known, some_unknown }
    }

    /// The program that has written most of it.
    pub fn writer(&self) -> Option<&Program> {
        let writers = self.programs.values().filter(|program| program.written_bytes > 0);
        writers.max_by_key(|program| program.written_bytes)
    }
}

impl Writing {
    fn add(&mut self, event: &Event) {
        let (count, end) =
            (u64::from(event.count), event.offset.saturating_add(event.length.into()));
        self.writes += count;
        self.bytes += event.bytes;
        if event.offset >= self.end {
            self.appends += count;
            self.appended_bytes += event.bytes;
        }
        self.end = self.end.max(end);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An access to file 1.
    pub fn event(op: Op, pid: u32, offset: u64, length: u32) -> Event {
        let mut comm = [0; 16];
        comm[..2].copy_from_slice(b"db");
        Event {
            time_ns: 0,
            file: FileId { device: 7, inode: 1, generation: 0 },
            offset,
            length,
            bytes: length.into(),
            count: 1,
            pid,
            thread: pid,
            uid: 0,
            comm,
            op,
            direct: false,
            windowed: false,
        }
    }

    #[test]
    fn the_writer_and_its_cgroup_are_known() {
        let mut activity = Activity::default();
        let events = [
            event(Op::Write, 10, 0, 4096),
            event(Op::Write, 10, 4096, 4096),
            event(Op::Write, 11, 0, 100),
            event(Op::Read, 12, 0, 1 << 20),
        ];
        events.iter().for_each(|e| activity.add(e));
        activity.look_up(&|pid| (pid != 12).then(|| format!("slice/{pid}")));
        let file = activity.of(events[0].file).unwrap();
        assert_eq!(file.writer().unwrap().cgroup.as_deref(), Some("slice/10"));
        let known = vec!["slice/10".to_owned(), "slice/11".to_owned()];
        assert_eq!(file.cgroups(), Cgroups { known, some_unknown: true });
        let writing = Writing {
            writes: 3,
            bytes: 8292,
            appends: 2,
            appended_bytes: 8192,
            end: 8192,
            writers: 2,
        };
        assert_eq!(file.writing, writing);
    }

    #[test]
    fn more_processes_than_are_kept_are_unknown() {
        let mut activity = Activity::default();
        (1..100).for_each(|pid| activity.add(&event(Op::Read, pid, 0, 1)));
        activity.look_up(&|_| Some("a".into()));
        let file = activity.of(event(Op::Read, 1, 0, 1).file).unwrap();
        assert_eq!(file.cgroups(), Cgroups { known: vec!["a".into()], some_unknown: true });
        assert_eq!(file.writer(), None);
    }
}
