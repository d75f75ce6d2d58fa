//! The commands of janusd one by one: what a remap changes, what is refused, and what the drive reports.

#[path = "support/logging.rs"]
mod logging;
mod support;

use fragmend_flash::command::{Command, Hint, LogAction, Refused, Units};
use fragmend_flash::counters::Counters;
use fragmend_flash::device::Device;
use fragmend_flash::drive::{BufferSpec, Drive};
use fragmend_flash::ssd::Ssd;
use logging::UNIT;

fn drive() -> Drive {
    logging::drive(1000)
}

/// A drive whose first units hold their number plus 1.
fn written(count: u32) -> Ssd {
    written_to(&drive(), count)
}

fn written_to(drive: &Drive, count: u32) -> Ssd {
    let mut ssd = Ssd::with_content(drive).expect("a drive");
    let write = Command::Write { units: Units::new(0, count), hint: Hint::None, fua: false };
    ssd.submit_with(0, &write, &mut |unit| Some(vec![unit as u8 + 1; UNIT as usize].into()))
        .expect("a write");
    ask(&mut ssd, &Command::Flush);
    ssd
}

/// Carries out a command, and waits.
fn ask(ssd: &mut Ssd, command: &Command) -> u64 {
    let done = ssd.submit(ssd.idle_at(), command).expect("a command");
    ssd.submit(done.done_ns, &Command::Read(Units::new(0, 1))).expect("a read").done_ns
}

fn remap(from: Units, to: u32, shared: bool) -> Command {
    Command::Remap { from, to, shared }
}

fn log(action: LogAction) -> Command {
    Command::DefragLog(action)
}

fn found(ssd: &Ssd, unit: u32) -> u8 {
    ssd.bytes(Units::new(unit, 1))[7]
}

fn is_committed(ssd: &mut Ssd) -> bool {
    ssd.submit(ssd.idle_at(), &log(LogAction::Check)).expect("a check").committed
}

#[test]
fn a_remap_moves_no_data() {
    let mut ssd = written(8);
    let (programmed, places) = (ssd.counters().programmed, [2, 3].map(|unit| ssd.place_of(unit)));
    ask(&mut ssd, &remap(Units::new(2, 2), 40, false));
    assert_eq!([2, 3, 40, 41].map(|unit| found(&ssd, unit)), [0, 0, 3, 4]);
    assert_eq!([40, 41].map(|unit| ssd.place_of(unit)), places);
    assert_eq!((ssd.counters().programmed, ssd.counters().remapped), (programmed, 2));
    assert!(!is_committed(&mut ssd));
    ask(&mut ssd, &log(LogAction::Commit));
    assert!(is_committed(&mut ssd) && ssd.counters().log_programs == 1);
    ask(&mut ssd, &log(LogAction::Discard));
    assert_eq!(found(&ssd, 40), 3, "a commit is for ever");
    ssd.audit().expect("tables that agree");
}

#[test]
fn both_addresses_of_a_shared_remap_lead_to_the_data_until_one_is_given_up() {
    for keeps in [2, 40] {
        let mut ssd = written(8);
        ask(&mut ssd, &remap(Units::new(2, 1), 40, true));
        assert!(is_committed(&mut ssd), "nothing could be discarded");
        ask(&mut ssd, &log(LogAction::Flush));
        ask(&mut ssd, &Command::Trim(Units::new(42 - keeps, 1)));
        ask(&mut ssd, &Command::Flush);
        ssd.power_cut(ssd.idle_at());
        assert_eq!((found(&ssd, keeps), found(&ssd, 42 - keeps)), (3, 0));
        ssd.audit().expect("tables that agree");
    }
}

#[test]
fn a_discard_restores_what_was_not_committed() {
    let mut ssd = written(8);
    ask(&mut ssd, &remap(Units::new(0, 1), 40, false));
    ask(&mut ssd, &log(LogAction::Commit));
    ask(&mut ssd, &remap(Units::new(1, 2), 41, false));
    ask(&mut ssd, &log(LogAction::Flush));
    ask(&mut ssd, &remap(Units::new(3, 1), 43, false));
    ssd.power_cut(ssd.idle_at());
    assert_eq!([1, 2, 3, 41, 42, 43].map(|unit| found(&ssd, unit)), [0, 0, 4, 2, 3, 0]);
    assert!(!is_committed(&mut ssd));
    ask(&mut ssd, &log(LogAction::Discard));
    assert!(is_committed(&mut ssd));
    ssd.power_cut(ssd.idle_at());
    assert_eq!([0, 1, 2, 3].map(|unit| found(&ssd, unit)), [0, 2, 3, 4]);
    assert_eq!([40, 41, 42, 43].map(|unit| found(&ssd, unit)), [1, 0, 0, 0]);
    ssd.audit().expect("tables that agree");
}

#[test]
fn what_cannot_be_remapped_is_refused() {
    let mut ssd = written(8);
    let units = ssd.units();
    ask(&mut ssd, &remap(Units::new(6, 1), 50, false));
    let (before, counters) = (ssd.bytes(Units::new(0, units)), ssd.counters());
    let refused = |ssd: &mut Ssd, from, to| {
        ssd.submit(ssd.idle_at(), &remap(from, to, false)).expect_err("refused")
    };
    assert_eq!(refused(&mut ssd, Units::new(0, 0), 9), Refused::Length);
    assert_eq!(refused(&mut ssd, Units::new(0, 2), units - 1), Refused::OutOfRange);
    assert_eq!(refused(&mut ssd, Units::new(u32::MAX, 2), 9), Refused::OutOfRange);
    assert_eq!(refused(&mut ssd, Units::new(0, 4), 3), Refused::Overlap);
    assert_eq!(refused(&mut ssd, Units::new(2, 2), 1), Refused::Overlap);
    assert_eq!(refused(&mut ssd, Units::new(4, 3), 60), Refused::Unmapped);
    assert_eq!(refused(&mut ssd, Units::new(50, 1), 60), Refused::Uncommitted);
    assert_eq!(ssd.bytes(Units::new(0, units)), before);
    let commands = ssd.counters().commands;
    assert_eq!(ssd.counters(), Counters { commands, ..counters }, "and nothing was done");
    let spread = |runs: &[Units]| Command::PhysicalDefragment(runs.to_vec());
    assert_eq!(ssd.submit(0, &spread(&[])), Err(Refused::Length));
    assert_eq!(ssd.submit(0, &spread(&[Units::new(60, 1)])), Err(Refused::Unmapped));
    let twice = spread(&[Units::new(0, 3), Units::new(2, 1)]);
    assert_eq!(ssd.submit(0, &twice), Err(Refused::Overlap));
}

/// Every entry of the log is needed as long as both addresses lead to the data.
#[test]
fn a_full_log_refuses_remaps_until_entries_are_not_needed() {
    let mut ssd = written(120);
    let mut remapped = 0;
    let refused = loop {
        match ssd.submit(ssd.idle_at(), &remap(Units::new(remapped, 1), 128 + remapped, true)) {
            Ok(_) => remapped += 1,
            Err(why) => break why,
        }
    };
    assert_eq!((refused, remapped), (Refused::LogFull, 102));
    let another = remap(Units::new(110, 1), 250, true);
    ask(&mut ssd, &Command::Trim(Units::new(0, 60)));
    assert_eq!(ssd.submit(ssd.idle_at(), &another), Err(Refused::LogFull), "they name the data");
    ask(&mut ssd, &Command::Trim(Units::new(128, 60)));
    ask(&mut ssd, &another);
    assert!(ssd.counters().log_compacted > 0);
    ssd.audit().expect("tables that agree");
}

#[test]
fn physical_defragmentation_spreads_a_file_over_the_dies() {
    let mut ssd = written(64);
    assert_eq!((ssd.dies(), ssd.zone_units(), ssd.zones().len()), (4, 0, 0));
    // Stripe units of two units: every fourth one is on the same die.
    let file: Vec<Units> = (0..8).map(|n| Units::new(n * 8, 2)).collect();
    let dies: Vec<Option<u32>> = file.iter().map(|units| ssd.die_of(units.start)).collect();
    assert!(dies.iter().all(|die| *die == dies[0] && die.is_some()));
    assert_eq!(ssd.dof_p_per_mille(&file), 750, "one die of four");
    assert_eq!(ssd.dof_p_per_mille(&file[..2]), 500, "two pages can be on two dies at most");
    assert_eq!(ssd.dof_p_per_mille(&[Units::new(0, 64)]), 0);
    let before = ssd.bytes(Units::new(0, 64));
    ask(&mut ssd, &Command::PhysicalDefragment(file.clone()));
    ask(&mut ssd, &Command::Flush);
    assert_eq!((ssd.dof_p_per_mille(&file), ssd.counters().spread), (0, 16));
    assert_eq!(ssd.bytes(Units::new(0, 64)), before);
    let busy = ssd.busy_ns();
    assert!(busy.len() == 4 && busy.iter().all(|ns| *ns > 0));
    ssd.audit().expect("tables that agree");
}

/// A commit is written with all that it commits, or not at all, also where that needs several programs.
#[test]
fn a_commit_is_there_as_a_whole() {
    let mut ssd = written(80);
    let moves: Vec<(u32, u32)> = (0..6).map(|n| (n, 100 + n)).collect();
    let remap_all = |ssd: &mut Ssd, moves: &[(u32, u32)]| {
        for (from, to) in moves {
            ask(ssd, &remap(Units::new(*from, 1), *to, false));
        }
    };
    remap_all(&mut ssd, &moves[..3]);
    for n in 0..60 {
        ask(&mut ssd, &remap(Units::new(10 + n, 1), 110 + n, true));
    }
    remap_all(&mut ssd, &moves[3..]);
    let start = ssd.idle_at();
    let end = ssd.submit(start, &log(LogAction::Commit)).expect("a commit").done_ns;
    let mut outcomes = [0, 0];
    for at in (start..end + 20_000).step_by(10_000) {
        let mut cut = ssd.clone();
        cut.power_cut(at);
        if !is_committed(&mut cut) {
            ask(&mut cut, &log(LogAction::Discard));
        }
        let there = moves.iter().filter(|(from, to)| found(&cut, *to) == *from as u8 + 1).count();
        let undone = moves.iter().filter(|(from, _)| found(&cut, *from) == *from as u8 + 1).count();
        assert!(matches!((there, undone), (6, 0) | (0, 6)), "at {at}: {there}, {undone}");
        assert!(there == 6 || at < end, "it was done");
        outcomes[usize::from(there == 6)] += 1;
    }
    assert!(outcomes[0] > 20 && outcomes[1] > 0, "{outcomes:?}");
}

/// The commit needs a compaction, which lasts longer than an erase. Meanwhile the blocks of what it gives up are opened for other data.
#[test]
fn a_commit_gives_up_nothing_before_it_is_durable() {
    let buffer = BufferSpec { bytes: u64::from(UNIT) * 256, ..drive().buffer };
    let mut ssd = written_to(&Drive { buffer, ..drive() }, 64);
    let blocks: Vec<u32> = (0..64).filter_map(|unit| Some(ssd.place_of(unit)?.1 / 16)).collect();
    let write = |start, count| Command::Write {
        units: Units::new(start, count),
        hint: Hint::None,
        fua: false,
    };
    ask(&mut ssd, &remap(Units::new(0, 64), 128, false));
    ask(&mut ssd, &log(LogAction::Flush));
    ask(&mut ssd, &write(128, 64));
    ask(&mut ssd, &remap(Units::new(128, 1), 200, true));
    ask(&mut ssd, &log(LogAction::Flush));
    for _ in 0..40 {
        ask(&mut ssd, &write(300, 64));
    }
    ask(&mut ssd, &Command::Flush);
    assert!(blocks.iter().all(|block| ssd.erases_of(*block) == 0), "what is held is kept");
    let start = ssd.idle_at();
    let end = ssd.submit(start, &log(LogAction::Commit)).expect("a commit").done_ns;
    for _ in 0..2 {
        ssd.submit(start, &write(300, 64)).expect("a write");
    }
    assert!(blocks.iter().all(|block| ssd.erases_of(*block) == 1), "they are opened");
    for at in (start..end).step_by(50_000) {
        let mut cut = ssd.clone();
        cut.power_cut(at);
        assert!(!is_committed(&mut cut), "at {at} of {start}..{end}");
        ask(&mut cut, &log(LogAction::Discard));
        let lost = (0..64).find(|unit| found(&cut, *unit) != *unit as u8 + 1);
        assert_eq!(lost, None, "at {at} of {start}..{end}");
    }
}
