//! Layouts of ext4 files directly from the inode tables on the block device: no open, no ioctl, no path walk, a
//! few large reads for thousands of files.
//!
//! The reads are coherent because ext4 keeps its metadata in the block device's page cache, which buffered
//! reads of the device share. Delayed allocation is not in there, so the caller must have synced the file
//! system first. Nothing that is read is trusted: checksums are verified where the file system has them, every
//! number is checked, and a file that looks wrong, is of an unusual kind, or changed while it was read is left
//! to FIEMAP. The two sources agree extent by extent (`tests/loop_agree.rs`).
//!
//! | module | its job |
//! |---|---|
//! | `superblock` | features, geometry, where inode tables are |
//! | `inode` | one inode, checked |
//! | `extents` | one file's extent tree |
//! | `device` | many scattered reads at once |

pub(crate) mod bytes;
mod device;
mod extents;
mod inode;
mod superblock;

use crate::FileSystem;
use device::{DeviceNodes, Space, announce_blocks};
use extents::TreeWalk;
use fragmend_layout::{Extent, ExtentKind, FileId, Layout};
use inode::{Content, Inode};
use rustix::fs::Advice;
use std::fs::File;
use std::os::unix::fs::FileExt;
use superblock::Superblock;

/// A mounted ext4 whose inode tables can be read.
pub struct Bulk {
    device: File,
    dev: u64,
    sb: Superblock,
    tables: Vec<Option<u64>>,
}

/// The buffers that one worker keeps from batch to batch.
pub struct Worker {
    space: Space,
    wanted: Vec<(u64, u32)>,
    addresses: Vec<u64>,
    deep: Vec<(u32, Vec<u8>)>,
}

impl Bulk {
    /// Opens the device under `fs`, an ext4, if all its features are known here.
    ///
    /// # Errors
    /// Why not, in words for people.
    pub fn open(fs: &FileSystem) -> Result<Self, String> {
        let device =
            fs.open_device().map_err(|e| format!("its block device cannot be read ({e})"))?;
        Self::on(device, fs.dev)
    }

    /// The same for any file that contains an ext4; `dev` is the device number of its files.
    ///
    /// # Errors
    /// Why not, in words for people.
    pub fn on(device: File, dev: u64) -> Result<Self, String> {
        // What is needed is announced; the kernel's own readahead would only read more.
        let _ = rustix::fs::fadvise(&device, 0, None, Advice::Random);
        let mut bytes = [0; 1024];
        device
            .read_exact_at(&mut bytes, 1024)
            .map_err(|e| format!("its super block cannot be read ({e})"))?;
        let sb = Superblock::parse(&bytes)?;
        let tables = sb.inode_tables(&device)?;
        Ok(Self { device, dev, sb, tables })
    }

    /// The buffers for one thread.
    pub fn worker(&self) -> Worker {
        Worker {
            space: Space::new(self.sb.block_bytes),
            wanted: Vec::new(),
            addresses: Vec::new(),
            deep: Vec::new(),
        }
    }

    /// Reads the layouts of `inodes`; `visit` gets each position once, in any order, with `None` where FIEMAP
    /// must be used.
    pub fn layouts(
        &self,
        worker: &mut Worker,
        inodes: impl Iterator<Item = u64>,
        mut visit: impl FnMut(usize, Option<Layout>),
    ) {
        let Worker { space, wanted, addresses, deep } = worker;
        wanted.clear();
        let mut numbers = Vec::new();
        for (i, number) in inodes.enumerate() {
            numbers.push(number as u32);
            match self.address(number) {
                Some(address) => wanted.push((address, i as u32)),
                None => visit(i, None),
            }
        }
        wanted.sort_unstable();
        addresses.clear();
        addresses.extend(wanted.iter().map(|(address, _)| *address));
        deep.clear();
        let mut nodes = Vec::new();
        let len = self.sb.inode_bytes as u64;
        space.read_sorted(&self.device, addresses, len, |at, bytes| {
            let (address, i) = wanted[at];
            let inode = bytes.and_then(|b| Inode::parse(&self.sb, numbers[i as usize], b));
            match (bytes, inode.map(|n| n.content)) {
                // The tree is deeper than the inode: its blocks are read later, all together.
                (Some(bytes), Some(Content::Tree(root))) if root[6..8] != [0, 0] => {
                    extents::children(root, &self.sb, &mut nodes);
                    deep.push((i, bytes.to_vec()));
                }
                _ => {
                    let layout = inode.and_then(|n| self.shallow(numbers[i as usize], address, &n));
                    visit(i as usize, layout);
                }
            }
        });
        announce_blocks(&self.device, &mut nodes, self.sb.block_bytes);
        for (i, bytes) in deep.iter() {
            let number = numbers[*i as usize];
            let layout = Inode::parse(&self.sb, number, bytes).and_then(|inode| {
                let Content::Tree(root) = inode.content else { return None };
                let mut layout = self.empty(number, &inode);
                let mut nodes = DeviceNodes { device: &self.device, space };
                TreeWalk::new(&self.sb, inode.seed, &mut layout).run(root, &mut nodes)?;
                Some(layout)
            });
            visit(*i as usize, layout);
        }
    }

    /// Where an inode is on the device, in bytes.
    fn address(&self, number: u64) -> Option<u64> {
        let index = u32::try_from(number).ok()?.checked_sub(1)?;
        let table = (*self.tables.get((index / self.sb.inodes_per_group) as usize)?)?;
        Some(table + u64::from(index % self.sb.inodes_per_group) * self.sb.inode_bytes as u64)
    }

    fn empty(&self, number: u32, inode: &Inode) -> Layout {
        let generation = inode.generation;
        Layout::new(FileId { device: self.dev, inode: number.into(), generation }, inode.size)
    }

    /// The layout of a file that is complete in its inode: inline data, or the only node of its tree.
    fn shallow(&self, number: u32, address: u64, inode: &Inode) -> Option<Layout> {
        let mut layout = self.empty(number, inode);
        match inode.content {
            Content::Inline(at) => {
                // It is larger than the inode, or the value is empty: the kernel must interpret that.
                if inode.size >= self.sb.inode_bytes as u64 {
                    return None;
                }
                if inode.size > 0 {
                    let physical = address + at as u64;
                    let kind = ExtentKind::Inline;
                    layout.push(Extent { logical: 0, physical, length: inode.size, kind });
                }
            }
            Content::Tree(root) => {
                TreeWalk::new(&self.sb, inode.seed, &mut layout).run(root, &mut NoNodes)?;
            }
        }
        Some(layout)
    }
}

/// The nodes of a tree that has only a root.
struct NoNodes;

impl extents::Nodes for NoNodes {
    fn node(&mut self, _block: u64, _depth: u16) -> Option<&[u8]> {
        None
    }
    fn expect(&mut self, _blocks: &mut Vec<u64>) {}
}
