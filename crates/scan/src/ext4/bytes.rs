//! Little-endian integers from untrusted bytes: outside the slice the result is `None`.

pub(crate) fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Joins the two halves of a number.
pub(crate) fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// CRC-32C as ext4 uses it: neither the seed nor the sum is inverted.
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_standard_one_with_both_inversions() {
        // RFC 3720, appendix B.4: 32 bytes of zeroes.
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(crc32c(7, b"ab"), b"c"), crc32c(7, b"abc"));
    }

    #[test]
    fn nothing_is_read_outside() {
        assert_eq!(le32(&[1, 2, 3], 0), None);
        assert_eq!(le16(&[1, 2, 3], 1), Some(0x0302));
        assert_eq!(le16(&[], usize::MAX - 2), None);
    }
}
