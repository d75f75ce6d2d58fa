//! Carries out a remedy on an image, as the machine's present program. Programs beside it catch up whenever it looks at the clock.

use super::image::{Files, Image};
use super::remedies::{Act, Moves, Remedy};
use crate::bed::{carry_out, plan, policy};
use crate::loads::watched::Watched;
use fragmend_apply::Environment;
use fragmend_layout::FileAccesses;
use fragmend_plan::{SlowFile, Survey};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::inplace::InPlace;
use fragmend_simfs::janusd::{Reads, join_files, spread_files};
use fragmend_simfs::segments::{Cleaning, CopyOrder, LogStructured, Primitive, Victims};

/// A file is fragmented above this degree (janusd, section 3.1).
const CONTIGUOUS: f64 = 1.0;
/// Of how many of the best segments by cost and benefit the cleaner takes the most fragmented one: as many as F2FS's search for a victim
/// looks at (`DEF_MAX_VICTIM_SEARCH`, fs/f2fs/gc.h); the paper does not state it.
const CANDIDATES: usize = 4096;

/// What planning knows of the load's reads.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The reads of each file.
    pub accesses: Vec<FileAccesses>,
    /// What a probe of these files has found to be slow, where the remedy uses that.
    pub slow: Vec<SlowFile>,
}

/// What a remedy did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Acted {
    /// Bytes of files that were moved.
    pub moved_bytes: u64,
    /// What the planner foresaw for the reads that were seen: seconds before, and after.
    pub foreseen: Option<[f64; 2]>,
}

/// Carries out a remedy for the reads that were seen; what it did is durable then.
///
/// # Errors
/// The file system or the drive refuses.
///
/// # Panics
/// The remedy is not for this file system.
pub fn act(image: &Image, remedy: Remedy, seen: Seen) -> Result<Acted, Error> {
    let files = image.files.shared();
    let acted = match (remedy.act(), &image.files) {
        (Act::Nothing | Act::Place(_), _) => Acted::default(),
        (Act::Plan(chosen, moves), of) => {
            if let (Moves::InDevice, Files::Segments(segments)) = (moves, of) {
                segments.set_primitive(Primitive::InDevice)?;
            }
            let settings = policy(chosen);
            let trace = chosen.needs_trace().then_some(seen.accesses);
            let mut survey = Survey::of(&*files, trace).map_err(damaged)?;
            add_slow(&mut survey, &seen.slow);
            let plan = plan(survey, &settings);
            let moved = carry_out(&plan, &image.machine, || Box::new(Watched::new(&files)));
            let foreseen = [plan.summary.seconds_before, plan.summary.seconds_after];
            Acted { moved_bytes: moved.moved_bytes, foreseen: Some(foreseen) }
        }
        (Act::Janusd { joins, spreads }, Files::InPlace(in_place)) => {
            let joined = joins.then(|| join_files(in_place, CONTIGUOUS)).transpose()?.flatten();
            let mut acted = Acted::default();
            acted.moved_bytes += joined.map_or(0, |summary| summary.moved_bytes);
            if spreads {
                acted.moved_bytes += spread(in_place, &seen.accesses, image.page_blocks)?;
            }
            acted
        }
        (Act::Clean, Files::Segments(segments)) => clean(segments)?,
        (act, _) => unreachable!("{act:?} is not tried on this file system"),
    };
    files.sync()?;
    Ok(acted)
}

/// Puts what is slow into the files of a survey, where it is still where it was measured.
fn add_slow(survey: &mut Survey, slow: &[SlowFile]) {
    for file in &mut survey.files {
        if let Some(slow) = slow.iter().find(|slow| slow.file == file.layout.file) {
            file.put_slow(&slow.ranges);
        }
    }
}

fn damaged(skip: fragmend_layout::Skip) -> Error {
    Error::Damaged(skip.to_string())
}

/// janusdP, a file at a time; returns the bytes that the drive wrote anew.
fn spread(files: &InPlace, seen: &[FileAccesses], page_blocks: u32) -> Result<u64, Error> {
    let mut reads = Reads::default();
    for of_file in seen {
        let count: u64 = of_file.accesses.iter().map(|access| u64::from(access.count)).sum();
        (0..count).for_each(|_| reads.count(of_file.file));
    }
    let mut blocks = 0;
    for file in reads.most(fragmend_simfs::janusd::MOST_READ) {
        let mut one = Reads::default();
        one.count(file);
        blocks += spread_files(files, &one, page_blocks)?.blocks;
        // Programs beside it catch up.
        let _ = files.machine().now();
    }
    Ok(blocks * files.machine().block_bytes())
}

/// Cleans every segment that has valid and invalid blocks, once at most.
fn clean(files: &LogStructured) -> Result<Acted, Error> {
    let background = Victims::FragmentationAware { candidates: CANDIDATES };
    files.set_cleaning(Cleaning { background, order: CopyOrder::Inode, ..Cleaning::default() });
    let before = files.counts().blocks_copied;
    let sections = files.degrees().len();
    for _ in 0..sections {
        if files.clean(1)? == 0 {
            break;
        }
        let _ = files.machine().now();
    }
    let copied = files.counts().blocks_copied - before;
    Ok(Acted { moved_bytes: copied * files.machine().block_bytes(), foreseen: None })
}
