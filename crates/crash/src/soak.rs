//! Many recordings, many cuts, one table.

use crate::apply::Moves;
use crate::bed::{Bed, Mover};
use crate::cut::Cut;
use crate::look::{Loss, Outcome};
use crate::record::{Recording, record};
use crate::replay;
use fragmend_testbed::bench::markdown;
use fragmend_testbed::cleanup::{self, Undo};
use fragmend_testbed::process::run;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Cuts are looked at in so many threads.
pub const THREADS: usize = 2;

/// What all recordings of a row came to.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Name of the row.
    pub name: String,
    /// How many recordings.
    pub recordings: u64,
    /// Writes, zeroings and flushes recorded.
    pub operations: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// What was moved.
    pub moves: Moves,
    /// What the cuts came to.
    pub outcome: Outcome,
    /// Time for recording, and for looking at cuts.
    pub time: [Duration; 2],
}

impl Row {
    /// Makes one recording and looks at these cuts of it. What lost anything is kept; `tell`
    /// hears where, and how to see it again.
    ///
    /// # Panics
    /// When anything but the files' content goes wrong.
    pub fn more(
        &mut self,
        bed: &'static Bed,
        seed: u64,
        cuts: impl FnOnce(&Recording) -> Vec<Cut>,
        soak: &Path,
        tell: impl FnOnce(&str),
    ) {
        let dir = fragmend_testbed::scratch::directory("crash");
        let _tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
        let started = Instant::now();
        let recording = record(bed, seed, dir.path(), soak);
        let recorded = Instant::now();
        let outcome = replay::check(&recording, &cuts(&recording), THREADS, soak);
        self.time[0] += recorded - started;
        self.time[1] += recorded.elapsed();
        let (operations, flushes) = recording.operations();
        self.name = bed.name.to_owned();
        self.recordings += 1;
        self.operations += operations as u64;
        self.flushes += flushes as u64;
        self.moves.add(&recording.run.moves);
        if !outcome.losses.is_empty() || std::env::var_os("KEEP").is_some() {
            tell(&keep(&recording, &outcome.losses, soak));
        }
        self.outcome.add(outcome);
    }

    /// Names of the columns.
    pub const COLUMNS: [&str; 18] = [
        "engine",
        "recordings",
        "operations",
        "flushes",
        "moves",
        "MiB moved",
        "by",
        "failed moves",
        "stopped after a move",
        "changed and synced after",
        "cuts",
        "in a move",
        "half moved",
        "files",
        "MiB compared",
        "wrong bytes",
        "cuts with loss",
        "seconds",
    ];

    /// What moved its data, and how many MiB.
    fn by(&self) -> String {
        let one = |(name, bytes): (&String, &u64)| format!("{name} {}", markdown::mib(*bytes));
        self.moves.by.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// What is wrong with how its data was moved: another interface at work than the row expects,
    /// or none of one that it does; or nobody could use a file between its move and the commit,
    /// because the mover never stopped there. (A rewrite has no such instant: it keeps others out.)
    pub fn otherwise(&self, bed: &Bed) -> Vec<String> {
        let mut wrong = self.moves.otherwise.clone();
        let absent = bed.expects.iter().filter(|by| !self.moves.by.contains_key(**by));
        wrong.extend(absent.map(|by| format!("nothing was moved by {by}: {:?}", self.moves.left)));
        let stands_in = bed.stands_in.map(|(by, _)| by);
        let unknown = |by: &&String| !bed.expects.contains(&by.as_str()) && stands_in != Some(by);
        let others = self.moves.by.keys().filter(unknown);
        wrong.extend(others.map(|by| format!("something was moved by {by}")));
        let stops = matches!(bed.mover, Mover::Fragmend(_)) && !bed.recovers();
        if stops && self.moves.lived.stops == 0 {
            wrong.push("the mover never stopped itself right after a move".to_owned());
        }
        wrong
    }

    /// Its cells.
    pub fn cells(&self) -> Vec<String> {
        let numbers = [self.recordings, self.operations, self.flushes, self.moves.ranges];
        let mut cells = vec![self.name.clone()];
        cells.extend(numbers.map(|n| n.to_string()));
        let Outcome { cuts, under_way, half_moved, files, bytes, losses, .. } = &self.outcome;
        cells.extend([
            markdown::mib(self.moves.bytes),
            self.by(),
            self.moves.failed.len().to_string(),
        ]);
        let lived = &self.moves.lived;
        cells.push(lived.stops.to_string());
        cells.push(format!("{} / {}", lived.changes, lived.syncs.values().sum::<u64>()));
        cells.extend([cuts, under_way, half_moved, files].map(u64::to_string));
        cells.push(markdown::mib(*bytes));
        cells.extend([self.outcome.wrong_bytes(), losses.len() as u64].map(|n| n.to_string()));
        let [recording, cutting] = self.time.map(|t| t.as_secs_f64());
        cells.push(format!("{recording:.0} + {cutting:.0}"));
        cells
    }
}

/// Copies a recording to where it stays, with what was lost after each cut; says so of the first,
/// and how to see it again.
fn keep(recording: &Recording, losses: &[Loss], soak: &Path) -> String {
    let name = format!("{}-{}", recording.run.bed, recording.run.seed);
    let kept = kept_in(soak).join(name);
    let _ = std::fs::remove_dir_all(&kept);
    std::fs::create_dir_all(&kept).expect("a place for what failed");
    for file in ["base.img", "log", "run.json", "receipts.jsonl"] {
        let from = recording.dir.join(file);
        if !from.exists() {
            continue; // nothing was moved, so there are no receipts
        }
        run("cp", [OsStr::new("--sparse=always"), from.as_os_str(), kept.as_os_str()]);
    }
    let say = |loss: &Loss| {
        let Cut { position, seed, .. } = loss.cut;
        let wrong: Vec<String> = loss.wrong.iter().map(|w| format!("\n  {w}")).collect();
        format!(
            "{}, seed {}, cut {position}, its seed {seed}:{}\n  again: {} --replay {} --cut {position} --cut-seed {seed}",
            recording.run.bed,
            recording.run.seed,
            wrong.concat(),
            soak.display(),
            kept.display()
        )
    };
    let all: Vec<String> = losses.iter().map(say).collect();
    std::fs::write(kept.join("losses.txt"), all.join("\n")).expect("room for what failed");
    all.into_iter().next().unwrap_or_default()
}

/// `target/crash`, of the program that runs.
fn kept_in(soak: &Path) -> PathBuf {
    let built = soak.ancestors().find(|dir| dir.join("deps").is_dir()).and_then(Path::parent);
    built.unwrap_or(Path::new("target")).join("crash")
}
