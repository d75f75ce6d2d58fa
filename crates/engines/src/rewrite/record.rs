//! A record: everything that is needed to put a range back, in one file.
//!
//! Version 2, little-endian: the [`Header`], the file's handle, its path, zeroes up to a multiple of 4096, a
//! block of 4096 for notes (`note`), which no checksum here covers, then the bytes of the range up to the end
//! of the file, and nothing after them. The header's checksum covers header, handle and path, and with the
//! header also the checksum of the bytes. Both are CRC-32C: they show damage, but do not prove who wrote the
//! record.
//!
//! The header is written last, so a record without one was never finished. A later version keeps the magic
//! number and the place of the version. Version 1 does not name the disk, and has no block for notes.

use fragmend_layout::ByteRange;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::handle::Handle;
use fragmend_sys::session::Disk;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use zerocopy::little_endian::{I32, I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the format.
pub const VERSION: u32 = 2;

/// The first bytes of every record, of any version.
pub const MAGIC: [u8; 8] = *b"FRAGMRW\n";

/// The longest range that a record can have, in bytes: it is held in memory, too.
pub const LONGEST_RANGE: u64 = 64 << 20;

/// The bytes of the range begin on a multiple of this.
const DATA_ALIGN: u64 = 4096;

/// The most bytes of path and handle (`PATH_MAX`, `MAX_HANDLE_SZ`): a record with more is damaged.
const LONGEST_NAMES: u64 = 8192;
const LONGEST_HANDLE: usize = 128;

/// The fixed beginning of a record.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    /// CRC-32C of header, handle and path, with zeroes in this field's place.
    checksum: U32,
    fs_uuid: [u8; 16],
    fs_id: U64,
    inode: U64,
    generation: U32,
    handle_kind: I32,
    handle_bytes: U32,
    path_bytes: U32,
    size: U64,
    mtime_seconds: I64,
    mtime_nanoseconds: U32,
    block: U32,
    start: U64,
    end: U64,
    data_checksum: U32,
    reserved: U32,
    disk_attached: U64,
    disk_lasting: U64,
}

const _: () = assert!(size_of::<Header>() == 128);

/// Bytes of the header in each version: later versions append their fields.
const fn header_bytes(version: u32) -> usize {
    if version == 1 { 112 } else { size_of::<Header>() }
}

/// Which range it is, and the state of its file before the rewrite. The copy itself follows in the record's
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The version of its format: [`VERSION`], or an older one.
    pub version: u32,
    /// The file's file system.
    pub fs: FsId,
    /// The disk that the file system is on.
    pub disk: Disk,
    /// The file's inode number.
    pub inode: u64,
    /// The file's generation; 0 where the file system has none.
    pub generation: u32,
    /// The file's handle, as the file system made it; empty where there is none.
    pub handle: Handle,
    /// The file's last known path, below the mount point; empty where it is not known. Earlier versions recorded
    /// an absolute one then.
    pub path: PathBuf,
    /// The file's size in bytes.
    pub size: u64,
    /// The file's time of modification: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// The file's allocation block in bytes.
    pub block: u32,
    /// The range: whole blocks, the last of which may reach beyond the end of the file.
    pub range: ByteRange,
    /// CRC-32C of the bytes of the range.
    pub data_checksum: u32,
}

/// Why bytes are not a usable record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// They are something else.
    #[error("not a record of a rewrite")]
    Foreign,
    /// Another version of this program wrote it.
    #[error("a record of format {0}; this fragmend knows format {VERSION}")]
    Version(u32),
    /// Other users could have put it there.
    #[error(
        "not a record of ours alone: it must be a regular file of ours, closed to writing by others, with one name and without holes"
    )]
    NotOurs,
    /// Cut off, or not the bytes that were written.
    #[error("damaged")]
    Damaged,
}

impl Record {
    /// Bytes of the range that the file had: fewer than the range if the file ends inside it.
    pub fn data_len(&self) -> u64 {
        self.range.end.min(self.size).saturating_sub(self.range.start)
    }

    /// The file's last known path below the mount point; empty where it is not known.
    pub fn path_below(&self) -> &Path {
        if self.path.is_absolute() { Path::new("") } else { &self.path }
    }

    /// Where in the record's file the bytes of the range begin.
    pub fn data_start(&self) -> u64 {
        self.note_start().map_or(self.head_end(), |note| note + DATA_ALIGN)
    }

    /// Where in the record's file its notes are; `None` where it has none.
    pub fn note_start(&self) -> Option<u64> {
        (self.version > 1).then(|| self.head_end())
    }

    fn head_end(&self) -> u64 {
        let names = self.handle.bytes.len() + self.path.as_os_str().len();
        (header_bytes(self.version) as u64 + names as u64).next_multiple_of(DATA_ALIGN)
    }

    /// Everything before the bytes of the range.
    pub fn encode(&self) -> Vec<u8> {
        let path = self.path.as_os_str().as_bytes();
        let header = Header {
            magic: MAGIC,
            version: self.version.into(),
            checksum: 0.into(),
            fs_uuid: self.fs.uuid,
            fs_id: self.fs.fsid.into(),
            inode: self.inode.into(),
            generation: self.generation.into(),
            handle_kind: self.handle.kind.into(),
            handle_bytes: (self.handle.bytes.len() as u32).into(),
            path_bytes: (path.len() as u32).into(),
            size: self.size.into(),
            mtime_seconds: self.mtime.0.into(),
            mtime_nanoseconds: self.mtime.1.into(),
            block: self.block.into(),
            start: self.range.start.into(),
            end: self.range.end.into(),
            data_checksum: self.data_checksum.into(),
            reserved: 0.into(),
            disk_attached: self.disk.attached.into(),
            disk_lasting: self.disk.lasting.into(),
        };
        let length = header_bytes(self.version);
        let checksum = checksum(&header.as_bytes()[..length], &self.handle.bytes, path);
        let header = Header { checksum: checksum.into(), ..header };
        let mut bytes = [&header.as_bytes()[..length], &self.handle.bytes, path].concat();
        bytes.resize(self.data_start() as usize, 0);
        bytes
    }

    /// Parses the beginning of a record's file, of which [`Self::LONGEST`] bytes are enough.
    ///
    /// # Errors
    /// [`BadRecord`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        if !bytes.starts_with(&MAGIC) {
            return Err(BadRecord::Foreign);
        }
        let version = bytes.get(8..12).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let version = match version {
            Some(known @ 1..=VERSION) => known,
            Some(other) => return Err(BadRecord::Version(other)),
            None => return Err(BadRecord::Damaged),
        };
        let length = header_bytes(version);
        let (head, rest) = bytes.split_at_checked(length).ok_or(BadRecord::Damaged)?;
        let mut whole = [0; size_of::<Header>()];
        whole[..length].copy_from_slice(head);
        let header = Header::read_from_bytes(&whole).map_err(|_| BadRecord::Damaged)?;
        let handle = rest.get(..header.handle_bytes.get() as usize).ok_or(BadRecord::Damaged)?;
        let path = rest[handle.len()..].get(..header.path_bytes.get() as usize);
        let path = path.ok_or(BadRecord::Damaged)?;
        let unsummed = Header { checksum: 0.into(), ..header };
        let sum = checksum(&unsummed.as_bytes()[..length], handle, path);
        if header.checksum.get() != sum || header.reserved.get() != 0 {
            return Err(BadRecord::Damaged);
        }
        Ok(Self {
            version,
            fs: FsId { uuid: header.fs_uuid, fsid: header.fs_id.get() },
            disk: Disk { attached: header.disk_attached.get(), lasting: header.disk_lasting.get() },
            inode: header.inode.get(),
            generation: header.generation.get(),
            handle: Handle { kind: header.handle_kind.get(), bytes: handle.to_vec() },
            path: OsString::from_vec(path.to_vec()).into(),
            size: header.size.get(),
            mtime: (header.mtime_seconds.get(), header.mtime_nanoseconds.get()),
            block: header.block.get(),
            range: ByteRange { start: header.start.get(), end: header.end.get() },
            data_checksum: header.data_checksum.get(),
        })
    }

    /// Checks that a rewrite can have written it on a file system with blocks of `block` bytes. This is done
    /// before its file is looked at: a user who can write a record can give it any checksum.
    ///
    /// # Errors
    /// What it contains that no rewrite writes.
    pub fn check(&self, block: u64) -> Result<(), &'static str> {
        let ByteRange { start, end } = self.range;
        let (largest, within) = (i64::MAX as u64, |end: u64| end <= i64::MAX as u64);
        let aligned = |at: u64| at.is_multiple_of(block.max(1));
        let inside = |part: Component| matches!(part, Component::Normal(_));
        let wrong = [
            (!block.is_power_of_two() || u64::from(self.block) != block, "another block size"),
            (start >= end || !within(end), "a range that ends before it begins, or nowhere"),
            (!aligned(start) || !aligned(end), "a range that is not of whole blocks"),
            (end.saturating_sub(start) > LONGEST_RANGE, "a longer range than is ever rewritten"),
            (self.size > largest - block, "a size that no file has"),
            (start >= self.size, "a range behind the end of the file"),
            (
                within(self.size) && end > self.size.div_ceil(block.max(1)).saturating_mul(block),
                "a range that reaches beyond the end of the file",
            ),
            (self.mtime.1 >= 1_000_000_000, "a time of modification that is none"),
            (self.handle.bytes.len() > LONGEST_HANDLE, "a handle that is too long"),
            (self.path.as_os_str().as_bytes().contains(&0), "a path that is none"),
            (!self.path_below().components().all(inside), "a path that leads elsewhere"),
        ];
        wrong.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, what)| Err(what))
    }

    /// The most bytes of header, handle and path together.
    pub const LONGEST: u64 = size_of::<Header>() as u64 + LONGEST_NAMES;
}

/// The checksum of a range's bytes.
pub fn data_checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

fn checksum(header: &[u8], handle: &[u8], path: &[u8]) -> u32 {
    let sum = crc32c::crc32c(header);
    crc32c::crc32c_append(crc32c::crc32c_append(sum, handle), path)
}
