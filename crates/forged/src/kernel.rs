//! Answers of a forged kernel. [`answering`] answers every `ioctl(2)` of this thread from the fuzzer's
//! bytes: the linker uses this function instead of the C library's, so that `fragmend-sys` is tested
//! unchanged, with its `unsafe` lines and its loops over many answers.
//!
//! The first byte of an answer selects its kind: an error, no elements, or elements from the input,
//! with a correct or a wrong count. Once the input is used up, the last answer is repeated, or there
//! are no more elements: in either case a caller must terminate.

use crate::bytes::Bytes;
use std::cell::RefCell;
use std::ffi::{c_int, c_ulong, c_void};

/// What the kernel writes, or an error.
type Answer = Result<Written, c_int>;

/// What the kernel writes.
#[derive(Clone, Default)]
struct Written {
    /// Into the field that counts the elements.
    count: u32,
    /// Into the field for the position to continue at.
    next: u64,
    /// Into the buffer for elements, or the whole structure where there are none.
    bytes: Vec<u8>,
}

struct Forged<'a> {
    bytes: Bytes<'a>,
    last: Answer,
    again: bool,
    calls: usize,
    most: usize,
}

thread_local! {
    static FORGED: RefCell<Option<Forged<'static>>> = const { RefCell::new(None) };
}

/// The most frequent errors of the kernel.
const ERRORS: [c_int; 8] = [
    libc::EPERM,
    libc::EIO,
    libc::ENOTTY,
    libc::EOPNOTSUPP,
    libc::EINVAL,
    libc::ENOENT,
    libc::EAGAIN,
    libc::EFAULT,
];

/// Where the kernel may write in the argument of a request. All figures are bytes.
struct Shape {
    /// Where elements begin; everything before it is left unchanged, except for the fields below.
    start: usize,
    /// Size of the buffer from there on.
    room: usize,
    /// Length of an element.
    element: usize,
    /// Where their count goes.
    count: Option<usize>,
    /// Where the position to continue at goes.
    next: Option<usize>,
}

const NVME_ADMIN: c_ulong = 0xC048_4E41;
const SCSI_GENERIC: c_ulong = 0x2285;

/// Where the kernel writes: into the argument, or into the buffer that a command to a drive names.
///
/// # Safety
/// `arg` is the argument that `request` requires.
unsafe fn written_to(request: c_ulong, arg: *mut c_void) -> *mut c_void {
    // SAFETY: at this place of these structures the caller has put the address of its buffer.
    let buffer = |at: usize| unsafe { arg.byte_add(at).cast::<*mut c_void>().read_unaligned() };
    match request & 0xFFFF_FFFF {
        NVME_ADMIN => buffer(24),
        SCSI_GENERIC => buffer(16),
        _ => arg,
    }
}

/// # Safety
/// `arg` is the argument that `request` requires.
unsafe fn shape(request: c_ulong, arg: *const c_void) -> Shape {
    // SAFETY: at this place of these structures the caller has put the capacity of its buffer.
    let u32_at = |at: usize| unsafe { arg.byte_add(at).cast::<u32>().read_unaligned() as usize };
    let list = |start, element, room, count| Shape {
        start,
        room,
        element,
        count: Some(count),
        next: None,
    };
    let whole = |room| Shape { start: 0, room, element: room, count: None, next: None };
    match request & 0xFFFF_FFFF {
        // FS_IOC_FIEMAP: fm_extent_count, fm_mapped_extents.
        0xC020_660B => list(32, 56, 56 * u32_at(24), 20),
        // FS_IOC_GETFSMAP: fmh_count, fmh_entries.
        0xC0C0_583B => list(192, 64, 64 * u32_at(8), 12),
        // XFS_IOC_BULKSTAT: icount, ocount, ino.
        0x8040_587F => Shape { next: Some(0), ..list(64, 192, 192 * u32_at(12), 16) },
        // BTRFS_IOC_TREE_SEARCH: nr_items; items of any length.
        0xD000_9411 => list(104, 32 + 53, 4096 - 104, 64),
        // NVME_IOCTL_ADMIN_CMD and SG_IO: the length of the buffer that they name.
        NVME_ADMIN => whole(u32_at(36)),
        SCSI_GENERIC => whole(u32_at(12)),
        // FS_IOC_GETFLAGS and FS_IOC_GETVERSION are defined with a long, and write an int.
        0x8008_6601 | 0x8008_7601 => whole(4),
        // The number of any other request contains how much it writes, if it writes at all.
        other => whole(if other >> 31 == 1 { (other >> 16 & 0x3FFF) as usize } else { 0 }),
    }
}

impl Forged<'_> {
    /// The next answer to a request.
    fn next(&mut self, shape: &Shape) -> Answer {
        self.calls += 1;
        assert!(self.calls <= self.most, "asked {} times without an end", self.calls);
        if self.bytes.is_empty() {
            return if self.again { self.last.clone() } else { Ok(Written::default()) };
        }
        let how = self.bytes.u8();
        self.last = match how {
            0..8 => Err(ERRORS[usize::from(how)]),
            8..16 => Ok(Written::default()),
            _ => Ok(self.written(how, shape)),
        };
        self.last.clone()
    }

    fn written(&mut self, how: u8, shape: &Shape) -> Written {
        let has = |bit: u8| how & bit != 0;
        if shape.count.is_none() {
            let bytes = self.bytes.up_to(shape.room).to_vec();
            return Written { bytes, ..Written::default() };
        }
        let next = if shape.next.is_some() { self.bytes.u64() } else { 0 };
        let many = usize::from(self.bytes.u8());
        let mut bytes = self.bytes.up_to((many * shape.element).min(shape.room)).to_vec();
        // A full page has hundreds of elements: the last one is repeated until the buffer is full.
        if has(1) && bytes.len() >= shape.element {
            let last = bytes[bytes.len() - shape.element..].to_vec();
            while bytes.len() + shape.element <= shape.room {
                bytes.extend(&last);
            }
        }
        let honest = bytes.len().div_ceil(shape.element) as u32;
        let count = if has(2) { self.bytes.u32() } else { honest };
        Written { count, next, bytes }
    }
}

/// Runs `program` over a kernel that answers from `input`; returns its result and the number of its
/// calls.
///
/// # Panics
/// When it makes calls without end.
pub fn answering<R>(input: &[u8], program: impl FnOnce() -> R) -> (R, usize) {
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            FORGED.with_borrow_mut(|forged| *forged = None);
        }
    }
    let mut bytes = Bytes::new(input);
    let again = bytes.u8() & 1 == 1;
    // SAFETY: it is dropped before `input` is, also when `program` panics.
    let bytes: Bytes<'static> = unsafe { std::mem::transmute(bytes) };
    let forged =
        Forged { bytes, last: Ok(Written::default()), again, calls: 0, most: input.len() + 64 };
    FORGED.with_borrow_mut(|slot| *slot = Some(forged));
    let _over = Over;
    let result = program();
    let calls = FORGED.with_borrow(|forged| forged.as_ref().map_or(0, |forged| forged.calls));
    (result, calls)
}

/// Replaces the C library's.
///
/// # Safety
/// As of `ioctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    let answer = FORGED.with_borrow_mut(|forged| {
        let forged = forged.as_mut()?;
        // SAFETY: as the caller promises.
        let shape = unsafe { shape(request, arg) };
        Some((forged.next(&shape), shape))
    });
    match answer {
        // SAFETY: as the caller promises.
        None => unsafe { libc::syscall(libc::SYS_ioctl, fd, request, arg) as c_int },
        Some((Ok(answer), shape)) => {
            let (count, next) = (shape.count, shape.next);
            // SAFETY: fields of the structure, and no more behind them, or in the buffer, than the caller has room for.
            unsafe {
                let arg = written_to(request, arg);
                let room = arg.byte_add(shape.start).cast::<u8>();
                // A repeated answer may have been made for another request.
                let many = answer.bytes.len().min(shape.room);
                room.copy_from_nonoverlapping(answer.bytes.as_ptr(), many);
                if let Some(at) = count {
                    arg.byte_add(at).cast::<u32>().write_unaligned(answer.count);
                }
                if let Some(at) = next {
                    arg.byte_add(at).cast::<u64>().write_unaligned(answer.next);
                }
            }
            0
        }
        Some((Err(error), _)) => {
            // SAFETY: this thread's own.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}
