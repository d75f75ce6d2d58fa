//! The ranges of a file that have been exchanged with its donor, and may have to go back.

use fragmend_layout::ByteRange;

/// Ranges of the file, each with its staged range.
#[derive(Default)]
pub(super) struct Places(Vec<(usize, ByteRange)>);

impl Places {
    /// All of them, in the order in which they moved.
    pub fn all(&self) -> Vec<(usize, ByteRange)> {
        self.0.clone()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range, or removes it where it overlaps some of them.
    pub fn note(&mut self, index: usize, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        if !self.holds(range) {
            match self.0.last_mut() {
                Some((known, last)) if *known == index && last.end == range.start => {
                    last.end = range.end
                }
                _ => self.0.push((index, range)),
            }
            return;
        }
        self.forget(range);
    }

    /// Removes what is among them of a range.
    pub fn forget(&mut self, range: ByteRange) {
        let without = |(index, known): (usize, ByteRange)| {
            let head = ByteRange { end: known.end.min(range.start), ..known };
            let tail = ByteRange { start: known.start.max(range.end), ..known };
            [(index, head), (index, tail)]
        };
        let rest = std::mem::take(&mut self.0).into_iter().flat_map(without);
        self.0 = rest.filter(|(_, part)| !part.is_empty()).collect();
    }

    /// Whether some of a range is among them.
    pub fn holds(&self, range: ByteRange) -> bool {
        self.0.iter().any(|(_, known)| known.overlaps(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_move_is_nowhere() {
        let mut places = Places::default();
        places.note(0, ByteRange::at(4096, 0));
        assert!(places.is_empty());
        places.note(0, ByteRange::at(4096, 8192));
        places.note(0, ByteRange::at(4096, 0));
        places.note(0, ByteRange::at(4096, 8192));
        assert!(places.is_empty());
    }
}
