//! A write in flight: issued by one of the methods that programs use, and kept in flight by a disk
//! that does not complete it.

use crate::slow::{Gate, Hold};
use fragmend_sys::mapping::Mapping;
use fragmend_testbed::process::Running;
use fragmend_testbed::random::Random;
use fragmend_testbed::replay::Aligned;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a write.
pub const BLOCK: u64 = 4096;

/// A method to write, and to make that durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMethod {
    /// `pwrite` with `O_DIRECT`.
    Direct,
    /// The same through io_uring.
    Uring,
    /// The same through libaio.
    Libaio,
    /// Stores through a shared mapping, and `msync`.
    Mapped,
    /// `pwrite` into the page cache, and `fdatasync`.
    Buffered,
}

/// All methods.
pub const WRITE_METHODS: [WriteMethod; 5] = [
    WriteMethod::Direct,
    WriteMethod::Uring,
    WriteMethod::Libaio,
    WriteMethod::Mapped,
    WriteMethod::Buffered,
];

/// Bytes of the repeated pattern: the most that fio accepts.
const PATTERN: usize = 512;

/// A write that was issued and is held back by the disk.
pub struct InFlightWrite {
    hold: Hold,
    writer: Writer,
    at: u64,
    bytes: Vec<u8>,
}

enum Writer {
    Thread(JoinHandle<()>),
    Child(Running),
}

impl Writer {
    fn has_ended(&self) -> bool {
        match self {
            Self::Thread(thread) => thread.is_finished(),
            Self::Child(child) => {
                crate::interrupt::state(child.id()) == crate::interrupt::State::Ended
            }
        }
    }
}

impl InFlightWrite {
    /// Issues a write of one block at a random place of a file of `bytes` bytes. `soak` is the
    /// program that stores to a mapping.
    ///
    /// # Panics
    /// When the writer cannot be started.
    pub fn begin(
        gate: &Gate,
        method: WriteMethod,
        path: &Path,
        bytes: u64,
        seed: u64,
        soak: &Path,
    ) -> Self {
        let mut random = Random::new(seed);
        let at = random.below(bytes / BLOCK) * BLOCK;
        let pattern: Vec<u8> = (0..PATTERN / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
        let head = pattern[..16].to_vec();
        let hold = gate.hold(move |r| r.carries(&head));
        let bytes = pattern.repeat(BLOCK as usize / PATTERN);
        let writer = begin(method, path, at, &bytes, soak);
        Self { hold, writer, at, bytes }
    }

    /// Waits at most for `patience` until it has arrived at the disk; returns whether it has.
    pub fn is_in_flight(&self, patience: Duration) -> bool {
        self.hold.wait_for(1, patience)
    }

    /// Its offset in the file.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Lets the disk complete it.
    pub fn release(self) -> AnsweredWrite {
        let Self { hold, writer, at, bytes } = self;
        hold.release();
        AnsweredWrite { writer, at, bytes }
    }
}

/// A write that the disk completes.
pub struct AnsweredWrite {
    writer: Writer,
    at: u64,
    bytes: Vec<u8>,
}

impl AnsweredWrite {
    /// Whether the writer's sync has returned.
    pub fn is_durable(&self) -> bool {
        self.writer.has_ended()
    }

    /// Waits until the writer's sync has returned; returns the write's offset in the file and its
    /// bytes.
    ///
    /// # Panics
    /// When the write fails, or has not ended after a minute.
    pub fn wait_until_durable(self) -> (u64, Vec<u8>) {
        let started = Instant::now();
        while !self.writer.has_ended() {
            assert!(started.elapsed() < Duration::from_secs(60), "a write does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        match self.writer {
            Writer::Thread(thread) => thread.join().expect("a write"),
            Writer::Child(child) => drop(child.wait().expect(&[0])),
        }
        (self.at, self.bytes)
    }
}

fn begin(method: WriteMethod, path: &Path, at: u64, bytes: &[u8], soak: &Path) -> Writer {
    let engine = match method {
        WriteMethod::Uring => "io_uring",
        WriteMethod::Libaio => "libaio",
        WriteMethod::Mapped => {
            // In another process: see `crate::session::start`.
            let mut command = Command::new(soak);
            command.arg("store").arg(path).arg(at.to_string()).stdin(Stdio::piped());
            let mut child = Running::start(command.stderr(Stdio::piped()));
            let mut to = child.child().stdin.take().expect("its input");
            to.write_all(bytes).expect("it listens");
            return Writer::Child(child);
        }
        _ => {
            let (path, bytes) = (path.to_owned(), bytes.to_vec());
            return Writer::Thread(std::thread::spawn(move || write(method, &path, at, &bytes)));
        }
    };
    let digits: String = bytes[..PATTERN].iter().map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new("fio");
    command.args(["--name=one", "--rw=write", "--bs=4k", "--size=4k", "--iodepth=4"]);
    // With the processor's own clock it first spins for a twentieth of a second to learn how fast that is.
    command.args(["--direct=1", "--clocksource=clock_gettime"]);
    command.args(["--overwrite=1", "--fallocate=none", "--end_fsync=1", "--output=/dev/null"]);
    command.arg(format!("--ioengine={engine}")).arg(format!("--offset={at}"));
    command.arg(format!("--buffer_pattern=0x{digits}"));
    command.arg(format!("--filename={}", path.display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Writer::Child(Running::start(&mut command))
}

/// Opens the file, which may wait for a lease to be released; writes, and makes that durable.
fn write(method: WriteMethod, path: &Path, at: u64, bytes: &[u8]) {
    let flags = if method == WriteMethod::Direct { OFlags::DIRECT } else { OFlags::empty() };
    let mut how = File::options();
    how.read(true).write(true).custom_flags(flags.bits().cast_signed());
    let file = how.open(path).expect("a file to write to");
    let mut buffer = Aligned::new(bytes.len());
    buffer.bytes().copy_from_slice(bytes);
    file.write_all_at(buffer.bytes(), at).expect("a write");
    match method {
        WriteMethod::Buffered => file.sync_data().expect("fdatasync"),
        _ => file.sync_all().expect("fsync"),
    }
}

/// Stores standard input to a file through a mapping, and makes it durable.
///
/// # Errors
/// When the system refuses.
pub fn store(path: &Path, at: u64) -> io::Result<()> {
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes)?;
    let file = File::options().read(true).write(true).open(path)?;
    let mut mapping = Mapping::new(&file, file.metadata()?.len() as usize)?;
    mapping.write(at as usize, &bytes);
    mapping.sync()
}
