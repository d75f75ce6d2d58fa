//! Inodes, leaves and bitmaps as blocks of the drive, and back.

use super::places::Places;
use crate::extent_map::Piece;
use crate::files::File;
use crate::machine::Machine;
use crate::mounted::{Kind, add_once};
use crate::ranges::RangeSet;
use crate::record;
use crate::space::{Rule, Space};
use fragmend_flash::command::Units;
use fragmend_flash::device::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The content of an inode's block.
#[derive(Serialize, Deserialize)]
struct Inode {
    path: PathBuf,
    generation: u32,
    size: u64,
    /// Its extents, if they are few.
    pieces: Vec<Piece>,
    /// The first leaf of the others.
    leaf: Option<u32>,
}

/// The content of a leaf.
#[derive(Serialize, Deserialize)]
struct LeafBlock {
    pieces: Vec<Piece>,
    next: Option<u32>,
}

/// The tables on a drive.
pub(super) struct Tables {
    pub files: BTreeMap<u64, File>,
    /// What the bitmaps have as free.
    pub space: Space,
}

/// The block of a file's inode.
pub(super) fn inode(file: &File, block: usize) -> Bytes {
    let leaf = file.leaves.places().next();
    let pieces = if leaf.is_none() { file.map.pieces().collect() } else { Vec::new() };
    let (path, generation, size) = (file.path.clone(), file.generation, file.stored_size);
    record::pack(&Inode { path, generation, size, pieces, leaf }, block).pop()
}

/// The block of a leaf.
pub(super) fn leaf(pieces: Vec<Piece>, next: Option<u32>, block: usize) -> Bytes {
    record::pack(&LeafBlock { pieces, next }, block).pop()
}

/// The bitmap of a group: a bit is set unless its block is free, or is freed by the commit.
pub(super) fn bitmap(
    space: &Space,
    freed: &[Units],
    places: &Places,
    group: u32,
    block: usize,
) -> Bytes {
    let blocks = places.group(group);
    let mut bits = vec![0xff_u8; block];
    let range = u64::from(blocks.start)..u64::from(blocks.end());
    let held = space.held().within(range).into_iter();
    let held = held.map(|part| Units::new(part.start as u32, (part.end - part.start) as u32));
    let free = space.free_within(blocks).into_iter().chain(held).chain(freed.iter().copied());
    for unit in free.flat_map(Units::each).filter(|unit| blocks.each().contains(unit)) {
        let bit = unit - blocks.start;
        bits[bit as usize / 8] &= !(1 << (bit % 8));
    }
    Some(bits.into())
}

/// Reads all tables; `read` returns the content of blocks.
///
/// # Errors
/// What is wrong with them.
pub(super) fn read(places: &Places, read: &impl Fn(Units) -> Vec<u8>) -> Result<Tables, String> {
    let mut files = BTreeMap::new();
    let mut used = RangeSet::default();
    for units in places.tables() {
        add_once(&mut used, units, "tables")?;
    }
    for number in 0..u64::from(places.inodes) {
        let block = read(Units::new(places.inode(number), 1));
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let inode = record::unpack(&block).ok_or_else(|| format!("inode {number} is damaged"))?;
        let file = file(inode, places, read)?;
        for piece in file.map.pieces() {
            add_once(&mut used, piece.units(), &file.path.display().to_string())?;
        }
        for place in file.leaves.places() {
            add_once(&mut used, Units::new(place, 1), "a leaf")?;
        }
        files.insert(number, file);
    }
    let mut space = Space::new(places.blocks, places.per_group).with(Rule::Multiblock);
    for group in 0..places.groups() {
        let (bits, blocks) = (read(places.bitmap(group)), places.group(group));
        for unit in blocks.each() {
            let bit = unit - blocks.start;
            let is_used = bits[bit as usize / 8] & (1 << (bit % 8)) != 0;
            if is_used != used.contains(u64::from(unit)) {
                return Err(format!(
                    "block {unit} is used: {is_used} in its bitmap, and not in files"
                ));
            }
        }
    }
    for part in used.ranges() {
        space.take(Units::new(part.start as u32, (part.end - part.start) as u32));
    }
    Ok(Tables { files, space })
}

/// The file of an inode, with its leaves.
fn file(inode: Inode, places: &Places, read: &impl Fn(Units) -> Vec<u8>) -> Result<File, String> {
    let path = inode.path.display().to_string();
    let mut leaves: Vec<(u32, Vec<Piece>)> = Vec::new();
    let mut next = inode.leaf;
    while let Some(place) = next.take() {
        let within = place < places.blocks && leaves.len() < places.blocks as usize;
        let block = within.then(|| read(Units::new(place, 1)));
        let leaf = block.and_then(|block| record::unpack::<LeafBlock>(&block));
        let LeafBlock { pieces, next: behind } =
            leaf.ok_or_else(|| format!("{path}: the leaf in block {place} is damaged"))?;
        leaves.push((place, pieces));
        next = behind;
    }
    let mut file = File::new(&inode.path, inode.generation, super::OfInPlace::LONGEST);
    (file.size, file.stored_size) = (inode.size, inode.size);
    file.read_extents(&inode.pieces, &leaves, places.blocks)?;
    Ok(file)
}

/// The content of a block that a journal may hold, for a machine whose drive keeps content.
pub(super) fn kept(machine: &Machine, image: impl FnOnce() -> Bytes) -> Bytes {
    if machine.keeps_content() { image() } else { None }
}
