//! The HTML page: documents of fragmend in, one self-contained file out.
//!
//! | module | its step |
//! |---|---|
//! | [`inputs`] | documents, each recognised by its content |
//! | [`report`] | what the page shows, as a document of its own: bounded, whatever the inputs have |
//! | [`map`] | the address space of a file system in cells |
//! | `worst` | the files that cost most, with their extents |
//! | `done` | what receipts come to |
//! | `answer` | all of it in a sentence |
//! | [`html`] | the document as a page |
//!
//! What must hold:
//!
//! - The same documents make the same page, byte for byte: there is no clock and no randomness here.
//! - Documents and the names in them may be hostile. They are refused with a reason, or shown: text is escaped by
//!   construction ([`maud`]), control characters are made visible ([`fragmend_layout::printable`]), and the page's own
//!   policy forbids every script and style but its own, and every other resource.
//! - The page's size does not follow that of its inputs: lists have a longest length, and what is beyond it is counted.
//!
//! Nothing here opens a file. Neighbours: `fragmend-report` has the documents of verbs and the units of figures; the verb
//! `report` reads and writes.

mod answer;
mod done;
pub mod html;
pub mod inputs;
pub mod map;
mod plans;
pub mod report;
mod worst;

pub use html::html;
pub use inputs::{InputError, Inputs, LONGEST};
pub use report::PageReport;
pub use worst::MOST_FILES;
