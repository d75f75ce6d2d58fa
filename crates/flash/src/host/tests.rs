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
