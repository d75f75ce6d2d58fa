//! The programs that wait: a reader, a writer, and a writer that syncs.

use crate::BLOCK;
use crate::cgroup::{Cgroup, inside};
use fragmend_testbed::fragment::{compressible, content};
use fragmend_testbed::process::Running;
use fragmend_testbed::random::Random;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A reader, or one of the writers.
pub struct Other(Running);

impl Other {
    /// Starts it.
    pub fn start(verb: &str, file: &Path, pause_ms: u64, cgroup: Option<&Cgroup>) -> Self {
        let this = std::env::current_exe().expect("this program");
        let mut command = inside(cgroup, &this);
        command.arg(verb).arg(file).arg(pause_ms.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Self(Running::start(&mut command))
    }

    /// Ends it, and returns its longest wait, in seconds.
    pub fn stop(mut self) -> f64 {
        drop(self.0.child().stdin.take());
        self.0.wait().expect(&[0]).trim().parse().expect("a time")
    }
}

/// Reads or writes until standard input ends, and prints the longest wait. Opens the file for each request,
/// because some engines move a file only if it is closed at some instant.
pub fn load(path: &Path, pause_ms: u64, writes: bool, syncs: bool) -> ExitCode {
    let over = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            over.store(true, Ordering::Relaxed);
        });
        let mut random = Random::new(1 + u64::from(writes) + u64::from(syncs));
        let blocks = path.metadata().expect("a file").len() / BLOCK as u64;
        let packed = path.metadata().is_ok_and(|m| m.len() > super::SIZE);
        let (mut buffer, mut longest) = (vec![0; BLOCK], Duration::ZERO);
        while !over.load(Ordering::Relaxed) {
            let at = random.below(blocks) * BLOCK as u64;
            let fill = if packed { compressible } else { content };
            if writes {
                fill(at, &mut buffer);
            }
            let started = Instant::now();
            let file = File::options().read(true).write(writes).open(path).expect("a file");
            // As fio and databases do. Otherwise the reader's own readahead may request 512 KiB where the
            // pages before are cached, and wait for one request per fragment of them.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
            if writes {
                file.write_all_at(&buffer, at).expect("a write");
            } else {
                file.read_exact_at(&mut buffer, at).expect("a read");
            }
            if syncs {
                file.sync_data().expect("a sync");
            }
            drop(file);
            longest = longest.max(started.elapsed());
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
        longest
    });
    println!("{}", longest.as_secs_f64());
    ExitCode::SUCCESS
}
