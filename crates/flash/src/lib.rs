//! Simulated drives: flash (NAND), translation layer and commands, in integer virtual time.
//!
//! The same commands have the same result, bit for bit, on any machine: this crate has no clock, no
//! randomness, no iteration in hash order, and no floating point. It knows nothing of files.
//!
//! From the host to the flash:
//!
//! | module | its job |
//! |---|---|
//! | [`host`] | makes commands of system calls, at the cost of each layer ([`host::HostPath`]) |
//! | [`device`] | the interface of every drive: commands, idle time, counters, content, power cuts |
//! | [`command`] | the commands of a host to a drive, and their completions |
//! | [`counters`] | counts of a drive's operations |
//! | [`ssd`] | a flash SSD, which carries out commands through its translation layer |
//! | [`zones`] | a zoned flash drive |
//! | [`inplace`] | drives that write in place: disks, cards, Optane, memory |
//! | [`joined`] | two drives as one |
//! | `ftl` | the translation layer: write buffer, placement, garbage collection, power cuts |
//! | `space` | the flash space: mapping, out-of-band areas, blocks, content |
//! | [`nand`], [`timeline`] | dies, channels and link on their time lines |
//! | `content` | the content of physical units, where a drive keeps it |
//! | `pages` | which flash pages hold a run of units |
//! | [`drive`], [`geometry`] | the description of a drive |

pub mod command;
mod content;
pub mod counters;
pub mod device;
pub mod drive;
mod ftl;
pub mod geometry;
pub mod host;
pub mod inplace;
pub mod joined;
pub mod nand;
mod pages;
mod space;
pub mod ssd;
pub mod timeline;
pub mod zones;
