//! Names as text that is safe to show: on one line, and without control of a terminal.
//!
//! A file's name is any bytes but `/` and zero, and the user who made the file chose them. Characters that a
//! terminal would execute (C0 and C1 control characters), that reorder other text (direction marks) or that end
//! a line, and bytes that are not UTF-8, are shown as escapes.

use crate::PathText;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Shows a name; made by [`printable`].
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(&'a [u8]);

/// Wraps a name, or any text that may contain one, so that it is safe to show.
pub fn printable<T: AsRef<[u8]> + ?Sized>(text: &T) -> Printable<'_> {
    Printable(text.as_ref())
}

/// The same for a path.
pub fn printable_path(path: &Path) -> Printable<'_> {
    Printable(path.as_os_str().as_bytes())
}

impl PathText {
    /// The path as text that is safe to show, with the bytes that are not UTF-8 as well.
    pub fn printable(&self) -> String {
        match self.to_path() {
            Some(path) => printable_path(&path).to_string(),
            None => printable(&self.path).to_string(),
        }
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let mut out = String::with_capacity(self.0.len());
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\n' => out.push_str(r"\n"),
                    '\r' => out.push_str(r"\r"),
                    '\t' => out.push_str(r"\t"),
                    '\u{7f}' | '\0'..='\u{1f}' => write!(out, r"\x{:02x}", u32::from(c))?,
                    c if is_unsafe(c) => write!(out, r"\u{{{:x}}}", u32::from(c))?,
                    c => out.push(c),
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(out, r"\x{byte:02x}"))?;
        }
        f.pad(&out)
    }
}

/// Whether a character changes the text around it: C1, marks and overrides of direction, characters without
/// width, line separators.
fn is_unsafe(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A path as a word of a command line, from which a shell makes the same path.
pub fn shell_word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+:@,".contains(b);
    let text = printable_path(path).to_string();
    if !bytes.is_empty() && bytes.iter().all(plain) && !bytes.starts_with(b"-") {
        return text;
    }
    // A name that looks like an option would not be read as a path.
    let dot = if bytes.starts_with(b"-") { "./" } else { "" };
    if text.as_bytes() == bytes {
        return format!("'{dot}{}'", text.replace('\'', r"'\''"));
    }
    let mut word = format!("$'{dot}");
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => word.extend(['\\', char::from(*byte)]),
            0x20..0x7f => word.push(char::from(*byte)),
            other => word.push_str(&format!(r"\x{other:02x}")),
        }
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_an_escape() {
        for (name, shown) in [
            ("plain µ 名".as_bytes(), "plain µ 名"),
            (b"\x1b[2J\x07", r"\x1b[2J\x07"),
            (b"a\nb\rc\td\x7f", r"a\nb\rc\td\x7f"),
            ("\u{9b}31m".as_bytes(), r"\u{9b}31m"),
            (b"\x9b31m\xff", r"\x9b31m\xff"),
            ("a\u{202e}b\u{2028}c".as_bytes(), r"a\u{202e}b\u{2028}c"),
            (b"cut \xe5\x90", r"cut \xe5\x90"),
        ] {
            assert_eq!(printable(name).to_string(), shown);
        }
        let path = Path::new(OsStr::from_bytes(b"/a\xff"));
        assert_eq!(PathText::from(path).printable(), r"/a\xff");
        assert_eq!(format!("{:>6}|", printable("ab")), "    ab|");
    }

    #[test]
    fn no_byte_sequence_gets_through() {
        let all: Vec<u8> = (0..=255).chain(0..=255).collect();
        for length in 1..4 {
            for bytes in all.windows(length) {
                let shown = printable(bytes).to_string();
                assert!(!shown.chars().any(char::is_control), "{bytes:x?}");
            }
        }
    }

    #[test]
    fn a_shell_takes_the_same_path_back() {
        for name in
            [&b"/srv/a"[..], b"a b", b"it's", b"x; rm -rf ~", b"-rf", b"$(x)\n`y`", b"\xff'\\\x1b"]
        {
            let word = shell_word(Path::new(OsStr::from_bytes(name)));
            let echoed = std::process::Command::new("bash")
                .args(["-c", &format!("printf %s {word}")])
                .output()
                .unwrap();
            let got = echoed.stdout.strip_prefix(b"./").unwrap_or(&echoed.stdout);
            assert_eq!(got, name, "{word}");
        }
    }
}
