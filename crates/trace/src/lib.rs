//! Who reads and writes what: the [`Access`], the eBPF recorder, and the Parquet trace file.
//!
//! | module | its job |
//! |---|---|
//! | [`access`](Access) | what an access is: the input of planning |
//! | [`event`](Event) | an access with time, process and user: a row of the trace |
//! | [`meta`](Meta) | how a trace was recorded |
//! | [`record`] | the eBPF recorder |
//! | [`file`] | the Parquet file: [`TraceWriter`], [`read()`] |

mod access;
mod error;
mod event;
pub mod file;
mod meta;
pub mod record;

pub use access::{Access, FileAccesses, Op};
pub use error::TraceError;
pub use event::Event;
pub use file::reader::{Filter, Trace, is_trace, read, read_meta, read_open};
pub use file::writer::{Existing, FindPath, TraceWriter};
pub use meta::{DataSum, DeviceMeta, KEY as META_KEY, Level, Meta, SCHEMA_VERSION};
