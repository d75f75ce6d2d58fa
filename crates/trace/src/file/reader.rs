//! Reads the accesses per file from a trace file.
//!
//! Only the columns that planning needs are read; row groups are decoded in parallel and joined in file
//! order, so that the accesses of one file stay in the order of their recording.
//!
//! A damaged file must result in an error, never in a crash. The data is compared with its checksum before it
//! is decoded. But a trace may be older than the checksum, or damaged in its footer, and the parquet crate
//! panics on some damaged pages: so decoding runs in [`guarded`], which turns a panic into an error and keeps
//! the panic message off the terminal.

use super::bounds::{self, Budget, MAX_TEXT};
use super::checksum;
use super::join::{self, Folded, Group};
use super::order::{Disks, Ranks, Reached};
use super::schema::{self, column};
use super::source::Source;
use super::turns::{Rows, Turns};
use crate::event::is_possible;
use crate::meta::{KEY, Meta, SCHEMA_VERSION};
use crate::{Access, FileAccesses, Op, TraceError};
use fragmend_layout::schema::OLDEST_TRACE_FILE;
use fragmend_layout::{FileId, Recorded, printable};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use rayon::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

/// A trace, grouped by file.
#[derive(Clone, Debug)]
pub struct Trace {
    /// One entry per file, in the order in which the files were first seen.
    pub files: Vec<FileAccesses>,
    /// How it was recorded.
    pub meta: Meta,
    /// Rows that are impossible, or of an operation that this version does not know; they are left out.
    pub skipped: u64,
    /// Whether the order of what reaches the device is in it ([`FileAccesses::ranks`]).
    pub ordered: bool,
}

/// Which accesses to keep; the default keeps all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Device numbers (`st_dev`); empty means any.
    pub devices: Vec<u64>,
    /// Operations; empty means any.
    pub ops: Vec<Op>,
    /// Where misses were recorded, equal accesses are counted once, by the row groups one after the other, and their order
    /// and threads are forgotten: nothing has to be imitated then, and a trace may be larger than memory.
    pub fold_if_misses: bool,
    /// What reaches the device stays in its order, also where the rest is counted once, and each such access has
    /// its [rank](FileAccesses::ranks) in that.
    pub order: Option<Order>,
    /// Where a part of all places was recorded at a time, how each access was ([`FileAccesses::recorded`]).
    pub turns: bool,
}

/// Which order is kept.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Of so many accesses at most; of more, none.
    pub up_to: u64,
    /// Of what programs ask for, although misses were recorded.
    pub cold: bool,
}

/// Reads a trace.
///
/// # Errors
/// [`TraceError::NotATrace`], [`TraceError::Version`] or [`TraceError::Corrupt`] for a file that is not a
/// trace, not of a version that is read, or damaged; [`TraceError::Io`] when the file cannot be read.
pub fn read(path: &Path, filter: &Filter) -> Result<Trace, TraceError> {
    decode(path, open(path)?, filter)
}

/// Reads a trace from a file that is open already; `called` is its name in messages.
///
/// # Errors
/// As [`read`].
pub fn read_open(file: &File, called: &Path, filter: &Filter) -> Result<Trace, TraceError> {
    let file = file.try_clone().map_err(TraceError::io(called, "cannot read the trace"))?;
    decode(called, look(called, file)?, filter)
}

/// An open file whose footer is that of a trace, and its metadata.
pub(super) type Opened = (SerializedFileReader<Source>, Source, Meta);

fn decode(path: &Path, opened: Opened, filter: &Filter) -> Result<Trace, TraceError> {
    let (reader, source, meta) = opened;
    verify(path, &source, &meta)?;
    let budget = Budget::new(&source, reader.num_row_groups());
    let misses = |order: &Order| meta.has_misses() && !order.cold;
    // Folded or thinned out while it was recorded, it has no order. Of pauses, what reaches the device knows nothing.
    let whole = |order: &Order| match meta.sampling {
        _ if meta.folded => false,
        Some(sampling) => misses(order) && sampling.places_ppm == 1_000_000,
        None => true,
    };
    let order = filter.order.filter(whole);
    let reached = order.map(|order| Reached { misses: misses(&order) });
    let disks = Disks::of(&meta.devices);
    // What is in its order was recorded whole.
    let turns = Turns::of(&meta).filter(|_| filter.turns && order.is_none());
    let group = |group| {
        guarded(|| {
            let row_group = reader.metadata().row_group(group);
            bounds::pages(&source, row_group, &COLUMNS[usize::from(turns.is_none())..])?;
            let how = How { filter, reached, disks: &disks, turns, budget: &budget };
            read_group(reader.get_row_group(group)?.as_ref(), &how)
        })
    };
    let groups = |range: std::ops::Range<usize>| -> Result<Vec<Group>, TraceError> {
        let groups = range.into_par_iter().map(group).collect::<Result<_, Reason>>();
        groups.map_err(|e| corrupt(path, e))
    };
    let (all, mut ranks) = (0..reader.num_row_groups(), Ranks::default());
    if !(filter.fold_if_misses && meta.has_misses()) {
        let mut groups = groups(all)?;
        groups.iter_mut().for_each(|group| ranks.go_on(&disks, group));
        let skipped = groups.iter().map(|group| group.skipped).sum();
        let mut files = join::in_order(groups);
        if let Some(turns) = turns {
            let compare = |f: &mut FileAccesses| turns.compare(&f.accesses, &mut f.recorded);
            files.iter_mut().for_each(compare);
        }
        let all = || files.iter().flat_map(|file| &file.accesses);
        let ordered = order.is_some_and(|order| {
            all().filter(|a| reached.is_some_and(|r| r.has(a))).count() as u64 <= order.up_to
        });
        if !ordered {
            files.iter_mut().for_each(|file| file.ranks = Vec::new());
        }
        return Ok(Trace { files, meta, skipped, ordered });
    }
    let up_to = order.map_or(0, |order| order.up_to);
    let (mut folded, mut skipped) = (Folded::new(reached, up_to, turns), 0);
    let at_a_time = 4 * rayon::current_num_threads();
    for first in all.clone().step_by(at_a_time) {
        for mut group in groups(first..all.end.min(first + at_a_time))? {
            ranks.go_on(&disks, &mut group);
            skipped += group.skipped;
            folded.add(group, &budget);
        }
    }
    let (files, ordered) = folded.files(&budget);
    Ok(Trace { files, meta, skipped, ordered })
}

/// Compares the data of a trace with their checksum, if it has one.
pub(super) fn verify(path: &Path, source: &Source, meta: &Meta) -> Result<(), TraceError> {
    let Some(sum) = meta.data else { return Ok(()) };
    let read = TraceError::io(path, "cannot read the trace");
    if checksum::verify(source.file(), sum).map_err(read)? {
        Ok(())
    } else {
        Err(corrupt(path, "its data do not match their checksum".into()))
    }
}

/// Reads only a trace's metadata.
///
/// # Errors
/// Those of [`read`] that concern the footer.
pub fn read_meta(path: &Path) -> Result<Meta, TraceError> {
    open(path).map(|(_, _, meta)| meta)
}

/// Whether a file is a trace, of any version, according to its footer.
pub fn is_trace(path: &Path) -> bool {
    !matches!(
        read_meta(path),
        Err(TraceError::NotATrace { .. } | TraceError::Io { .. } | TraceError::Corrupt { .. })
    )
}

fn open(path: &Path) -> Result<Opened, TraceError> {
    let file = fragmend_sys::input::open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidInput => {
            TraceError::NotATrace { path: path.into(), reason: e.to_string() }
        }
        _ => TraceError::io(path, "cannot open the trace")(e),
    })?;
    look(path, file)
}

/// The metadata of an open file.
pub(super) fn look(path: &Path, file: File) -> Result<Opened, TraceError> {
    let io = |what| TraceError::io(path, what);
    let foreign = |reason: &str| TraceError::NotATrace { path: path.into(), reason: reason.into() };
    let source = Source::new(file).map_err(io("cannot open the trace"))?;
    if !starts_as_parquet(&source).map_err(io("cannot read the trace"))? {
        return Err(foreign("no Parquet file"));
    }
    bounds::footer(&source).map_err(|e| corrupt(path, e))?;
    let reader =
        guarded(|| Ok(SerializedFileReader::new(source.clone())?)).map_err(|e| corrupt(path, e))?;
    let meta: Meta = {
        let json = key_value(reader.metadata(), KEY)
            .ok_or_else(|| foreign("a Parquet file of something else"))?;
        let version: Versioned = serde_json::from_str(json).map_err(|e| corrupt(path, e.into()))?;
        let (found, known) = (version.schema_version, SCHEMA_VERSION);
        if !(OLDEST_TRACE_FILE..=known).contains(&found) {
            return Err(TraceError::Version { path: path.to_owned(), found, known });
        }
        serde_json::from_str(json).map_err(|e| corrupt(path, e.into()))?
    };
    if meta.sampling.is_some_and(|sampling| !sampling.is_possible()) {
        return Err(corrupt(path, "no recording is sampled like this".into()));
    }
    schema::check(reader.metadata().file_metadata().schema(), meta.schema_version)
        .map_err(|e| corrupt(path, e.into()))?;
    Ok((reader, source, meta))
}

#[derive(serde::Deserialize)]
struct Versioned {
    schema_version: u32,
}

fn starts_as_parquet(source: &Source) -> std::io::Result<bool> {
    use parquet::file::reader::{ChunkReader, Length};
    const MAGIC: &[u8] = b"PAR1";
    if source.len() < MAGIC.len() as u64 {
        return Ok(false);
    }
    let start = source.get_bytes(0, MAGIC.len()).map_err(std::io::Error::other)?;
    Ok(start == MAGIC)
}

fn key_value<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

/// Why decoding failed; the caller adds the file's name.
pub(super) type Reason = Box<dyn std::error::Error + Send + Sync>;

/// The error of a damaged file. The decoder's message quotes the file's content, which may be anything.
pub(super) fn corrupt(path: &Path, reason: Reason) -> TraceError {
    const LONGEST: usize = 300;
    let reason = printable(&reason.to_string()).to_string();
    TraceError::Corrupt { path: path.to_owned(), reason: reason.chars().take(LONGEST).collect() }
}

/// The columns that are read; the first one where turns matter.
const COLUMNS: [usize; 12] = [
    column::TIME,
    column::DEVICE,
    column::INODE,
    column::GENERATION,
    column::OP,
    column::DIRECT,
    column::WINDOWED,
    column::OFFSET,
    column::LENGTH,
    column::COUNT,
    column::THREAD,
    column::PATH,
];

/// Memory per file, including its entries in two tables and its first access.
const FILE_BYTES: usize = 400;

/// The files of a row group, in order of first appearance.
struct Files {
    /// File, its first row, and how many rows it has.
    ids: Vec<(FileId, usize, usize)>,
    /// The index in `ids` of each row's file.
    of_row: Vec<u32>,
}

/// Numbers the files of a row group: rows then carry a small index instead of a long key.
fn number_files(group: &dyn RowGroupReader, rows: usize) -> Result<Files, Reason> {
    let device = values::<Int64Type>(group, column::DEVICE, rows)?;
    let inode = values::<Int64Type>(group, column::INODE, rows)?;
    let generation = values::<Int32Type>(group, column::GENERATION, rows)?;

    let mut index_of: HashMap<FileId, u32> = HashMap::new();
    let mut ids = Vec::new();
    let mut of_row = Vec::with_capacity(rows);
    let mut last: Option<(FileId, u32)> = None;
    for row in 0..rows {
        let file = FileId {
            device: device[row] as u64,
            inode: inode[row] as u64,
            generation: generation[row] as u32,
        };
        let index = match last {
            Some((known, index)) if known == file => index,
            _ => *index_of.entry(file).or_insert_with(|| {
                ids.push((file, row, 0));
                (ids.len() - 1) as u32
            }),
        };
        last = Some((file, index));
        ids[index as usize].2 += 1;
        of_row.push(index);
    }
    Ok(Files { ids, of_row })
}

/// How row groups are read.
struct How<'a> {
    filter: &'a Filter,
    reached: Option<Reached>,
    disks: &'a Disks,
    turns: Option<Turns>,
    budget: &'a Budget,
}

fn read_group(group: &dyn RowGroupReader, how: &How<'_>) -> Result<Group, Reason> {
    let How { filter, reached, disks, turns, budget } = *how;
    let rows = usize::try_from(group.metadata().num_rows())?;
    let Files { ids, of_row } = number_files(group, rows)?;
    let keep_file: Vec<bool> = ids
        .iter()
        .map(|(file, ..)| filter.devices.is_empty() || filter.devices.contains(&file.device))
        .collect();
    let kept = ids.iter().zip(&keep_file).filter(|(_, keep)| **keep);
    let accesses: usize = kept.map(|((.., rows), _)| rows).sum();
    let in_turns = if turns.is_some() { accesses * size_of::<Recorded>() } else { 0 };
    let in_order = if reached.is_some() { accesses * size_of::<u32>() } else { 0 };
    let beside = ids.len() * FILE_BYTES + in_turns + in_order;
    budget.charge(accesses * size_of::<Access>(), beside)?;
    let paths = first_paths(group, rows, &ids, budget)?;
    let mut files: Vec<_> = ids
        .iter()
        .zip(paths)
        .zip(&keep_file)
        .map(|((id, path), keep)| (id.0, path, Rows::with_capacity(if *keep { id.2 } else { 0 })))
        .collect();

    let ops = values::<ByteArrayType>(group, column::OP, rows)?;
    let direct = values::<BoolType>(group, column::DIRECT, rows)?;
    let windowed = values::<BoolType>(group, column::WINDOWED, rows)?;
    let offset = values::<Int64Type>(group, column::OFFSET, rows)?;
    let length = values::<Int32Type>(group, column::LENGTH, rows)?;
    let count = values::<Int32Type>(group, column::COUNT, rows)?;
    let thread = values::<Int32Type>(group, column::THREAD, rows)?;
    let time = match turns {
        Some(_) => values::<Int64Type>(group, column::TIME, rows)?,
        None => Vec::new(),
    };
    let (mut skipped, mut ranks) = (0, Ranks::default());
    for row in 0..rows {
        let Some(op) = Op::from_name(ops[row].data()) else {
            skipped += 1;
            continue;
        };
        let file = of_row[row] as usize;
        let access = Access {
            offset: offset[row] as u64,
            length: length[row] as u32,
            count: count[row] as u32,
            thread: thread[row] as u32,
            op,
            direct: direct[row],
            windowed: windowed[row],
        };
        if !is_possible(access.offset, access.length) || access.count == 0 {
            skipped += 1;
            continue;
        }
        let rank = reached.map(|reached| {
            if reached.has(&access) { ranks.next(disks, ids[file].0, &access) } else { 0 }
        });
        if keep_file[file] && (filter.ops.is_empty() || filter.ops.contains(&op)) {
            let rows = &mut files[file].2;
            rows.accesses.push(access);
            if let Some(rank) = rank {
                rows.ranks.push(rank);
            }
            if let Some(turns) = turns {
                rows.recorded.push(turns.recorded(time[row] as u64, access.count));
            }
        }
    }
    files.retain(|(_, _, rows)| !rows.accesses.is_empty());
    Ok(Group { files, ranks, skipped })
}

/// All values of one required column.
pub(super) fn values<T: DataType>(
    group: &dyn RowGroupReader,
    index: usize,
    rows: usize,
) -> Result<Vec<T::T>, Reason> {
    // A damaged footer may claim any number of rows: the vector grows with what is decoded instead.
    let mut values = Vec::with_capacity(rows.min(schema::ROW_GROUP_ROWS));
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(index)?);
    while values.len() < rows {
        let (got, ..) = reader.read_records(rows - values.len(), None, None, &mut values)?;
        if got == 0 {
            return Err("fewer values than rows".into());
        }
    }
    Ok(values)
}

/// The path of each file, from the row where it first appears.
fn first_paths(
    group: &dyn RowGroupReader,
    rows: usize,
    ids: &[(FileId, usize, usize)],
    budget: &Budget,
) -> Result<Vec<Option<ByteArray>>, Reason> {
    let mut reader =
        get_typed_column_reader::<ByteArrayType>(group.get_column_reader(column::PATH)?);
    let mut at = 0;
    let mut paths = Vec::with_capacity(ids.len());
    for (_, first_row, _) in ids {
        while at < *first_row {
            match reader.skip_records(first_row - at)? {
                0 => return Err("fewer paths than rows".into()),
                skipped => at += skipped,
            }
        }
        let (mut value, mut present) = (Vec::new(), Vec::new());
        let (got, ..) = reader.read_records(1, Some(&mut present), None, &mut value)?;
        if got != 1 || at >= rows {
            return Err("fewer paths than rows".into());
        }
        at += 1;
        let length = value.last().map_or(0, ByteArray::len);
        if length > MAX_TEXT {
            return Err("a path longer than any".into());
        }
        budget.charge(0, 2 * length)?; // as text, and as a path
        // A copy, because the value would keep its whole page in memory.
        paths.push(value.pop().map(|path| ByteArray::from(path.data().to_vec())));
    }
    Ok(paths)
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a decoder that may panic on damaged input; the panic becomes the error.
pub(super) fn guarded<R>(decode: impl FnOnce() -> Result<R, Reason>) -> Result<R, Reason> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    // The state that a panic could leave inconsistent is dropped with the decoder.
    let result = catch_unwind(AssertUnwindSafe(decode));
    QUIET.set(false);
    result.unwrap_or_else(|_| Err("its pages do not decode".into()))
}
