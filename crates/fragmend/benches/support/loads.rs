//! The ten loads of the prediction bench, and the content of the files that they read.

use fragmend_testbed::process::finish;
use fragmend_testbed::random::{Random, Zipf};
use fragmend_testbed::replay::{Aligned, Mode, open};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const KIB: u64 = 1024;
/// Files of each load. Each begins somewhere else in a flash page when it is written, and again when
/// it is mended; what that changes by up to 12 % is a matter of luck with one file.
pub const FILES: u64 = 8;

/// How much is read.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// The bytes of each file are divided by this.
    pub part: u64,
    /// And the number of reads by this.
    pub fewer: u64,
    /// Which draw of the places that are read, and of where the files' fragments are.
    pub draw: u64,
}

impl Amount {
    /// Bytes of each file.
    pub fn file_bytes(self) -> u64 {
        (8 << 20) / self.part
    }

    /// Bytes of all files of a load.
    pub fn bytes(self) -> u64 {
        FILES * self.file_bytes()
    }

    /// Draws of this draw for a purpose with this number.
    fn random(self, purpose: u64) -> Random {
        Random::new(purpose + 1000 * self.draw)
    }

    /// So many reads of the whole amount.
    fn of(self, all: u64) -> u64 {
        all / self.fewer
    }
}

/// A load: its name, and what it does with the files of a directory.
pub struct Load {
    pub name: &'static str,
    pub run: fn(&Path, Amount),
}

/// The files of a directory, opened; reads are at places in all of them, one behind the other.
struct Files(Vec<File>, u64);

impl Files {
    fn open(dir: &Path, mode: Mode, amount: Amount) -> Self {
        let file = |n: u64| open(&dir.join(n.to_string()), mode).expect("a file");
        Self((0..FILES).map(file).collect(), amount.file_bytes())
    }

    fn read(&self, bytes: &mut [u8], at: u64) {
        let Self(files, file_bytes) = self;
        let file = &files[(at / file_bytes) as usize];
        file.read_exact_at(bytes, at % file_bytes).expect("data");
    }
}

/// The ten loads: direct and buffered, one read at a time to 32, sequential, stride, zipfian, SQLite, random sizes. Where threads
/// read, they have so many reads each that what is saved exceeds by how much one of them ends later than the others.
pub const LOADS: [Load; 10] = [
    Load {
        name: "random 128 KiB, direct",
        run: |path, amount| random(path, amount, 128 * KIB, 400, 1),
    },
    Load {
        name: "random 32 KiB, direct, depth 4",
        run: |path, amount| random(path, amount, 32 * KIB, 1600, 4),
    },
    Load {
        name: "random 64 KiB, direct, depth 8",
        run: |path, amount| random(path, amount, 64 * KIB, 1600, 8),
    },
    Load {
        name: "random 128 KiB, direct, depth 32",
        run: |path, amount| random(path, amount, 128 * KIB, 1920, 32),
    },
    Load { name: "stride 384 KiB, direct", run: stride },
    Load { name: "random sizes, direct", run: sizes },
    Load { name: "sequential, buffered", run: sequential },
    Load { name: "random 16 KiB, buffered", run: buffered },
    Load { name: "zipfian 16 KiB, direct, depth 4", run: zipfian },
    Load { name: SQLITE, run: queries },
];

const SQLITE: &str = "SQLite, range queries";

/// Reads so many slots of the files past the page cache, that many at a time; `slot` draws.
fn direct(
    path: &Path,
    amount: Amount,
    bytes: u64,
    reads: u64,
    depth: u64,
    slot: impl Fn(&mut Random) -> u64 + Sync,
) {
    std::thread::scope(|scope| {
        for thread in 0..depth {
            let slot = &slot;
            scope.spawn(move || {
                let files = Files::open(path, Mode::Direct, amount);
                let (mut random, mut buffer) =
                    (amount.random(700 + thread), Aligned::new(bytes as usize));
                for _ in 0..amount.of(reads) / depth {
                    let at = slot(&mut random) * bytes;
                    files.read(buffer.bytes(), at);
                }
            });
        }
    });
}

fn random(path: &Path, amount: Amount, bytes: u64, reads: u64, depth: u64) {
    direct(path, amount, bytes, reads, depth, |random| random.below(amount.bytes() / bytes));
}

fn zipfian(path: &Path, amount: Amount) {
    let slots = amount.bytes() / (16 * KIB);
    let mut order: Vec<u64> = (0..slots).collect();
    amount.random(9).shuffle(&mut order);
    let zipf = Zipf::new(order.len(), Zipf::YCSB);
    direct(path, amount, 16 * KIB, 1800, 4, |random| order[zipf.draw(random)]);
}

fn stride(path: &Path, amount: Amount) {
    let (files, mut buffer) = (Files::open(path, Mode::Direct, amount), Aligned::new(128 << 10));
    for read in 0..amount.of(170) {
        let slot = read * 3 % (amount.bytes() / (128 * KIB));
        files.read(buffer.bytes(), slot * 128 * KIB);
    }
}

fn sizes(path: &Path, amount: Amount) {
    let (files, mut buffer) = (Files::open(path, Mode::Direct, amount), Aligned::new(512 << 10));
    let mut random = amount.random(3);
    for _ in 0..amount.of(400) {
        let bytes = [4, 16, 64, 128, 512][random.below(5) as usize] * KIB;
        let at = random.below(FILES) * amount.file_bytes()
            + random.below((amount.file_bytes() - bytes) / 4096) * 4096;
        files.read(&mut buffer.bytes()[..bytes as usize], at);
    }
}

fn sequential(path: &Path, amount: Amount) {
    let (files, mut buffer) = (Files::open(path, Mode::Buffered, amount), vec![0; 128 << 10]);
    (0..amount.bytes()).step_by(128 << 10).for_each(|at| files.read(&mut buffer, at));
}

fn buffered(path: &Path, amount: Amount) {
    let files = Files::open(path, Mode::Buffered, amount);
    for file in &files.0 {
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random).expect("advice");
    }
    let (mut random, mut buffer) = (amount.random(5), vec![0; 16 << 10]);
    for _ in 0..amount.of(1200) {
        files.read(&mut buffer, random.below(amount.bytes() / (16 * KIB)) * 16 * KIB);
    }
}

/// Rows of the database.
const ROWS: u64 = 52_000;

/// The bytes of a database whose rows have 200 to 1800 bytes.
fn database(scratch: &Path, amount: Amount) -> Vec<u8> {
    let rows = ROWS / amount.part;
    let path = scratch.join("rows.db");
    let sql = format!(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB);
         INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         SELECT randomblob(200 + i * 7919 % 1600) FROM n;"
    );
    finish(Command::new("sqlite3").args(["-batch", "-bail"]).arg(&path).arg(sql)).expect(&[0]);
    let bytes = fs::read(&path).expect("the database");
    fs::remove_file(path).expect("it is removed");
    bytes
}

/// Sums over 31 rows at random places. With a cache of 16 pages, SQLite requests nearly every page from the kernel.
fn queries(path: &Path, amount: Amount) {
    let mut random = amount.random(4);
    let mut sql = String::from("PRAGMA cache_size = 16;");
    for _ in 0..amount.of(240) {
        let first = random.below(ROWS / amount.part - 40);
        sql += &format!(
            "SELECT sum(length(hex(v))) FROM t WHERE id BETWEEN {first} AND {};",
            first + 30
        );
    }
    let path = path.join("0");
    finish(Command::new("sqlite3").args(["-batch", "-readonly"]).arg(path).arg(sql)).expect(&[0]);
}

/// The content of a load's files, by their names.
pub fn contents(load: &Load, amount: Amount, scratch: &Path) -> Vec<Vec<u8>> {
    if load.name == SQLITE {
        return vec![database(scratch, amount)];
    }
    let mut random = Random::new(2);
    let mut file = || {
        let mut bytes = vec![0; amount.file_bytes() as usize];
        bytes.chunks_exact_mut(8).for_each(|w| w.copy_from_slice(&random.bits().to_le_bytes()));
        bytes
    };
    (0..FILES).map(|_| file()).collect()
}
