//! Each figure is defined once, as a field of a serde structure, and rendered everywhere from
//! there: the field's name is its name in JSON and, with spaces, in tables; its doc comment is
//! its help; `x-unit` in its schema is its unit.
//!
//! | module | its job |
//! |---|---|
//! | [`figures`] | from a structure to figures, and figures as a table |
//! | [`plan`] | the document of `fragmend plan` |
//! | [`recover`] | the document of `fragmend recover` |
//! | [`scan`] | the document of `fragmend scan` |
//! | [`unit`] | formats a value with its unit for people |

pub mod figures;
pub mod plan;
pub mod record;
pub mod recover;
pub mod scan;
pub mod unit;

pub use figures::{Figure, figures, table};
pub use unit::{Unit, human};
