//! The queue of a batch's valid blocks (VBQueue; Park et al., APSys'16, section 3.1), and the order in which they are copied.

/// A valid block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Valid {
    /// The file.
    pub inode: u32,
    /// Its number in the file.
    pub block: u64,
    /// Its place on the drive.
    pub place: u32,
}

/// In which order the blocks of a batch are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOrder {
    /// As they are on the drive.
    Original,
    /// By inode (APSys'16), and within a file in its order, which the paper leaves as it is on the drive.
    Inode,
}

impl CopyOrder {
    /// Brings a queue into this order.
    pub fn arrange(self, queue: &mut [Valid]) {
        if self == Self::Inode {
            queue.sort_by_key(|valid| (valid.inode, valid.block));
        }
    }
}

/// In how many fragments these blocks of files are: runs that are contiguous in their file and on the drive.
pub fn fragments(queue: &[Valid]) -> u64 {
    let continues = |two: &&[Valid]| {
        let [before, next] = two else { return false };
        (before.inode, before.block + 1, before.place + 1) == (next.inode, next.block, next.place)
    };
    queue.len() as u64 - queue.windows(2).filter(continues).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorting_by_inode_joins_interleaved_files() {
        let valid = |(place, inode, block)| Valid { inode, block, place };
        let mut queue: Vec<Valid> = (0..8).map(|n| valid((n, n % 2, u64::from(n / 2)))).collect();
        assert_eq!(fragments(&queue), 8);
        CopyOrder::Original.arrange(&mut queue);
        assert_eq!(fragments(&queue), 8);
        CopyOrder::Inode.arrange(&mut queue);
        (100..).zip(&mut queue).for_each(|(place, valid)| valid.place = place);
        assert_eq!(fragments(&queue), 2);
        assert_eq!(fragments(&[]), 0);
    }
}
