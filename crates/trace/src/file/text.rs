//! Names as text: Linux names are bytes, Parquet strings are UTF-8.
//!
//! Bytes that are not UTF-8 become `\xNN`, and so does the backslash itself, which makes the escape
//! reversible for every file name.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Bytes as UTF-8 text.
pub fn escape(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(bytes.len());
    let hex = |out: &mut String, bytes: &[u8]| {
        for byte in bytes {
            write!(out, "\\x{byte:02X}").expect("a String takes all that is written to it");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for (i, part) in chunk.valid().split('\\').enumerate() {
            if i > 0 {
                hex(&mut out, b"\\");
            }
            out.push_str(part);
        }
        hex(&mut out, chunk.invalid());
    }
    out
}

/// The bytes of a text from [`escape`]; anything that is no escape is left unchanged.
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let code = match tail {
            [b'x', high, low, ..] if first == b'\\' => hex_byte(*high, *low),
            _ => None,
        };
        out.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    out
}

/// The path of a text from [`escape`].
pub fn unescape_path(text: &[u8]) -> PathBuf {
    OsString::from_vec(unescape(text)).into()
}

fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_is_not_text_is_escaped() {
        assert_eq!(escape("/srv/Größe 1".as_bytes()), "/srv/Größe 1");
        assert_eq!(escape(b"a\xffb\\c\n"), "a\\xFFb\\x5Cc\n");
    }

    proptest! {
        #[test]
        fn every_name_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(unescape(escape(&bytes).as_bytes()), bytes);
        }
    }
}
