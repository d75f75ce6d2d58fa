use super::*;
use fragmend_layout::RatedBytes;
use proptest::prelude::*;

const EMPTY: Page = [0; 512];

/// A log page of NVMe as the specification lays it out, with these bytes beside what every healthy drive has.
fn nvme_log(warning: u8, used: u8, units: u128) -> Page {
    let mut log = EMPTY;
    log[0] = warning;
    // 312 K.
    (log[1], log[2]) = (0x38, 0x01);
    (log[3], log[4], log[5]) = (100, 10, used);
    // Data units read and written, and hours.
    log[32..48].copy_from_slice(&7_000_000u128.to_le_bytes());
    log[48..64].copy_from_slice(&units.to_le_bytes());
    log[128..144].copy_from_slice(&9000u128.to_le_bytes());
    log
}

/// A page of Device Statistics: its number, and statistics with their flags.
fn page(number: u8, statistics: &[(usize, u8, u64)]) -> Page {
    let mut page = EMPTY;
    (page[0], page[2]) = (1, number);
    for (offset, flags, value) in statistics {
        page[*offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        page[offset + 7] = *flags;
    }
    page
}

/// Supported and valid.
const GOOD: u8 = 0xC0;

#[test]
fn an_nvme_log_is_read_byte_for_byte() {
    // 12 % for 80,078,125 thousands of 512 bytes: 41 TB.
    let health = nvme(&nvme_log(0, 12, 80_078_125)).unwrap();
    assert_eq!((health.used_share, health.used_step), (0.12, 0.01));
    assert_eq!(health.written_bytes, Some(41_000_000_000_000));
    let rated = RatedBytes { low: 315_384_615_384_615, high: 372_727_272_727_272 };
    assert_eq!(health.rated_bytes, Some(rated));
    assert!(health.warnings().is_empty());
    // Its bytes, one by one.
    let log = nvme_log(0, 12, 80_078_125);
    assert_eq!((log[5], &log[48..53]), (0x0c, &[0x2d, 0xe5, 0xc5, 0x04, 0][..]));
}

#[test]
fn an_nvme_drive_warns() {
    let warned = |warning, used| {
        let health = nvme(&nvme_log(warning, used, 1)).unwrap();
        (health.life_used_up, health.spare_low, health.read_only)
    };
    assert_eq!(warned(0b0001, 99), (false, true, false));
    assert_eq!(warned(0b1000, 100), (true, false, true));
    // Too warm, less reliable, without its backup: not worn.
    assert_eq!(warned(0b11_0110, 0), (false, false, false));
    assert_eq!(warned(0, 255), (true, false, false));
}

#[test]
fn hostile_nvme_logs_tell_nothing_false() {
    assert_eq!(nvme(&EMPTY), Err(Unfit::Empty));
    assert_eq!(nvme(&[0xFF; 512]), Err(Unfit::Senseless));
    // Not reported; and more than any drive.
    for units in [0, u128::MAX, u128::MAX / 512_000, 1 << 64, (u64::MAX / 512_000) as u128 + 1] {
        let health = nvme(&nvme_log(0, 12, units)).unwrap();
        assert_eq!((health.written_bytes, health.rated_bytes), (None, None), "{units}");
    }
    // More than can be told, and what is too little to tell a rating.
    for used in [255, 0, 1, 2] {
        let health = nvme(&nvme_log(0, used, 1 << 30)).unwrap();
        assert_eq!((health.used_share, health.rated_bytes), (f64::from(used) / 100.0, None));
    }
}

#[test]
fn device_statistics_are_read_byte_for_byte() {
    let general = page(1, &[(8, GOOD, 1735), (24, GOOD, 80_078_125_000)]);
    let solid = page(7, &[(8, GOOD, 12)]);
    assert_eq!(general[24..32], [0xc8, 0x37, 0x07, 0xa5, 0x12, 0, 0, 0xC0]);
    let health = ata(Some(&general), &solid, 512).unwrap();
    assert_eq!(health, nvme(&nvme_log(0, 12, 80_078_125)).unwrap());
    // Sectors of 4 KiB.
    assert_eq!(ata(Some(&general), &solid, 4096).unwrap().written_bytes, Some(328_000_000_000_000));
    let alone = ata(None, &solid, 512).unwrap();
    assert_eq!((alone.used_share, alone.written_bytes, alone.rated_bytes), (0.12, None, None));
    assert!(ata(None, &page(7, &[(8, GOOD, 100)]), 512).unwrap().life_used_up);
}

#[test]
fn statistics_without_their_flags_count_as_absent() {
    let (general, solid) = (page(1, &[(24, GOOD, 1 << 30)]), page(7, &[(8, GOOD, 12)]));
    for flags in [0x00, 0x80, 0x40] {
        let invalid = page(7, &[(8, flags, 12)]);
        assert_eq!(ata(Some(&general), &invalid, 512), Err(Unfit::Empty), "{flags:#x}");
        let unwritten = page(1, &[(24, flags, 1 << 30)]);
        assert_eq!(ata(Some(&unwritten), &solid, 512).unwrap().written_bytes, None);
    }
    // Of another page, and more than the field has.
    assert_eq!(ata(Some(&solid), &solid, 512), Err(Unfit::Senseless));
    assert_eq!(ata(None, &general, 512), Err(Unfit::Senseless));
    assert_eq!(ata(None, &page(7, &[(8, GOOD, 256)]), 512), Err(Unfit::Senseless));
    let many = page(1, &[(24, GOOD, 1 << 48)]);
    assert_eq!(ata(Some(&many), &solid, 512).unwrap().written_bytes, None);
    for hostile in [EMPTY, [0xFF; 512]] {
        assert_eq!(ata(Some(&hostile), &solid, 512), Err(Unfit::Senseless));
        assert!(ata(None, &hostile, 512).is_err());
    }
}

#[test]
fn a_drive_is_asked_only_for_what_it_lists() {
    let mut directory = EMPTY;
    (directory[0], directory[8]) = (1, 8);
    assert!(statistics::are_in(&directory));
    directory[8] = 7;
    assert!(!statistics::are_in(&directory) && !statistics::are_in(&EMPTY));
    let mut list = page(0, &[]);
    list[8..12].copy_from_slice(&[3, 0, 1, 7]);
    assert!(statistics::lists(&list, 1) && statistics::lists(&list, 7));
    // Behind its end.
    list[8] = 2;
    assert!(!statistics::lists(&list, 7) && !statistics::lists(&EMPTY, 7));
    let mut whole = [7; 512];
    (whole[2], whole[8]) = (0, 255);
    assert!(statistics::lists(&whole, 7));
}

#[test]
fn tenths_are_those_of_the_more_worn_flash() {
    let used = |life, reserve| tenths(life, reserve).map(|h| (h.used_share, h.spare_low));
    assert_eq!(used("0x01 0x02\n", Some("0x01\n")), Ok((0.2, false)));
    assert_eq!(used("0x0A 0x00", Some("0x03")), Ok((1.0, true)));
    assert_eq!(used("0x01", Some("anything")), Ok((0.1, false)));
    assert!(tenths("0x0b 0x01", None).unwrap().life_used_up);
    for empty in ["", "0x00 0x00\n"] {
        assert_eq!(used(empty, None), Err(Unfit::Empty));
    }
    for wrong in ["0x0c 0x01", "0xff", "12", "0x001", "0x+1", "0x", "ein"] {
        assert_eq!(used(wrong, None), Err(Unfit::Senseless), "{wrong}");
    }
}

/// What holds of any report that is accepted.
fn sensible(health: &DriveHealth) {
    assert!((0.0..=2.55).contains(&health.used_share));
    assert!(!health.life_used_up || health.used_share >= 1.0);
    if let Some(RatedBytes { low, high }) = health.rated_bytes {
        assert!(low > 0 && low <= high && health.written_bytes.is_some());
    }
    assert_eq!(health.rated_bytes.is_some(), health.unrated().is_none());
}

proptest! {
    #[test]
    fn no_bytes_break_a_parser(
        bytes in proptest::collection::vec(any::<u8>(), 1024),
        spare in 0u8..=100,
        sector in any::<u64>(),
        text in "(0x[0-9a-cA-C]{0,3} ?){0,3}|\\PC{0,12}",
    ) {
        let (mut one, mut two) = (EMPTY, EMPTY);
        one.copy_from_slice(&bytes[..512]);
        two.copy_from_slice(&bytes[512..]);
        nvme(&one).iter().for_each(sensible);
        one[3] = spare;
        sensible(&nvme(&one).unwrap());
        let _ = (statistics::are_in(&one), statistics::lists(&one, two[0]));
        ata(Some(&one), &two, sector).iter().for_each(sensible);
        (one[2], two[2], two[15]) = (1, 7, two[15] | GOOD);
        ata(Some(&one), &two, sector).iter().for_each(sensible);
        two[9..15].fill(0);
        sensible(&ata(Some(&one), &two, sector).unwrap());
        tenths(&text, Some(&text)).iter().for_each(sensible);
    }
}
