//! `fragmend scan` beside `e4defrag -c` and `filefrag`: the same 100,000 files, the same image,
//! one run, with everything cached and with nothing cached; and its memory for a million files.
//!
//! `cargo bench -p fragmend-scan` (as root; `-- --quick` leaves the million files out). The
//! release binary is `$FRAGMEND_BIN`, or the one in the target directory. Contenders take turns,
//! so that a disturbance of the machine hits them alike; medians are shown.

use fragmend_testbed::image::Image;
use fragmend_testbed::usage::Process;
use fragmend_testbed::{measure, tools};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILES: usize = 100_000;
const WARM_RUNS: usize = 7;
const COLD_RUNS: usize = 5;

fn main() {
    let quick = std::env::args().any(|a| a == "--quick");
    let fragmend =
        std::env::var_os("FRAGMEND_BIN").map(PathBuf::from).unwrap_or_else(tools::fragmend);
    compare(&fragmend);
    if !quick {
        million(&fragmend);
    }
}

/// One program that says how fragmented a directory is.
struct Contender {
    name: &'static str,
    program: PathBuf,
    args: Vec<&'static str>,
}

impl Contender {
    fn time(&self, dir: &Path) -> Duration {
        let start = Instant::now();
        let status = self.command(dir).status().expect("it starts");
        let took = start.elapsed();
        assert!(status.success(), "{} failed: {status}", self.name);
        took
    }

    fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).arg(dir).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

fn compare(fragmend: &Path) {
    eprintln!("making {FILES} files ...");
    let image = Image::ext4_with(4 << 30, &["-N", "200000"], "");
    let dir = image.path().join("files");
    make_files(&dir, FILES, 200);
    image.sync();
    check(fragmend, &dir, FILES);

    let contenders = [
        Contender { name: "e4defrag -c", program: "e4defrag".into(), args: vec!["-c"] },
        Contender {
            name: "filefrag",
            program: "sh".into(),
            args: vec!["-c", "find \"$0\" -type f -print0 | xargs -0 filefrag"],
        },
        Contender {
            name: "fragmend scan --source fiemap",
            program: fragmend.into(),
            args: vec!["scan", "-q", "--source", "fiemap"],
        },
        Contender {
            name: "fragmend scan",
            program: fragmend.into(),
            args: vec!["scan", "-q", "--source", "bulk"],
        },
    ];
    let mut warm = vec![Vec::new(); contenders.len()];
    let mut cold = vec![Vec::new(); contenders.len()];
    contenders.iter().for_each(|c| {
        c.time(&dir);
    });
    for _ in 0..WARM_RUNS {
        contenders.iter().zip(&mut warm).for_each(|(c, times)| times.push(c.time(&dir)));
    }
    for _ in 0..COLD_RUNS {
        for (contender, times) in contenders.iter().zip(&mut cold) {
            measure::drop_caches(&dir);
            times.push(contender.time(&dir));
        }
    }
    let (warm, cold) = (warm.map_medians(), cold.map_medians());
    println!(
        "Scanning {FILES} files on ext4, medians of {WARM_RUNS} warm and {COLD_RUNS} cold runs"
    );
    println!();
    println!(
        "| program                       |  warm s | times e4defrag |  cold s | times e4defrag |"
    );
    println!(
        "|-------------------------------|--------:|---------------:|--------:|---------------:|"
    );
    for (i, contender) in contenders.iter().enumerate() {
        println!(
            "| {:<29} | {:>7.3} | {:>14.1} | {:>7.3} | {:>14.1} |",
            contender.name,
            warm[i],
            warm[0] / warm[i],
            cold[i],
            cold[0] / cold[i],
        );
    }
    println!();
}

/// Seconds.
trait Medians {
    fn map_medians(self) -> Vec<f64>;
}

impl Medians for Vec<Vec<Duration>> {
    fn map_medians(self) -> Vec<f64> {
        let median = |mut times: Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64()
        };
        self.into_iter().map(median).collect()
    }
}

/// What was timed must also be right: every file is counted, and some are fragmented.
fn check(fragmend: &Path, dir: &Path, files: usize) {
    let output = Command::new(fragmend).args(["scan", "--json"]).arg(dir).output().expect("starts");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("\"totals\":{{\"files\":{files},")), "files were missed");
}

fn million(fragmend: &Path) {
    const MILLION: usize = 1_000_000;
    eprintln!("making {MILLION} files ...");
    let image = Image::ext4_with(8 << 30, &["-N", "1100000"], "");
    let dir = image.path().join("files");
    make_files(&dir, MILLION, 1000);
    image.sync();
    check(fragmend, &dir, MILLION);
    println!("Scanning {MILLION} files: time and peak memory");
    println!();
    println!("| output | source |       s | peak MiB |");
    println!("|--------|--------|--------:|---------:|");
    for (output, source) in [("text", "bulk"), ("text", "fiemap"), ("json", "bulk")] {
        let mut args = vec!["scan", "-q", "--source", source];
        args.extend((output == "json").then_some("--json"));
        let contender = Contender { name: "fragmend scan", program: fragmend.into(), args };
        let start = Instant::now();
        let peak = peak_bytes(contender.command(&dir));
        let took = start.elapsed().as_secs_f64();
        println!("| {output:<6} | {source:<6} | {took:>7.2} | {:>8.1} |", peak / 1048576.0);
    }
    println!();
}

/// Runs a command to its end and returns the high-water mark of its resident memory, as the kernel
/// showed it within a few milliseconds of the end.
fn peak_bytes(mut command: Command) -> f64 {
    let mut child = command.spawn().expect("it starts");
    let process = Process::Id(child.id());
    let mut peak = 0.0f64;
    while child.try_wait().expect("its own child").is_none() {
        peak = peak.max(process.peak_bytes().unwrap_or(0) as f64);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(peak > 0.0, "it ended before it could be looked at");
    peak
}

/// Small files in directories of `per_dir`; every fiftieth is in two extents because its
/// neighbour took the block behind it.
fn make_files(root: &Path, files: usize, per_dir: usize) {
    let directories = files.div_ceil(per_dir);
    let half = directories.div_ceil(2);
    std::thread::scope(|s| {
        for part in [0..half, half..directories] {
            s.spawn(move || {
                for d in part {
                    let dir = root.join(format!("{:02}/{:02}", d / 32, d % 32));
                    std::fs::create_dir_all(&dir).expect("a directory");
                    for i in 0..per_dir.min(files - d * per_dir) {
                        make_file(&dir.join(format!("file-number-{i:05}.dat")), i % 50 == 1);
                    }
                }
            });
        }
    });
}

fn make_file(path: &Path, in_fragments: bool) {
    let mut file = File::create_new(path).expect("a new file");
    let allocate = |file: &File, at, len| {
        fallocate(file, FallocateFlags::empty(), at, len).expect("space for the files");
    };
    if !in_fragments {
        return allocate(&file, 0, 4096);
    }
    let neighbour = path.with_extension("tmp");
    allocate(&file, 0, 4096);
    allocate(&File::create_new(&neighbour).expect("a new file"), 0, 4096);
    allocate(&file, 4096, 4096);
    file.write_all(&[1; 8192]).expect("space for the files");
    std::fs::remove_file(neighbour).expect("the file just made");
}
