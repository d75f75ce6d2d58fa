//! Columns of a trace as any Parquet reader sees them, apart from the project's own reader.

use fragmend_trace::file::schema::column;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::Int64Type;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::path::Path;

/// The column `bytes` of a trace: of each row, the bytes that its accesses transferred.
///
/// # Panics
/// When the trace cannot be read.
pub fn bytes(trace: &Path) -> Vec<u64> {
    let file = File::open(trace).expect("a trace");
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let mut all = Vec::new();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).expect("a row group");
        let rows = group.metadata().num_rows() as usize;
        let column = group.get_column_reader(column::BYTES).expect("the column");
        let mut values = Vec::new();
        let mut column = get_typed_column_reader::<Int64Type>(column);
        column.read_records(rows, None, None, &mut values).expect("its values");
        all.extend(values.into_iter().map(|bytes| bytes as u64));
    }
    all
}
