//! The policy `segments` on tables and layouts of segments: which become victims, what moves, and what that comes to.

mod support;

use fragmend_layout::{
    ByteRange, CostModel, DeviceKind, Extent, ExtentKind, FileId, FsKind, Layout, Segment,
    SegmentTable,
};
use fragmend_plan::{Cleaned, Device, Plan, Policy, Settings, Survey, SurveyedFile, make};
use std::collections::{BTreeMap, BTreeSet};
use support::{BLOCK, DEVICE, Random, device};

/// Blocks of a segment here.
const SEGMENT: u32 = 8;
/// Where segments begin on the device, in blocks.
const START: u64 = 100;

/// Files and segments from a picture: each word is a segment, each letter a block of the file of that name, in file order as they
/// come, unless `order` has other blocks of the file for them; `.` is invalid, `?` valid and of no file that is known.
fn pictured(picture: &str, order: &[(char, &[u64])]) -> (Vec<Layout>, SegmentTable) {
    let mut blocks: BTreeMap<char, Vec<u64>> = BTreeMap::new();
    let mut segments = Vec::new();
    for (n, word) in picture.split_whitespace().enumerate() {
        assert_eq!(word.len(), SEGMENT as usize);
        let valid = word.chars().filter(|c| *c != '.').count() as u32;
        segments.push(Segment { holds_data: true, valid, ..Segment::default() });
        for (at, letter) in word.chars().enumerate().filter(|(_, c)| c.is_alphabetic()) {
            let place = START + n as u64 * u64::from(SEGMENT) + at as u64;
            blocks.entry(letter).or_default().push(place);
        }
    }
    let layout = |(letter, places): (&char, &Vec<u64>)| {
        let file = FileId { device: DEVICE, inode: *letter as u64, generation: 1 };
        let order = order.iter().find(|(of, _)| of == letter);
        let mut at: Vec<(u64, u64)> = match order {
            Some((_, order)) => order.iter().copied().zip(places.iter().copied()).collect(),
            None => (0..).zip(places.iter().copied()).collect(),
        };
        at.sort_unstable();
        let size = (at.last().unwrap().0 + 1) * BLOCK;
        let mut layout = Layout::new(file, size);
        for (logical, physical) in at {
            let (logical, physical) = (logical * BLOCK, physical * BLOCK);
            layout.push(Extent { logical, physical, length: BLOCK, kind: ExtentKind::Data });
        }
        layout
    };
    let table = SegmentTable {
        start: START * BLOCK,
        block_bytes: BLOCK,
        segment_blocks: SEGMENT,
        section_segments: 1,
        segments,
        spare: 1000,
        no_age: None,
    };
    (blocks.iter().map(layout).collect(), table)
}

fn planned(layouts: &[Layout], table: &SegmentTable, budget_bytes: Option<u64>) -> Plan {
    let device =
        Device { file_system: FsKind::F2fs, ..device(CostModel::guessed(DeviceKind::Flash)) };
    let file = |layout: &Layout| {
        let name = format!("/mnt/{}", layout.file.inode);
        SurveyedFile::new(name.into(), layout.clone(), Vec::new(), &device)
    };
    let survey = Survey {
        // The order in which a walk finds files says nothing.
        files: layouts.iter().rev().map(file).collect(),
        segments: BTreeMap::from([(DEVICE, table.clone())]),
        devices: vec![device.clone()],
        ..Survey::default()
    };
    make(survey, &Settings { policy: Policy::Segments, budget_bytes, ..Settings::default() })
}

/// The planned ranges as blocks: of which file, from where, to where.
fn ranges(plan: &Plan) -> Vec<(char, u64, u64)> {
    let of = |file: &fragmend_plan::PlannedFile| {
        let letter = char::from_u32(file.file.inode as u32).unwrap();
        let range = move |r: ByteRange| (letter, r.start / BLOCK, r.end / BLOCK);
        file.ranges.iter().map(move |r| range(r.range())).collect::<Vec<_>>()
    };
    plan.files.iter().flat_map(of).collect()
}

fn of(picture: &str, order: &[(char, &[u64])]) -> (Vec<(char, u64, u64)>, Cleaned) {
    let (layouts, table) = pictured(picture, order);
    let plan = planned(&layouts, &table, None);
    (ranges(&plan), plan.summary.segments.unwrap())
}

#[test]
fn interleaved_files_are_moved_in_the_order_of_inodes() {
    let (ranges, figures) = of("ba.ba.ba b.a.b.a.", &[]);
    assert_eq!(ranges, [('a', 0, 5), ('b', 0, 5)]);
    let expected = Cleaned {
        segments_cleaned: 2,
        segments_emptied: 2,
        segments_gained: 0,
        blocks_held: 10,
        blocks_moved: 10,
        fragments_before: 10,
        fragments_after: 2,
        left_for_space_bytes: 0,
        no_age: None,
    };
    assert_eq!(figures, expected);
    let (_, figures) = of("ba....ba ba....ba", &[]);
    assert_eq!((figures.segments_emptied, figures.segments_gained), (2, 1));
}

#[test]
fn what_was_overwritten_is_cleaned_with_the_segment_that_has_it_now() {
    // Every second block of `a` has moved to the second segment, which is not fragmented itself.
    let (ranges, figures) = of("a.a.a.a. aaa.....", &[('a', &[0, 2, 4, 6, 1, 3, 5])]);
    assert_eq!(ranges, [('a', 0, 7)]);
    assert_eq!((figures.segments_emptied, figures.segments_gained), (2, 1));
    assert_eq!((figures.fragments_before, figures.fragments_after), (7, 1));
    // A full one that gains nothing stays; so do the blocks that cannot move without it.
    let (ranges, figures) =
        of("a.a.a.a. aaaaaaaa", &[('a', &[0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 11])]);
    assert_eq!((ranges.len(), figures), (0, Cleaned::default()));
}

#[test]
fn what_belongs_to_others_keeps_a_segment() {
    let (ranges, figures) = of("a?a?a?a.", &[]);
    assert_eq!(ranges, [('a', 0, 4)]);
    assert_eq!((figures.segments_cleaned, figures.segments_emptied), (1, 0));
    assert_eq!((figures.blocks_held, figures.blocks_moved, figures.segments_gained), (7, 4, -1));
}

#[test]
fn nothing_comes_to_be_in_more_fragments() {
    // Both ends of the run touch what stays: two fragments would become three.
    let picture = "cccccaaa aab.b.b. ";
    let (layouts, mut table) = pictured(&format!("{picture} aaaaaaaa"), &[]);
    let plan = planned(&layouts, &table, None);
    // `b` alone moves.
    assert_eq!(ranges(&plan), [('b', 0, 3)]);
    // With the end of the file in the segment, and another fragment, it is worth it.
    let (ranges, figures) = of("cccccaaa aaba.b.a", &[]);
    assert_eq!(ranges, [('a', 3, 7), ('b', 0, 2)]);
    assert_eq!((figures.fragments_before, figures.fragments_after), (5, 3));
    table.segments[1].is_open = true;
    assert_eq!(planned(&layouts, &table, None).files, []);
}

#[test]
fn open_and_node_segments_are_no_victims() {
    let (layouts, table) = pictured("ab.ab.ab", &[]);
    assert_eq!(planned(&layouts, &table, None).files.len(), 2);
    let with = |segment: Segment| {
        let table = SegmentTable { segments: vec![segment], ..table.clone() };
        planned(&layouts, &table, None).files.len()
    };
    assert_eq!(with(Segment { is_open: true, ..table.segments[0] }), 0);
    assert_eq!(with(Segment { holds_data: false, ..table.segments[0] }), 0);
}

#[test]
fn budget_and_space_are_kept_to() {
    let (layouts, table) = pictured("abababab cdcd.... efef.ef.", &[]);
    let sum = |plan: &Plan| plan.summary.bytes_to_move / BLOCK;
    // The most fragmented first.
    let plan = planned(&layouts, &table, Some(10 * BLOCK));
    assert_eq!((sum(&plan), plan.summary.over_budget_bytes / BLOCK), (8, 10));
    assert_eq!(planned(&layouts, &table, Some(0)).summary.ranges, 0);
    // Two segments are free, one of which is begun.
    let table = SegmentTable { spare: 2, ..table };
    let plan = planned(&layouts, &table, None);
    assert_eq!((sum(&plan), plan.summary.over_budget_bytes), (8, 0));
    assert_eq!(plan.summary.segments.unwrap().left_for_space_bytes / BLOCK, 10);
}

#[test]
fn the_most_fragmented_of_some_candidates_goes_first() {
    let (layouts, table) = pictured("ab....ab cdcdcd..", &[]);
    let plan = planned(&layouts, &table, Some(7 * BLOCK));
    assert_eq!(ranges(&plan), [('c', 0, 3), ('d', 0, 3)]);
}

/// Files that have changed since the segments were read, or segments that are wrong: no figure hides it, and nothing moves that is not theirs.
#[test]
fn segments_that_hold_other_numbers_of_blocks_than_files_have_there() {
    let (layouts, table) = pictured("ba.ba.ba b.a.b.a.", &[]);
    let of = |valid: u32| {
        let segment = |s: &Segment| Segment { valid, ..*s };
        let segments = table.segments.iter().map(segment).collect();
        let table = SegmentTable { segments, ..table.clone() };
        let plan = planned(&layouts, &table, None);
        let figures = plan.summary.segments.clone().unwrap();
        (ranges(&plan), figures.blocks_held, figures.blocks_moved, figures.segments_emptied)
    };
    let all = vec![('a', 0, 5), ('b', 0, 5)];
    assert_eq!(of(1), (all.clone(), 2, 10, 2), "more moves than they are said to hold");
    assert_eq!(of(8), (all, 16, 10, 0));
    // Files that the segments do not reach to.
    let short = SegmentTable { segments: table.segments[..1].to_vec(), ..table.clone() };
    let plan = planned(&layouts, &short, None);
    assert_eq!(ranges(&plan), [('a', 0, 3), ('b', 0, 3)]);
}

/// What must hold of any segments, told apart from how it is computed.
#[test]
fn any_choice_moves_only_what_victims_hold_and_joins_it() {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let mut moved = 0;
    for round in 0..600 {
        let files = 1 + random.below(4);
        let letter = |n: u64| char::from(b'a' + n as u8);
        let mut picture = String::new();
        for _ in 0..1 + random.below(6) {
            for _ in 0..SEGMENT {
                let block = random.below(files + 2);
                picture.push(match block {
                    0 => '.',
                    1 if random.below(4) == 0 => '?',
                    1 => '.',
                    n => letter(n - 2),
                });
            }
            picture.push(' ');
        }
        // Each file's blocks in an order of their own, with holes.
        let orders: Vec<(char, Vec<u64>)> = (0..files)
            .map(|n| {
                let count = picture.matches(letter(n)).count() as u64;
                let mut order: Vec<u64> = Vec::new();
                while (order.len() as u64) < count {
                    let at = random.below(count + 2);
                    if !order.contains(&at) {
                        order.push(at);
                    }
                }
                if random.below(2) == 0 {
                    order.sort_unstable();
                }
                (letter(n), order)
            })
            .collect();
        let orders: Vec<(char, &[u64])> = orders.iter().map(|(c, o)| (*c, o.as_slice())).collect();
        let (layouts, table) = pictured(&picture, &orders);
        let budget = (random.below(2) == 0).then(|| random.below(30) * BLOCK);
        let plan = planned(&layouts, &table, budget);
        let figures = plan.summary.segments.clone().unwrap();
        let context = format!("round {round}: {picture} {orders:?} {budget:?} {figures:?}");

        assert!(budget.is_none_or(|budget| plan.summary.bytes_to_move <= budget), "{context}");
        assert_eq!(plan.summary.bytes_to_move, figures.blocks_moved * BLOCK, "{context}");
        assert!(figures.blocks_moved <= figures.blocks_held, "{context}");
        assert!(figures.fragments_after <= figures.fragments_before, "{context}");
        assert!(figures.segments_emptied <= figures.segments_cleaned, "{context}");
        let touched: BTreeSet<u64> = places(&plan, &layouts)
            .iter()
            .map(|place| (place / BLOCK - START) / u64::from(SEGMENT))
            .collect();
        assert_eq!(touched.len() as u64, figures.segments_cleaned, "{context}");
        let held: u32 = touched.iter().map(|s| table.segments[*s as usize].valid).sum();
        assert_eq!(figures.blocks_held, u64::from(held), "{context}");
        for (file, layout) in plan.files.iter().map(|f| (f, of_file(f, &layouts))) {
            // By really moving it, behind all else.
            let before = layout.all_fragments().count();
            let after = moved_to_log(layout, file).all_fragments().count();
            assert!(after < before, "{context}: {before} fragments, then {after}");
            for range in &file.ranges {
                assert!(layout.fragments(range.range()) > 1, "{context}: {range:?}");
            }
        }
        assert!(plan.files.iter().is_sorted_by_key(|f| f.file), "{context}");
        moved += usize::from(!plan.files.is_empty());
        assert_eq!(planned(&layouts, &table, budget), plan, "{context}");
    }
    assert!(moved > 300, "{moved}");
}

fn of_file<'l>(file: &fragmend_plan::PlannedFile, layouts: &'l [Layout]) -> &'l Layout {
    layouts.iter().find(|layout| layout.file == file.file).unwrap()
}

/// Where the planned blocks are.
fn places(plan: &Plan, layouts: &[Layout]) -> Vec<u64> {
    let of = |file: &fragmend_plan::PlannedFile| {
        let layout = of_file(file, layouts);
        let blocks = file.ranges.iter().flat_map(|r| layout.within(r.range()));
        blocks.flat_map(|e| (0..e.length / BLOCK).map(move |n| e.physical + n * BLOCK)).collect()
    };
    plan.files.iter().flat_map(|file| -> Vec<u64> { of(file) }).collect()
}

/// The layout once the ranges are in a log, one behind the other.
fn moved_to_log(layout: &Layout, file: &fragmend_plan::PlannedFile) -> Layout {
    let mut moved = Layout::new(layout.file, layout.size);
    let mut log = 1 << 40;
    for block in 0..layout.size / BLOCK {
        let range = ByteRange::at(block * BLOCK, BLOCK);
        let Some(extent) = layout.within(range).next() else { continue };
        let moves = file.ranges.iter().any(|r| r.range().overlaps(range));
        let physical = if moves { log } else { extent.physical };
        log += if moves { BLOCK } else { 0 };
        moved.push(Extent { physical, ..extent });
    }
    moved
}

/// A long run is planned in ranges that can be moved by themselves.
#[test]
fn long_ranges_are_cut_where_both_parts_are_in_several_fragments() {
    let file = FileId { device: DEVICE, inode: 9, generation: 1 };
    let blocks = 6000;
    let mut layout = Layout::new(file, blocks * BLOCK);
    for block in 0..blocks {
        let (logical, physical) = (block * BLOCK, (START + 2 * block) * BLOCK);
        layout.push(Extent { logical, physical, length: BLOCK, kind: ExtentKind::Data });
    }
    let segment = Segment { holds_data: true, valid: 256, ..Segment::default() };
    let table = SegmentTable {
        start: START * BLOCK,
        block_bytes: BLOCK,
        segment_blocks: 512,
        section_segments: 1,
        segments: vec![segment; 24],
        spare: 1000,
        no_age: Some("not told".into()),
    };
    let plan = planned(&[layout.clone()], &table, None);
    let ranges: Vec<ByteRange> = plan.files[0].ranges.iter().map(|r| r.range()).collect();
    assert_eq!((ranges[0].start, ranges.last().unwrap().end), (0, blocks * BLOCK));
    assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
    assert!(ranges.iter().all(|r| r.len() <= 8 << 20 && layout.fragments(*r) > 1), "{ranges:?}");
    assert_eq!(plan.summary.segments.unwrap().no_age.as_deref(), Some("not told"));
}
