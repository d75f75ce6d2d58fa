//! Runs in a bitmap of sectors or blocks.

use std::ops::Range;

/// The runs of equal bits, in order, each with its bits; the first bit is the lowest one of the first byte.
pub(crate) fn runs(bits: &[u8]) -> impl Iterator<Item = (Range<u64>, bool)> {
    let all = 8 * bits.len() as u64;
    let bit = |n: u64| bits[(n / 8) as usize] >> (n % 8) & 1 == 1;
    let mut at = 0;
    std::iter::from_fn(move || {
        let (start, set) = (at, (at < all).then(|| bit(at))?);
        at += 1;
        while at < all && bit(at) == set {
            at += 1;
        }
        Some((start..at, set))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_in_the_order_of_bits_and_cover_all() {
        let found = |bits: &[u8]| runs(bits).collect::<Vec<_>>();
        assert_eq!(found(&[]), []);
        assert_eq!(found(&[0, 0]), [(0..16, false)]);
        assert_eq!(
            found(&[0b0000_0001, 0b1000_0000]),
            [(0..1, true), (1..15, false), (15..16, true)]
        );
        assert_eq!(found(&[0xF0, 0x0F]), [(0..4, false), (4..12, true), (12..16, false)]);
    }
}
