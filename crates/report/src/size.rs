//! Sizes as people write them, on the command line and in policies: `4096`, `64K`, `1.5GiB`; suffixes are binary, as in dd(1).

use parse_size::Config;

/// Up to this many digits the parser's arithmetic cannot overflow; with one more it may.
const DIGITS: usize = 19;

/// Parses a size in bytes.
///
/// # Errors
/// What is wrong with it, and an example.
pub fn bytes(text: &str) -> Result<u64, String> {
    if text.bytes().filter(u8::is_ascii_digit).count() > DIGITS {
        // Of longer texts, only the largest plain numbers of bytes are sizes.
        return text.parse().map_err(|e| format!("{e}; say for example 65536, 512K or 64M"));
    }
    Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|e| format!("{e}; say for example 65536, 512K or 64M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_binary() {
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("1.5G"), Ok(3 << 29));
        assert_eq!(bytes("18446744073709551615"), Ok(u64::MAX));
        assert!(
            bytes("184467440737095516156").is_err() && bytes("1.84467440737095516156").is_err()
        );
        assert!(bytes("-1").is_err() && bytes("").is_err() && bytes("9x").is_err());
    }
}
