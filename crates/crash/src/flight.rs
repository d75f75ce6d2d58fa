//! Writes in flight: begun in every way that programs have, each to a block of its own of one file,
//! and kept on their way by a disk that does not answer them.

use crate::slow::{Gate, Hold};
use fragmend_sys::mapping::Mapping;
use fragmend_testbed::process::Running;
use fragmend_testbed::random::Random;
use fragmend_testbed::replay::Aligned;
use rustix::fs::OFlags;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of one write.
pub const BLOCK: u64 = 4096;

/// How a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `pwrite` with `O_DIRECT`.
    Direct,
    /// The same by io_uring.
    Uring,
    /// The same by libaio.
    Libaio,
    /// Stores through a shared mapping, and `msync`.
    Mapped,
    /// `pwrite` into the page cache, and `fdatasync`.
    Buffered,
}

/// All of them.
pub const WAYS: [Way; 5] = [Way::Direct, Way::Uring, Way::Libaio, Way::Mapped, Way::Buffered];

/// Bytes of a pattern: as many as fio repeats.
const PATTERN: usize = 512;

/// Writes that were begun.
pub struct Flight {
    hold: Hold,
    writers: Vec<Writer>,
    /// What each block holds in the end: its first byte in the file, and its bytes.
    pub blocks: Vec<(u64, Vec<u8>)>,
}

enum Writer {
    Thread(JoinHandle<()>),
    Child(Running),
}

impl Writer {
    fn has_ended(&self) -> bool {
        match self {
            Self::Thread(thread) => thread.is_finished(),
            Self::Child(child) => crate::minder::state(child.id()) == crate::minder::State::Ended,
        }
    }
}

impl Flight {
    /// Begins a write in each way to a file of so many bytes, spread over it.
    ///
    /// # Panics
    /// When one cannot be begun.
    pub fn begin(gate: &Gate, path: &Path, bytes: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let apart = bytes / BLOCK / WAYS.len() as u64;
        let block = |n: usize, random: &mut Random| {
            let from = (n as u64 * apart + random.below(apart)) * BLOCK;
            let pattern: Vec<u8> =
                (0..PATTERN / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
            (from, pattern.repeat(BLOCK as usize / PATTERN))
        };
        let blocks: Vec<(u64, Vec<u8>)> = (0..WAYS.len()).map(|n| block(n, &mut random)).collect();
        let heads: Vec<Vec<u8>> = blocks.iter().map(|(_, bytes)| bytes[..16].to_vec()).collect();
        let hold = gate.hold(move |r| heads.iter().any(|head| r.brings(head)));
        let begun = WAYS.iter().zip(&blocks);
        let writers = begun.map(|(way, (at, bytes))| begin(*way, path, *at, bytes)).collect();
        Self { hold, writers, blocks }
    }

    /// Waits until all of them are on their way to the disk, or the time is over; gives how many are.
    pub fn on_their_way(&self, patience: Duration) -> usize {
        self.hold.wait_for(WAYS.len(), patience);
        self.hold.held()
    }

    /// Lets the disk answer, and waits until all that was written is durable.
    ///
    /// # Panics
    /// When a write fails, or takes too long.
    pub fn land(self) -> Vec<(u64, Vec<u8>)> {
        self.hold.release();
        for writer in self.writers {
            let started = std::time::Instant::now();
            while !writer.has_ended() {
                assert!(started.elapsed() < Duration::from_secs(60), "a write does not end");
                std::thread::sleep(Duration::from_millis(1));
            }
            match writer {
                Writer::Thread(thread) => thread.join().expect("a write"),
                Writer::Child(child) => drop(child.wait().expect(&[0])),
            }
        }
        self.blocks
    }
}

fn begin(way: Way, path: &Path, at: u64, bytes: &[u8]) -> Writer {
    let engine = match way {
        Way::Uring => "io_uring",
        Way::Libaio => "libaio",
        _ => {
            let (path, bytes) = (path.to_owned(), bytes.to_vec());
            return Writer::Thread(std::thread::spawn(move || write(way, &path, at, &bytes)));
        }
    };
    let digits: String = bytes[..PATTERN].iter().map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new("fio");
    command.args(["--name=one", "--rw=write", "--bs=4k", "--size=4k", "--direct=1", "--iodepth=4"]);
    command.args(["--overwrite=1", "--fallocate=none", "--end_fsync=1", "--output=/dev/null"]);
    command.arg(format!("--ioengine={engine}")).arg(format!("--offset={at}"));
    command.arg(format!("--buffer_pattern=0x{digits}"));
    command.arg(format!("--filename={}", path.display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Writer::Child(Running::start(&mut command))
}

/// Opens the file, which may wait for a lease to be given up; writes, and makes that durable.
fn write(way: Way, path: &Path, at: u64, bytes: &[u8]) {
    let flags = if way == Way::Direct { OFlags::DIRECT } else { OFlags::empty() };
    let mut how = File::options();
    how.read(true).write(true).custom_flags(flags.bits().cast_signed());
    let file = how.open(path).expect("a file to write to");
    if way == Way::Mapped {
        let size = file.metadata().expect("its size").len();
        let mut mapping = Mapping::new(&file, size as usize).expect("a mapping");
        mapping.write(at as usize, bytes);
        return mapping.sync().expect("msync");
    }
    let mut buffer = Aligned::new(bytes.len());
    buffer.bytes().copy_from_slice(bytes);
    file.write_all_at(buffer.bytes(), at).expect("a write");
    match way {
        Way::Buffered => file.sync_data().expect("fdatasync"),
        _ => file.sync_all().expect("fsync"),
    }
}
