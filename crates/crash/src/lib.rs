//! The crash machine: a disk whose every write is recorded while real files on a real file system
//! are moved by the real `fragmend` under load. Then that disk is put into the state in which a
//! power cut at a chosen instant would have left it, mounted, and compared byte for byte.
//!
//! | module | its job |
//! |---|---|
//! | [`serve`] | serves the disk under test to the kernel as a file, with one for marks |
//! | [`disk`] | the disk under test, recording |
//! | [`slow`] | the same disk, rate-limited, or with chosen requests held back |
//! | [`log`] | the recording: writes, flushes and marks in order |
//! | [`sectors`] | where each sector of a disk comes from |
//! | [`cut`] | the fault model, and the disk after a cut |
//! | [`copy`] | a file that holds it |
//! | [`cut_disk`] | the same as a block device in memory |
//! | [`after`] | the file system after a cut, mounted |
//! | [`content`] | self-describing file content |
//! | [`files`] | the files of a run, and what is promised of each |
//! | [`load`] | the load on them while they are moved |
//! | [`in_flight`] | writes that the disk keeps in flight |
//! | [`later_use`] | the load on files that have moved |
//! | [`interrupt`] | stops the mover, so that others can act at any of its instants |
//! | [`apply`] | `fragmend apply`, held up while a file is half moved |
//! | [`marks`] | what is known to be durable, and since when |
//! | [`check`] | compares the files with what they must hold |
//! | `expectation` | what one file must hold |
//! | [`scenario`] | one scenario per engine, and the controls |
//! | [`matrix`] | scenarios for every combination of features and mount options |
//! | [`refused`] | file systems on which `apply` must refuse |
//! | [`refusing`] | a file on a disk that refuses writes to it |
//! | [`unprotected`] | a control: a rewrite without a second copy |
//! | [`mount`] | a mount that is known to be gone when it must be |
//! | [`session`] | what is done on the disk while it records |
//! | [`record`] | makes one recording |
//! | [`choose_cuts`] | which cuts of it to check |
//! | [`inspect`] | mounts and checks the disk after each |
//! | [`replay`] | the same in several threads |
//! | [`controls`] | scenarios that must lose data, cut first |
//! | [`soak`] | many recordings, one table |

pub mod after;
pub mod apply;
pub mod check;
pub mod choose_cuts;
pub mod content;
pub mod controls;
pub mod copy;
pub mod cut;
pub mod cut_disk;
pub mod disk;
mod expectation;
pub mod files;
pub mod in_flight;
pub mod inspect;
pub mod interrupt;
pub mod later_use;
pub mod load;
pub mod log;
pub mod marks;
pub mod matrix;
pub mod mount;
pub mod record;
pub mod refused;
pub mod refusing;
pub mod replay;
pub mod scenario;
pub mod sectors;
pub mod serve;
pub mod session;
pub mod slow;
pub mod soak;
pub mod unprotected;
