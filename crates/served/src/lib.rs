//! Files that a process serves to the kernel: disks, whose requests it carries out, and small control files
//! beside them. With a loop device (direct I/O) on a disk's file, the disk is a block device with a volatile
//! cache, on any kernel with FUSE.
//!
//! | module | its job |
//! |---|---|
//! | [`server`] | mounts the files in a directory, and ends without leaving anything that waits |
//! | [`request`] | a request to a disk, and its answer, which may come at any later time |
//! | [`store`] | the content of disks that carry out each request at once |
//! | [`gate`] | where requests to such a disk wait |
//! | `mount` | the mount, by held descriptors |
//! | `fuse` | the kernel's requests |
//!
//! Nothing here knows what a disk is for: the crash machine records what is written to one, the lab answers
//! when a simulated drive would.

mod fuse;
pub mod gate;
mod mount;
pub mod request;
pub mod server;
pub mod store;
