//! Sizes on the command line: `4096`, `64K`, `1.5GiB`; suffixes are binary, as in dd(1).

use parse_size::Config;

/// Parses a size in bytes, for clap.
pub fn bytes(text: &str) -> Result<u64, String> {
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
        assert!(bytes("-1").is_err() && bytes("").is_err() && bytes("9x").is_err());
    }
}
