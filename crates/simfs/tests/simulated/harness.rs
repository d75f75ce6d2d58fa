//! The tests' own drive loses what it may lose, and keeps what it has promised.

use crate::support::lossy::Lossy;
use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::device::{Bytes, Device};
use std::collections::BTreeSet;

fn write(drive: &mut Lossy, unit: u32, value: u8) {
    let command = Command::Write { units: Units::new(unit, 1), hint: Hint::None, fua: false };
    let content: Bytes = Some(vec![value; 512].into());
    drive.submit_with(0, &command, &mut |_| content.clone()).expect("it is written");
}

#[test]
fn what_was_flushed_survives_and_of_the_rest_any_part() {
    let mut survivors: BTreeSet<Vec<u8>> = BTreeSet::new();
    for seed in 0..200 {
        let mut drive = Lossy::new(512, 8, seed);
        (0..3).for_each(|unit| write(&mut drive, unit, 1));
        drive.submit(0, &Command::Flush).expect("it is flushed");
        (0..3).for_each(|unit| write(&mut drive, unit, 2));
        drive.submit(0, &Command::Trim(Units::new(2, 1))).expect("it is trimmed");
        assert_eq!(drive.bytes(Units::new(2, 1)), [0; 512]);
        drive.power_cut(0);
        let bytes = drive.bytes(Units::new(0, 3));
        survivors.insert(bytes.chunks(512).map(|unit| unit[0]).collect());
    }
    let expected: BTreeSet<Vec<u8>> = [1, 2]
        .into_iter()
        .flat_map(|a| [1, 2].map(|b| (a, b)))
        .flat_map(|(a, b)| [0, 1, 2].map(|c| vec![a, b, c]))
        .collect();
    assert_eq!(survivors, expected);
}
