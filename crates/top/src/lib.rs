//! The terminal view: what is shown, from state to cells. No terminal, clock, thread or file: the verb `top` has those.
//!
//! | module | its job |
//! |---|---|
//! | [`keys`] | bytes of a terminal to keys |
//! | [`map`] | the file system in parts, and what is in each |
//! | [`files`] | the list of files, by the time that is lost because of them |
//! | [`run`] | a plan that is offered, and its run |
//! | [`state`] | what is known, and what follows from a key or a report |
//! | [`draw`](mod@draw) | the state as cells |
//! | [`theme`] | with colour, or without: no meaning is in the colour alone |
//!
//! Names of files are made printable where they enter the state ([`fragmend_layout::printable`]).

pub mod draw;
pub mod files;
pub mod keys;
pub mod map;
pub mod run;
pub mod state;
pub mod theme;

pub use draw::draw;
pub use keys::{Key, Keys};
pub use map::{BlockMap, Mark};
pub use run::Offer;
pub use state::{Action, Change, State};
pub use theme::Theme;
