//! Files that are truly fragmented, made as the papers make them: by writing through the file
//! system while another file takes the blocks in between.

use fragmend_sys::cache;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Writes `bytes` of deterministic content to `path` in the given piece sizes (bytes, repeated
/// in turn), each allocated and synced while `path` + `.dummy` takes the block behind it. The
/// dummy is left in place unless `keep_dummy` is false.
///
/// FragPicker's file (SOSP'21, section 5.2) is [`FRAGPICKER_PIECES`].
pub fn interleaved(path: &Path, bytes: u64, pieces: &[u64], keep_dummy: bool) -> io::Result<()> {
    interleaved_with(path, bytes, pieces, keep_dummy, content)
}

/// The same with a content of one's own: `content(offset, buffer)` fills the buffer.
pub fn interleaved_with(
    path: &Path,
    bytes: u64,
    pieces: &[u64],
    keep_dummy: bool,
    content: impl Fn(u64, &mut [u8]),
) -> io::Result<()> {
    let dummy_path = {
        let mut name = path.as_os_str().to_owned();
        name.push(".dummy");
        std::path::PathBuf::from(name)
    };
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(path)?;
    let dummy = File::create_new(&dummy_path)?;
    place(&file, &dummy, 0..bytes, pieces, &content)?;
    if !keep_dummy {
        std::fs::remove_file(&dummy_path)?;
    }
    Ok(())
}

/// Writes a file in pieces of `piece` bytes that a file system may compress, which it does not in
/// space that was allocated before: every second one, and when those have their place, the others.
/// So no piece lies behind the one before it.
pub fn alternating(
    path: &Path,
    bytes: u64,
    piece: u64,
    content: impl Fn(u64, &mut [u8]),
) -> io::Result<()> {
    let file = File::create_new(path)?;
    let mut buffer = vec![0; piece as usize];
    for first in [0, piece] {
        for at in (first..bytes).step_by(2 * piece as usize) {
            let len = piece.min(bytes - at) as usize;
            content(at, &mut buffer[..len]);
            file.write_all_at(&buffer[..len], at)?;
        }
        file.sync_all()?;
    }
    Ok(())
}

/// What [`interleaved`] does, for `bytes` at `start` of a file that there is, with `dummy` between the pieces.
pub fn interleave(
    file: &File,
    dummy: &File,
    start: u64,
    bytes: u64,
    pieces: &[u64],
) -> io::Result<()> {
    place(file, dummy, start..start + bytes, pieces, &content)
}

fn place(
    file: &File,
    dummy: &File,
    range: std::ops::Range<u64>,
    pieces: &[u64],
    content: &impl Fn(u64, &mut [u8]),
) -> io::Result<()> {
    // `F2FS_SUPER_MAGIC` (linux/magic.h): the log gives out blocks when data is written.
    let by_writing = rustix::fs::fstatfs(file)?.f_type as u64 == 0xF2F5_2010;
    let mut dummy_at = dummy.metadata()?.len();
    let mut at = range.start;
    for piece in pieces.iter().cycle() {
        if at >= range.end {
            break;
        }
        let len = (*piece).min(range.end - at);
        if by_writing {
            write_content(file, at..at + len, content)?;
            cache::write_and_wait(file, at..at + len)?;
            dummy.write_all_at(&[1; 4096], dummy_at)?;
            cache::write_and_wait(dummy, dummy_at..dummy_at + 4096)?;
        } else {
            fallocate(file, FallocateFlags::empty(), at, len)?;
            fallocate(dummy, FallocateFlags::empty(), dummy_at, 4096)?;
        }
        at += len;
        dummy_at += 4096;
    }
    if !by_writing {
        write_content(file, range, content)?;
    }
    file.sync_all()?;
    dummy.sync_all()
}

fn write_content(
    file: &File,
    range: std::ops::Range<u64>,
    content: &impl Fn(u64, &mut [u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(buffer.len() as u64) as usize;
        content(at, &mut buffer[..len]);
        file.write_all_at(&buffer[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

/// Thirty-two 4 KiB blocks and one of 128 KiB (FragPicker, SOSP'21, section 5.2).
pub const FRAGPICKER_PIECES: [u64; 33] = {
    let mut pieces = [4096; 33];
    pieces[32] = 128 * 1024;
    pieces
};

/// Fills `buffer` with the content that [`interleaved`] gives a file at `offset` (bytes): every
/// eight bytes hold a mix of their own offset, so that a misplaced block cannot go unnoticed.
pub fn content(offset: u64, buffer: &mut [u8]) {
    for (i, chunk) in buffer.chunks_mut(8).enumerate() {
        let word = (offset / 8 + i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// A content that compresses well: of every 64 bytes, eight are those of [`content`].
pub fn compressible(offset: u64, buffer: &mut [u8]) {
    content(offset, buffer);
    for (i, chunk) in buffer.chunks_mut(8).enumerate() {
        if !(offset / 8 + i as u64).is_multiple_of(8) {
            chunk.fill(0);
        }
    }
}

/// Whether a file holds exactly what [`interleaved`] put there.
pub fn is_intact(path: &Path, bytes: u64) -> io::Result<bool> {
    holds(path, bytes, content)
}

/// Whether a file of so many bytes holds this content.
pub fn holds(path: &Path, bytes: u64, content: impl Fn(u64, &mut [u8])) -> io::Result<bool> {
    let file = File::open(path)?;
    if file.metadata()?.len() != bytes {
        return Ok(false);
    }
    let (mut got, mut want) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(got.len() as u64) as usize;
        file.read_exact_at(&mut got[..len], at)?;
        content(at, &mut want[..len]);
        if got[..len] != want[..len] {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}
