//! Each figure is defined once, as a field of a serde structure, and rendered from there everywhere: the
//! field's name is its name in JSON and, with spaces, in tables; its doc comment is its help; `x-unit` in its
//! schema is its unit.
//!
//! | module | its job |
//! |---|---|
//! | [`figures`] | lists the figures of a structure, and renders them as a table |
//! | [`known`] | what files are to their programs |
//! | [`plan`] | the document of `fragmend plan` |
//! | [`probe`] | the document of `fragmend probe` |
//! | [`record`] | the document of `fragmend record` |
//! | [`recover`] | the document of `fragmend recover` |
//! | [`scan`] | the document of `fragmend scan` |
//! | [`size`] | sizes as people write them |
//! | [`slow`] | the slow ranges of a probe's document, read for planning |
//! | [`wear`] | what is said of wear |

pub mod figures;
pub mod known;
pub mod plan;
pub mod probe;
pub mod record;
pub mod recover;
pub mod scan;
pub mod size;
pub mod slow;
pub mod wear;

pub use figures::{Column, Figure, Kind, columns, figures, table};
pub use fragmend_layout::{Unit, human, human_beside};
