//! The checksum of a trace's data: all bytes from the start of the file to the Parquet footer,
//! so that a damaged value is noticed even where the pages around it still decode.
//!
//! [`Summed`] computes it while the bytes are written; [`verify`] reads them again, in parallel. Size and
//! checksum are in the footer ([`crate::DataSum`]).

use crate::DataSum;
use rayon::prelude::*;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Bytes that one thread reads at a time.
const CHUNK: u64 = 1 << 20;

/// Passes bytes on, and computes the checksum of those that were written.
pub(super) struct Summed<W> {
    inner: W,
    sum: DataSum,
}

impl<W> Summed<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, sum: DataSum::default() }
    }

    /// The size and checksum of all bytes so far.
    pub(super) fn sum(&self) -> DataSum {
        self.sum
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.inner.write(bytes)?;
        self.sum.crc32c = crc32c::crc32c_append(self.sum.crc32c, &bytes[..taken]);
        self.sum.bytes += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Whether the file begins with bytes of this size and checksum.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn verify(file: &File, sum: DataSum) -> io::Result<bool> {
    if file.metadata()?.len() < sum.bytes {
        return Ok(false);
    }
    let chunk = |buffer: &mut Vec<u8>, index: u64| {
        let start = index * CHUNK;
        let length = CHUNK.min(sum.bytes - start) as usize;
        buffer.resize(length, 0);
        file.read_exact_at(buffer, start)?;
        Ok((crc32c::crc32c(buffer), length))
    };
    // Combining the checksums of adjacent chunks is associative, and rayon keeps their order.
    let join = |(left, before): (u32, usize), (right, after): (u32, usize)| {
        (crc32c::crc32c_combine(left, right, after), before + after)
    };
    (0..sum.bytes.div_ceil(CHUNK))
        .into_par_iter()
        .map_init(Vec::new, chunk)
        .try_reduce(|| (0, 0), |left, right| Ok(join(left, right)))
        .map(|(crc, _)| crc == sum.crc32c)
}
