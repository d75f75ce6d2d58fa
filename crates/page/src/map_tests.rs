//! Tests of the map: each byte is in one cell, whatever covers what.

use super::cells::Cells;
use super::*;

const CELL: u64 = 4096;

/// Counts byte by byte what [`Cells`] counts in constant time for each run.
#[test]
fn cells_have_the_bytes_that_runs_cover() {
    let mut state = 42u64;
    let mut below = |n: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for _ in 0..200 {
        // In units of half a cell, so that ends are in the middle of cells and on their edges.
        let unit = CELL / 2;
        let units = 1 + below(40);
        let mut cells = Cells::new(units * unit, 1 << 10, CELL);
        let count = units.div_ceil(2) as usize;
        let mut expected = vec![Shares::default(); count];
        let mut owned = vec![vec![0u64; 5]; count];
        for file in 0..5 {
            cells.begin_file(file);
            for _ in 0..below(4) {
                let (start, length) = (below(units), 1 + below(12));
                let kind = [State::Used, State::Fragmented, State::Moved][below(3) as usize];
                cells.add(start * unit, (start + length) * unit, kind);
                for at in start..(start + length).min(units) {
                    expected[at as usize / 2][kind as usize] += unit;
                    let owned = &mut owned[at as usize / 2][file as usize];
                    *owned = (*owned + unit).min(CELL);
                }
            }
            cells.end_file();
        }
        let (found, owners) = cells.finish();
        for (at, (found, added)) in found.iter().zip(&mut expected).enumerate() {
            let size = CELL.min(units * unit - at as u64 * CELL);
            let sum: u64 = added.iter().sum();
            added[State::Unknown as usize] = size.saturating_sub(sum);
            if sum <= size {
                assert_eq!(found, added);
                continue;
            }
            // Files share it: once in all, each state in proportion.
            assert_eq!(found.iter().sum::<u64>(), size);
            for (found, added) in found.iter().zip(added) {
                assert!((found * sum).abs_diff(*added * size) <= 3 * sum, "{found} of {added}");
            }
        }
        for (owner, owned) in owners.iter().zip(owned) {
            let most = *owned.iter().max().unwrap();
            match owner {
                // The first of those with as many.
                Some(owner) => {
                    assert_eq!(
                        owned.iter().position(|bytes| *bytes == most),
                        Some(*owner as usize)
                    );
                }
                None => assert_eq!(most, 0),
            }
        }
    }
}

#[test]
fn whatever_a_document_says_there_are_few_cells() {
    for (bytes, most) in
        [(0, 16), (1, 16), (CELL, 16), (u64::MAX, 16), (CELL * 17, 16), (u64::MAX, MOST_CELLS)]
    {
        let mut cells = Cells::new(bytes, most, CELL);
        cells.begin_file(0);
        for (start, end) in
            [(0, u64::MAX), (u64::MAX - 1, u64::MAX), (5, 3), (0, 0), (bytes / 2, bytes)]
        {
            cells.add(start, end, State::Used);
            cells.add(start, end, State::Free);
        }
        cells.end_file();
        let (found, _) = cells.finish();
        assert!(found.len() <= most && cells.cell_bytes().is_power_of_two(), "{bytes}");
        assert!(found.len() as u64 >= (bytes / cells.cell_bytes()).min(most as u64), "{bytes}");
    }
}

#[test]
fn a_million_runs_that_cover_all_are_quick() {
    let mut cells = Cells::new(u64::MAX, MOST_CELLS, CELL);
    for file in 0..1000 {
        cells.begin_file(file);
        (0..1000).for_each(|n| cells.add(n, u64::MAX - n, State::Used));
        cells.end_file();
    }
    // Without marks these are 16 billion additions, which no test would end.
    assert_eq!(cells.finish().1, vec![Some(0); MOST_CELLS]);
}

#[test]
fn long_names_keep_their_ends() {
    let name = format!("/start{}end", "\u{e9}".repeat(500));
    let shown = short(&name);
    assert!(shown.starts_with("/start") && shown.ends_with("end") && shown.chars().count() == 123);
    assert_eq!(short("/srv/a"), "/srv/a");
}
