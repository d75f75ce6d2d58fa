//! A drive that is fully written and whose defrag log is full: every ordinary command is still carried out, and the host can always
//! make space in the log.

#[path = "support/logging.rs"]
mod logging;
mod support;

use fragmend_flash::command::{Command, Hint, LogAction, Refused, Units};
use fragmend_flash::device::Device;
use fragmend_flash::ssd::Ssd;
use logging::{UNIT, drive};

/// Entries that the log has space for.
const ENTRIES: u32 = 102;
/// The first target of the remaps.
const TARGET: u32 = 200;
/// A unit that is no part of them.
const OTHER: u32 = 400;

fn written() -> Ssd {
    let drive = drive(500);
    let mut ssd = Ssd::with_content(&drive).expect("a drive");
    // Scattered, so that blocks hold units of all kinds.
    let units = ssd.units();
    (0..units).for_each(|n| write(&mut ssd, Units::new(n * 37 % units, 1), 0));
    ssd
}

/// Writes units whose content is their number and this tag, and flushes.
fn write(ssd: &mut Ssd, units: Units, tag: u8) {
    let contents = &mut |unit: u32| {
        let mut bytes = vec![0; UNIT as usize];
        bytes[..4].copy_from_slice(&unit.to_le_bytes());
        bytes[4] = tag;
        Some(bytes.into())
    };
    for start in (units.start..units.end()).step_by(8) {
        let units = Units::new(start, 8.min(units.end() - start));
        let write = Command::Write { units, hint: Hint::None, fua: false };
        ssd.submit_with(ssd.idle_at(), &write, contents).expect("a write");
    }
    ask(ssd, &Command::Flush);
}

fn ask(ssd: &mut Ssd, command: &Command) {
    ssd.submit(ssd.idle_at(), command).unwrap_or_else(|why| panic!("{command:?}: {why}"));
    ssd.audit().expect("tables that agree");
}

fn remap(ssd: &mut Ssd, from: u32, to: u32, shared: bool) -> Result<(), Refused> {
    let command = Command::Remap { from: Units::new(from, 1), to, shared };
    ssd.submit(ssd.idle_at(), &command).map(drop)
}

fn log(action: LogAction) -> Command {
    Command::DefragLog(action)
}

fn found(ssd: &Ssd, unit: u32) -> (u32, u8) {
    let bytes = ssd.bytes(Units::new(unit, 1));
    (u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")), bytes[4])
}

/// Fills the log with remaps of the first units to the targets; the sources, if they are unmapped then, are written again, so that the
/// drive is fully written.
fn fill(ssd: &mut Ssd, shared: bool) {
    for n in 0..ENTRIES {
        remap(ssd, n, TARGET + n, shared).expect("space in the log");
    }
    assert_eq!(remap(ssd, OTHER, OTHER + 1, shared), Err(Refused::LogFull));
    if !shared {
        write(ssd, Units::new(0, ENTRIES), 1);
    }
    let all = 0..ssd.units();
    assert!(all.clone().all(|unit| ssd.die_of(unit).is_some()), "fully written");
}

/// What the addresses hold when the remaps of [`fill`] are there.
fn check(ssd: &Ssd, shared: bool, tags: &[u8]) {
    for unit in 0..ssd.units() {
        let expected = match unit {
            unit if unit < ENTRIES => (unit, u8::from(!shared)),
            unit if (TARGET..TARGET + ENTRIES).contains(&unit) => (unit - TARGET, 0),
            unit => (unit, tags[unit as usize]),
        };
        assert_eq!(found(ssd, unit), expected, "unit {unit}");
    }
}

/// The ways to make space in the log.
#[test]
fn space_in_a_full_log_can_be_made() {
    let targets = Units::new(TARGET, ENTRIES);
    for shared in [false, true] {
        let mut full = written();
        fill(&mut full, shared);
        ask(&mut full, &log(LogAction::Commit));
        check(&full, shared, &[0; 1000]);
        // Units that were moved meanwhile need no entry any more.
        let more = |n: &u32| remap(&mut full, OTHER + n, OTHER + ENTRIES + n, true).is_ok();
        let more = (0..ENTRIES).take_while(more).count() as u32;
        let another = remap(&mut full, OTHER + more, OTHER + ENTRIES + more, true);
        assert_eq!(another, Err(Refused::LogFull));
        let mut overwritten = full.clone();
        write(&mut overwritten, targets, 2);
        let mut trimmed = full.clone();
        ask(&mut trimmed, &Command::Trim(targets));
        let mut spread = full.clone();
        ask(&mut spread, &Command::PhysicalDefragment(vec![targets]));
        for (mut ssd, is_kept) in [(overwritten, false), (trimmed, false), (spread, true)] {
            for n in more..ENTRIES {
                remap(&mut ssd, OTHER + n, OTHER + ENTRIES + n, true).expect("space in the log");
            }
            assert!(!is_kept || found(&ssd, TARGET) == (0, 0));
            ssd.audit().expect("tables that agree");
        }
    }
}

/// Remaps that are not committed are in the log until they are, or are discarded.
#[test]
fn a_discard_empties_a_full_log() {
    let mut ssd = written();
    fill(&mut ssd, false);
    ask(&mut ssd, &log(LogAction::Flush));
    ask(&mut ssd, &log(LogAction::Discard));
    assert_eq!([0, TARGET, OTHER].map(|unit| found(&ssd, unit)), [(0, 1), (0, 0), (OTHER, 0)]);
    remap(&mut ssd, OTHER, OTHER + 1, false).expect("space in the log");
}

/// Other units are overwritten again and again, so that blocks are collected; the log is flushed in between, each time by a compaction,
/// as its area is full. The power is cut now and then, also during compactions, one after another.
#[test]
fn a_drive_with_a_full_log_goes_on() {
    for (shared, action) in
        [(false, LogAction::Flush), (false, LogAction::Commit), (true, LogAction::Commit)]
    {
        let mut ssd = written();
        fill(&mut ssd, shared);
        ask(&mut ssd, &log(action));
        let units = ssd.units();
        let named = |unit: &u32| *unit < ENTRIES || (TARGET..TARGET + ENTRIES).contains(unit);
        let mut tags = vec![0; units as usize];
        for tag in 3..13 {
            let others = (0..units).filter(|unit| !named(unit));
            for unit in others.filter(|unit| unit % 3 == u32::from(tag) % 3) {
                write(&mut ssd, Units::new(unit, 1), tag);
                tags[unit as usize] = tag;
            }
            check(&ssd, shared, &tags);
            for cut in 0..8_u64 {
                let start = ssd.idle_at();
                let end = ssd.submit(start, &log(action)).expect("it is written").done_ns;
                ssd.power_cut(start + (end - start) * cut / 8);
                ssd.audit().expect("tables that agree");
                check(&ssd, shared, &tags);
            }
        }
        let moved = ssd.counters().collected + ssd.counters().levelled;
        assert!(moved > 100, "{moved} units were moved");
        ask(&mut ssd, &log(LogAction::Commit));
        check(&ssd, shared, &tags);
        write(&mut ssd, Units::new(0, units), 13);
        remap(&mut ssd, OTHER, OTHER + 1, shared).expect("space in the log");
    }
}
