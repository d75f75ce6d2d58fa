//! Bytes by state in cells of equal size, and which file has most of each.
//!
//! Adding a run of addresses is constant time: its ends are added to their cells, and what is between them is two marks
//! where it begins and ends, summed up at the end. Cells that a file covers whole are its own at once, and are passed over
//! from then on. So the time is linear in runs and cells together, also if a document has a million runs that cover all.

use super::{Shares, State};

/// Cells that are being filled.
pub(super) struct Cells {
    cell_bytes: u64,
    bytes: u64,
    /// Bytes of runs that begin or end in a cell, by state.
    ends: Vec<Shares>,
    /// By how many runs more a cell is covered whole than the one before it, by state.
    whole: Vec<[i64; State::ALL.len()]>,
    owners: Owners,
}

/// The file that has most of each cell.
struct Owners {
    file: u32,
    /// Cells in which a run of the present file begins or ends, with its bytes.
    ends: Vec<(usize, u64)>,
    /// Files with the bytes that they have; the earlier one of two with as many.
    most: Vec<Option<(u32, u64)>>,
    /// The next cell that no file covers whole, itself if it is one; at last, one past the cells.
    next: Vec<usize>,
}

impl Cells {
    /// At most `most` cells for `bytes`, none smaller than `least` bytes, a power of two.
    pub fn new(bytes: u64, most: usize, least: u64) -> Self {
        let cell_bytes = bytes.div_ceil(most as u64).next_power_of_two().max(least);
        let cells = bytes.div_ceil(cell_bytes) as usize;
        let owners = Owners {
            file: 0,
            ends: Vec::new(),
            most: vec![None; cells],
            next: (0..=cells).collect(),
        };
        let (ends, whole) = (vec![Shares::default(); cells], vec![Default::default(); cells + 1]);
        Self { cell_bytes, bytes, ends, whole, owners }
    }

    /// Bytes of the address space.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of a cell.
    pub fn cell_bytes(&self) -> u64 {
        self.cell_bytes
    }

    /// What is added from here on belongs to this file.
    pub fn begin_file(&mut self, file: u32) {
        self.owners.file = file;
    }

    /// Ends the file: compares what it has of cells with what others have.
    pub fn end_file(&mut self) {
        self.owners.end_file(self.cell_bytes);
    }

    /// Adds the bytes `start..end`, cut to the address space.
    pub fn add(&mut self, start: u64, end: u64, state: State) {
        let end = end.min(self.bytes);
        if start >= end {
            return;
        }
        let is_data = !matches!(state, State::Free | State::Metadata);
        let state = state as usize;
        let (first, last) =
            ((start / self.cell_bytes) as usize, ((end - 1) / self.cell_bytes) as usize);
        let mut add_end = |cell: usize, bytes: u64| {
            let sum = &mut self.ends[cell][state];
            *sum = sum.saturating_add(bytes);
            if is_data {
                self.owners.ends.push((cell, bytes));
            }
        };
        if first == last {
            add_end(first, end - start);
            return;
        }
        add_end(first, (first as u64 + 1) * self.cell_bytes - start);
        add_end(last, end - last as u64 * self.cell_bytes);
        self.whole[first + 1][state] += 1;
        self.whole[last][state] -= 1;
        if is_data {
            self.owners.cover(first + 1, last, self.cell_bytes);
        }
    }

    /// Bytes by state and the owner of each cell, which add up to its size. What is in no run is [`State::Unknown`].
    pub fn finish(&mut self) -> (Vec<Shares>, Vec<Option<u32>>) {
        let mut covered = [0i64; State::ALL.len()];
        let mut cells = std::mem::take(&mut self.ends);
        for (at, cell) in cells.iter_mut().enumerate() {
            for (state, bytes) in cell.iter_mut().enumerate() {
                covered[state] += self.whole[at][state];
                let whole = (covered[state] as u64).saturating_mul(self.cell_bytes);
                *bytes = bytes.saturating_add(whole);
            }
            fit(cell, self.cell_bytes.min(self.bytes - at as u64 * self.cell_bytes));
        }
        let owners = self.owners.most.iter().map(|most| most.map(|(file, _)| file));
        (cells, owners.collect())
    }
}

/// Fits what a cell has to its size. What several files share was added for each of them; free space and metadata are nobody's,
/// so data give way, each state in proportion.
fn fit(cell: &mut Shares, size: u64) {
    const NOBODYS: &[State] = &[State::Free, State::Metadata];
    const DATA: &[State] = &[State::Used, State::Fragmented, State::ToMove, State::Moved];
    let mut room = size;
    for states in [NOBODYS, DATA] {
        let of = |cell: &Shares, state: &State| cell[*state as usize];
        let sum: u128 = states.iter().map(|state| u128::from(of(cell, state))).sum();
        if sum <= u128::from(room) {
            room -= sum as u64;
            continue;
        }
        let most = states.iter().max_by_key(|state| of(cell, state)).expect("there are some");
        let all = room;
        for state in states {
            let part = u128::from(of(cell, state)) * u128::from(all) / sum;
            cell[*state as usize] = part as u64;
            room -= part as u64;
        }
        // What rounding has left.
        cell[*most as usize] += std::mem::take(&mut room);
    }
    cell[State::Unknown as usize] = room;
}

impl Owners {
    /// The first cell from `cell` on that no file covers whole.
    fn next(&mut self, cell: usize) -> usize {
        let mut found = cell;
        while self.next[found] != found {
            found = self.next[found];
        }
        // What was passed over is passed over at once the next time.
        let mut at = cell;
        while self.next[at] != found {
            at = std::mem::replace(&mut self.next[at], found);
        }
        found
    }

    /// The present file covers these cells whole.
    fn cover(&mut self, first: usize, end: usize, cell_bytes: u64) {
        let mut cell = self.next(first);
        while cell < end {
            if self.most[cell].is_none_or(|(_, most)| most < cell_bytes) {
                self.most[cell] = Some((self.file, cell_bytes));
            }
            self.next[cell] = cell + 1;
            cell = self.next(cell);
        }
    }

    fn end_file(&mut self, cell_bytes: u64) {
        self.ends.sort_unstable();
        let mut ends = std::mem::take(&mut self.ends).into_iter().peekable();
        while let Some((cell, mut bytes)) = ends.next() {
            while let Some((_, more)) = ends.next_if(|next| next.0 == cell) {
                bytes = bytes.saturating_add(more).min(cell_bytes);
            }
            if self.most[cell].is_none_or(|(_, most)| bytes > most) {
                self.most[cell] = Some((self.file, bytes));
            }
        }
    }
}
