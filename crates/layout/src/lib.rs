//! Extents, layouts, file identity, accesses, and the measures of fragmentation over them.
//!
//! Pure data and arithmetic: nothing here touches a disk. Neighbours: `scan` and `apply` fill a
//! [`Layout`] from the kernel, `plan` reasons over it, `report` shows the [`Measures`].
//!
//! Vocabulary. A *run* is a range of a file that holds data without a hole. An *extent* is a range that is
//! contiguous in the file and on the device; physically adjacent extents count as one, up to the file system's
//! largest. A *fragment* ([`Fragment`]) is such a range of any length, also where some of it is shared or
//! compressed. A *break* is the offset where one fragment of a run ends and the next begins: a request that
//! reads across it is split.

mod access;
mod cost;
mod fit;
mod fragment;
mod fs_kind;
mod guess;
mod health;
mod histogram;
mod identity;
mod layout;
mod measures;
mod observed;
mod parallel;
mod path_text;
mod printable;
mod profile;
mod range;
mod relocate;
mod scanned;
pub mod schema;
mod segments;
mod skip;
mod space;
mod unit;
mod volume;
mod window;

pub use access::{Access, FileAccesses, Op, Recorded};
pub use cost::{CostModel, CostSource, RequestCost, SeekCost, Senseless, Split, Unseeking};
pub use fit::Undetermined;
pub use fragment::{Alike, Fragment, LONGEST_ENCODED, fewest_extents, stored_alike};
pub use fs_kind::FsKind;
pub use guess::DeviceKind;
pub use health::{DriveHealth, RatedBytes};
pub use histogram::Log2Histogram;
pub use identity::FileId;
pub use layout::{Extent, ExtentKind, Layout};
pub use measures::{DeviceLimits, Measures};
pub use observed::{ObservedLoad, ObservedRequests};
pub use parallel::{ParallelUnits, WEIGHED_BLOCKS, dopf, iodp};
pub use path_text::{LONGEST_PATH, PATH_MAX, PathText, shortened};
pub use printable::{Printable, printable, printable_path, shell_word};
pub use profile::{DeviceProfile, WindowEnds};
pub use range::ByteRange;
pub use relocate::{Fate, Movable, Moved, Pace, Settled, Target, Terms, Underway};
pub use scanned::ScannedLayout;
pub use segments::{Section, Segment, SegmentTable, by_cost_benefit, segment_degree};
pub use skip::{Skip, SkipReason};
pub use space::{FreeSpace, Space, SpaceKind, SpaceRun};
pub use unit::{Unit, human, human_beside};
pub use volume::Volume;
pub use window::windows;
