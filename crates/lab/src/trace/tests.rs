//! Each format is parsed as its description has it, an error names its line, and a replay needs the recorded time, or less.

use super::replay::{Replayed, Speed, replay};
use super::*;
use crate::presets;

const MSR: &str = "128166372003061629,hm,0,Read,383496192,32768,413\n\
    128166372016382155,hm,0,Write,2822144000,4096,1218\n";
const BLKPARSE: &str = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
  8,0    3        2     0.000001829   697  P   R [kjournald]\n\
  8,0    3       11     0.009507758   697  D   W 223490 + 56 [kjournald]\n\
  8,0    1       12     0.009510000     0  D  FN [swapper/1]\n\
  8,0    1       13     0.010507758   700  D   R 2048 + 8 [a name with spaces]\n\
  8,0    1       14     0.011000000   700  D   R 36 (12 00 00) [udevd]\n\
  8,0    1       15     0.012000000   700  D   D 4096 + 64 [fstrim]\n\
\n\
CPU0 (8,0):\n Reads Queued:           1,        4KiB\n";
/// Written by fio 3.33 (`--rw=randrw --write_iolog`).
const FIO_3: &str = "fio version 3 iolog\n17 f add\n255 f open\n260 f read 0 16384\n\
    809 f write 114688 16384\n900 f sync 0 0\n1853 f close\n";
const FIO_2: &str = "fio version 2 iolog\nf add\nf open\nf write 4096 512\nf wait 150 0\n\
    f trim 8192 4096\nf datasync\nf wait 50 0\nf read 0 4096\nf close\n";

fn parse(text: &str) -> Result<Vec<Request>, BadFile> {
    Requests::new(text.as_bytes(), "t").collect()
}

fn request(at_ns: u64, kind: Kind, offset: u64, bytes: u64) -> Request {
    Request { at_ns, kind, offset, bytes }
}

#[test]
fn each_format_is_what_its_description_says() {
    assert_eq!(
        parse(MSR).unwrap(),
        [
            request(0, Kind::Read, 383_496_192, 32_768),
            request(1_332_052_600, Kind::Write, 2_822_144_000, 4096)
        ]
    );
    let heading = format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{MSR}");
    assert_eq!(parse(&heading), parse(MSR));
    assert_eq!(
        parse(BLKPARSE).unwrap(),
        [
            request(0, Kind::Write, 223_490 * 512, 56 * 512),
            request(2_242, Kind::Flush, 0, 0),
            request(1_000_000, Kind::Read, 2048 * 512, 4096),
            request(2_492_242, Kind::Trim, 4096 * 512, 64 * 512),
        ]
    );
    assert_eq!(
        parse(FIO_3).unwrap(),
        [
            request(260_000, Kind::Read, 0, 16_384),
            request(809_000, Kind::Write, 114_688, 16_384),
            request(900_000, Kind::Flush, 0, 0),
        ]
    );
    assert_eq!(
        parse(FIO_2).unwrap(),
        [
            request(0, Kind::Write, 4096, 512),
            request(150_000, Kind::Trim, 8192, 4096),
            request(150_000, Kind::Flush, 0, 0),
            request(200_000, Kind::Read, 0, 4096),
        ]
    );
    assert_eq!(parse("").unwrap(), []);
}

#[test]
fn an_error_names_the_line_and_what_was_expected() {
    let long = "x".repeat(LONGEST_LINE + 1);
    for (good, from, to, line, why) in [
        (MSR, "Write", "Wrote", 2, "Type: Read or Write was expected, not `Wrote`"),
        (MSR, ",4096,1218", ",4096", 2, "7 fields between commas were expected, not 6"),
        (MSR, ",383496192", ",-1", 1, "Offset: a whole number was expected, not `-1`"),
        (
            MSR,
            "155,hm,0",
            "155,hm,1",
            2,
            "host and disk `hm 0` was expected in all lines, not `hm 1`",
        ),
        (
            MSR,
            "2822144000",
            "18446744073709551615",
            2,
            "18446744073709551615 and 4096 bytes: an end",
        ),
        (BLKPARSE, "223490 + 56", "2x + 56", 3, "sector: a whole number was expected, not `2x`"),
        (BLKPARSE, "0.009510000", "0.0095", 4, "seconds with nine digits after the point were"),
        (
            BLKPARSE,
            "8,0    1       13",
            "8       1       13",
            5,
            "device: major,minor was expected",
        ),
        (BLKPARSE, "D   R 2048", "D   Q 2048", 5, "RWBS: letters such as"),
        (
            BLKPARSE,
            "8,0    3        2     0.000001829   697  P",
            "8,0",
            2,
            "device, processor, sequence",
        ),
        (
            BLKPARSE,
            "8,0    1       13",
            "8,16   1       13",
            5,
            "device `8,0` was expected in all lines",
        ),
        (BLKPARSE, "2048 + 8", "36028797018963968 + 8", 5, "sector: too large"),
        (
            FIO_3,
            "version 3",
            "version 4",
            1,
            "version 2 or 3 was expected, not `fio version 4 iolog`",
        ),
        (FIO_3, "260 f read", "18446744073709551 f read", 4, "a time of at most"),
        (FIO_3, "260 f read", "x f read", 4, "time: a whole number was expected, not `x`"),
        (FIO_3, "809 f write", "809 g write", 5, "file `f` was expected in all lines, not `g`"),
        (FIO_3, "0 16384\n", "0\n", 4, "time, file and action, or those with offset and length"),
        (
            FIO_3,
            "900 f sync 0 0",
            "900 f wait 5 0",
            6,
            "action: add, open, close, read, write, trim, sync",
        ),
        (FIO_2, "f wait 150 0", "f wait", 5, "file and action, or file, action, offset and length"),
        (FIO_2, "f trim 8192 4096", &long, 6, "a line of at most 4096 bytes was expected"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good);
        let bad = parse(&text).unwrap_err();
        assert!(bad.line == line && bad.why.starts_with(why), "{bad} and not {line}: {why}");
    }
}

fn play(text: &str, drive: &str, speed: Speed) -> Replayed {
    let setup = presets::named(drive).unwrap();
    let mut device = setup.device();
    let trace = Requests::new(text.as_bytes(), "t");
    replay(trace, &mut *device, 1000, &setup.host, speed).unwrap()
}

#[test]
fn a_replay_needs_the_recorded_time_or_less() {
    for (text, drive) in
        [(MSR, "optane"), (BLKPARSE, "ufs-2.0"), (FIO_3, "emmc-5.0"), (FIO_2, "nvme-a")]
    {
        let all = parse(text).unwrap();
        let recorded = all[all.len() - 1].at_ns;
        let (as_was, fastest) =
            (play(text, drive, Speed::Recorded), play(text, drive, Speed::Fastest));
        assert!(
            as_was.end_ns >= 1000 + recorded && fastest.end_ns < as_was.end_ns,
            "{drive}: {as_was:?} {fastest:?}"
        );
        assert!(fastest.response_ns > 0 && as_was.requests == all.len() as u64);
        let bytes = |kind| all.iter().filter(|r| r.kind == kind).map(|r| r.bytes).sum::<u64>();
        assert_eq!(
            (as_was.read_bytes, as_was.written_bytes),
            (bytes(Kind::Read), bytes(Kind::Write))
        );
    }
}

#[test]
fn addresses_are_folded_onto_a_smaller_drive() {
    let size = presets::named("simmmc").unwrap().capacity_bytes();
    let line =
        |time: u64, offset: u64, bytes: u64| format!("{time},h,0,Write,{offset},{bytes},1\n");
    let text = line(10, 0, 4096) + &line(11, size - 4096, 8192) + &line(12, 5 * size + 512, 1024);
    let played = play(&text, "simmmc", Speed::Fastest);
    assert_eq!((played.requests, played.folded, played.commands), (3, 2, 3));
    // Longer than the host's largest request: split.
    let long = play(&line(1, 0, 3 << 20), "simmmc", Speed::Fastest);
    assert_eq!((long.requests, long.commands, long.folded), (1, 6, 0));
    let longest = play(&line(1, 0, u64::MAX), "sd-kingston", Speed::Fastest);
    let size = presets::named("sd-kingston").unwrap().capacity_bytes();
    assert_eq!((longest.folded, longest.written_bytes), (1, size));
    // A zone is written from its start on.
    let text = line(1, 4096, 4096);
    let trace = Requests::new(text.as_bytes(), "t");
    let setup = presets::named("femu-indef").unwrap();
    let refused = replay(trace, &mut *setup.device(), 0, &setup.host, Speed::Fastest).unwrap_err();
    assert!(refused.line == 1 && refused.why.starts_with("the drive: "), "{refused}");
}
