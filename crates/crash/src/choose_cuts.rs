//! Chooses which cuts of a recording to check: nearly all while files were moved.

use crate::apply::AHEAD;
use crate::cut::Cut;
use crate::files::Role;
use crate::log::Entry;
use crate::marks::Mark;
use crate::record::Recording;
use fragmend_testbed::random::Random;
use std::ops::{Range, RangeInclusive};

/// The positions, in order, at which a cut must find a file half moved: its move was held up there
/// (see [`crate::apply`]), what had moved was synced, and more ranges of it were to come than the
/// mover could be ahead.
pub fn halfway(recording: &Recording) -> Vec<(u32, RangeInclusive<usize>)> {
    if recording.scenario.whole_files {
        return Vec::new();
    }
    let marks = &recording.marks;
    let still_to_come = |from: usize, tag: u32| {
        let moves_it = |mark: &Mark| matches!(mark, Mark::Moved { tag: t, .. } if *t == tag);
        marks[from..].iter().filter(|(_, mark)| moves_it(mark)).count()
    };
    let held_up = |(n, (at, mark)): (usize, &(usize, Mark))| {
        let Mark::Halfway { tag } = *mark else { return None };
        let (end, _) = marks[n..].iter().find(|(_, mark)| *mark == Mark::Released { tag })?;
        (still_to_come(n, tag) > AHEAD).then_some((tag, at + 1..=*end))
    };
    marks.iter().enumerate().filter_map(held_up).collect()
}

/// The positions between two receipts of one file: its move was under way.
pub fn under_way(recording: &Recording) -> Vec<RangeInclusive<usize>> {
    let moved = recording.marks.iter().filter_map(|(at, mark)| match mark {
        Mark::Moved { tag, .. } => Some((*at, *tag)),
        _ => None,
    });
    let moved: Vec<(usize, u32)> = moved.collect();
    let same_file = moved.windows(2).filter(|pair| pair[0].1 == pair[1].1);
    same_file.map(|pair| pair[0].0 + 1..=pair[1].0).collect()
}

/// The positions between which files were moved.
fn moving(recording: &Recording) -> Range<usize> {
    let place = |wanted: Mark| {
        let mut marks = recording.marks.iter();
        marks.find(|(_, mark)| *mark == wanted).expect("every recording has this mark").0
    };
    place(Mark::Moving)..place(Mark::AtRest)
}

/// The positions right after a sync of a file with one of these roles returned, while files were
/// moved.
pub fn behind_syncs(recording: &Recording, roles: &[Role]) -> Vec<usize> {
    let files = &recording.run.files;
    let is_one = |tag| files.iter().any(|file| file.tag == tag && roles.contains(&file.role));
    let moving = moving(recording);
    let synced = recording.marks.iter().filter_map(|(at, mark)| match mark {
        Mark::Synced { tag, .. } if is_one(*tag) && moving.contains(at) => Some(at + 1),
        _ => None,
    });
    synced.collect()
}

/// About `count` cuts spread over the recording, each right after the return of a call that made
/// something durable in a file that had moved.
pub fn behind_each_sync(recording: &Recording, count: usize) -> Vec<Cut> {
    let synced = behind_syncs(recording, &[Role::UsedLater]);
    let each = synced.len().div_ceil(count).max(1);
    let honest = recording.scenario.honest;
    let cut = |position: usize| Cut { position, seed: position as u64, honest };
    synced.into_iter().step_by(each).map(cut).collect()
}

/// Chooses `count` cuts, in the order of their positions: a quarter where a file must be half moved, a
/// quarter between two receipts of a file, a quarter right after a sync of a moved file, most of the rest
/// just before or just after a flush.
pub fn choose(recording: &Recording, count: usize, seed: u64) -> Vec<Cut> {
    let mut random = Random::new(seed);
    let entries = recording.log.entries();
    let Range { start: from, end: to } = moving(recording);
    let flushes: Vec<usize> =
        (from..to).filter(|i| matches!(entries[*i], Entry::Flush { .. })).collect();
    let halfway: Vec<_> = halfway(recording).into_iter().map(|(_, positions)| positions).collect();
    let (under_way, later) = (under_way(recording), behind_syncs(recording, &[Role::UsedLater]));
    let honest = recording.scenario.honest;
    let one = |n: usize| {
        let position = match (n % 4, random.below(10)) {
            (0, _) if !halfway.is_empty() => within(&halfway, &mut random),
            (1, _) if !under_way.is_empty() => within(&under_way, &mut random),
            (2, _) if !later.is_empty() => {
                later[random.below(later.len() as u64) as usize] + random.below(2) as usize
            }
            (_, 0) => random.below(entries.len() as u64 + 1) as usize,
            (_, 1) => from + random.below((to - from) as u64 + 1) as usize,
            _ if flushes.is_empty() => from,
            _ => flushes[random.below(flushes.len() as u64) as usize] + random.below(2) as usize,
        };
        Cut { position, seed: random.bits(), honest }
    };
    let mut cuts: Vec<Cut> = (0..count).map(one).collect();
    cuts.sort();
    cuts
}

/// A cut at every flush while files were moved, each with a seed of its own: the writes since the
/// previous flush were in flight.
pub fn at_every_flush(recording: &Recording, seed: u64) -> Vec<Cut> {
    let mut random = Random::new(seed);
    let entries = recording.log.entries();
    let flushes = moving(recording).filter(|at| matches!(entries[*at], Entry::Flush { .. }));
    let honest = recording.scenario.honest;
    flushes.map(|position| Cut { position, seed: random.bits(), honest }).collect()
}

fn within(ranges: &[RangeInclusive<usize>], random: &mut Random) -> usize {
    let range = &ranges[random.below(ranges.len() as u64) as usize];
    range.start() + random.below((range.end() - range.start()) as u64 + 1) as usize
}
