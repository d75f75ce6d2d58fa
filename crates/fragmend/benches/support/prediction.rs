//! Predicted beside counted or measured time saved: loads on fragmented files, recorded, planned, mended and run again.
//!
//! The device is probed first; a served drive is filled and probed while it is new. Then all of its file system is
//! allocated, and what is freed again are holes of 4 to 32 KiB: files that are written there are in some hundred fragments
//! each, and the space to mend them is freed last. Where a plan moves nothing, the whole file is mended all the same
//! (`--policy whole-file`), so that what is predicted of what is left alone is counted as well.

use crate::loads::{Amount, Load, contents};
use crate::place::Place;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::scratch;
use fragmend_testbed::tools::WATCHING;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Runs of a load before and after by a clock on the wall, besides the one that is recorded.
pub const RUNS: usize = 3;

/// Predicted and counted (or measured), in seconds, for what was mended.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    pub predicted: f64,
    pub counted: f64,
}

/// What a load came to.
#[derive(Debug)]
pub struct Outcome {
    pub before: Time,
    pub after: Time,
    /// How far the runs before are apart, and those after, in seconds, added; 0 if there is one of each.
    pub noise: f64,
    pub moved_bytes: u64,
    /// Why nothing is worth moving.
    pub why: Option<String>,
    pub requests_before: u64,
    /// Reads in flight, as they were recorded.
    pub depth: f64,
    /// What one more request costs, as it was timed, in nanoseconds.
    pub one_more_ns: Option<f64>,
    /// What the plan notes on its costs.
    pub note: Option<String>,
}

impl Outcome {
    /// The mean of several draws. Nothing is worth moving if it is not in any of them.
    pub fn mean(draws: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| draws.iter().map(of).sum::<f64>() / draws.len() as f64;
        let first = &draws[0];
        let nothing = draws.iter().all(|draw| draw.why.is_some());
        Self {
            before: Time {
                predicted: mean(|o| o.before.predicted),
                counted: mean(|o| o.before.counted),
            },
            after: Time {
                predicted: mean(|o| o.after.predicted),
                counted: mean(|o| o.after.counted),
            },
            noise: mean(|o| o.noise),
            moved_bytes: mean(|o| o.moved_bytes as f64) as u64,
            why: first.why.clone().filter(|_| nothing),
            requests_before: mean(|o| o.requests_before as f64) as u64,
            depth: mean(|o| o.depth),
            one_more_ns: first.one_more_ns,
            note: first.note.clone(),
        }
    }

    pub fn saved(&self) -> Time {
        Time {
            predicted: self.before.predicted - self.after.predicted,
            counted: self.before.counted - self.after.counted,
        }
    }

    /// By how much the predicted time saved is more than the counted, as a share of it.
    pub fn error(&self) -> f64 {
        let Time { predicted, counted } = self.saved();
        predicted / counted - 1.0
    }

    /// The share of the time by which the two runs differ.
    pub fn difference(&self) -> f64 {
        1.0 - self.after.counted / self.before.counted
    }
}

/// A place with fragmented files for each load.
pub struct Bed {
    place: Place,
    amount: Amount,
    scratch: TempDir,
}

impl Bed {
    /// Probes a place, and writes fragmented files there.
    pub fn new(place: Place, amount: Amount, loads: &[&Load]) -> Self {
        let mut bed = Self { place, amount, scratch: scratch::directory("prediction") };
        let clock = if bed.place.is_on_the_wall() { "wall" } else { "served" };
        let probe = ["probe", "--no-intervals", "--pace", "max", "--seconds", "10m", "--json"];
        let mut command = bed.fragmend(&probe);
        if bed.place.is_on_the_wall() {
            command.args(["--clock", "wall"]);
        }
        let profile = bed.json(command.arg(bed.place.probed()), &[0]);
        assert_eq!(profile["clock"], clock, "{profile}");
        bed.place.mount();
        let bytes = loads.len() as u64 * (amount.bytes() + (4 << 20));
        bed.place.fragment(bytes, amount.draw, |write| {
            for load in loads {
                fs::create_dir(bed.path(load)).expect("a directory");
                for (n, bytes) in contents(load, amount, bed.scratch.path()).iter().enumerate() {
                    write(&bed.path(load).join(n.to_string()), bytes);
                }
            }
        });
        bed
    }

    fn fragmend(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        command.args(args).env("FRAGMEND_PROFILES", self.scratch.path().join("profiles"));
        command
    }

    fn json(&self, command: &mut Command, codes: &[i32]) -> Value {
        let text = finish(command).expect(codes);
        // `apply` prints an event per line, its summary last.
        let last = || text.trim_end().lines().last().unwrap_or_default();
        let whole = serde_json::from_str(&text).or_else(|_| serde_json::from_str(last()));
        whole.unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    fn path(&self, load: &Load) -> PathBuf {
        self.place.dir().join(load.name.replace([' ', ','], "-"))
    }

    fn files(&self, load: &Load) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path(load)).expect("the directory");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    fn extents(&self, load: &Load) -> u64 {
        self.files(load).iter().map(|path| fragmend_testbed::tools::extents(path)).sum()
    }

    /// The seconds for which a load lasts, from a cold cache.
    fn counted(&self, load: &Load) -> f64 {
        let path = self.path(load);
        self.place.settle();
        for path in self.files(load) {
            let file = File::open(path).expect("the file");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
        }
        let before = self.place.now();
        (load.run)(&path, self.amount);
        self.place.now() - before
    }

    /// The seconds of some runs by the clock on the wall: their median, and how far they are apart.
    fn measured(&self, load: &Load) -> (f64, f64) {
        let mut seconds: Vec<f64> = (0..RUNS).map(|_| self.counted(load)).collect();
        seconds.sort_by(f64::total_cmp);
        (seconds[RUNS / 2], seconds[RUNS - 1] - seconds[0])
    }

    /// Records a load while it runs; returns the trace and the seconds for which the load lasted.
    fn record(&self, load: &Load) -> (PathBuf, f64) {
        let trace = self.scratch.path().join("trace");
        let _ = fs::remove_file(&trace);
        let mut record = self.fragmend(&["record", "--overhead", "100", "-o"]);
        record.arg(&trace).arg(self.place.dir()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let record = Running::start(&mut record).wait_until_it_says(WATCHING);
        let seconds = self.counted(load);
        record.signal(Signal::INT);
        record.wait().expect(&[0]);
        (trace, seconds)
    }

    /// Plans with these arguments into a file; returns its path and the summary.
    fn plan(&self, trace: &PathBuf, args: &[&str]) -> (PathBuf, Value) {
        let plan = self.scratch.path().join("plan");
        let mut planning = self.fragmend(&["plan", "--measure"]);
        planning.args(args).args(["--json", "-t"]).arg(trace).arg("-o").arg(&plan);
        let planned = self.json(planning.arg(self.place.dir()), &[0, 2]);
        (plan, planned.get("summary").unwrap_or(&planned).clone())
    }

    /// Records a load, plans, mends, and runs it again.
    pub fn run(&self, load: &Load) -> Outcome {
        let wall = self.place.is_on_the_wall();
        let (trace, recorded) = self.record(load);
        // What the recorder costs is in no other run.
        let before = if wall { self.measured(load) } else { (recorded, 0.0) };
        let (mut plan, summary) = self.plan(&trace, &[]);
        assert_eq!(
            (&summary["cost_source"], &summary["basis"]),
            (&"probed".into(), &"misses-recorded".into()),
            "{summary}"
        );
        let number = |field: &str| summary[field].as_u64().expect("a number");
        let seconds = |plan: &Value, field: &str| plan[field].as_f64().expect("seconds");
        let fragments = self.extents(load);
        assert!(fragments > self.amount.bytes() >> 16, "{fragments} fragments");
        let mut carried_out = summary.clone();
        if number("bytes_to_move") == 0 {
            (plan, carried_out) = self.plan(&trace, &["--policy", "whole-file"]);
        }
        let applied = self.json(self.fragmend(&["apply", "--json"]).arg(&plan), &[0]);
        assert!(applied["ranges_moved"].as_u64() > Some(0), "{applied}");
        let left = self.extents(load);
        // Of what a plan leaves alone, all that was read is mended.
        assert!(number("bytes_to_move") > 0 || left < fragments, "{left} of {fragments} left");
        let after = if wall { self.measured(load) } else { (self.counted(load), 0.0) };
        Outcome {
            before: Time { predicted: seconds(&carried_out, "seconds_before"), counted: before.0 },
            after: Time { predicted: seconds(&carried_out, "seconds_after"), counted: after.0 },
            noise: before.1 + after.1,
            moved_bytes: number("bytes_to_move"),
            why: summary["why"].as_str().map(str::to_owned),
            requests_before: number("requests_before"),
            depth: summary["depth"].as_f64().unwrap_or_default(),
            one_more_ns: summary["one_more_request_ns"].as_f64(),
            note: summary["cost_note"].as_str().map(str::to_owned),
        }
    }

    /// Ends it tidily.
    pub fn quit(self) {
        self.place.quit();
    }
}
