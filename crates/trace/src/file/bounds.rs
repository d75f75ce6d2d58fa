//! How much a trace may take, seen before any of it is decoded.
//!
//! A Parquet file of a few bytes may say that it holds gigabytes: a dictionary of a billion
//! values, a page that becomes a thousand times as long, a billion rows in one run, a path of megabytes
//! for every row. Who makes such a file may give it a right checksum, too. The parquet crate
//! makes room for what it is told, and a process that gets no room is ended, not told. So:
//!
//! - [`footer`] walks the footer first: few columns, and no more row groups than there is data;
//! - [`pages`] walks the page headers of each column that will be read: only encodings that the
//!   writer uses, no more values than rows, no page that could not have been so long before it was compressed;
//! - [`Budget`] holds what comes out, accesses, files and paths, in proportion to the file, and to what
//!   memory there is.
//!
//! What the writer makes lies far within all of these: `tests/hostile_traces.rs` holds both sides.

use super::schema::ROW_GROUP_ROWS;
use super::source::Source;
use super::thrift::Walk;
use fragmend_sys::memory;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a file is refused.
type Reason = Box<dyn std::error::Error + Send + Sync>;

/// Elements of the schema: our columns and their root are 17.
const MAX_SCHEMA: usize = 64;

/// Bytes of a file for each row group, beyond the first few. The writer begins a new one only
/// when 262,144 rows are in the last, and offsets alone take 100 KB of those.
const BYTES_PER_ROW_GROUP: u64 = 16 << 10;
const FEW_ROW_GROUPS: u64 = 16;

/// Longest page. The writer ends one behind 1 MiB, and looks every 1024 rows, each of which may have
/// a path of [`MAX_TEXT`].
const MAX_PAGE: i64 = 32 << 20;

/// Longest page header: no statistics are in it.
const MAX_HEADER: usize = 4096;

/// What snappy makes of a byte at most: 64 of every 3.
const MAX_SNAPPY: i64 = 22;

/// Longest text: a path of 4096 bytes, each escaped with four.
pub(super) const MAX_TEXT: usize = 4 * 4096;

/// Looks at the footer, before it is decoded.
pub(super) fn footer(source: &Source) -> Result<(), Reason> {
    const TAIL: u64 = 8; // length and magic
    let end = source.len().checked_sub(TAIL).ok_or("too short")?;
    let tail = source.get_bytes(end, TAIL as usize)?;
    let length = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
    let start = end.checked_sub(length.into()).ok_or("its footer is longer than the file")?;
    let bytes = source.get_bytes(start, length as usize)?;
    let (mut schema, mut groups) = (0, 0);
    Walk::new(&bytes)
        .structure(|walk, field| {
            match field.id {
                2 => schema = walk.list_length(field)?,
                4 => groups = walk.list_length(field)? as u64,
                _ => return Some(false),
            }
            Some(true)
        })
        .ok_or("its footer does not decode")?;
    if schema > MAX_SCHEMA {
        return Err("its columns are not those of a trace".into());
    }
    if groups > FEW_ROW_GROUPS + source.len() / BYTES_PER_ROW_GROUP {
        return Err("more row groups than its data could fill".into());
    }
    Ok(())
}

/// Looks at the pages of some columns of a row group, before they are decoded.
pub(super) fn pages(
    source: &Source,
    group: &RowGroupMetaData,
    columns: &[usize],
) -> Result<(), Reason> {
    let rows = usize::try_from(group.num_rows())?;
    if rows > ROW_GROUP_ROWS {
        return Err("a row group of more rows than any has".into());
    }
    for &index in columns {
        let column = group.columns().get(index).ok_or("a row group lacks a column")?;
        pages_of(source, column, rows as i64)?;
    }
    Ok(())
}

fn pages_of(source: &Source, column: &ColumnChunkMetaData, rows: i64) -> Result<(), Reason> {
    let first = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let mut at = u64::try_from(first.min(column.data_page_offset()))?;
    let length = u64::try_from(column.compressed_size())?;
    let end = at.checked_add(length).filter(|end| *end <= source.len());
    let end = end.ok_or("a column beyond the end of the file")?;
    while at < end {
        let head = source.get_bytes(at, MAX_HEADER.min((end - at) as usize))?;
        let page = page(&head).ok_or("a page header does not decode")?;
        at += page.header_bytes as u64;
        let compressed = u64::try_from(page.compressed)?;
        if compressed > end - at {
            return Err("a page beyond the end of its column".into());
        }
        at += compressed;
        let could_be = page.compressed.saturating_mul(MAX_SNAPPY).saturating_add(64);
        if !(0..=MAX_PAGE.min(could_be)).contains(&page.uncompressed) {
            return Err("a page that says it is longer than it can be".into());
        }
        if !(0..=rows).contains(&page.values) {
            return Err("a page of more values than there are rows".into());
        }
        if !page.known {
            return Err("a page in an encoding that traces do not have".into());
        }
    }
    Ok(())
}

/// What a page header says.
struct PageHead {
    header_bytes: usize,
    uncompressed: i64,
    compressed: i64,
    values: i64,
    /// It is a dictionary, or data in one of the encodings that the writer uses.
    known: bool,
}

/// Reads a page header (`PageHeader` in parquet.thrift).
fn page(bytes: &[u8]) -> Option<PageHead> {
    const DATA: i64 = 0;
    const DICTIONARY: i64 = 2;
    const PLAIN: i64 = 0;
    const PLAIN_DICTIONARY: i64 = 2;
    const RLE: i64 = 3;
    const RLE_DICTIONARY: i64 = 8;
    let mut walk = Walk::new(bytes);
    let (mut kind, mut uncompressed, mut compressed) = (None, None, None);
    // Of the header of a data page, and of a dictionary: values, encoding, and that of levels.
    let mut heads = [None; 2];
    walk.structure(|walk, field| {
        let slot = match field.id {
            1 => &mut kind,
            2 => &mut uncompressed,
            3 => &mut compressed,
            5 | 7 if Walk::is_structure(field) => {
                let (mut values, mut encoding, mut levels) = (None, None, None);
                let is_data = field.id == 5;
                walk.structure(|walk, field| {
                    let slot = match field.id {
                        1 => &mut values,
                        2 => &mut encoding,
                        3 if is_data => &mut levels,
                        _ => return Some(false),
                    };
                    *slot = Some(walk.integer(field)?);
                    Some(true)
                })?;
                heads[usize::from(!is_data)] = Some((values?, encoding?, levels));
                return Some(true);
            }
            _ => return Some(false),
        };
        *slot = Some(walk.integer(field)?);
        Some(true)
    })?;
    let (values, known) = match (kind?, heads) {
        (DATA, [Some((values, encoding, levels)), _]) => {
            let known = [PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY].contains(&encoding);
            (values, known && levels == Some(RLE))
        }
        (DICTIONARY, [_, Some((values, encoding, _))]) => {
            (values, [PLAIN, PLAIN_DICTIONARY].contains(&encoding))
        }
        _ => (0, false),
    };
    Some(PageHead {
        header_bytes: bytes.len() - walk.left(),
        uncompressed: uncompressed?,
        compressed: compressed?,
        values,
        known,
    })
}

/// What may come out of a file, all threads together: in proportion to its length, and no more than there
/// is room for.
pub(super) struct Budget {
    proportion: AtomicU64,
    room: AtomicU64,
}

/// Memory for what every file may hold, and for each byte that it has. A recording has some bytes for each
/// row, and ten and more for each file.
const ALWAYS: u64 = 128 << 20;
const PER_BYTE: u64 = 64;
/// An access counts so often there: a row that is not quite like the one before takes a byte and a half.
const ACCESS_WEIGHT: u64 = 4;
/// And so often of the room: while the row groups are joined, most are there twice.
const ACCESS_TIMES: u64 = 2;
/// Memory for decoding a row group.
const DECODING: u64 = 30 << 20;

impl Budget {
    /// For a file of so many row groups.
    pub(super) fn of(source: &Source, groups: usize) -> Self {
        let proportion = source.len().saturating_mul(PER_BYTE).saturating_add(ALWAYS);
        let at_a_time = rayon::current_num_threads().min(groups) as u64;
        // As much again for the plan that is made of it.
        let room = memory::room().saturating_sub(DECODING * at_a_time) / 2;
        Self { proportion: proportion.into(), room: room.into() }
    }

    /// Takes so many bytes of accesses off, and of all else.
    pub(super) fn charge(&self, accesses: usize, other: usize) -> Result<(), Reason> {
        let (accesses, other) = (accesses as u64, other as u64);
        let take = |from: &AtomicU64, times: u64| {
            let less = |left: u64| left.checked_sub(accesses * times + other);
            from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        };
        match () {
            () if !take(&self.proportion, ACCESS_WEIGHT) => {
                Err("it would take more memory than a recording of its length".into())
            }
            () if !take(&self.room, ACCESS_TIMES) => {
                Err("it would take more memory than there is".into())
            }
            () => Ok(()),
        }
    }
}
