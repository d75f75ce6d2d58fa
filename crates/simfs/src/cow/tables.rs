//! Super blocks, the map of inodes, inodes and leaves as blocks of the drive, and back.

use super::OfCow;
use crate::error::Error;
use crate::extent_map::Piece;
use crate::files::File;
use crate::machine::Machine;
use crate::mounted::{Kind, add_once};
use crate::owners::Owners;
use crate::ranges::RangeSet;
use crate::record;
use fragmend_flash::command::{Hint, Units};
use fragmend_flash::device::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

const MAGIC: u32 = 0x1e4f_5303;
/// The first block behind the places of super blocks.
pub(super) const FIRST: u32 = 2;

/// A super block: what a commit switches to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Super {
    magic: u32,
    block_bytes: u32,
    blocks: u32,
    pub metadata_blocks: u32,
    /// The number of its commit.
    pub generation: u64,
    /// The places of the blocks of the map of inodes; 0 for one without files.
    pub map: Vec<u32>,
}

/// An inode.
#[derive(Serialize, Deserialize)]
struct Inode {
    path: PathBuf,
    generation: u32,
    size: u64,
    /// Its extents, if they are few.
    pieces: Vec<Piece>,
    /// The places of the leaves with the others.
    leaves: Vec<u32>,
}

/// What a commit has put on a drive.
pub(super) struct Tables {
    pub files: BTreeMap<u64, File>,
    pub inodes: BTreeMap<u64, Units>,
    pub data: RangeSet,
    pub metadata: RangeSet,
    pub owners: Owners,
}

impl Super {
    /// That of an empty file system.
    pub fn new(machine: &Machine, metadata_blocks: u32) -> Self {
        let (block_bytes, blocks) = (machine.block_bytes() as u32, machine.blocks());
        Self { magic: MAGIC, block_bytes, blocks, metadata_blocks, generation: 1, map: Vec::new() }
    }

    /// The newer one of the two on a drive. One that a cut has left damaged is none.
    pub fn read(machine: &Machine) -> Result<Self, Error> {
        let (bytes, blocks) = (machine.block_bytes() as u32, machine.blocks());
        let mut valid: Vec<Self> = Vec::new();
        for n in 0..FIRST {
            machine.read(&[Units::new(n, 1)], crate::file_system::Access::Direct)?;
            let found: Option<Self> = record::unpack(&machine.bytes(Units::new(n, 1)));
            valid.extend(found.filter(|found| {
                (found.magic, found.block_bytes, found.blocks) == (MAGIC, bytes, blocks)
            }));
        }
        let newest = valid.into_iter().max_by_key(|found| found.generation);
        newest.ok_or_else(|| Error::Damaged("it has no super block".into()))
    }

    /// Writes it to the place of the older one.
    pub fn write(&self, machine: &Machine) -> Result<(), Error> {
        let place = Units::new((self.generation % u64::from(FIRST)) as u32, 1);
        let block = record::pack(self, machine.block_bytes() as usize);
        machine.write(&[place], Hint::None, &mut |_| block.first().cloned())?;
        Ok(())
    }

    /// How many inodes a block of the map has: each needs five bytes at most.
    pub fn per_map_block(&self) -> u64 {
        (u64::from(self.block_bytes) - 16) / 5
    }

    /// How many files there can be: the super block has a place of five bytes for each block of the map.
    pub fn most_files(&self) -> u64 {
        (u64::from(self.block_bytes) - 64) / 5 * self.per_map_block()
    }

    /// The longest path, so that an inode is one block unless it has very many leaves.
    pub fn longest_path(&self) -> usize {
        (self.block_bytes / 4).min(255) as usize
    }
}

/// How many blocks an inode has.
pub(super) fn inode_blocks(file: &File, block: usize) -> u32 {
    // The record's header, two lengths and a name, generation, size; then places or extents, at their longest.
    let rest = 8 + 3 + 3 + 2 + file.path.as_os_str().len() + 5 + 10;
    let extents = if file.leaves.is_empty() { 14 * file.map.len() } else { 5 * file.leaves.len() };
    (rest + extents).div_ceil(block) as u32
}

/// The content of an inode's blocks; there may be more of them than it needs.
pub(super) fn inode(file: &File, block: usize) -> Vec<Box<[u8]>> {
    let leaves: Vec<u32> = file.leaves.places().collect();
    let pieces = if leaves.is_empty() { file.map.pieces().collect() } else { Vec::new() };
    let (path, generation, size) = (file.path.clone(), file.generation, file.stored_size);
    record::pack(&Inode { path, generation, size, pieces, leaves }, block)
}

/// The block of a leaf.
pub(super) fn leaf(pieces: &Vec<Piece>, block: usize) -> Bytes {
    record::pack(pieces, block).pop()
}

/// A block of the map of inodes, from the inode `first` on.
pub(super) fn map_block<'a>(
    first: u64,
    inodes: impl Iterator<Item = (&'a u64, &'a Units)>,
    block: usize,
) -> Bytes {
    let mut places: Vec<u32> = Vec::new();
    for (inode, units) in inodes {
        places.resize((inode - first) as usize, 0);
        places.push(units.start);
    }
    record::pack(&places, block).pop()
}

/// Reads what a super block refers to.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(head: &Super, machine: &Machine) -> Result<Tables, String> {
    let block = machine.block_bytes() as usize;
    let mut tables = Tables {
        files: BTreeMap::new(),
        inodes: BTreeMap::new(),
        data: RangeSet::default(),
        metadata: RangeSet::default(),
        owners: Owners::default(),
    };
    for (n, place) in head.map.iter().enumerate().filter(|(_, place)| **place > 0) {
        let places: Vec<u32> = tables.one(head, machine, *place, "the map of inodes")?;
        for (m, place) in places.into_iter().enumerate().filter(|(_, place)| *place > 0) {
            let number = n as u64 * head.per_map_block() + m as u64;
            let first = tables.bytes(head, machine, Units::new(place, 1))?;
            let count = record::blocks(&first, block).unwrap_or(1) as u32;
            let mut bytes = first;
            if count > 1 {
                bytes.extend(tables.bytes(head, machine, Units::new(place + 1, count - 1))?);
            }
            let inode: Inode =
                record::unpack(&bytes).ok_or_else(|| format!("inode {number} is damaged"))?;
            let file = tables.file(head, machine, inode)?;
            let units = Units::new(place, inode_blocks(&file, block));
            if units.count > count {
                add_once(
                    &mut tables.metadata,
                    Units::new(place + count, units.count - count),
                    "an inode's",
                )?;
            }
            tables.files.insert(number, file);
            tables.inodes.insert(number, units);
        }
    }
    Ok(tables)
}

impl Tables {
    /// The content of blocks of metadata, which nothing else has.
    fn bytes(&mut self, head: &Super, machine: &Machine, units: Units) -> Result<Vec<u8>, String> {
        let end = units.start.checked_add(units.count);
        let is_within = end.is_some_and(|end| end <= FIRST + head.metadata_blocks);
        if !is_within || units.start < FIRST {
            return Err(format!("{units:?} is no place for metadata"));
        }
        add_once(&mut self.metadata, units, "metadata")?;
        Ok(machine.bytes(units))
    }

    /// The record in a block.
    fn one<T: serde::de::DeserializeOwned>(
        &mut self,
        head: &Super,
        machine: &Machine,
        place: u32,
        whose: &str,
    ) -> Result<T, String> {
        let bytes = self.bytes(head, machine, Units::new(place, 1))?;
        record::unpack(&bytes).ok_or_else(|| format!("{whose}: block {place} is damaged"))
    }

    /// The file of an inode, with its leaves.
    fn file(&mut self, head: &Super, machine: &Machine, inode: Inode) -> Result<File, String> {
        let path = inode.path.display().to_string();
        let mut leaves: Vec<(u32, Vec<Piece>)> = Vec::new();
        for place in inode.leaves {
            leaves.push((place, self.one(head, machine, place, &path)?));
        }
        let mut file = File::new(&inode.path, inode.generation, OfCow::LONGEST);
        (file.size, file.stored_size) = (inode.size, inode.size);
        file.read_extents(&inode.pieces, &leaves, head.blocks)?;
        for piece in file.map.pieces() {
            let (start, end) = (u64::from(piece.place), u64::from(piece.units().end()));
            // What another file has already has one owner more.
            for part in self.data.within(start..end) {
                let shared = Units::new(part.start as u32, (part.end - part.start) as u32);
                self.owners.add(shared);
            }
            self.data.insert(start..end);
        }
        Ok(file)
    }
}
