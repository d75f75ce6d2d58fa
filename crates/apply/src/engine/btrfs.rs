//! Btrfs: sharing ranges with a contiguous donor.
//!
//! Donor and file must agree on checksums, so the donor of a NOCOW file is one too. New space
//! comes from `fallocate`, and what is written into it stays where it is, also on a file system
//! that compresses, as long as none of the extent is shared yet. An extent is freed when none of
//! it is used any more: so each range gets one of its own.

use super::copying::{Copying, TakeOver};
use super::donor::Space;
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::{Engine, Mover};
use fragmend_layout::Skip;
use fragmend_sys::inode::{self, flags};
use std::os::fd::OwnedFd;

/// The engine of every Btrfs.
pub(super) struct Btrfs;

impl Engine for Btrfs {
    fn mover(&self, _: &mut OpenFile) -> Result<Box<dyn Mover>, Skip> {
        Ok(Box::new(Copying::new(TakeOver::Share, Space::Exact, like_the_file)))
    }
}

/// A NOCOW file has no checksums.
fn like_the_file(file: &OpenFile, donor: &OwnedFd) -> Result<(), Skip> {
    let of_file = inode::attributes(&file.fd).map_err(skip_of)? & flags::NOCOW;
    let of_donor = inode::attributes(donor).map_err(skip_of)?;
    if of_file == of_donor & flags::NOCOW {
        return Ok(());
    }
    inode::set_attributes(donor, of_donor & !flags::NOCOW | of_file).map_err(skip_of)
}
