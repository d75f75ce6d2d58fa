//! Files that are truly fragmented, made as the papers make them: by writing through the file system while
//! another file allocates the blocks in between.

use fragmend_sys::cache;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Writes `bytes` of deterministic content to `path` in extents of the given sizes (bytes, repeated in turn),
/// each allocated before `path` + `.dummy` allocates the block behind it. The dummy is left in place unless
/// `keep_dummy` is false.
///
/// FragPicker's file (SOSP'21, section 5.2) is [`FRAGPICKER_EXTENTS`].
pub fn interleaved(path: &Path, bytes: u64, extents: &[u64], keep_dummy: bool) -> io::Result<()> {
    interleaved_with(path, bytes, extents, keep_dummy, content)
}

/// The same with the caller's content: `content(offset, buffer)` fills the buffer.
pub fn interleaved_with(
    path: &Path,
    bytes: u64,
    extents: &[u64],
    keep_dummy: bool,
    content: impl Fn(u64, &mut [u8]),
) -> io::Result<()> {
    let dummy_path = dummy_of(path);
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(path)?;
    let dummy = File::create_new(&dummy_path)?;
    place(&file, &dummy, 0..bytes, extents, &content)?;
    if !keep_dummy {
        std::fs::remove_file(&dummy_path)?;
    }
    Ok(())
}

/// Writes a file in extents of `extent` bytes that a file system may compress, which it does not do
/// in preallocated space: every second extent first, and once those are allocated, the others. So
/// no extent is adjacent to the one before it.
pub fn alternating(
    path: &Path,
    bytes: u64,
    extent: u64,
    content: impl Fn(u64, &mut [u8]),
) -> io::Result<()> {
    let file = File::create_new(path)?;
    let mut buffer = vec![0; extent as usize];
    for first in [0, extent] {
        for at in (first..bytes).step_by(2 * extent as usize) {
            let len = extent.min(bytes - at) as usize;
            content(at, &mut buffer[..len]);
            file.write_all_at(&buffer[..len], at)?;
        }
        file.sync_all()?;
    }
    Ok(())
}

/// Does what [`interleaved`] does for `bytes` at `start` of an open file, with `dummy` between the
/// extents.
pub fn interleave(
    file: &File,
    dummy: &File,
    start: u64,
    bytes: u64,
    extents: &[u64],
) -> io::Result<()> {
    place(file, dummy, start..start + bytes, extents, &content)
}

/// Reallocates a range of an open file in extents of 4 KiB, and fills it; `path` is the file's, and
/// `path` + `.dummy` exists meanwhile.
pub fn scatter(
    file: &File,
    path: &Path,
    range: Range<u64>,
    content: impl Fn(u64, &mut [u8]),
) -> io::Result<()> {
    let punched = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, punched, range.start, range.end - range.start)?;
    beside_dummy(path, |dummy| place(file, dummy, range, &[4096], &content))
}

/// Preallocates a range behind the end of an open file in such extents; the size stays. On F2FS, which
/// allocates blocks when data is written, it syncs the file and writes a block of the dummy instead, so that
/// later appends are allocated elsewhere.
pub fn reserve_scattered(file: &File, path: &Path, range: Range<u64>) -> io::Result<()> {
    let by_writing = allocates_when_written(file)?;
    let mut dummy_at = 0;
    beside_dummy(path, |dummy| {
        if by_writing {
            file.sync_all()?;
            dummy.write_all_at(&[1; 4096], 0)?;
            return dummy.sync_all();
        }
        for at in range.step_by(4096) {
            allocate(file, FallocateFlags::KEEP_SIZE, at, 4096, dummy, &mut dummy_at)?;
        }
        file.sync_all()
    })
}

fn dummy_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".dummy");
    PathBuf::from(name)
}

fn beside_dummy(path: &Path, work: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let dummy_path = dummy_of(path);
    let dummy = File::create(&dummy_path)?;
    let done = work(&dummy);
    std::fs::remove_file(dummy_path)?;
    done
}

/// `F2FS_SUPER_MAGIC` (linux/magic.h): its logs allocate blocks when data is written.
fn allocates_when_written(file: &File) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(file)?.f_type as u64 == 0xF2F5_2010)
}

/// Allocates an extent, and a block of the dummy behind it.
fn allocate(
    file: &File,
    how: FallocateFlags,
    at: u64,
    len: u64,
    dummy: &File,
    dummy_at: &mut u64,
) -> io::Result<()> {
    fallocate(file, how, at, len)?;
    fallocate(dummy, FallocateFlags::empty(), *dummy_at, 4096)?;
    *dummy_at += 4096;
    Ok(())
}

fn place(
    file: &File,
    dummy: &File,
    range: Range<u64>,
    extents: &[u64],
    content: &impl Fn(u64, &mut [u8]),
) -> io::Result<()> {
    let by_writing = allocates_when_written(file)?;
    let mut dummy_at = dummy.metadata()?.len();
    let mut at = range.start;
    for extent in extents.iter().cycle() {
        if at >= range.end {
            break;
        }
        let len = (*extent).min(range.end - at);
        if by_writing {
            write_content(file, at..at + len, content)?;
            cache::write_and_wait(file, at..at + len)?;
            dummy.write_all_at(&[1; 4096], dummy_at)?;
            cache::write_and_wait(dummy, dummy_at..dummy_at + 4096)?;
            dummy_at += 4096;
        } else {
            allocate(file, FallocateFlags::empty(), at, len, dummy, &mut dummy_at)?;
        }
        at += len;
    }
    if !by_writing {
        write_content(file, range, content)?;
    }
    file.sync_all()?;
    dummy.sync_all()
}

fn write_content(
    file: &File,
    range: Range<u64>,
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
pub const FRAGPICKER_EXTENTS: [u64; 33] = {
    let mut extents = [4096; 33];
    extents[32] = 128 * 1024;
    extents
};

/// Fills `buffer` with the content that [`interleaved`] writes at `offset` (bytes): every eight bytes hold a
/// hash of their own offset, so that a misplaced block is detected.
pub fn content(offset: u64, buffer: &mut [u8]) {
    for (i, chunk) in buffer.chunks_mut(8).enumerate() {
        let word = (offset / 8 + i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// Content that compresses well: of every 64 bytes, eight are those of [`content`].
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

/// Whether a file is `bytes` long and holds this content.
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
