//! A transaction: all metadata that has changed gets new places, and is written there; then the super block is.
//!
//! A cut before the super block leaves the older one, whose blocks were neither overwritten nor trimmed. The flush before it makes durable
//! what it refers to, data included; the one behind it comes before anything that was left is used again.

use super::{OfCow, tables};
use crate::error::Error;
use crate::extent_map::Piece;
use crate::leaves::Leaf;
use crate::mounted::{Omit, State};
use fragmend_flash::command::Units;
use fragmend_flash::device::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Blocks that are about to be written; their content where the drive keeps it.
type Blocks = BTreeMap<u32, Bytes>;

/// Writes the metadata of all changes, and switches to it. Without space for all of it nothing is written or forgotten: all changes are there
/// for the next commit.
pub(super) fn commit(state: &mut State<OfCow>) -> Result<(), Error> {
    let inodes = state.changes.inodes.clone();
    inodes.iter().for_each(|inode| settle_leaves(state, *inode));
    let mut places = places(state, &inodes)?.into_iter();
    let mut blocks = Blocks::new();
    for inode in &inodes {
        leaves(state, *inode, &mut places, &mut blocks);
        write_inode(state, *inode, &mut places, &mut blocks);
    }
    write_map(state, &inodes, &mut places, &mut blocks);
    debug_assert_eq!(places.next(), None, "a place that nothing is for");
    state.kind.head.generation += 1;
    let (machine, omit) = (state.machine.clone(), state.settings.omit);
    if omit == Some(Omit::SuperLast) {
        state.kind.head.write(&machine)?;
        machine.flush()?;
    }
    state.machine.write_blocks(&blocks)?;
    state.flush_unless(Omit::FlushBeforeCommit)?;
    if omit != Some(Omit::SuperLast) {
        state.kind.head.write(&machine)?;
        state.flush_unless(Omit::FlushAfterCommit)?;
    }
    // Nothing refers to what was left.
    for units in std::mem::take(&mut state.kind.left) {
        state.trim(units)?;
        state.kind.metadata.release(units);
    }
    Ok(())
}

/// The leaves of a file fit its extents.
fn settle_leaves(state: &mut State<OfCow>, inode: u64) {
    let Some(file) = state.files.get_mut(inode) else { return };
    let left = file.leaves.settle(&file.map, state.fanout);
    state.kind.left.extend(left.into_iter().map(|place| Units::new(place, 1)));
}

/// The blocks of the map that have these inodes.
fn map_blocks(state: &State<OfCow>, inodes: &BTreeSet<u64>) -> BTreeSet<u64> {
    let per_block = state.kind.head.per_map_block();
    inodes.iter().map(|inode| inode / per_block).collect()
}

/// New places for all that is written, in its order: of each inode its changed leaves and itself, then the blocks of the map.
fn places(state: &mut State<OfCow>, inodes: &BTreeSet<u64>) -> Result<Vec<Units>, Error> {
    let mut counts: Vec<u32> = Vec::new();
    for file in inodes.iter().filter_map(|inode| state.files.get(*inode)) {
        let changed = file.leaves.each().iter().filter(|(_, leaf)| leaf.is_changed).count();
        counts.extend(std::iter::repeat_n(1, changed));
        counts.push(tables::inode_blocks(file, state.block_bytes as usize));
    }
    let per_block = state.kind.head.per_map_block();
    let has_files = |n: &u64| state.files.any_within(n * per_block..(n + 1) * per_block);
    let with_files = map_blocks(state, inodes).iter().filter(|n| has_files(n)).count();
    counts.extend(std::iter::repeat_n(1, with_files));
    let metadata = &mut state.kind.metadata;
    let mut places: Vec<Units> = Vec::new();
    for count in counts {
        let found = metadata.allocate(tables::FIRST, count, false);
        places.extend(found);
        if found.is_none_or(|units| units.count < count) {
            places.into_iter().for_each(|units| metadata.release(units));
            return Err(Error::NoSpace);
        }
    }
    Ok(places)
}

/// New places for the leaves of a file that have changed.
fn leaves(
    state: &mut State<OfCow>,
    inode: u64,
    places: &mut impl Iterator<Item = Units>,
    blocks: &mut Blocks,
) {
    let Some(file) = state.files.get_mut(inode) else { return };
    for (range, leaf) in file.leaves.each().into_iter().filter(|(_, leaf)| leaf.is_changed) {
        let Some(units) = places.next() else { return };
        state.kind.left.extend(leaf.place.map(|place| Units::new(place, 1)));
        file.leaves.set(range.start, Leaf { place: Some(units.start), ..Leaf::default() });
        let bytes = state.machine.keeps_content().then(|| {
            let pieces: Vec<Piece> = file.map.within(range).collect();
            tables::leaf(&pieces, state.block_bytes as usize)
        });
        blocks.insert(units.start, bytes.flatten());
    }
}

/// A new place for an inode, or none if it is gone.
fn write_inode(
    state: &mut State<OfCow>,
    inode: u64,
    places: &mut impl Iterator<Item = Units>,
    blocks: &mut Blocks,
) {
    state.kind.left.extend(state.kind.inodes.remove(&inode));
    let Some(file) = state.files.get(inode) else { return };
    let Some(units) = places.next() else { return };
    let keeps = state.machine.keeps_content();
    let contents = if keeps { tables::inode(file, state.block_bytes as usize) } else { Vec::new() };
    let contents = contents.into_iter().map(Some).chain(std::iter::repeat(None));
    blocks.extend(units.each().zip(contents));
    state.kind.inodes.insert(inode, units);
}

/// New places for the blocks of the map that have these inodes.
fn write_map(
    state: &mut State<OfCow>,
    inodes: &BTreeSet<u64>,
    places: &mut impl Iterator<Item = Units>,
    blocks: &mut Blocks,
) {
    let per_block = state.kind.head.per_map_block();
    for n in map_blocks(state, inodes) {
        let first = n * per_block;
        let is_empty = !state.files.any_within(first..first + per_block);
        let new = if is_empty { 0 } else { places.next().map_or(0, |units| units.start) };
        let map = &mut state.kind.head.map;
        map.resize(map.len().max(n as usize + 1), 0);
        let old = std::mem::replace(&mut map[n as usize], new);
        if old > 0 {
            state.kind.left.push(Units::new(old, 1));
        }
        if new > 0 {
            let inodes = state.kind.inodes.range(first..first + per_block);
            let block = || tables::map_block(first, inodes, state.block_bytes as usize);
            blocks.insert(new, state.machine.keeps_content().then(block).flatten());
        }
    }
}

/// Reads what the last commit has written, and compares it with what is in memory.
pub(super) fn check(state: &State<OfCow>) -> Result<(), String> {
    if !state.machine.keeps_content() {
        return Ok(());
    }
    let kind = &state.kind;
    let tables = tables::read(&kind.head, &state.machine)?;
    state.compare_files(&tables.files)?;
    if (&tables.inodes, &tables.owners) != (&kind.inodes, &state.owners) {
        return Err("inodes or owners differ on the drive".into());
    }
    let data = u64::from(state.machine.blocks() - tables::FIRST - kind.head.metadata_blocks);
    let counts = [
        ("data", tables.data.len() + state.space.free() + state.space.held().len(), data),
        (
            "metadata",
            tables.metadata.len() + kind.metadata.free(),
            kind.head.metadata_blocks.into(),
        ),
    ];
    match counts.iter().find(|(_, found, all)| found != all) {
        Some((what, found, all)) => {
            Err(format!("{found} blocks of {what}, used or free, of {all}"))
        }
        None => Ok(()),
    }
}
