//! The Parquet trace file: one row per access (`docs/trace-format.md`).
//!
//! | module | its job |
//! |---|---|
//! | [`schema`] | the columns, their types and encodings |
//! | [`writer`] | rows to a file that appears under its name only when complete |
//! | [`names`] | paths and command names, and how long paths are looked up ([`budget`]) |
//! | [`counts`] | counts files that are no longer kept |
//! | [`reader`] | a file to accesses per file, in parallel |
//! | [`events`] | a file row by row, with the process of each access |
//! | `window` | accesses of a recording that goes on, joined without a file |
//! | [`join`] | what was decoded, joined file by file |
//! | [`joined`] | traces of one period after the other as one |
//! | [`order`] | which accesses reach a device, and follow each other there |
//! | [`turns`] | which ranges accesses stand for where places took turns |
//! | [`checksum`] | computes and verifies the checksum of all bytes before the footer |
//! | [`bounds`] | limits the memory for a file, before any of it is decoded |
//! | [`thrift`] | walks the structures around the data before they are decoded |
//! | [`source`] | positioned reads, so that threads can share one descriptor |
//! | [`text`] | represents bytes that may not be UTF-8 as text |

mod bounds;
mod budget;
mod checksum;
mod counts;
mod events;
mod join;
pub(crate) mod joined;
mod names;
mod order;
pub mod reader;
pub mod schema;
mod source;
pub mod text;
mod thrift;
mod turns;
pub(crate) mod window;
pub mod writer;

pub use events::each_event;
