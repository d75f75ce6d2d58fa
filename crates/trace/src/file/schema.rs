//! The columns of a trace: one definition that writer, reader and documentation share.

use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, Type};
use std::sync::Arc;

/// The columns in Parquet's own notation, in file order.
pub const MESSAGE: &str = "message trace {
    required int64 time_ns (INTEGER(64,true));
    required int64 device (INTEGER(64,false));
    required int64 inode (INTEGER(64,false));
    required int32 generation (INTEGER(32,false));
    required byte_array op (STRING);
    required boolean direct;
    required boolean windowed;
    required int64 offset (INTEGER(64,false));
    required int32 length (INTEGER(32,false));
    required int32 count (INTEGER(32,false));
    required int32 pid (INTEGER(32,false));
    required int32 thread (INTEGER(32,false));
    required int32 uid (INTEGER(32,false));
    required byte_array comm (STRING);
    optional byte_array path (STRING);
    required int64 bytes (INTEGER(64,false));
}";

/// The number of columns of format 1, which are the first ones of [`MESSAGE`].
const COLUMNS_OF_FORMAT_1: usize = 15;

/// Position of each column in [`MESSAGE`].
pub mod column {
    /// Nanoseconds since the start.
    pub const TIME: usize = 0;
    /// `st_dev`.
    pub const DEVICE: usize = 1;
    /// Inode number.
    pub const INODE: usize = 2;
    /// Inode generation.
    pub const GENERATION: usize = 3;
    /// Operation name.
    pub const OP: usize = 4;
    /// Direct I/O.
    pub const DIRECT: usize = 5;
    /// Widened to readahead windows.
    pub const WINDOWED: usize = 6;
    /// First byte.
    pub const OFFSET: usize = 7;
    /// Bytes.
    pub const LENGTH: usize = 8;
    /// Number of accesses.
    pub const COUNT: usize = 9;
    /// Process.
    pub const PID: usize = 10;
    /// Thread.
    pub const THREAD: usize = 11;
    /// User.
    pub const UID: usize = 12;
    /// Command name.
    pub const COMM: usize = 13;
    /// Path, if it was found.
    pub const PATH: usize = 14;
    /// Bytes transferred.
    pub const BYTES: usize = 15;
}

/// Rows of a row group that is written: it is encoded in a fraction of a second, in which a recording does nothing else,
/// and a long trace has enough groups for all processors to read in parallel.
pub const WRITTEN_ROWS: usize = 64 * 1024;

/// Rows in a row group at most: older recorders wrote that many.
pub const ROW_GROUP_ROWS: usize = 256 * 1024;

/// The parsed [`MESSAGE`].
pub fn message() -> Arc<Type> {
    Arc::new(parse_message_type(MESSAGE).expect("the message is a literal and parses"))
}

/// How columns are encoded: dictionaries for what repeats, deltas for time, plain for offsets.
pub fn properties() -> WriterProperties {
    let path = |name: &str| ColumnPath::from(name);
    WriterProperties::builder()
        .set_created_by(format!("fragmend {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Page indexes would be written after the checksum of the data is known.
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(WRITTEN_ROWS))
        .set_column_dictionary_enabled(path("time_ns"), false)
        .set_column_encoding(path("time_ns"), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(path("offset"), false)
        .build()
}

/// Whether a file's columns are exactly those of this format.
pub fn check(found: &Type, version: u32) -> Result<(), TraceErrorReason> {
    let ours = message();
    let columns = if version == 1 { COLUMNS_OF_FORMAT_1 } else { ours.get_fields().len() };
    if found.get_fields() == &ours.get_fields()[..columns] {
        Ok(())
    } else {
        Err("its columns are not those of a trace".to_owned())
    }
}

/// A reason, which the caller wraps into a [`TraceError`](crate::TraceError) with the file's name.
pub type TraceErrorReason = String;
