//! A transaction: which metadata blocks it writes, and what they hold.

use super::OfInPlace;
use super::journal::{Image, Transaction};
use super::tables;
use crate::error::Error;
use crate::leaves::Leaf;
use crate::mounted::{Changes, Kind, Omit, State};
use fragmend_flash::command::{Command, LogAction, Units};
use fragmend_flash::device::Bytes;
use std::collections::BTreeMap;

/// Writes the metadata of all changes to the journal, and commits it. A transaction that is longer than the journal is found before anything
/// is written or forgotten: all changes are there for the next one.
pub(super) fn commit(state: &mut State<OfInPlace>) -> Result<(), Error> {
    let mut images: BTreeMap<u32, Bytes> = BTreeMap::new();
    for inode in state.changes.inodes.clone() {
        settle_leaves(state, inode)?;
        images.extend(inode_images(state, inode));
    }
    let block = state.block_bytes as usize;
    for group in state.changes.groups.clone() {
        let (space, freed) = (&state.space, &state.changes.freed);
        let places = &state.kind.places;
        let bitmap = || tables::bitmap(space, freed, places, group, block);
        images.insert(places.bitmap(group).start, tables::kept(&state.machine, bitmap));
    }
    let images: Vec<Image> = images.into_iter().collect();
    let (machine, omit) = (state.machine.clone(), state.settings.omit);
    let Changes { remapped, exclusively, .. } = state.changes;
    let transaction =
        Transaction { images, revoked: state.changes.leaves.clone(), remaps: exclusively };
    let prepared = state.kind.journal.prepare(&machine, transaction, omit)?;
    // The order of what follows: `mounted/remap.rs`.
    if remapped && omit != Some(Omit::LogFlush) {
        machine.command(&Command::DefragLog(LogAction::Flush))?;
    }
    let commits_log = exclusively && omit != Some(Omit::LogCommit);
    let commits_first = omit == Some(Omit::LogCommitLast);
    if commits_log && commits_first {
        machine.command(&Command::DefragLog(LogAction::Commit))?;
    }
    state.kind.journal.commit(&machine, prepared, omit)?;
    if commits_log && !commits_first {
        machine.command(&Command::DefragLog(LogAction::Commit))?;
    }
    for inode in &state.changes.inodes {
        if let Some(file) = state.files.get_mut(*inode) {
            file.leaves.are_written();
        }
    }
    Ok(())
}

/// Makes the leaves of a file fit its extents, and finds places for new ones.
fn settle_leaves(state: &mut State<OfInPlace>, inode: u64) -> Result<(), Error> {
    let fanout = state.fanout;
    let Some(file) = state.files.get_mut(inode) else { return Ok(()) };
    for place in file.leaves.settle(&file.map, fanout) {
        OfInPlace::leave_metadata(state, place)?;
    }
    let Some(file) = state.files.get(inode) else { return Ok(()) };
    let goal = file.map.pieces().next().map_or(0, |piece| piece.units().end());
    for (range, leaf) in file.leaves.each() {
        if leaf.place.is_none() {
            let place = Some(state.place_metadata(goal)?);
            if let Some(file) = state.files.get_mut(inode) {
                file.leaves.set(range.start, Leaf { place, ..leaf });
            }
        }
    }
    Ok(())
}

/// The blocks of an inode and of its leaves that differ from the drive.
fn inode_images(state: &State<OfInPlace>, inode: u64) -> Vec<Image> {
    let (machine, block) = (&state.machine, state.block_bytes as usize);
    let home = state.kind.places.inode(inode);
    let Some(file) = state.files.get(inode) else { return vec![(home, None)] };
    let mut images = vec![(home, tables::kept(machine, || tables::inode(file, block)))];
    let leaves = file.leaves.each();
    for (n, (range, leaf)) in leaves.iter().enumerate() {
        let next = leaves.get(n + 1).and_then(|(_, next)| next.place);
        let Some(place) = leaf.place else { continue };
        if leaf.is_changed || leaf.next != next {
            let pieces = || file.map.within(range.clone()).collect();
            images.push((place, tables::kept(machine, || tables::leaf(pieces(), next, block))));
        }
    }
    images
}

/// Reads the tables as a mount would find them, and compares them with those in memory.
pub(super) fn check(state: &State<OfInPlace>) -> Result<(), String> {
    if !state.machine.keeps_content() {
        return Ok(());
    }
    let kind = &state.kind;
    let bytes = state.block_bytes as usize;
    let read = |units: Units| -> Vec<u8> {
        let block = |place: u32| match kind.journal.pending(place) {
            Some(Some(bytes)) => bytes.to_vec(),
            Some(None) => vec![0; bytes],
            None => state.machine.bytes(Units::new(place, 1)),
        };
        units.each().map(block).collect::<Vec<_>>().concat()
    };
    let tables = tables::read(&kind.places, &read)?;
    state.compare_files(&tables.files)?;
    let free = state.space.free() + state.space.held().len();
    if tables.space.free() != free {
        return Err(format!(
            "{} blocks are free on the drive, and not {free}",
            tables.space.free()
        ));
    }
    Ok(())
}
