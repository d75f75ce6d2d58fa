//! Metadata as bytes of blocks: a value, its length and its checksum. A block that was not written, or not wholly, holds no record.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The header: the length of the value's bytes and their CRC-32C, both little-endian.
const HEADER: usize = 8;

/// The blocks that hold a value, each of `block` bytes, the last one filled up with zeroes.
///
/// # Panics
/// If the value has no length known in advance, which no metadata is.
pub fn pack<T: Serialize>(value: &T, block: usize) -> Vec<Box<[u8]>> {
    let bytes = postcard::to_stdvec(value).expect("a value of known length");
    let mut all = Vec::with_capacity((HEADER + bytes.len()).next_multiple_of(block));
    all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    all.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    all.extend_from_slice(&bytes);
    all.resize(all.len().next_multiple_of(block), 0);
    all.chunks(block).map(Box::from).collect()
}

/// How many blocks hold the record that begins with this block; `None` if none does.
pub fn blocks(first: &[u8], block: usize) -> Option<usize> {
    let length = u32::from_le_bytes(first.get(..4)?.try_into().ok()?) as usize;
    (length > 0).then(|| (HEADER + length).div_ceil(block))
}

/// The value in these bytes; `None` if they are no record of such a value.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(bytes.get(4..HEADER)?.try_into().ok()?);
    let value = bytes.get(HEADER..HEADER + length).filter(|value| !value.is_empty())?;
    (crc32c::crc32c(value) == sum).then(|| postcard::from_bytes(value).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_whole_or_none() {
        let value: Vec<u64> = (0..300).map(|n| n * n).collect();
        let packed = pack(&value, 512);
        assert_eq!(blocks(&packed[0], 512), Some(packed.len()));
        let mut bytes = packed.concat();
        assert_eq!(unpack(&bytes), Some(value));
        assert_eq!(unpack::<Vec<u64>>(&bytes[..bytes.len() - 512]), None, "its end is missing");
        bytes[700] ^= 1;
        assert_eq!(unpack::<Vec<u64>>(&bytes), None, "a bit has changed");
        assert_eq!((unpack::<Vec<u64>>(&[0; 512]), blocks(&[0; 512], 512)), (None, None));
    }
}
