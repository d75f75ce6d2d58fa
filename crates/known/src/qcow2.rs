//! Disks of virtual machines in QEMU's format (docs/interop/qcow2.txt of QEMU), and fragments inside of them: data that is
//! contiguous for the guest, and scattered in the image. These come on top of the image's own fragments on the host.

use crate::Candidate;
use crate::Known;
use crate::bytes::{be32, be64};

const ADVICE: (&str, &str) = (
    "make it with qemu-img create -o preallocation=metadata or falloc; qemu-img convert writes an image anew, in the guest's order",
    "https://www.qemu.org/docs/master/system/images.html",
);

/// The header of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of a cluster: the image is allocated in these.
    pub cluster_bytes: u64,
    /// Size of the guest's disk in bytes.
    pub guest_bytes: u64,
    /// Whether what is not allocated is read from another image.
    pub has_backing: bool,
    /// Whether data is in this file, and not in one of its own.
    pub holds_data: bool,
    l1_at: u64,
    l1_entries: u64,
    l2_entry_bytes: u64,
}

impl Header {
    /// Parses the first bytes of a file; `None` if it is no image, or one that makes no sense.
    pub fn parse(head: &[u8]) -> Option<Self> {
        const EXTERNAL_DATA: u64 = 1 << 2;
        const EXTENDED_L2: u64 = 1 << 4;
        let version = be32(head, 4).filter(|_| head.starts_with(b"QFI\xFB"))?;
        let incompatible = match version {
            2 => 0,
            3 => be64(head, 72)?,
            _ => return None,
        };
        let cluster_bits = be32(head, 20).filter(|bits| (9..=21).contains(bits))?;
        let header = Self {
            cluster_bytes: 1 << cluster_bits,
            guest_bytes: be64(head, 24)?,
            has_backing: be64(head, 8)? != 0,
            holds_data: incompatible & EXTERNAL_DATA == 0,
            l1_at: be64(head, 40)?,
            l1_entries: be32(head, 36)?.into(),
            l2_entry_bytes: if incompatible & EXTENDED_L2 == 0 { 8 } else { 16 },
        };
        // QEMU's limit (QCOW_MAX_L1_SIZE) is 32 MiB.
        let is_sound = header.l1_entries <= 4 << 20
            && header.l1_at.is_multiple_of(header.cluster_bytes)
            && header.guest_bytes <= 1 << 62;
        is_sound.then_some(header)
    }
}

/// How a guest's data is in its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// Clusters that hold data as it is: not compressed.
    pub clusters: u64,
    /// Runs of clusters that are contiguous in the image and for the guest.
    pub fragments: u64,
    /// Runs of clusters that are contiguous for the guest: as few fragments would do.
    pub runs: u64,
}

/// Tables of an image are read up to so many bytes: those of 512 GiB in clusters of 64 KiB.
const MOST_TABLES: u64 = 64 << 20;
/// The bits of an entry that are an offset in the image.
const OFFSET: u64 = 0x00FF_FFFF_FFFF_FE00;

impl Inside {
    /// Reads the tables of an image with `read`, which fills a buffer from an offset on or returns false; `None` where they
    /// cannot be read, are too long, or data is in another file.
    pub fn read(header: &Header, read: impl Fn(&mut [u8], u64) -> bool) -> Option<Self> {
        /// Entries of the first table that are read at once.
        const AT_ONCE: u64 = 8192;
        if !header.holds_data {
            return None;
        }
        let mut inside = Self::default();
        let mut last = None;
        let mut left = MOST_TABLES;
        let mut l1 = vec![0; 8 * AT_ONCE.min(header.l1_entries) as usize];
        let mut l2 = vec![0; header.cluster_bytes as usize];
        for first in (0..header.l1_entries).step_by(AT_ONCE as usize) {
            let many = AT_ONCE.min(header.l1_entries - first);
            let part = &mut l1[..8 * many as usize];
            left = left.checked_sub(part.len() as u64)?;
            if !read(part, header.l1_at.checked_add(8 * first)?) {
                return None;
            }
            for entry in part.chunks_exact(8) {
                let at = be64(entry, 0)? & OFFSET;
                if at == 0 {
                    last = None;
                    continue;
                }
                left = left.checked_sub(l2.len() as u64)?;
                if !read(&mut l2, at) {
                    return None;
                }
                for entry in l2.chunks_exact(header.l2_entry_bytes as usize) {
                    last = inside.add(be64(entry, 0)?, last, header.cluster_bytes);
                }
            }
        }
        Some(inside)
    }

    /// Adds the next cluster of the guest; `last` is where the one before is. Returns where it is itself.
    fn add(&mut self, entry: u64, last: Option<u64>, cluster_bytes: u64) -> Option<u64> {
        const COMPRESSED: u64 = 1 << 62;
        let at = entry & OFFSET;
        if entry & COMPRESSED != 0 || at == 0 {
            return None;
        }
        self.clusters += 1;
        self.runs += u64::from(last.is_none());
        self.fragments += u64::from(last.is_none_or(|last| last + cluster_bytes != at));
        Some(at)
    }
}

/// An image.
pub fn known(file: &Candidate) -> Option<Known> {
    let header = Header::parse(&file.head)?;
    let size = header.guest_bytes / (1 << 20);
    let backing = if header.has_backing { ", over another image" } else { "" };
    let inside = Inside::read(&header, |buffer, at| file.read(buffer, at));
    let inside = inside.map_or(String::new(), |Inside { fragments, runs, .. }| {
        let runs = format!("{runs} run{}", if runs == 1 { "" } else { "s" });
        format!(": what is contiguous for the guest in {runs} is in {fragments} of the image")
    });
    let what = format!("disk of {size} MiB of a virtual machine (qcow2{backing}){inside}");
    Some(crate::known("QEMU", what, Some(ADVICE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of clusters of 512 bytes, with one table of 64 entries behind the first one.
    fn image(entries: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; 512 * 3];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, b"QFI\xFB");
        put(4, &3u32.to_be_bytes());
        put(20, &9u32.to_be_bytes());
        put(24, &(64u64 * 512).to_be_bytes());
        put(36, &2u32.to_be_bytes());
        put(40, &512u64.to_be_bytes());
        // The table, and a hole behind it.
        put(512, &(1u64 << 63 | 1024).to_be_bytes());
        for (n, entry) in entries.iter().enumerate() {
            put(1024 + 8 * n, &entry.to_be_bytes());
        }
        bytes
    }

    fn inside(image: &[u8]) -> Option<Inside> {
        Inside::read(&Header::parse(image)?, |buffer, at| {
            let found = usize::try_from(at).ok().and_then(|at| image.get(at..at + buffer.len()));
            found.is_some_and(|found| {
                buffer.copy_from_slice(found);
                true
            })
        })
    }

    #[test]
    fn fragments_are_counted_where_the_guest_goes_on() {
        let copied = 1 << 63;
        let at = |cluster: u64| copied | (cluster * 512);
        let some = [at(10), at(11), at(13), 0, at(14), 1 << 62 | 512, at(9), at(10)];
        let found = inside(&image(&some)).unwrap();
        assert_eq!(found, Inside { clusters: 6, fragments: 4, runs: 3 });
        assert_eq!(inside(&image(&[])), Some(Inside::default()));
    }

    #[test]
    fn what_makes_no_sense_is_not_read() {
        let good = image(&[512]);
        assert!(Header::parse(&good).is_some_and(|header| header.guest_bytes == 64 * 512));
        for (at, value) in [(3, 0xFA), (7, 1), (7, 4), (23, 8), (23, 22), (47, 1), (36, 1)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(inside(&bad), None, "{at} {value}");
        }
        // A table beyond the end, and data in another file.
        let mut beyond = good.clone();
        beyond[512 + 4] = 1;
        assert_eq!(inside(&beyond), None);
        let mut elsewhere = good;
        elsewhere[79] = 1 << 2;
        assert_eq!(inside(&elsewhere), None);
        assert!(Header::parse(&elsewhere).is_some_and(|header| !header.holds_data));
    }
}
