//! Figures of a document as OpenMetrics, for Prometheus and what understands its text.
//!
//! | module | its job |
//! |---|---|
//! | [`text`] | a document's figures to text: name, unit, help and kind come from the document's own schema |
//! | [`http`] | the text over HTTP, on an address of this machine |
//! | [`file`] | the text in a file, for a collector that reads a directory |
//!
//! No file, path or program is in a metric or its labels: these are of any number, and of other users.
//!
//! Neighbours: `report` defines what a figure is; the daemon's figures are its `Status` (`fragmend_watch`).

pub mod file;
pub mod http;
pub mod text;

pub use http::{ServeError, Server};
pub use text::Text;
