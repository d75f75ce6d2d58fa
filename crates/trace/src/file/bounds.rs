//! Limits the memory that a trace may use, before any of it is decoded.
//!
//! A Parquet file of a few bytes may claim to contain gigabytes: a dictionary of a billion values, a page
//! that decompresses to a thousand times its size, a billion rows in one run, a path of megabytes for every
//! row. A forged file may also have a correct checksum. The parquet crate allocates as much as the file
//! claims, and a failed allocation ends the process. So:
//!
//! - [`footer`] walks the footer first: few columns, and no more row groups than there is data;
//! - [`pages`] walks the page headers of each column that will be read: only encodings that the
//!   writer uses, no more values than rows, no page longer than its compressed bytes can expand to;
//! - [`Budget`] limits the decoded accesses, files and paths, in proportion to the file and to the
//!   available memory.
//!
//! The writer's own files are far below all limits: `tests/hostile_traces.rs` tests both sides.

use super::schema::{ROW_GROUP_ROWS, column};
use super::source::Source;
use super::thrift::Walk;
use fragmend_sys::memory;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a file is refused.
type Reason = Box<dyn std::error::Error + Send + Sync>;

/// Most elements of a schema; a trace has 17, the columns and their root.
const MAX_SCHEMA: usize = 64;

/// Fewest bytes of a file for each row group beyond the first few. The writer begins a new one only when the
/// last has 65,536 rows, whose offsets alone need 25 KB: Snappy makes nothing shorter than a twentieth.
const BYTES_PER_ROW_GROUP: u64 = 16 << 10;
const FEW_ROW_GROUPS: u64 = 16;

/// Longest page. The writer ends a page after 1 MiB, but checks its length only every 1024 rows, each of
/// which may have a path of [`MAX_TEXT`].
const MAX_PAGE: i64 = 32 << 20;

/// Longest page header: it contains no statistics.
const MAX_HEADER: usize = 4096;

/// Largest expansion of snappy: 64 bytes from every 3.
const MAX_SNAPPY: i64 = 22;

/// Longest text: a path of 4096 bytes, each of which is escaped with four.
pub(super) const MAX_TEXT: usize = 4 * 4096;

/// Checks the footer, before it is decoded.
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

/// Checks the pages of some columns of a row group, before they are decoded.
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
        let chunk = group.columns().get(index).ok_or("a row group lacks a column")?;
        // Its decoder needs no memory but that of its values.
        let may_be_deltas = index == column::TIME;
        pages_of(source, chunk, rows as i64, may_be_deltas)?;
    }
    Ok(())
}

fn pages_of(
    source: &Source,
    column: &ColumnChunkMetaData,
    rows: i64,
    may_be_deltas: bool,
) -> Result<(), Reason> {
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
        if !(page.known || page.deltas && may_be_deltas) {
            return Err("a page in an encoding that traces do not have".into());
        }
    }
    Ok(())
}

/// The fields of a page header that are checked.
struct PageHead {
    header_bytes: usize,
    uncompressed: i64,
    compressed: i64,
    values: i64,
    /// Whether it is a dictionary, or data in one of the encodings that the writer uses.
    known: bool,
    /// Whether it is data that are differences of each value to the one before, as the writer has them of times.
    deltas: bool,
}

/// Reads a page header (`PageHeader` in parquet.thrift).
fn page(bytes: &[u8]) -> Option<PageHead> {
    const DATA: i64 = 0;
    const DICTIONARY: i64 = 2;
    const PLAIN: i64 = 0;
    const PLAIN_DICTIONARY: i64 = 2;
    const RLE: i64 = 3;
    const DELTA_BINARY_PACKED: i64 = 5;
    const RLE_DICTIONARY: i64 = 8;
    let mut walk = Walk::new(bytes);
    let (mut kind, mut uncompressed, mut compressed) = (None, None, None);
    // Of the headers of a data page and of a dictionary page: the number of values, their encoding, and that
    // of the levels.
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
    let (values, known, deltas) = match (kind?, heads) {
        (DATA, [Some((values, encoding, levels)), _]) => {
            let known = [PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY].contains(&encoding);
            let deltas = encoding == DELTA_BINARY_PACKED;
            (values, known && levels == Some(RLE), deltas && levels == Some(RLE))
        }
        (DICTIONARY, [_, Some((values, encoding, _))]) => {
            (values, [PLAIN, PLAIN_DICTIONARY].contains(&encoding), false)
        }
        _ => (0, false, false),
    };
    Some(PageHead {
        header_bytes: bytes.len() - walk.left(),
        uncompressed: uncompressed?,
        compressed: compressed?,
        values,
        known,
        deltas,
    })
}

/// The memory for everything decoded from a file, shared by all threads: in proportion to the
/// file's length, and limited by the available memory.
pub(super) struct Budget {
    proportion: AtomicU64,
    room: AtomicU64,
}

/// Memory that is allowed for every trace, and for each byte of it. A recording has a few bytes per row, and
/// ten or more per file.
const ALWAYS: u64 = 128 << 20;
const PER_BYTE: u64 = 64;
/// Factor of an access in that proportion: a row that differs from the one before needs 1.5 bytes of the
/// file.
const ACCESS_WEIGHT: u64 = 4;
/// Factor of an access in the available memory: while row groups are joined, most accesses exist twice.
const ACCESS_TIMES: u64 = 2;
/// Memory for decoding a row group.
const DECODING: u64 = 30 << 20;

impl Budget {
    /// The budget of a file with this number of row groups.
    pub(super) fn new(source: &Source, groups: usize) -> Self {
        let proportion = source.len().saturating_mul(PER_BYTE).saturating_add(ALWAYS);
        let at_a_time = rayon::current_num_threads().min(groups) as u64;
        // The other half is for the plan that is made from the trace.
        let room = memory::room().saturating_sub(DECODING * at_a_time) / 2;
        Self { proportion: proportion.into(), room: room.into() }
    }

    /// Takes back the bytes of accesses that were folded with others, and of everything else that is not needed any more.
    pub(super) fn give_back(&self, accesses: usize, other: usize) {
        let bytes = accesses as u64 * ACCESS_TIMES + other as u64;
        self.room.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts the bytes of accesses, and of everything else.
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
