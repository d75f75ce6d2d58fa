//! Self-describing content: every eight bytes of a file hold one [`Word`] that names the file, the
//! place in it and the version, so that a misplaced or stale word can be identified.
//!
//! Words rather than sectors, because a sector that is overwritten while it is in flight may hold
//! two versions, and must not hold anything else.

/// Bytes of one word.
pub const WORD: u64 = 8;

/// The content of eight bytes. From the low bits: check (10), version (16), place (26), tag (12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Which file; below [`TAGS`].
    pub tag: u32,
    /// Index of the word in the file; the largest file is half a gibibyte.
    pub place: u32,
    /// Rises with every write to the place; 0 is the initial content.
    pub version: u16,
}

/// How many files can be told apart.
pub const TAGS: u32 = 1 << 12;

impl Word {
    /// The word at a byte offset of a file.
    pub fn at(tag: u32, offset: u64, version: u16) -> Self {
        Self { tag: tag % TAGS, place: (offset / WORD) as u32 & 0x3FF_FFFF, version }
    }

    /// Encodes it as eight bytes, never all zero.
    pub fn encode(self) -> u64 {
        let payload =
            u64::from(self.tag) << 42 | u64::from(self.place) << 16 | u64::from(self.version);
        payload << 10 | check(payload)
    }

    /// Decodes eight bytes, if they are a word.
    pub fn decode(bytes: u64) -> Option<Self> {
        let payload = bytes >> 10;
        (bytes & 0x3FF == check(payload)).then_some(Self {
            tag: (payload >> 42) as u32,
            place: (payload >> 16) as u32 & 0x3FF_FFFF,
            version: payload as u16,
        })
    }
}

/// Ten check bits of a payload, never all zero.
fn check(payload: u64) -> u64 {
    payload.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55 | 0x200
}

/// Fills a buffer with a file's content from a byte offset on; neither need be aligned to words.
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

/// What was found at a place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordFound {
    /// The right word, of this version.
    Version(u16),
    /// Zeroes.
    Zero,
    /// A word of this file that belongs elsewhere.
    OtherPlace(Word),
    /// A word of another file.
    OtherFile(Word),
    /// No word at all.
    Unknown(u64),
}

/// Identifies `bytes`, found at a byte offset of a file.
pub fn identify(tag: u32, offset: u64, bytes: [u8; 8]) -> WordFound {
    let bytes = u64::from_le_bytes(bytes);
    match Word::decode(bytes) {
        _ if bytes == 0 => WordFound::Zero,
        None => WordFound::Unknown(bytes),
        Some(word) if word.tag != tag % TAGS => WordFound::OtherFile(word),
        Some(word) if word != Word::at(tag, offset, word.version) => WordFound::OtherPlace(word),
        Some(word) => WordFound::Version(word.version),
    }
}

impl std::fmt::Display for WordFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = |word: &Word| u64::from(word.place) * WORD;
        match self {
            Self::Version(version) => write!(f, "version {version}"),
            Self::Zero => write!(f, "zeroes"),
            Self::OtherPlace(w) => write!(f, "its byte {}, version {}", bytes(w), w.version),
            Self::OtherFile(w) => {
                write!(f, "byte {} of file {}, version {}", bytes(w), w.tag, w.version)
            }
            Self::Unknown(word) => write!(f, "{word:#018x}, which no load wrote"),
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
            assert_eq!(identify(7, offset, word(n)), WordFound::Version(3));
            assert!(matches!(identify(8, offset, word(n)), WordFound::OtherFile(w) if w.tag == 7));
            assert!(matches!(identify(7, offset + 8, word(n)), WordFound::OtherPlace(_)));
        }
        assert_eq!(identify(7, 0, [0; 8]), WordFound::Zero);
        assert!(matches!(identify(7, 0, [0xA5; 8]), WordFound::Unknown(_)));
        let mut torn = word(0);
        torn[2] ^= 1;
        assert_ne!(identify(7, 512, torn), WordFound::Version(3));
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
