//! Bytes of a terminal to keys. Sequences of keys that mean nothing here are skipped whole, so that none of their bytes is
//! taken for a command.

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A printable ASCII character.
    Char(char),
    /// Ctrl-C.
    Interrupt,
    /// Enter.
    Enter,
    /// Escape, alone.
    Escape,
    /// An arrow up.
    Up,
    /// An arrow down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
}

/// Turns bytes into keys. A sequence may be cut anywhere between two reads.
#[derive(Debug, Default)]
pub struct Keys {
    /// The beginning of a sequence.
    held: Vec<u8>,
}

const ESCAPE: u8 = 0x1b;
/// No key has a longer sequence.
const LONGEST: usize = 16;

impl Keys {
    /// The keys in what was read next.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        bytes.iter().filter_map(|byte| self.next(*byte)).collect()
    }

    /// The escape key, if nothing has followed its byte for a moment: no sequence is cut for that long.
    pub fn idle(&mut self) -> Option<Key> {
        let alone = self.held == [ESCAPE];
        self.held.clear();
        alone.then_some(Key::Escape)
    }

    /// Whether a sequence has begun, and [`idle`](Self::idle) is to be called after a moment.
    pub fn is_cut(&self) -> bool {
        !self.held.is_empty()
    }

    fn next(&mut self, byte: u8) -> Option<Key> {
        match (&self.held[..], byte) {
            ([], ESCAPE) => self.held.push(ESCAPE),
            ([], 3) => return Some(Key::Interrupt),
            ([], b'\r' | b'\n') => return Some(Key::Enter),
            ([], b' '..=b'~') => return Some(Key::Char(byte.into())),
            ([], _) => {}
            ([ESCAPE], b'[' | b'O') => self.held.push(byte),
            // Alt and a key.
            ([ESCAPE], _) => self.held.clear(),
            // Parameters of a sequence, and its final byte.
            (held, b'@'..=b'~') => {
                let key = match (&held[2..], byte) {
                    ([], b'A') => Some(Key::Up),
                    ([], b'B') => Some(Key::Down),
                    (b"5", b'~') => Some(Key::PageUp),
                    (b"6", b'~') => Some(Key::PageDown),
                    _ => None,
                };
                self.held.clear();
                return key;
            }
            // Too long to be a key: skipped to its end.
            (held, _) if held.len() >= LONGEST => {}
            _ => self.held.push(byte),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_keys_however_they_are_cut() {
        let bytes = b"q\x1b[A\x1bOB\x1b[5~\x1b[6~\x03\r\x1b[1;5Cx";
        let expected = [
            Key::Char('q'),
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::PageDown,
            Key::Interrupt,
            Key::Enter,
            Key::Char('x'),
        ];
        for cut in 0..bytes.len() {
            let mut keys = Keys::default();
            let both = [keys.read(&bytes[..cut]), keys.read(&bytes[cut..])].concat();
            assert_eq!(both, expected, "{cut}");
        }
    }

    #[test]
    fn escape_is_a_key_when_nothing_follows() {
        let mut keys = Keys::default();
        assert_eq!(keys.read(b"\x1b"), []);
        assert!(keys.is_cut());
        assert_eq!((keys.idle(), keys.idle()), (Some(Key::Escape), None));
        assert_eq!(keys.read(b"y"), [Key::Char('y')]);
    }

    /// A terminal answers questions that nobody has asked, and pastes anything.
    #[test]
    fn no_byte_of_a_foreign_sequence_is_a_command() {
        let mut keys = Keys::default();
        assert_eq!(keys.read(b"\x1b[?62;4c\x1b[200~\x1bs\x1b[<0;33;12M"), []);
        assert_eq!(keys.read("\u{e9}".as_bytes()), []);
        assert_eq!(keys.read(&[&b"\x1b["[..], &[b'1'; 40], b"sq"].concat()), [Key::Char('q')]);
    }
}
