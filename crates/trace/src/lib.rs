//! The eBPF recorder of reads and writes, and the Parquet trace file, with a row for each [`Access`].
//!
//! | module | its job |
//! |---|---|
//! | [`event`](Event) | an access with time, process and user: a row of the trace |
//! | [`meta`](Meta) | how a trace was recorded |
//! | [`sampling`](Sampling) | which accesses are in a trace |
//! | [`record`] | the eBPF recorder |
//! | [`file`] | the Parquet file: [`TraceWriter`], [`read()`], [`each_event`] |

mod error;
mod event;
pub mod file;
mod meta;
pub mod record;
mod sampling;

pub use error::TraceError;
pub use event::Event;
pub use file::each_event;
pub use file::joined::Joined;
pub use file::reader::{Filter, Order, Trace, is_trace, read, read_meta, read_open};
pub use file::writer::{Existing, FindPath, TraceWriter};
pub use fragmend_layout::{Access, FileAccesses, ObservedLoad, ObservedRequests, Op, Recorded};
pub use meta::{DataSum, DeviceMeta, KEY as META_KEY, Level, Meta, Misses, SCHEMA_VERSION};
pub use sampling::{Overhead, Sampling};
