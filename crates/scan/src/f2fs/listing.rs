//! The kernel's lists of segments (`segment_info_seq_show()` and `segment_bits_seq_show()`, fs/f2fs/sysfs.c).
//!
//! Both begin with two lines about their format. A list that is not as expected is refused as a whole: a segment that is
//! taken for another one would be cleaned for nothing.

use fragmend_layout::Segment;

const SHORT: &str = "it has not as many segments as the super block says";
const FOREIGN: &str = "its format is not known";
/// Blocks of a segment.
const MOST: u32 = 512;

/// The segments of `segment_info`, of which there must be so many: type and valid blocks, ten in a line behind the number of
/// the first (`20        3|1    0|512`).
///
/// # Errors
/// Why it is not such a list.
pub fn segments(list: &str, count: usize) -> Result<Vec<Segment>, &'static str> {
    let body = body(list, "format: segment_type|valid_blocks")?;
    let mut segments = Vec::new();
    for word in body.split_whitespace() {
        let Some((kind, valid)) = word.split_once('|') else {
            if word.parse() != Ok(segments.len()) {
                return Err(FOREIGN);
            }
            continue;
        };
        let (kind, valid) = (kind.parse::<u32>(), valid.parse::<u32>());
        let (Ok(kind @ 0..=5), Ok(valid @ 0..=MOST)) = (kind, valid) else { return Err(FOREIGN) };
        if segments.len() == count {
            return Err(SHORT);
        }
        // Hot, warm and cold data; then as many kinds of nodes.
        segments.push(Segment { holds_data: kind < 3, valid, ..Segment::default() });
    }
    if segments.len() == count { Ok(segments) } else { Err(SHORT) }
}

/// When each segment of `segment_bits` was modified, in seconds, of which there must be so many: the last field of each line
/// (`7         1|3  | e0 00 ... 00| 1f`); `None` where the kernel does not show it.
///
/// # Errors
/// Why it is not such a list.
pub fn modified(list: &str, count: usize) -> Result<Option<Vec<u64>>, &'static str> {
    let body = body(list, "format: segment_type|valid_blocks|bitmaps")?;
    if !list.lines().next().is_some_and(|line| line.ends_with("|mtime")) {
        return Ok(None);
    }
    let mut times = Vec::new();
    for line in body.lines() {
        let number = line.split_whitespace().next().and_then(|word| word.parse::<usize>().ok());
        let time = line.rsplit('|').next().map(|field| u64::from_str_radix(field.trim(), 16));
        let (Some(number), Some(Ok(time))) = (number, time) else { return Err(FOREIGN) };
        if times.len() != number {
            return Err(FOREIGN);
        }
        times.push(time);
    }
    if times.len() == count { Ok(Some(times)) } else { Err(SHORT) }
}

/// Which blocks of a segment are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidBlocks {
    /// Whether the segment holds data of files or directories, and not nodes.
    pub holds_data: bool,
    /// A bit for each block, from the lowest one of the first byte.
    pub valid: [u8; (MOST / 8) as usize],
}

/// The valid blocks of the segments of `segment_bits`, of which there must be so many.
///
/// # Errors
/// Why it is not such a list.
pub fn valid_blocks(list: &str, count: usize) -> Result<Vec<ValidBlocks>, &'static str> {
    let mut segments = Vec::new();
    for line in body(list, "format: segment_type|valid_blocks|bitmaps")?.lines() {
        let (number, segment) = valid_blocks_of(line).ok_or(FOREIGN)?;
        if number != segments.len() {
            return Err(FOREIGN);
        }
        if segments.len() == count {
            return Err(SHORT);
        }
        segments.push(segment);
    }
    if segments.len() == count { Ok(segments) } else { Err(SHORT) }
}

/// Number and blocks of a segment: `7         1|3  | e0 00 ... 00| 1f`.
fn valid_blocks_of(line: &str) -> Option<(usize, ValidBlocks)> {
    let mut fields = line.split('|');
    let mut first = fields.next()?.split_whitespace();
    let number = first.next()?.parse().ok()?;
    let kind = first.next()?.parse::<u32>().ok().filter(|kind| *kind <= 5)?;
    let count: u32 = fields.next()?.trim().parse().ok()?;
    let mut bytes = fields.next()?.split_whitespace();
    let mut valid = [0; (MOST / 8) as usize];
    for byte in &mut valid {
        // F2FS counts the bits of a byte from the highest one (`f2fs_test_bit()`, fs/f2fs/f2fs.h).
        *byte = u8::from_str_radix(bytes.next()?, 16).ok()?.reverse_bits();
    }
    let is_sound = bytes.next().is_none()
        && first.next().is_none()
        && valid.iter().map(|byte| byte.count_ones()).sum::<u32>() == count;
    is_sound.then_some((number, ValidBlocks { holds_data: kind < 3, valid }))
}

/// What follows the two lines about the format, the first of which begins so.
fn body<'a>(list: &'a str, format: &str) -> Result<&'a str, &'static str> {
    let (first, rest) = list.split_once('\n').ok_or(FOREIGN)?;
    let (_, body) = rest.split_once('\n').ok_or(FOREIGN)?;
    if first.starts_with(format) { Ok(body) } else { Err(FOREIGN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &str = "segment_type(0:HD, 1:WD, 2:CD, 3:HN, 4:WN, 5:CN)\n";

    fn info(rest: &str) -> String {
        format!("format: segment_type|valid_blocks\n{TYPES}{rest}")
    }

    #[test]
    fn a_list_of_segments_is_read() {
        let list = info(
            "0         3|1   4|0   0|512 1|7   2|8   5|0   0|0   0|0   0|0   0|0  \n10        2|100\n",
        );
        let read = segments(&list, 11).unwrap();
        let valid: Vec<u32> = read.iter().map(|s| s.valid).collect();
        assert_eq!(valid, [1, 0, 512, 7, 8, 0, 0, 0, 0, 0, 100]);
        let data: Vec<usize> = (0..6).filter(|i| read[*i].holds_data).collect();
        assert_eq!(data, [2, 3, 4]);
        assert_eq!(segments(&list, 10), Err(SHORT));
        assert_eq!(segments(&list, 12), Err(SHORT));
        for foreign in [
            "1         3|1\n",
            "0         6|1\n",
            "0         3|513\n",
            "0 3|x\n",
            "0 -1|3\n",
            "? 1|3\n",
        ] {
            assert_eq!(segments(&info(foreign), 1), Err(FOREIGN), "{foreign}");
        }
        assert_eq!(segments("", 0), Err(FOREIGN));
        assert_eq!(segments("0  3|1\n0 3|1\n0 3|1\n", 1), Err(FOREIGN));
    }

    #[test]
    fn valid_blocks_are_the_bits_from_the_highest_one() {
        let line = |n: u32, kind: u32, count: u32, bytes: &str| {
            format!("{n:<10}{kind}|{count:<3}| {bytes}{}\n", " 00".repeat(62))
        };
        let head = format!("format: segment_type|valid_blocks|bitmaps\n{TYPES}");
        let list = format!("{head}{}{}", line(0, 1, 3, "c0 01"), line(1, 4, 0, "00 00"));
        let read = valid_blocks(&list, 2).unwrap();
        assert_eq!((read[0].valid[0], read[0].valid[1], read[0].valid[2]), (0b11, 0b1000_0000, 0));
        assert_eq!([read[0].holds_data, read[1].holds_data], [true, false]);
        // With ages, since Linux 6.15.
        let aged = list.replace(" 00\n", " 00| 1f\n");
        assert_eq!(valid_blocks(&aged, 2).as_ref(), Ok(&read));
        assert_eq!(valid_blocks(&list, 1), Err(SHORT));
        assert_eq!(valid_blocks(&list, 3), Err(SHORT));
        for foreign in [
            line(1, 1, 3, "c0 01"),
            line(0, 6, 3, "c0 01"),
            line(0, 1, 4, "c0 01"),
            line(0, 1, 3, "c0 01 00"),
            line(0, 1, 3, "c001"),
            line(0, 1, 3, "c0 0x"),
            "0\n".into(),
        ] {
            assert_eq!(valid_blocks(&format!("{head}{foreign}"), 1), Err(FOREIGN), "{foreign}");
        }
    }

    #[test]
    fn ages_are_the_last_field_where_there_is_one() {
        let bits = " 00".repeat(64);
        let line = |n: u32, time: &str| format!("{n:<10}1|0  |{bits}{time}\n");
        let head = format!("format: segment_type|valid_blocks|bitmaps|mtime\n{TYPES}");
        let list = format!("{head}{}{}", line(0, "| 1f"), line(1, "| ffffffffffffffff"));
        assert_eq!(modified(&list, 2), Ok(Some(vec![31, u64::MAX])));
        assert_eq!(modified(&list, 3), Err(SHORT));
        // Linux 6.1.
        let list = format!("format: segment_type|valid_blocks|bitmaps\n{TYPES}{}", line(0, ""));
        assert_eq!(modified(&list, 1), Ok(None));
        for foreign in [line(1, "| 1f"), line(0, ""), line(0, "| 1g"), "\n".into()] {
            assert_eq!(modified(&format!("{head}{foreign}"), 1), Err(FOREIGN), "{foreign}");
        }
    }
}
