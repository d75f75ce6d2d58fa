//! The last filter before standard output: control characters are escaped, so that no text controls a
//! terminal.
//!
//! Names are made printable where they are put into a line ([`fragmend_layout::printable`]); this
//! catches what was forgotten there, and does the same for JSON, where an escape means the same
//! character: `serde_json` escapes C0, and leaves DEL and C1 as they are.

use std::io::{self, Write};

/// How control characters are written instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// `\x1b`; newlines stay.
    Text,
    /// `\u001b`, which means the same character inside a string; newlines stay.
    Json,
}

/// Passes UTF-8 text on, with control characters other than newlines escaped.
#[derive(Debug)]
pub struct Safe<W> {
    to: W,
    flavour: Flavour,
    /// Whether the last byte was `FIRST`, which begins other characters, too.
    held: bool,
}

/// The first of the two bytes of a C1 control character in UTF-8.
const FIRST: u8 = 0xc2;

impl<W: Write> Safe<W> {
    /// A filter in front of `to`.
    pub fn new(to: W, flavour: Flavour) -> Self {
        Self { to, flavour, held: false }
    }

    /// The writer behind the filter.
    pub fn into_inner(self) -> W {
        self.to
    }

    fn escape(&mut self, byte: u8) -> io::Result<()> {
        match self.flavour {
            Flavour::Text => write!(self.to, r"\x{byte:02x}"),
            Flavour::Json => write!(self.to, r"\u{byte:04x}"),
        }
    }
}

impl<W: Write> Write for Safe<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut from = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let c1 = self.held && (0x80..0xa0).contains(byte);
            if self.held && !c1 {
                self.to.write_all(&[FIRST])?;
            }
            self.held = *byte == FIRST;
            let control = c1 || *byte < b' ' && *byte != b'\n' || *byte == 0x7f;
            if control || self.held {
                self.to.write_all(&bytes[from..at])?;
                from = at + 1;
            }
            if control {
                self.escape(*byte)?;
            }
        }
        self.to.write_all(&bytes[from..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(flavour: Flavour, text: &str, step: usize) -> String {
        let mut safe = Safe::new(Vec::new(), flavour);
        text.as_bytes().chunks(step).for_each(|part| safe.write_all(part).unwrap());
        String::from_utf8(safe.to).unwrap()
    }

    #[test]
    fn control_characters_are_escaped_however_the_text_is_cut() {
        let text = "µ \u{9b}1m \x1b[2J\n\u{7f}\u{a0}名\t.";
        for step in 1..text.len() {
            let shown = through(Flavour::Text, text, step);
            assert_eq!(shown, "µ \\x9b1m \\x1b[2J\n\\x7f\u{a0}名\\x09.");
        }
    }

    #[test]
    fn json_says_the_same_afterwards() {
        let text = "\u{9b}1m \u{1b}\u{7f} \u{85} µÂ";
        let json = serde_json::to_string(text).unwrap();
        let shown = through(Flavour::Json, &json, 1);
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }
}
