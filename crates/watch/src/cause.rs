//! What makes a file fragmented again, by the pattern in which it was written while it was watched, and what would prevent it.
//!
//! janusd finds files fragmented again within a week of their defragmentation: what is written in the same manner is
//! stored in the same manner. So what is worth more than another move is another manner of writing, which only the owner of the
//! program can choose.

use crate::activity::Writing;
use fragmend_layout::FsKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Appends below this many bytes are small: delayed allocation may not join what is synced in between.
const SMALL_APPEND: u64 = 1 << 20;
/// So many processes that write to one file are many.
const MANY_WRITERS: u32 = 4;

/// In which pattern a file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Most of it by appends of less than 1 MiB on average.
    SmallAppends,
    /// Most of it by longer appends.
    LargeAppends,
    /// Most of it over what was there, or into holes.
    Overwrites,
    /// By four processes or more.
    ManyWriters,
    /// No write was seen while it was watched.
    NotSeen,
}

impl Pattern {
    /// The pattern of what was written to a file of `size` bytes.
    pub fn of(writing: &Writing, size: u64) -> Self {
        // What ends before the end of the file was written over it, however orderly.
        let grew = writing.end >= size;
        if writing.writes == 0 {
            Self::NotSeen
        } else if writing.writers >= MANY_WRITERS {
            Self::ManyWriters
        } else if !grew || writing.appended_bytes * 2 < writing.bytes {
            Self::Overwrites
        } else if writing.appended_bytes / writing.appends.max(1) < SMALL_APPEND {
            Self::SmallAppends
        } else {
            Self::LargeAppends
        }
    }

    /// The name in the store and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::SmallAppends => "small-appends",
            Self::LargeAppends => "large-appends",
            Self::Overwrites => "overwrites",
            Self::ManyWriters => "many-writers",
            Self::NotSeen => "not-seen",
        }
    }

    /// The pattern with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::SmallAppends,
            Self::LargeAppends,
            Self::Overwrites,
            Self::ManyWriters,
            Self::NotSeen,
        ];
        all.into_iter().find(|pattern| pattern.name() == name)
    }

    /// The pattern in words that continue "it is written".
    pub fn in_words(self) -> &'static str {
        match self {
            Self::SmallAppends => "by small appends",
            Self::LargeAppends => "by large appends",
            Self::Overwrites => "over what was there, or into holes",
            Self::ManyWriters => "by many processes",
            Self::NotSeen => "at times when it is not watched",
        }
    }

    /// What would prevent it on a file system.
    pub fn prevention(self, file_system: FsKind) -> &'static str {
        const PREALLOCATE: &str = "let the program preallocate it (fallocate)";
        const HINT: &str = "preallocate it (fallocate), or set an extent size hint on its directory before it is made (xfs_io -c 'extsize 16m')";
        const EXCLUDE: &str = "exclude it (mode = \"ignore\"): this file system writes elsewhere whatever is overwritten";
        match (self, file_system) {
            (Self::Overwrites, FsKind::Btrfs) => {
                "make it in a directory with NOCOW (chattr +C), which does without checksums; or exclude it (mode = \"ignore\")"
            }
            (Self::Overwrites, FsKind::F2fs) => EXCLUDE,
            (Self::NotSeen, _) => {
                "watch for longer (recording.window), or more often (recording.every)"
            }
            (Self::LargeAppends, _) => {
                "little: it is written in large parts, so that free space is what is fragmented; keep more of it free"
            }
            (_, FsKind::Xfs) => HINT,
            _ => PREALLOCATE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::Activity;
    use crate::activity::tests::event;
    use fragmend_layout::Op;

    fn pattern(writes: &[(u32, u64, u32)], size: u64) -> Pattern {
        let mut activity = Activity::default();
        activity.add(&event(Op::Read, 1, 0, 1));
        writes
            .iter()
            .for_each(|(pid, at, length)| activity.add(&event(Op::Write, *pid, *at, *length)));
        Pattern::of(&activity.of(event(Op::Read, 1, 0, 1).file).unwrap().writing, size)
    }

    #[test]
    fn the_pattern_is_that_of_most_bytes() {
        let log: Vec<_> = (0..100).map(|n| (1, 50_000 + n * 512, 512)).collect();
        let end = 50_000 + 100 * 512;
        assert_eq!(pattern(&log, end), Pattern::SmallAppends);
        // The same in the middle of a file is written over what is there.
        assert_eq!(pattern(&log, end + 1), Pattern::Overwrites);
        let large: Vec<_> = (0..4).map(|n| (1, n << 23, 1 << 23)).collect();
        assert_eq!(pattern(&large, 4 << 23), Pattern::LargeAppends);
        let random: Vec<_> = (0..100u64).map(|n| (1, n * 7919 % 1000 * 4096, 4096)).collect();
        assert_eq!(pattern(&random, 1000 * 4096), Pattern::Overwrites);
        let many: Vec<_> = (0..4).map(|pid| (pid + 1, 0, 4096)).collect();
        assert_eq!(pattern(&many, 4096), Pattern::ManyWriters);
        assert_eq!(pattern(&[], 4096), Pattern::NotSeen);
    }

    #[test]
    fn names_lead_back() {
        for name in ["small-appends", "large-appends", "overwrites", "many-writers", "not-seen"] {
            assert_eq!(Pattern::from_name(name).map(Pattern::name), Some(name));
        }
        assert_eq!(Pattern::from_name("Overwrites"), None);
    }

    #[test]
    fn a_file_system_without_cow_needs_no_nocow() {
        assert!(Pattern::Overwrites.prevention(FsKind::Btrfs).contains("NOCOW"));
        assert!(Pattern::Overwrites.prevention(FsKind::Ext4).contains("fallocate"));
        assert!(Pattern::SmallAppends.prevention(FsKind::Xfs).contains("extsize"));
    }
}
