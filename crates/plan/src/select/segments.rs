//! The victims of a log-structured file system's cleaner, and their blocks in the order of inodes (Park et al., APSys'16,
//! section 3): files become contiguous and segments free by the same writes.
//!
//! Victims are chosen by age and valid blocks first, and among some candidates by their degree of fragmentation. All of their blocks go to
//! the log file by file, whichever victims they come from: the paper sorts one victim's blocks at a time.
//!
//! What is moved is a range of a file, and F2FS moves none that is in one extent. So a victim is joined by *partners*: the
//! segments that hold what precedes or follows its blocks in their files, if cleaning these gains something too. Blocks beside which nothing
//! moves stay; they may keep a segment from becoming free, and the figures say so.
//!
//! What must hold:
//!
//! - No block moves that is not in a victim.
//! - A range moves only if its file is in fewer fragments afterwards, with the boundaries counted at which it is torn from
//!   what stays.
//! - What moves finds free segments before the victims are free.

use super::Candidate;
use super::movable::movable_runs;
use crate::cleaned::Cleaned;
use crate::make::LONGEST_RANGE;
use crate::survey::SurveyedFile;
use fragmend_layout::{ByteRange, Section, SegmentTable, by_cost_benefit, segment_degree};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// Candidates from which the most fragmented is chosen. The paper has "several".
const CANDIDATES: usize = 8;
/// A range in more fragments than this is in fewer afterwards, though it be torn at both ends.
const ENOUGH: u32 = 3;

/// What is to be moved, and what that comes to.
#[derive(Debug, Default)]
pub struct Choice {
    /// In the order of inodes and files.
    pub ranges: Vec<Candidate>,
    /// Bytes of files in segments that the budget leaves out.
    pub over_budget_bytes: u64,
    /// What becomes of the segments.
    pub figures: Cleaned,
}

/// Chooses within a budget of bytes. `tables` are the segments of file systems by device number; files on others are left alone.
pub fn choose(
    files: &[SurveyedFile],
    tables: &BTreeMap<u64, SegmentTable>,
    budget: Option<u64>,
) -> Choice {
    let mut choice = Choice::default();
    let mut left = budget.unwrap_or(u64::MAX);
    for (device, table) in tables {
        let area = Area::of(files, *device, table);
        let victims = area.victims(left, &mut choice);
        left -= area.bytes(&victims);
        area.clean(victims, &mut choice);
        choice.figures.no_age = choice.figures.no_age.take().or_else(|| table.no_age.clone());
    }
    choice
}

/// Blocks of a file that follow each other in the file and in a section.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Index of the file.
    file: usize,
    /// Byte of the file at which it begins.
    logical: u64,
    /// Index of the section, and the block in it.
    section: usize,
    block: u32,
    blocks: u32,
    /// Whether it continues the piece before it in the file.
    follows: bool,
    /// Whether it does so on the device, too.
    touches: bool,
}

/// The segments of one file system, and what of the files is in them.
struct Area<'a> {
    table: &'a SegmentTable,
    sections: Vec<Section>,
    /// File by file, in file order.
    pieces: Vec<Piece>,
    /// The pieces of each section, in the order of the device.
    held: Vec<Vec<usize>>,
    degrees: Vec<u64>,
}

impl<'a> Area<'a> {
    fn of(files: &[SurveyedFile], device: u64, table: &'a SegmentTable) -> Self {
        let sections = table.sections();
        let mut pieces: Vec<Piece> = Vec::new();
        for (file, f) in files.iter().enumerate().filter(|(_, f)| f.layout.file.device == device) {
            for run in movable_runs(&f.layout, false) {
                add_run(&mut pieces, table, file, f, run);
            }
        }
        let mut held = vec![Vec::new(); sections.len()];
        pieces.iter().enumerate().for_each(|(i, piece)| held[piece.section].push(i));
        let degree = |held: &mut Vec<usize>| {
            held.sort_unstable_by_key(|i| pieces[*i].block);
            degree(held.iter().map(|i| &pieces[*i]))
        };
        let degrees = held.iter_mut().map(degree).collect();
        Self { table, sections, pieces, held, degrees }
    }

    /// Whether blocks may be moved out of a section.
    fn may_clean(&self, section: usize) -> bool {
        self.sections[section].is_closed && !self.held[section].is_empty()
    }

    /// Whether cleaning it gains space, or joins what is in it.
    fn gains(&self, section: usize) -> bool {
        self.sections[section].valid < self.table.section_blocks() || self.degrees[section] > 0
    }

    /// Candidates in the order in which they are cleaned.
    fn order(&self) -> Vec<usize> {
        let mut order = by_cost_benefit(&self.sections, self.table.section_blocks());
        order.retain(|s| self.may_clean(*s));
        for some in order.chunks_mut(CANDIDATES) {
            some.sort_by_key(|section| Reverse(self.degrees[*section]));
        }
        order
    }

    /// The sections to clean: which of all they are.
    fn victims(&self, budget: u64, choice: &mut Choice) -> Vec<bool> {
        // One segment is begun by what moves, and its end is not known.
        let segment = u64::from(self.table.segment_blocks) * self.table.block_bytes;
        let space = self.table.spare.saturating_sub(1).saturating_mul(segment);
        let mut victims = vec![false; self.sections.len()];
        let mut used = 0;
        for seed in self.order().into_iter().filter(|section| self.degrees[*section] > 0) {
            if victims[seed] {
                continue;
            }
            victims[seed] = true;
            let mut more = self.partners(seed, &victims);
            more.iter().for_each(|section| victims[*section] = true);
            more.push(seed);
            let bytes = more.iter().map(|section| self.section_bytes(*section)).sum::<u64>();
            if used + bytes <= budget.min(space) {
                used += bytes;
                continue;
            }
            more.iter().for_each(|section| victims[*section] = false);
            if used + bytes > budget {
                choice.over_budget_bytes += bytes;
            } else {
                choice.figures.left_for_space_bytes += bytes;
            }
        }
        victims
    }

    /// Sections beside which the pieces of a victim can move that cannot otherwise.
    fn partners(&self, victim: usize, victims: &[bool]) -> Vec<usize> {
        let mut partners = Vec::new();
        for &i in self.held[victim].iter().filter(|i| !self.moves(**i, victims)) {
            let before = self.pieces[i].follows.then(|| i - 1);
            let after = Some(i + 1).filter(|i| self.follows(*i));
            let beside = before.into_iter().chain(after).map(|i| self.pieces[i].section);
            let can = |s: &usize| !victims[*s] && self.may_clean(*s) && self.gains(*s);
            partners.extend(beside.filter(can));
        }
        partners.sort_unstable();
        partners.dedup();
        partners
    }

    fn follows(&self, piece: usize) -> bool {
        self.pieces.get(piece).is_some_and(|piece| piece.follows)
    }

    fn touches(&self, piece: usize) -> bool {
        self.pieces.get(piece).is_some_and(|piece| piece.touches)
    }

    /// Whether what surrounds a piece in its file, as far as it is in victims, can move. Looks no farther than needed.
    fn moves(&self, piece: usize, victims: &[bool]) -> bool {
        let is_in = |i: usize| victims[self.pieces[i].section];
        let (mut start, mut end, mut fragments) = (piece, piece + 1, 1);
        while fragments <= ENOUGH && self.pieces[start].follows && is_in(start - 1) {
            fragments += u32::from(!self.touches(start));
            start -= 1;
        }
        while fragments <= ENOUGH && self.follows(end) && is_in(end) {
            fragments += u32::from(!self.touches(end));
            end += 1;
        }
        fragments > ENOUGH || self.saves(&(start..end)) > 0
    }

    fn fragments(&self, run: &Range<usize>) -> u64 {
        1 + (run.start + 1..run.end).filter(|i| !self.touches(*i)).count() as u64
    }

    /// The boundaries at which a run is torn from what it touches.
    fn torn(&self, run: &Range<usize>) -> u64 {
        u64::from(self.touches(run.start)) + u64::from(self.touches(run.end))
    }

    /// Fragments of the file that there are less once a run is contiguous elsewhere.
    fn saves(&self, run: &Range<usize>) -> u64 {
        self.fragments(run).saturating_sub(1 + self.torn(run))
    }

    /// The longest runs of pieces in victims.
    fn runs(&self, victims: &[bool]) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (i, piece) in self.pieces.iter().enumerate().filter(|(_, p)| victims[p.section]) {
            match runs.last_mut() {
                Some(run) if piece.follows && run.end == i => run.end += 1,
                _ => runs.push(i..i + 1),
            }
        }
        runs
    }

    fn section_bytes(&self, section: usize) -> u64 {
        let blocks = self.held[section].iter().map(|i| u64::from(self.pieces[*i].blocks));
        blocks.sum::<u64>() * self.table.block_bytes
    }

    fn bytes(&self, victims: &[bool]) -> u64 {
        let sections = (0..victims.len()).filter(|section| victims[*section]);
        sections.map(|section| self.section_bytes(section)).sum()
    }

    /// Enters what moves out of victims, and what that comes to.
    fn clean(&self, mut victims: Vec<bool>, choice: &mut Choice) {
        let mut moved = vec![0u64; victims.len()];
        for run in self.runs(&victims).into_iter().filter(|run| self.saves(run) > 0) {
            for piece in &self.pieces[run.clone()] {
                moved[piece.section] += u64::from(piece.blocks);
            }
            self.ranges(&run, &mut choice.ranges);
        }
        // What stays in a victim is in no run that moves: without it, the others are as they are.
        victims.iter_mut().zip(&moved).for_each(|(is_one, moved)| *is_one &= *moved > 0);
        let figures = &mut choice.figures;
        for run in self.runs(&victims) {
            figures.fragments_before += self.fragments(&run);
            figures.fragments_after += self.fragments(&run) - self.saves(&run);
        }
        let (mut sections, mut emptied) = (0, 0);
        for section in (0..victims.len()).filter(|section| victims[*section]) {
            let valid = u64::from(self.sections[section].valid);
            sections += 1;
            emptied += u64::from(moved[section] >= valid);
            figures.blocks_held += valid;
        }
        let all: u64 = moved.iter().sum();
        let per_section = u64::from(self.table.section_segments);
        figures.blocks_moved += all;
        figures.segments_cleaned += sections * per_section;
        figures.segments_emptied += emptied * per_section;
        let filled = all.div_ceil(u64::from(self.table.segment_blocks));
        figures.segments_gained += (emptied * per_section) as i64 - filled as i64;
    }

    /// The bytes of a run, cut where both parts are still in several fragments: one by itself F2FS would leave alone.
    fn ranges(&self, run: &Range<usize>, ranges: &mut Vec<Candidate>) {
        let end = |i: usize| {
            let piece = &self.pieces[i];
            piece.logical + u64::from(piece.blocks) * self.table.block_bytes
        };
        let starts: Vec<usize> = (run.start + 1..run.end).filter(|i| !self.touches(*i)).collect();
        let file = self.pieces[run.start].file;
        let mut start = self.pieces[run.start].logical;
        let mut first = 0;
        for (n, at) in starts.iter().enumerate() {
            // The end of the fragment that begins here, which would not fit any more.
            let next = starts.get(n + 1).map_or(end(run.end - 1), |i| self.pieces[*i].logical);
            if next - start > LONGEST_RANGE && n > first && n + 1 < starts.len() {
                let range = ByteRange { start, end: self.pieces[*at].logical };
                ranges.push(Candidate { file, range });
                (start, first) = (range.end, n + 1);
            }
        }
        ranges.push(Candidate { file, range: ByteRange { start, end: end(run.end - 1) } });
    }
}

/// Adds the pieces of a run of data.
fn add_run(
    pieces: &mut Vec<Piece>,
    table: &SegmentTable,
    file: usize,
    of: &SurveyedFile,
    run: ByteRange,
) {
    let section_blocks = table.section_blocks();
    // Where the last piece ends in the file, and on the device.
    let mut last: Option<(u64, u64)> = None;
    for extent in of.layout.within(run).filter(|e| e.kind.is_addressed()) {
        let Some((mut section, mut block, mut blocks)) = table.place(&extent) else { continue };
        let (mut logical, mut physical) = (extent.logical, extent.physical);
        while blocks > 0 {
            let here = blocks.min(u64::from(section_blocks - block));
            let follows = last.is_some_and(|(end, _)| end == logical);
            let touches = follows && last.is_some_and(|(_, end)| end == physical);
            let here = here as u32;
            pieces.push(Piece { file, logical, section, block, blocks: here, follows, touches });
            let bytes = u64::from(here) * table.block_bytes;
            (logical, physical) = (logical + bytes, physical + bytes);
            (section, block, blocks) = (section + 1, 0, blocks - u64::from(here));
            last = Some((logical, physical));
        }
    }
}

/// The degree of a section by its pieces, in the order of the device. What belongs to other files counts as invalid.
fn degree<'p>(pieces: impl Iterator<Item = &'p Piece>) -> u64 {
    let mut end = 0;
    segment_degree(pieces.flat_map(|piece| {
        let gap = (piece.block > end).then_some(None);
        end = piece.block + piece.blocks;
        // More blocks of the same file change nothing.
        gap.into_iter().chain([Some(piece.file as u64)])
    }))
}
