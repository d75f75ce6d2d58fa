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

/// Writes the metadata of all changes, and switches to it.
pub(super) fn commit(state: &mut State<OfCow>) -> Result<(), Error> {
    let mut blocks = Blocks::new();
    let inodes = state.changes.inodes.clone();
    for inode in &inodes {
        leaves(state, *inode, &mut blocks)?;
        write_inode(state, *inode, &mut blocks)?;
    }
    write_map(state, &inodes, &mut blocks)?;
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

/// A run of new blocks for metadata.
fn place(state: &mut State<OfCow>, count: u32) -> Result<Units, Error> {
    let metadata = &mut state.kind.metadata;
    let units = metadata.allocate(tables::FIRST, count, false).ok_or(Error::NoSpace)?;
    if units.count < count {
        metadata.release(units);
        return Err(Error::NoSpace);
    }
    Ok(units)
}

/// New places for the leaves of a file that have changed.
fn leaves(state: &mut State<OfCow>, inode: u64, blocks: &mut Blocks) -> Result<(), Error> {
    let fanout = state.fanout;
    let Some(file) = state.files.get_mut(inode) else { return Ok(()) };
    let left = file.leaves.settle(&file.map, fanout);
    state.kind.left.extend(left.into_iter().map(|place| Units::new(place, 1)));
    let Some(file) = state.files.get(inode) else { return Ok(()) };
    for (range, leaf) in file.leaves.each() {
        if !leaf.is_changed {
            continue;
        }
        state.kind.left.extend(leaf.place.map(|place| Units::new(place, 1)));
        let units = place(state, 1)?;
        let Some(file) = state.files.get_mut(inode) else { return Ok(()) };
        file.leaves.set(range.start, Leaf { place: Some(units.start), ..Leaf::default() });
        let bytes = state.machine.keeps_content().then(|| {
            let pieces: Vec<Piece> = file.map.within(range).collect();
            tables::leaf(&pieces, state.block_bytes as usize)
        });
        blocks.insert(units.start, bytes.flatten());
    }
    Ok(())
}

/// A new place for an inode, or none if it is gone.
fn write_inode(state: &mut State<OfCow>, inode: u64, blocks: &mut Blocks) -> Result<(), Error> {
    state.kind.left.extend(state.kind.inodes.remove(&inode));
    let Some(file) = state.files.get(inode) else { return Ok(()) };
    let block = state.block_bytes as usize;
    let (count, keeps) = (tables::inode_blocks(file, block), state.machine.keeps_content());
    let contents = if keeps { tables::inode(file, block) } else { Vec::new() };
    let units = place(state, count)?;
    let contents = contents.into_iter().map(Some).chain(std::iter::repeat(None));
    blocks.extend(units.each().zip(contents));
    state.kind.inodes.insert(inode, units);
    Ok(())
}

/// New places for the blocks of the map that have these inodes.
fn write_map(
    state: &mut State<OfCow>,
    inodes: &BTreeSet<u64>,
    blocks: &mut Blocks,
) -> Result<(), Error> {
    let per_block = state.kind.head.per_map_block();
    let changed: BTreeSet<u64> = inodes.iter().map(|inode| inode / per_block).collect();
    for n in changed {
        let first = n * per_block;
        let is_empty = state.kind.inodes.range(first..first + per_block).next().is_none();
        let new = if is_empty { 0 } else { place(state, 1)?.start };
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
    Ok(())
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
