//! Which cuts of a recording to look at: nearly all while files were moved.

use crate::apply::AHEAD;
use crate::cut::Cut;
use crate::files::Role;
use crate::log::Entry;
use crate::marks::Mark;
use crate::record::Recording;
use fragmend_testbed::random::Random;
use std::ops::{Range, RangeInclusive};

/// The cuts after which a file must lie half moved: its mover was held up there (see
/// [`crate::apply`]), what it had moved was synced, and more of it was to come than the mover was
/// ahead. As positions, in order.
pub fn halfway(recording: &Recording) -> Vec<(u32, RangeInclusive<usize>)> {
    if recording.bed.whole_files {
        return Vec::new();
    }
    let marks = &recording.marks;
    let still_to_come = |from: usize, tag: u32| {
        let of = |mark: &Mark| matches!(mark, Mark::Moved { tag: t, .. } if *t == tag);
        marks[from..].iter().filter(|(_, mark)| of(mark)).count()
    };
    let stretch = |(n, (at, mark)): (usize, &(usize, Mark))| {
        let Mark::Halfway { tag } = *mark else { return None };
        let (end, _) = marks[n..].iter().find(|(_, mark)| *mark == Mark::Released { tag })?;
        (still_to_come(n, tag) > AHEAD).then_some((tag, at + 1..=*end))
    };
    marks.iter().enumerate().filter_map(stretch).collect()
}

/// Stretches between two receipts of one file: its move was under way.
pub fn under_way(recording: &Recording) -> Vec<RangeInclusive<usize>> {
    let moved = recording.marks.iter().filter_map(|(at, mark)| match mark {
        Mark::Moved { tag, .. } => Some((*at, *tag)),
        _ => None,
    });
    let moved: Vec<(usize, u32)> = moved.collect();
    let of_one = moved.windows(2).filter(|pair| pair[0].1 == pair[1].1);
    of_one.map(|pair| pair[0].0 + 1..=pair[1].0).collect()
}

/// Where files were moved.
fn moving(recording: &Recording) -> Range<usize> {
    let place = |wanted: Mark| {
        let mut marks = recording.marks.iter();
        marks.find(|(_, mark)| *mark == wanted).expect("every recording has this mark").0
    };
    place(Mark::Moving)..place(Mark::AtRest)
}

/// Right behind the instants at which somebody was told that what they had done to a file with such
/// a role is durable, while files were moved.
pub fn behind_syncs(recording: &Recording, roles: &[Role]) -> Vec<usize> {
    let of = |tag: u32| recording.run.files.iter().find(|file| file.tag == tag);
    let is_one = |tag: u32| of(tag).is_some_and(|file| roles.contains(&file.role));
    let moving = moving(recording);
    let synced = recording.marks.iter().filter_map(|(at, mark)| match mark {
        Mark::Synced { tag, .. } if is_one(*tag) && moving.contains(at) => Some(at + 1),
        _ => None,
    });
    synced.collect()
}

/// About `count` cuts, each right behind the return of a call that made something durable in a file that
/// had moved, over all of the recording.
pub fn behind_each_sync(recording: &Recording, count: usize) -> Vec<Cut> {
    let synced = behind_syncs(recording, &[Role::Living]);
    let each = synced.len().div_ceil(count).max(1);
    let honest = recording.bed.honest;
    let cut = |position: usize| Cut { position, seed: position as u64, honest };
    synced.into_iter().step_by(each).map(cut).collect()
}

/// Chooses `count` cuts, in the order of their positions: a quarter where a file must lie half
/// moved, a quarter between two receipts of a file, a quarter right behind what others have synced
/// after a move, most of the rest just before or just after a flush.
pub fn choose(recording: &Recording, count: usize, seed: u64) -> Vec<Cut> {
    let mut random = Random::new(seed);
    let entries = recording.log.entries();
    let Range { start: from, end: to } = moving(recording);
    let flushes: Vec<usize> =
        (from..to).filter(|i| matches!(entries[*i], Entry::Flush { .. })).collect();
    let halfway: Vec<_> = halfway(recording).into_iter().map(|(_, stretch)| stretch).collect();
    let (under_way, lived) = (under_way(recording), behind_syncs(recording, &[Role::Living]));
    let honest = recording.bed.honest;
    let one = |n: usize| {
        let position = match (n % 4, random.below(10)) {
            (0, _) if !halfway.is_empty() => within(&halfway, &mut random),
            (1, _) if !under_way.is_empty() => within(&under_way, &mut random),
            (2, _) if !lived.is_empty() => {
                lived[random.below(lived.len() as u64) as usize] + random.below(2) as usize
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

/// A cut at every flush while files were moved, each with luck of its own: what came since the
/// flush before it was on its way.
pub fn at_every_flush(recording: &Recording, seed: u64) -> Vec<Cut> {
    let mut random = Random::new(seed);
    let entries = recording.log.entries();
    let flushes = moving(recording).filter(|at| matches!(entries[*at], Entry::Flush { .. }));
    let honest = recording.bed.honest;
    flushes.map(|position| Cut { position, seed: random.bits(), honest }).collect()
}

fn within(stretches: &[RangeInclusive<usize>], random: &mut Random) -> usize {
    let stretch = &stretches[random.below(stretches.len() as u64) as usize];
    stretch.start() + random.below((stretch.end() - stretch.start()) as u64 + 1) as usize
}
