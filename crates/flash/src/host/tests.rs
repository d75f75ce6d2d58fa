//! The cost of a call, layer by layer, and the commands that reach the drive.

use super::*;
use crate::command::Completion;
use crate::counters::Counters;
use crate::device::{Contents, Recovery};

/// A drive that does one command at a time, in a microsecond for each unit, and records the commands.
#[derive(Default)]
struct Recorder {
    free_at: u64,
    commands: Vec<(u64, Command)>,
    /// Whether it refuses all commands.
    refuses: bool,
}

impl Device for Recorder {
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        _: Contents<'_>,
    ) -> Result<Completion, Refused> {
        let (Command::Read(units) | Command::Write { units, .. }) = command else {
            return Err(Refused::Unsupported);
        };
        if self.refuses {
            return Err(Refused::OutOfRange);
        }
        self.commands.push((at, command.clone()));
        self.free_at = self.free_at.max(at) + 1000 * u64::from(units.count);
        Ok(Completion { done_ns: self.free_at, ..Completion::default() })
    }

    fn unit_bytes(&self) -> u32 {
        4096
    }

    fn units(&self) -> u32 {
        u32::MAX
    }

    fn idle_at(&self) -> u64 {
        self.free_at
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn bytes(&self, units: Units) -> Vec<u8> {
        vec![0; units.count as usize * 4096]
    }

    fn power_cut(&mut self, _: u64) -> Recovery {
        Recovery::default()
    }
}

fn path() -> HostPath {
    HostPath {
        system_call_ns: 100,
        lookup_ns: 10,
        uncached_lookup_ns: 5,
        bio_ns: 20,
        page_ns: 1,
        new_page_ns: 7,
        request_ns: 30,
        end_ns: 3,
        wake_ns: 50,
        plug_requests: 16,
        plug_bytes: 128 << 10,
        request_bytes: 1 << 20,
        queue_depth: 1023,
        readahead_bytes: 0,
        bio_bytes: 1 << 20,
        split_hints: SplitHints::default(),
    }
}

#[test]
fn every_nanosecond_is_accounted_for_by_its_layer() {
    let (path, mut drive) = (path(), Recorder::default());
    let mut host = Host::new(&path, &mut drive, 0).with_new_buffer();
    // The second extent follows the first one: one request, one look-up that is not cached.
    host.read(&[Units::new(0, 4), Units::new(4, 4), Units::new(100, 8)]).unwrap();
    let spent = host.spent;
    assert_eq!((host.requests, host.now), (2, spent.total()));
    assert_eq!((spent.system_call, spent.file_system, spent.bio), (100, 40, 60));
    assert_eq!((spent.pages, spent.request), (16 * 8, 60));
    assert_eq!((spent.completion, spent.wake), (6, 50), "woken once");
    host.read(&[Units::new(0, 32)]).unwrap();
    let pages = 32 + 16 * 7;
    assert_eq!(host.spent.pages - spent.pages, pages, "half of the buffer is new");
}

#[test]
fn one_request_at_a_time_waits_for_each() {
    let (mut path, mut drive) = (path(), Recorder::default());
    path.queue_depth = 1;
    let all: Vec<Units> = (0..4).map(|n| Units::new(n * 100, 2)).collect();
    let mut host = Host::new(&path, &mut drive, 0);
    host.read(&all).unwrap();
    assert_eq!((host.spent.wake, host.spent.waiting), (4 * 50, 4 * 2000));
    assert!(drive.commands.windows(2).all(|two| two[1].0 >= two[0].0 + 2000));
    (path.queue_depth, drive) = (8, Recorder::default());
    let mut host = Host::new(&path, &mut drive, 0);
    host.read(&all).unwrap();
    assert_eq!(host.spent.wake, 50);
    assert!(drive.commands.windows(2).all(|two| two[1].0 == two[0].0), "plugged");
}

#[test]
fn hints_of_a_split_write_are_repeated_dropped_or_renewed() {
    let hints = |split_hints| {
        let path = HostPath { split_hints, request_bytes: 64 << 10, ..path() };
        let mut drive = Recorder::default();
        let mut host = Host::new(&path, &mut drive, 0);
        let hint = Hint::Append { predecessor: 7 };
        host.write(&[Units::new(100, 32), Units::new(500, 8)], hint).unwrap();
        let stale = host.stale_hints;
        let hint = |(_, command): &(u64, Command)| match command {
            Command::Write { hint, .. } => *hint,
            other => panic!("{other:?} is no write"),
        };
        (drive.commands.iter().map(hint).collect::<Vec<_>>(), stale)
    };
    let after = |predecessor| Hint::Append { predecessor };
    assert_eq!(hints(SplitHints::Repeated), (vec![after(7), after(7), after(131)], 1));
    assert_eq!(hints(SplitHints::Dropped), (vec![after(7), Hint::None, after(131)], 1));
    assert_eq!(hints(SplitHints::Renewed), (vec![after(7), after(115), after(131)], 0));
}

#[test]
fn what_the_program_does_overlaps_with_the_next_window() {
    let mut path = path();
    path.readahead_bytes = 128 << 10;
    let ns = |use_page_ns| {
        let mut drive = Recorder::default();
        let mut host = Host::new(&path, &mut drive, 0);
        host.use_page_ns = use_page_ns;
        host.read_buffered(&[Units::new(0, 256)]).unwrap();
        host.now
    };
    // Eight windows of 32 pages; the drive needs a microsecond for each page.
    assert!(ns(500) < ns(0) + 32 * 500 + 8 * 100);
    assert!(ns(2000) > 8 * 32 * 2000);
}

#[test]
fn readahead_decides_how_many_requests_a_file_takes() {
    let (mut path, whole) = (path(), Units::new(0, 256));
    let fragments: Vec<Units> = (0..16).map(|n| Units::new(n * 100, 16)).collect();
    let requests = |path: &HostPath, extents: &[Units]| {
        let mut drive = Recorder::default();
        let mut host = Host::new(path, &mut drive, 0);
        host.read_buffered(extents).unwrap();
        host.requests
    };
    assert_eq!((requests(&path, &[whole]), requests(&path, &fragments)), (1, 16));
    path.readahead_bytes = 128 << 10;
    assert_eq!((requests(&path, &[whole]), requests(&path, &fragments)), (8, 16));
    path.readahead_bytes = 96 << 10;
    assert_eq!(requests(&path, &fragments), 21, "windows of 24 units cut every third fragment");
}

#[test]
fn a_window_is_begun_before_the_one_before_has_arrived() {
    let mut path = path();
    path.readahead_bytes = 128 << 10;
    let mut drive = Recorder::default();
    let mut host = Host::new(&path, &mut drive, 0);
    host.use_page_ns = 100;
    host.read_buffered(&[Units::new(0, 96)]).unwrap();
    let sent: Vec<u64> = drive.commands.iter().map(|(at, _)| *at).collect();
    let arrived = |window: usize| sent[0] + 32_000 * (window as u64 + 1);
    assert!(sent[1] < arrived(0), "the first page of the first window begins the second");
    assert!(sent[2] > arrived(0) + 32 * 100 && sent[2] < arrived(1), "and so on: {sent:?}");
}

#[test]
fn a_block_of_the_map_is_read_before_the_first_window_that_needs_it() {
    let mut path = path();
    path.readahead_bytes = 128 << 10;
    let map = [(0, Units::new(900, 1)), (40, Units::new(901, 1))];
    let starts = |path: &HostPath| {
        let mut drive = Recorder::default();
        let mut host = Host::new(path, &mut drive, 0);
        host.read_buffered_by_map(&[Units::new(0, 96)], &map).unwrap();
        let sent = drive.commands.iter();
        let start = |(at, command): &(u64, Command)| match command {
            Command::Read(units) => (*at, units.start),
            other => panic!("{other:?} is no read"),
        };
        sent.map(start).collect::<Vec<_>>()
    };
    let sent = starts(&path);
    assert_eq!(sent.iter().map(|(_, start)| *start).collect::<Vec<_>>(), [900, 0, 901, 32, 64]);
    assert!(sent[3].0 > sent[2].0 + 1000, "the window waits for the block: {sent:?}");
    path.readahead_bytes = 0;
    let sent = starts(&path);
    assert_eq!(sent.iter().map(|(_, start)| *start).collect::<Vec<_>>(), [900, 901, 0]);
}

/// The times and first units of the reads that reach the drive, and when all are done.
fn together(path: &HostPath, programs: Vec<Vec<Vec<Units>>>) -> (Vec<(u64, u32)>, u64) {
    let mut drive = Recorder::default();
    let calls = programs.into_iter().map(Vec::into_iter).collect();
    let end = read_together(path, &mut drive, 0, calls, 0).unwrap();
    let start = |(at, command): &(u64, Command)| match command {
        Command::Read(units) => (*at, units.start),
        other => panic!("{other:?} is no read"),
    };
    (drive.commands.iter().map(start).collect(), end)
}

#[test]
fn one_program_together_with_none_is_a_program() {
    let path = HostPath { plug_requests: 1, ..path() };
    let calls: Vec<Vec<Units>> =
        (0..3).map(|n| (0..4).map(|m| Units::new(n * 100 + m * 10, 4)).collect()).collect();
    let mut drive = Recorder::default();
    let mut host = Host::new(&path, &mut drive, 0);
    calls.iter().for_each(|call| host.read(call).unwrap());
    let end = host.now;
    let alone: Vec<u64> = drive.commands.iter().map(|(at, _)| *at).collect();
    let (sent, ended) = together(&path, vec![calls]);
    assert_eq!((sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), ended), (alone, end));
}

#[test]
fn requests_of_programs_reach_the_drive_in_the_order_of_time() {
    let path = HostPath { plug_requests: 1, ..path() };
    let call = |from: u32| (0..8).map(|n| Units::new(from + n * 10, 1)).collect::<Vec<_>>();
    let (sent, _) = together(&path, vec![vec![call(0)], vec![call(1000)]]);
    assert!(sent.windows(2).all(|two| two[0].0 <= two[1].0));
    let changes = sent.windows(2).filter(|two| (two[0].1 < 1000) != (two[1].1 < 1000)).count();
    assert!(changes >= 7, "calls that overlap are mixed: {sent:?}");
    // A queue for one request: each waits until the one before is done.
    let path = HostPath { queue_depth: 1, ..path };
    let (sent, _) = together(&path, vec![vec![call(0)], vec![call(1000)]]);
    assert!(sent.windows(2).all(|two| two[1].0 >= two[0].0 + 1000), "{sent:?}");
    // The one that has waited longest is next: neither program's requests wait for all of the other's.
    let starts: Vec<u32> = sent.iter().map(|(_, start)| *start).collect();
    let by_turns: Vec<u32> = (0..8).flat_map(|n| [n * 10, 1000 + n * 10]).collect();
    assert_eq!(starts, by_turns);
}

#[test]
fn what_the_drive_refuses_ends_all_programs() {
    let mut drive = Recorder { refuses: true, ..Recorder::default() };
    let calls = vec![vec![vec![Units::new(0, 1)]].into_iter()];
    assert_eq!(read_together(&path(), &mut drive, 0, calls, 0), Err(Refused::OutOfRange));
}
