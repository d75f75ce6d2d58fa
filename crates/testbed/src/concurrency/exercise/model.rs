//! What a file must hold: the same operations on a vector of bytes.

use std::ops::Range;

/// The expected content of one file.
#[derive(Clone, Debug, Default)]
pub struct Model(Vec<u8>);

impl Model {
    /// The expected size, in bytes.
    pub fn size(&self) -> u64 {
        self.0.len() as u64
    }

    /// What is expected from `at` on: at most `len` bytes, fewer where the file ends before.
    pub fn expected(&self, at: u64, len: u64) -> &[u8] {
        let end = (at + len).min(self.size());
        &self.0[at.min(end) as usize..end as usize]
    }

    /// Writes; a gap before it reads as zeroes.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.grow(at + bytes.len() as u64);
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Makes the file at least this long.
    pub fn grow(&mut self, size: u64) {
        self.truncate(size.max(self.size()));
    }

    /// Makes the file exactly this long.
    pub fn truncate(&mut self, size: u64) {
        self.0.resize(size as usize, 0);
    }

    /// Zeroes the part of the range that is within the file.
    pub fn clear(&mut self, range: Range<u64>) {
        let end = range.end.min(self.size());
        self.0[range.start.min(end) as usize..end as usize].fill(0);
    }

    /// Removes a range; the bytes behind it move up.
    pub fn collapse(&mut self, range: Range<u64>) {
        self.0.drain(range.start as usize..range.end as usize);
    }

    /// Inserts zeroes; the bytes behind them move down.
    pub fn insert(&mut self, at: u64, len: u64) {
        self.0.splice(at as usize..at as usize, std::iter::repeat_n(0, len as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_and_go() {
        let mut model = Model::default();
        model.write(2, b"abcdef");
        assert_eq!(model.expected(0, 100), b"\0\0abcdef");
        model.collapse(3..5);
        assert_eq!(model.expected(0, 100), b"\0\0adef");
        model.insert(4, 2);
        assert_eq!(model.expected(2, 4), b"ad\0\0");
        model.clear(7..100);
        model.truncate(9);
        assert_eq!(model.expected(5, 100), b"\0e\0\0");
        assert_eq!(model.expected(20, 1), b"");
    }
}
