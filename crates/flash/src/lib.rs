//! A flash SSD that does not exist: NAND, translation layer and commands, in integer virtual time.
//!
//! One seed and one list of commands give one result, bit for bit, on any machine: there is no
//! clock, no hash order, and no float in here. It knows nothing of files.
//!
//! From the host inwards:
//!
//! | module | its job |
//! |---|---|
//! | [`host`] | from a system call to commands |
//! | `path` | what that costs and allows |
//! | [`command`] | what a host may ask, and what it gets back |
//! | [`ssd`] | carries it out |
//! | [`counters`] | what that came to |
//! | `ftl` | the translation layer: slots, programs, erases |
//! | `place` | where a write goes |
//! | `collect` | garbage collection and wear levelling |
//! | `recover`, `journal` | power cuts |
//! | `audit` | whether it all agrees |
//! | `map`, `blocks`, `slots`, `content` | its tables |
//! | [`nand`], [`timeline`] | dies, channels and link on their time lines |
//! | [`zones`] | a zoned drive |
//! | [`inplace`] | drives in which nothing moves |
//! | [`drive`], [`geometry`] | a drive as somebody describes it |

mod audit;
mod blocks;
mod collect;
pub mod command;
mod content;
pub mod counters;
pub mod drive;
mod ftl;
pub mod geometry;
pub mod host;
pub mod inplace;
mod journal;
mod map;
pub mod nand;
mod path;
mod place;
mod recover;
mod slots;
pub mod ssd;
pub mod timeline;
pub mod zones;
