//! Many recordings, many cuts, one table.

use crate::apply::Moves;
use crate::cut::Cut;
use crate::inspect::{CutResults, Loss};
use crate::record::{Recording, record};
use crate::replay;
use crate::scenario::{Mover, Scenario};
use fragmend_testbed::bench::markdown;
use fragmend_testbed::cleanup::{self, Undo};
use fragmend_testbed::process::run;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Threads that inspect cuts.
pub const THREADS: usize = 2;

/// The results of all recordings of a scenario: a row of the table.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Name of the scenario.
    pub name: String,
    /// Number of recordings.
    pub recordings: u64,
    /// Writes, zeroings and flushes recorded.
    pub operations: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// What was moved.
    pub moves: Moves,
    /// The results of the cuts.
    pub results: CutResults,
    /// Time for recording, and for inspecting cuts.
    pub time: [Duration; 2],
}

impl Row {
    /// Makes one recording and inspects these cuts of it. A recording with losses is kept, and
    /// `report` is called with the first loss and the command that shows it again.
    ///
    /// # Panics
    /// When anything but the files' content goes wrong.
    pub fn add_recording(
        &mut self,
        scenario: &'static Scenario,
        seed: u64,
        cuts: impl FnOnce(&Recording) -> Vec<Cut>,
        soak: &Path,
        report: impl FnOnce(&str),
    ) {
        let dir = fragmend_testbed::scratch::directory("crash");
        let _tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
        let started = Instant::now();
        let recording = record(scenario, seed, dir.path(), soak);
        let recorded = Instant::now();
        let results = replay::check(&recording, &cuts(&recording), THREADS, soak);
        self.time[0] += recorded - started;
        self.time[1] += recorded.elapsed();
        let (operations, flushes) = recording.operations();
        self.name = scenario.name.to_owned();
        self.recordings += 1;
        self.operations += operations as u64;
        self.flushes += flushes as u64;
        self.moves.add(&recording.run.moves);
        if !results.losses.is_empty() || std::env::var_os("KEEP").is_some() {
            report(&keep(&recording, &results.losses, soak));
        }
        self.results.add(results);
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

    /// What is unexpected in how its data was moved: an interface that the scenario does not expect, an
    /// expected one that moved nothing, or a mover that never stopped between a move and its commit, so that
    /// no program could use a file there. (A rewrite has no such instant: it keeps others out.)
    pub fn unexpected(&self, scenario: &Scenario) -> Vec<String> {
        let mut wrong = self.moves.unexpected.clone();
        let absent = scenario.expects.iter().filter(|by| !self.moves.by.contains_key(**by));
        wrong.extend(absent.map(|by| format!("nothing was moved by {by}: {:?}", self.moves.left)));
        let fallback = scenario.fallback.map(|(by, _)| by);
        let unknown =
            |by: &&String| !scenario.expects.contains(&by.as_str()) && fallback != Some(by);
        let others = self.moves.by.keys().filter(unknown);
        wrong.extend(others.map(|by| format!("something was moved by {by}")));
        let stops = matches!(scenario.mover, Mover::Fragmend(_)) && !scenario.recovers();
        if stops && self.moves.later_use.stops == 0 {
            wrong.push("the mover never stopped itself right after a move".to_owned());
        }
        wrong
    }

    /// Its cells.
    pub fn cells(&self) -> Vec<String> {
        let numbers = [self.recordings, self.operations, self.flushes, self.moves.ranges];
        let mut cells = vec![self.name.clone()];
        cells.extend(numbers.map(|n| n.to_string()));
        let CutResults { cuts, under_way, half_moved, files, bytes, losses, .. } = &self.results;
        cells.extend([
            markdown::mib(self.moves.bytes),
            self.by(),
            self.moves.failed.len().to_string(),
        ]);
        let counts = &self.moves.later_use;
        cells.push(counts.stops.to_string());
        cells.push(format!("{} / {}", counts.changes, counts.syncs.values().sum::<u64>()));
        cells.extend([cuts, under_way, half_moved, files].map(u64::to_string));
        cells.push(markdown::mib(*bytes));
        cells.extend([self.results.wrong_bytes(), losses.len() as u64].map(|n| n.to_string()));
        let [recording, cutting] = self.time.map(|t| t.as_secs_f64());
        cells.push(format!("{recording:.0} + {cutting:.0}"));
        cells
    }
}

/// Copies a recording to where it is kept, with a list of its losses; returns the text of the first
/// loss, with the command that shows it again.
fn keep(recording: &Recording, losses: &[Loss], soak: &Path) -> String {
    let name = format!("{}-{}", recording.run.scenario, recording.run.seed);
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
    let describe = |loss: &Loss| {
        let Cut { position, seed, .. } = loss.cut;
        let wrong: Vec<String> = loss.wrong.iter().map(|w| format!("\n  {w}")).collect();
        format!(
            "{}, seed {}, cut {position}, its seed {seed}:{}\n  again: {} --replay {} --cut {position} --cut-seed {seed}",
            recording.run.scenario,
            recording.run.seed,
            wrong.concat(),
            soak.display(),
            kept.display()
        )
    };
    let all: Vec<String> = losses.iter().map(describe).collect();
    std::fs::write(kept.join("losses.txt"), all.join("\n")).expect("space for the list of losses");
    all.into_iter().next().unwrap_or_default()
}

/// `target/crash` of the build of this program.
fn kept_in(soak: &Path) -> PathBuf {
    let built = soak.ancestors().find(|dir| dir.join("deps").is_dir()).and_then(Path::parent);
    built.unwrap_or(Path::new("target")).join("crash")
}
