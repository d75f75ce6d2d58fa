//! Every load that checks files while they are moved detects a loss, when one byte is changed by others, and
//! detects none where there is none.

use fragmend_testbed::concurrency::bank::{Bank, Journal};
use fragmend_testbed::concurrency::exercise::Exerciser;
use fragmend_testbed::concurrency::exercise::operation::Kind;
use fragmend_testbed::concurrency::load::{Failure, Load};
use fragmend_testbed::concurrency::log::Log;
use fragmend_testbed::file_system::{BTRFS, EXT4, XFS};
use fragmend_testbed::image::Image;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SEED: u64 = 0x00F2_5EED;

/// Changes one byte in the middle of a file; returns its offset.
fn change(path: &Path) -> u64 {
    let file = File::options().read(true).write(true).open(path).expect("a file");
    let at = file.metadata().expect("its size").len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[!byte[0]], at).expect("a byte");
    at
}

fn steps(load: &mut dyn Load, count: u32) {
    load.open().expect("its files");
    for _ in 0..count {
        load.step().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// The failure that it detects by itself within 2,000 steps.
fn finds(load: &mut dyn Load) -> Failure {
    let mut found = (0..2000).find_map(|_| load.step().err());
    found.take().expect("it finds what was changed")
}

#[test]
fn loop_random_operations_find_one_changed_byte() {
    let image = Image::of(&EXT4, 64 << 20);
    let mut exerciser = Exerciser::new(image.path(), "pair", SEED).expect("a pair of files");
    steps(&mut exerciser, 400);
    let at = change(&exerciser.paths()[0]);
    exerciser.close().expect("it closes");
    let failure = exerciser.verify().expect_err("a byte was changed");
    let told = failure.to_string();
    let Failure::Differs { difference, .. } = failure else { panic!("{told}") };
    assert_eq!((difference.offset, difference.differing), (at, 1), "{told}");
    assert!(told.contains("pair: seed 0xf25eed, operation 400"), "{told}");
    assert!(told.lines().count() > 20, "the last operations are told: {told}");
    // And while it goes on, unless it writes there before it reads.
    let mut seen = 0;
    for seed in SEED..SEED + 8 {
        let mut exerciser =
            Exerciser::new(image.path(), &format!("{seed:x}"), seed).expect("files");
        steps(&mut exerciser, 100);
        change(&exerciser.paths()[0]);
        seen += u32::from((0..300).any(|_| exerciser.step().is_err()));
    }
    assert!(seen > 0, "none of eight noticed");
}

#[test]
fn loop_a_bank_finds_one_changed_byte() {
    for journal in [Journal::Wal, Journal::Rollback] {
        let image = Image::of(&EXT4, 64 << 20);
        let mut bank =
            Bank::create(image.path(), "bank.db", journal, u64::MAX, SEED).expect("a bank");
        steps(&mut bank, 60);
        bank.close().expect("it closes");
        bank.verify().unwrap_or_else(|failure| panic!("{failure}"));
        // The middle of the file is in some account's note.
        change(bank.path());
        let failure = bank.verify().expect_err("a byte was changed");
        println!("{failure}");
        bank.close().expect("it closes");
        bank.open().expect("it opens");
        println!("{}", finds(&mut bank));
    }
}

#[test]
fn loop_a_log_and_its_reader_find_one_changed_byte() {
    let image = Image::of(&EXT4, 64 << 20);
    let mut log = Log::new(image.path(), "log", true, SEED).expect("a log");
    let mut reader = log.reader(SEED);
    steps(&mut log, 200);
    steps(&mut reader, 100);
    let at = change(&log.path());
    let Failure::Differs { difference, .. } = log.verify().expect_err("a byte was changed") else {
        panic!("not a difference")
    };
    assert_eq!(difference.offset, at);
    let Failure::Differs { difference, .. } = finds(&mut reader) else {
        panic!("not a difference")
    };
    assert_eq!(difference.offset, at);
}

#[test]
fn loop_every_kind_of_operation_is_done_and_expected_right() {
    let lacking: [(_, &[Kind]); 3] =
        [(&EXT4, &[Kind::Clone]), (&XFS, &[]), (&BTRFS, &[Kind::Collapse, Kind::Insert])];
    for (file_system, lacking) in lacking {
        let image = Image::of(file_system, 320 << 20);
        let mut exerciser = Exerciser::new(image.path(), "pair", SEED).expect("a pair of files");
        let has = |kind: &Kind| exerciser.kinds().iter().any(|(k, _)| k == kind);
        for (kind, _) in Kind::ALL {
            assert_eq!(has(&kind), !lacking.contains(&kind), "{}: {kind:?}", file_system.name);
        }
        // Each kind is drawn once before the rest are drawn at random.
        steps(&mut exerciser, 1500);
        exerciser.close().expect("it closes");
        let compared = exerciser.verify().unwrap_or_else(|failure| panic!("{failure}"));
        assert!(compared > 0);
        image.remount();
        exerciser.verify().unwrap_or_else(|failure| panic!("cold: {failure}"));
        image.fsck();
    }
}
