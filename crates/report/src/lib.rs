//! Each figure is defined once, as a field of a serde structure, and rendered everywhere from
//! there: the field's name is its name in JSON and, with spaces, in tables; its doc comment is
//! its help; `x-unit` in its schema is its unit.
//!
//! | module | its job |
//! |---|---|
//! | [`figures`] | from a structure to figures, and figures as a table |
//! | [`plan`] | what `fragmend plan` says |
//! | [`recover`] | what `fragmend recover` says |
//! | [`scan`] | what `fragmend scan` says |
//! | [`unit`] | how a value of a unit is written for a person |

pub mod figures;
pub mod plan;
pub mod record;
pub mod recover;
pub mod scan;
pub mod unit;

pub use figures::{Figure, figures, table};
pub use unit::{Unit, human};

/// Version of every JSON document that fragmend prints, in `schema_version`. It rises when a
/// field changes meaning or goes away; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;
