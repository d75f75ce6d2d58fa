//! The crash machine: a disk whose every write is recorded while real files on a real file system
//! are moved by the real `fragmend` under load, and then that disk as a power cut at any instant
//! would have left it, mounted and compared byte for byte.
//!
//! | module | its job |
//! |---|---|
//! | [`serve`] | a disk in our hands as a file that the kernel uses (FUSE) |
//! | [`disk`] | the disk under test, recording |
//! | [`slow`] | the same, slow, or with chosen requests kept waiting |
//! | [`log`] | what was recorded |
//! | [`sectors`] | where each sector of a disk comes from |
//! | [`cut`] | the fault model, and the disk after a cut |
//! | [`after`] | what a cut leaves, mounted |
//! | [`content`] | bytes that say where they belong |
//! | [`files`] | the files of a run, and what is promised of each |
//! | [`load`] | what others do to them meanwhile |
//! | [`flight`] | writes that are kept on their way |
//! | [`life`] | what others do to them after they have moved |
//! | [`minder`] | stops the mover, so that they can do that anywhere |
//! | [`apply`] | `fragmend apply`, held up where a file lies half moved |
//! | [`marks`] | what is known, and since when |
//! | [`check`] | whether the files are what they must be |
//! | [`bed`] | one row per engine |
//! | [`matrix`] | features and mount options, every combination |
//! | [`refused`] | what must be left alone |
//! | [`careless`] | mending as it must not be done, a control |
//! | [`mounted`] | a mount that is over when it must be |
//! | [`session`] | what is done on the disk while it records |
//! | [`record`] | one recording |
//! | [`choose`] | which cuts of it |
//! | [`look`] | what is left after each |
//! | [`replay`] | the same in several threads |
//! | [`controls`] | what must be lost, first |
//! | [`soak`] | many recordings, one table |

pub mod after;
pub mod apply;
pub mod bed;
pub mod careless;
pub mod check;
pub mod choose;
pub mod content;
pub mod controls;
pub mod cut;
pub mod disk;
pub mod files;
pub mod flight;
pub mod life;
pub mod load;
pub mod log;
pub mod look;
pub mod marks;
pub mod matrix;
pub mod minder;
pub mod mounted;
pub mod record;
pub mod refused;
pub mod replay;
pub mod sectors;
pub mod serve;
pub mod session;
pub mod slow;
pub mod soak;
