//! Bytes that say where they belong. Every eight bytes of a file hold one [`Word`]: which file,
//! where in it, and which version; so a reader knows of each what it is, or whose.
//!
//! Words rather than sectors, because a sector that is being written to while it is on its way to
//! the disk may hold two versions, and must not hold anything else.

/// Bytes of one word.
pub const WORD: u64 = 8;

/// What eight bytes say. In the low bits first: check (10), version (16), place (26), tag (12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Which file; below [`TAGS`].
    pub tag: u32,
    /// Word of the file; the largest file is half a gibibyte.
    pub place: u32,
    /// Rises with every write to the place; 0 is what was there first.
    pub version: u16,
}

/// How many files can be told apart.
pub const TAGS: u32 = 1 << 12;

impl Word {
    /// The word at a byte offset of a file.
    pub fn at(tag: u32, offset: u64, version: u16) -> Self {
        Self { tag: tag % TAGS, place: (offset / WORD) as u32 & 0x3FF_FFFF, version }
    }

    /// As eight bytes, never all zero.
    pub fn encode(self) -> u64 {
        let said =
            u64::from(self.tag) << 42 | u64::from(self.place) << 16 | u64::from(self.version);
        said << 10 | check(said)
    }

    /// What eight bytes say, if they are a word at all.
    pub fn decode(bytes: u64) -> Option<Self> {
        let said = bytes >> 10;
        (bytes & 0x3FF == check(said)).then_some(Self {
            tag: (said >> 42) as u32,
            place: (said >> 16) as u32 & 0x3FF_FFFF,
            version: said as u16,
        })
    }
}

/// Ten bits of a mix of the others, never zero.
fn check(said: u64) -> u64 {
    said.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55 | 0x200
}

/// Fills a buffer with what a file holds from a byte offset on; neither need be whole words.
pub fn fill(tag: u32, offset: u64, version: u16, buffer: &mut [u8]) {
    let mut at = offset;
    let mut rest = buffer;
    while !rest.is_empty() {
        let skip = (at % WORD) as usize;
        let word = Word::at(tag, at, version).encode().to_le_bytes();
        let len = (8 - skip).min(rest.len());
        let (head, tail) = rest.split_at_mut(len);
        head.copy_from_slice(&word[skip..skip + len]);
        (rest, at) = (tail, at + len as u64);
    }
}

/// What was found where something of a file belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This file's, from here, of this version.
    Version(u16),
    /// Nothing: zeroes.
    Zero,
    /// Of this file, from elsewhere.
    OtherPlace(Word),
    /// Another file's.
    OtherFile(Word),
    /// No content of anybody's.
    Unknown(u64),
}

/// What `bytes` are, found at a byte offset of a file.
pub fn look(tag: u32, offset: u64, bytes: [u8; 8]) -> Found {
    let bytes = u64::from_le_bytes(bytes);
    match Word::decode(bytes) {
        _ if bytes == 0 => Found::Zero,
        None => Found::Unknown(bytes),
        Some(word) if word.tag != tag % TAGS => Found::OtherFile(word),
        Some(word) if word != Word::at(tag, offset, word.version) => Found::OtherPlace(word),
        Some(word) => Found::Version(word.version),
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = |word: &Word| u64::from(word.place) * WORD;
        match self {
            Self::Version(version) => write!(f, "version {version}"),
            Self::Zero => write!(f, "zeroes"),
            Self::OtherPlace(w) => write!(f, "its byte {}, version {}", bytes(w), w.version),
            Self::OtherFile(w) => {
                write!(f, "byte {} of file {}, version {}", bytes(w), w.tag, w.version)
            }
            Self::Unknown(word) => write!(f, "{word:#018x}, which nobody wrote"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_every_file_is_told_apart() {
        let mut buffer = vec![0; 4096];
        fill(7, 512, 3, &mut buffer);
        let word = |n: usize| -> [u8; 8] { buffer[n * 8..][..8].try_into().unwrap() };
        for n in 0..512 {
            let offset = 512 + n as u64 * 8;
            assert_eq!(look(7, offset, word(n)), Found::Version(3));
            assert!(matches!(look(8, offset, word(n)), Found::OtherFile(w) if w.tag == 7));
            assert!(matches!(look(7, offset + 8, word(n)), Found::OtherPlace(_)));
        }
        assert_eq!(look(7, 0, [0; 8]), Found::Zero);
        assert!(matches!(look(7, 0, [0xA5; 8]), Found::Unknown(_)));
        let mut torn = word(0);
        torn[2] ^= 1;
        assert_ne!(look(7, 512, torn), Found::Version(3));
    }

    #[test]
    fn a_buffer_may_begin_and_end_anywhere() {
        let mut whole = vec![0; 64];
        fill(9, 0, 1, &mut whole);
        for (from, to) in [(0, 64), (3, 5), (7, 9), (5, 64), (0, 1)] {
            let mut part = vec![0; to - from];
            fill(9, from as u64, 1, &mut part);
            assert_eq!(part, whole[from..to], "{from}..{to}");
        }
    }
}
