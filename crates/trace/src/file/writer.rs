//! Writes rows to a Parquet file that appears under its name only when it is complete.
//!
//! Rows are buffered by column and written as a row group when there are enough, and what is kept about files
//! and names is bounded (`names`), so memory is bounded. The file does not have its name until
//! [`TraceWriter::finish`] ([`fragmend_sys::output`]). A trace names all users' files and processes, so only
//! its owner may read a new one.

use super::checksum::Summed;
pub use super::counts::Counts;
use super::names::Names;
use super::schema;
use crate::meta::{KEY, Meta};
use crate::{Event, TraceError};
use fragmend_layout::FileId;
use fragmend_sys::output::{self, Audience, Output};
use fragmend_sys::patience::{NotRead, Patience, PatientWriter};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Finds the present path of a file; asked once per file, and now and then again if it has not found
/// one.
pub type FindPath = Box<dyn FnMut(FileId) -> Option<PathBuf>>;

/// What happens to an output that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// A trace is replaced, anything else is refused.
    ReplaceTrace,
    /// Any regular file is replaced.
    Replace,
}

impl Existing {
    /// Checks whether the file that is at `target`, if any is `there`, may be replaced.
    ///
    /// # Errors
    /// [`TraceError::WouldOverwrite`].
    pub fn permits(self, target: &Path, there: bool) -> Result<(), TraceError> {
        if there && self == Self::ReplaceTrace && !super::reader::is_trace(target) {
            return Err(TraceError::WouldOverwrite { path: target.to_owned() });
        }
        Ok(())
    }
}

/// Bytes of the paths of a row group after which it is written, however few rows it has.
const MOST_TEXT: usize = 64 << 20;

type Sink = Summed<BufWriter<PatientWriter>>;

/// Writes one trace.
pub struct TraceWriter {
    target: PathBuf,
    output: Output,
    parquet: SerializedFileWriter<Sink>,
    rows: Rows,
    names: Names,
    /// Whether the output is a pipe or a socket.
    has_reader: bool,
    patience: Patience,
}

impl TraceWriter {
    /// Starts a trace that is to be named `target`; `-` is the standard output.
    ///
    /// # Errors
    /// When the directory cannot be written, the target exists and is no regular file, or `existing` forbids
    /// replacing it.
    pub fn create(
        target: &Path,
        existing: Existing,
        find_path: FindPath,
    ) -> Result<Self, TraceError> {
        // First, because this refuses a pipe or a device, the opening of which may have effects.
        let output =
            Output::create(target, Audience::Owner).map_err(|e| TraceError::output(target, e))?;
        let there = output::replaces(target).map_err(|e| TraceError::output(target, e))?;
        existing.permits(target, there)?;
        Self::begin(output, target, find_path)
    }

    /// Starts a trace in an empty file that is already open; `called` is its name in messages.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn into_file(file: &File, called: &Path, find_path: FindPath) -> Result<Self, TraceError> {
        let file = file.try_clone().map_err(|e| TraceError::output(called, e))?;
        Self::begin(Output::unnamed(file), called, find_path)
    }

    fn begin(output: Output, target: &Path, find_path: FindPath) -> Result<Self, TraceError> {
        let patience = Patience::default();
        let file = output.file().try_clone();
        let file = file.and_then(|file| PatientWriter::new(file, patience.clone()));
        let file = file.map_err(|e| TraceError::output(target, e))?;
        let has_reader = file.has_reader();
        let parquet = SerializedFileWriter::new(
            Summed::new(BufWriter::with_capacity(1 << 20, file)),
            schema::message(),
            Arc::new(schema::properties()),
        )
        .map_err(|e| encode(target, e))?;
        let target = target.to_owned();
        let names = Names::new(find_path);
        Ok(Self { target, output, parquet, rows: Rows::default(), names, has_reader, patience })
    }

    /// Adds accesses, in the order of their recording.
    ///
    /// # Errors
    /// When they cannot be written; the trace is then lost.
    pub fn append(&mut self, events: &[Event]) -> Result<(), TraceError> {
        self.names.begin_batch();
        for event in events {
            self.rows.push(event, &mut self.names);
            if self.rows.time.len() >= schema::WRITTEN_ROWS || self.rows.text >= MOST_TEXT {
                self.flush_rows()?;
            }
        }
        Ok(())
    }

    /// Whether the output is a pipe or a socket, whose reader may be slow or never read.
    pub fn has_reader(&self) -> bool {
        self.has_reader
    }

    /// How long such a reader is waited for; writes fail with [`TraceError::Unread`] if it is given up.
    pub fn patience(&self) -> Patience {
        self.patience.clone()
    }

    /// Allows look-ups of paths for so long from now on, beyond their share of the time.
    pub fn allow_look_ups(&mut self, time: Duration) {
        self.names.allow(time);
    }

    /// Different files seen so far.
    pub fn counts(&self) -> Counts {
        self.names.counts()
    }

    /// Completes the trace, makes it durable and renames it to its target. Returns its size in bytes.
    /// [`Meta::data`] is filled in here.
    ///
    /// # Errors
    /// When it cannot be written; the target is then unchanged, except after the errors that
    /// [`Output::commit`] returns after the rename.
    pub fn finish(mut self, meta: &Meta) -> Result<u64, TraceError> {
        self.flush_rows()?;
        self.parquet.flush().map_err(|e| encode(&self.target, e.into()))?;
        let meta = Meta { data: Some(self.parquet.inner().sum()), ..meta.clone() };
        let json = serde_json::to_string(&meta).expect("metadata is plain data");
        self.parquet.append_key_value_metadata(KeyValue::new(KEY.to_owned(), json));
        self.parquet.finish().map_err(|e| encode(&self.target, e))?;
        let bytes = self.parquet.bytes_written() as u64;
        let Self { target, output, .. } = self;
        output.commit().map_err(|e| TraceError::output(&target, e))?;
        Ok(bytes)
    }

    fn flush_rows(&mut self) -> Result<(), TraceError> {
        if self.rows.time.is_empty() {
            return Ok(());
        }
        let mut group = self.parquet.next_row_group().map_err(|e| encode(&self.target, e))?;
        self.rows.write(&mut group).map_err(|e| encode(&self.target, e))?;
        group.close().map_err(|e| encode(&self.target, e))?;
        self.rows.clear();
        self.names.begin_row_group();
        Ok(())
    }
}

/// Parquet wraps I/O errors; they are unwrapped, so that a full disk is reported as such.
fn encode(target: &Path, error: ParquetError) -> TraceError {
    let path = target.to_owned();
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) if NotRead::is(&io) => TraceError::Unread { path, source: *io },
            Ok(io) => TraceError::Io { path, what: "cannot write the trace", source: *io },
            Err(other) => TraceError::Encode { path, reason: other.to_string() },
        },
        other => TraceError::Encode { path, reason: other.to_string() },
    }
}

/// The rows of one row group, column by column. Unsigned numbers keep their bits: Parquet stores
/// them as signed and marks the column.
#[derive(Default)]
struct Rows {
    time: Vec<i64>,
    device: Vec<i64>,
    inode: Vec<i64>,
    generation: Vec<i32>,
    op: Vec<ByteArray>,
    direct: Vec<bool>,
    windowed: Vec<bool>,
    offset: Vec<i64>,
    length: Vec<i32>,
    count: Vec<i32>,
    pid: Vec<i32>,
    thread: Vec<i32>,
    uid: Vec<i32>,
    comm: Vec<ByteArray>,
    path: Vec<ByteArray>,
    path_present: Vec<i16>,
    /// Bytes of the paths.
    text: usize,
    bytes: Vec<i64>,
}

impl Rows {
    fn push(&mut self, event: &Event, names: &mut Names) {
        self.time.push(event.time_ns as i64);
        self.device.push(event.file.device as i64);
        self.inode.push(event.file.inode as i64);
        self.generation.push(event.file.generation as i32);
        self.op.push(names.op(event.op));
        self.direct.push(event.direct);
        self.windowed.push(event.windowed);
        self.offset.push(event.offset as i64);
        self.length.push(event.length as i32);
        self.count.push(event.count as i32);
        self.pid.push(event.pid as i32);
        self.thread.push(event.thread as i32);
        self.uid.push(event.uid as i32);
        self.comm.push(names.comm(event.comm));
        let path = names.path(event.file);
        self.path_present.push(i16::from(path.is_some()));
        self.text += path.as_ref().map_or(0, ByteArray::len);
        self.path.extend(path);
        self.bytes.push(event.bytes as i64);
    }

    /// Writes the columns in the order of [`schema::MESSAGE`].
    fn write(&self, group: &mut Group<'_>) -> Result<(), ParquetError> {
        column::<Int64Type>(group, &self.time, None)?;
        column::<Int64Type>(group, &self.device, None)?;
        column::<Int64Type>(group, &self.inode, None)?;
        column::<Int32Type>(group, &self.generation, None)?;
        column::<ByteArrayType>(group, &self.op, None)?;
        column::<BoolType>(group, &self.direct, None)?;
        column::<BoolType>(group, &self.windowed, None)?;
        column::<Int64Type>(group, &self.offset, None)?;
        column::<Int32Type>(group, &self.length, None)?;
        column::<Int32Type>(group, &self.count, None)?;
        column::<Int32Type>(group, &self.pid, None)?;
        column::<Int32Type>(group, &self.thread, None)?;
        column::<Int32Type>(group, &self.uid, None)?;
        column::<ByteArrayType>(group, &self.comm, None)?;
        column::<ByteArrayType>(group, &self.path, Some(&self.path_present))?;
        column::<Int64Type>(group, &self.bytes, None)
    }

    /// Empties the columns but keeps their capacity.
    fn clear(&mut self) {
        self.time.clear();
        self.device.clear();
        self.inode.clear();
        self.generation.clear();
        self.op.clear();
        self.direct.clear();
        self.windowed.clear();
        self.offset.clear();
        self.length.clear();
        self.count.clear();
        self.pid.clear();
        self.thread.clear();
        self.uid.clear();
        self.comm.clear();
        self.path.clear();
        self.path_present.clear();
        self.text = 0;
        self.bytes.clear();
    }
}

type Group<'a> = SerializedRowGroupWriter<'a, Sink>;

fn column<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("one call per column of the schema");
    column.typed::<T>().write_batch(values, present, None)?;
    column.close()
}
