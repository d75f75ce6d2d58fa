//! Forged Parquet files that look like traces: any content, page by page, with a correct checksum.

use fragmend_trace::file::schema::{self, column};
use fragmend_trace::{DataSum, Level, META_KEY, Meta};
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaDataBuilder, ParquetMetaDataWriter,
    RowGroupMetaData,
};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::SchemaDescriptor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A page, and its claimed length after decompression.
pub struct Forged(pub Page, pub usize);

/// A trace of `groups` row groups of `rows` rows each, which all share the same pages.
pub struct Forgery {
    pub rows: i64,
    pub groups: usize,
    pub compression: Compression,
    /// Pages of columns that are not as [`usual`] makes them.
    pub columns: BTreeMap<usize, Vec<Forged>>,
}

/// Many equal values: a dictionary of one, and a run of its index.
pub fn usual(index: usize, rows: i64) -> Vec<Forged> {
    let descriptor = SchemaDescriptor::new(schema::message());
    if descriptor.column(index).physical_type() == Type::BOOLEAN {
        return vec![data(vec![0; (rows as usize).div_ceil(8)], rows, Encoding::PLAIN)];
    }
    let value = match index {
        column::OP => text(b"read"),
        column::COMM => text(b"x"),
        column::PATH => text(b"/f"),
        column::LENGTH | column::COUNT => 1i32.to_le_bytes().to_vec(),
        _ if descriptor.column(index).physical_type() == Type::INT32 => vec![0; 4],
        _ => vec![0; 8],
    };
    vec![dictionary(value, 1), run(index, rows)]
}

/// `rows` times the first value of the dictionary.
pub fn run(index: usize, rows: i64) -> Forged {
    let mut bytes = Vec::new();
    if index == column::PATH {
        let levels = [varint(rows as u64 * 2), vec![1]].concat();
        bytes.extend((levels.len() as u32).to_le_bytes());
        bytes.extend(levels);
    }
    bytes.push(1); // bits of an index
    bytes.extend(varint(rows as u64 * 2));
    bytes.push(0);
    data(bytes, rows, Encoding::RLE_DICTIONARY)
}

pub fn data(bytes: Vec<u8>, values: i64, encoding: Encoding) -> Forged {
    let length = bytes.len();
    let page = Page::DataPage {
        buf: bytes.into(),
        num_values: values as u32,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    Forged(page, length)
}

pub fn dictionary(bytes: Vec<u8>, values: u32) -> Forged {
    let length = bytes.len();
    let page = Page::DictionaryPage {
        buf: bytes.into(),
        num_values: values,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    };
    Forged(page, length)
}

/// A byte array as a page contains it.
pub fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A file with this footer behind the data.
pub fn with_footer(data: &[u8], footer: &[u8]) -> Vec<u8> {
    [data, footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

impl Forgery {
    pub fn new(rows: i64) -> Self {
        let compression = Compression::UNCOMPRESSED;
        Self { rows, groups: 1, compression, columns: BTreeMap::new() }
    }

    /// The file's bytes.
    pub fn make(mut self) -> Vec<u8> {
        let descriptor = Arc::new(SchemaDescriptor::new(schema::message()));
        let mut sink = TrackedWrite::new(b"PAR1".to_vec());
        let mut chunks = Vec::new();
        for index in 0..descriptor.num_columns() {
            let pages = self.columns.remove(&index).unwrap_or_else(|| usual(index, self.rows));
            let start = 4 + sink.bytes_written() as i64;
            let (mut dictionary, mut first) = (None, None);
            for Forged(page, says) in pages {
                let at = 4 + sink.bytes_written() as i64;
                match page {
                    Page::DictionaryPage { .. } => dictionary = Some(at),
                    _ => first = first.or(Some(at)),
                }
                let page = CompressedPage::new(page, says);
                SerializedPageWriter::new(&mut sink).write_page(page).unwrap();
            }
            let length = 4 + sink.bytes_written() as i64 - start;
            let chunk = ColumnChunkMetaData::builder(descriptor.column(index))
                .set_compression(self.compression)
                .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
                .set_num_values(self.rows)
                .set_total_compressed_size(length)
                .set_total_uncompressed_size(length)
                .set_data_page_offset(first.unwrap_or(start))
                .set_dictionary_page_offset(dictionary)
                .build()
                .unwrap();
            chunks.push(chunk);
        }
        let group = |ordinal: usize| {
            RowGroupMetaData::builder(descriptor.clone())
                .set_num_rows(self.rows)
                .set_total_byte_size(sink.bytes_written() as i64)
                .set_column_metadata(chunks.clone())
                .set_ordinal(ordinal as i32)
                .build()
                .unwrap()
        };
        let groups: Vec<_> = (0..self.groups).map(group).collect();
        let bytes = sink.into_inner().unwrap();
        let mut meta = Meta::new(Level::Syscall, 0);
        let crc32c = crc32c::crc32c(&bytes);
        meta.data = Some(DataSum { bytes: bytes.len() as u64, crc32c });
        let json = serde_json::to_string(&meta).unwrap();
        let key = KeyValue::new(META_KEY.to_owned(), json);
        let rows = self.rows.saturating_mul(self.groups as i64);
        let file = FileMetaData::new(1, rows, None, Some(vec![key]), descriptor, None);
        let metadata = ParquetMetaDataBuilder::new(file).set_row_groups(groups).build();
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish().unwrap();
        // That writer adds the footer's length and the magic.
        [bytes, footer].concat()
    }
}
