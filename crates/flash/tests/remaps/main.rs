//! Random commands on small drives, remaps of both kinds and actions of the defrag log among them, with power
//! cuts at any instant, also during the recovery of a file system: after each, every address holds what the
//! model permits, and exactly that if it was durable.
//!
//! `REMAP_RUNS=20000 cargo test -p fragmend-flash --test remaps -- --ignored many_power_cuts` cuts the power about 200,000
//! times on small drives, and 10,000 times on larger ones. With `REMAP_SEED=1003908 REMAP_RUNS=1` and the test's name it runs one seed.

#[path = "../support/mod.rs"]
mod support;

mod drives;
mod model;
mod others;

use drives::UNIT;
use fragmend_flash::command::{Command, Hint, LogAction, Refused, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::ssd::Ssd;
use model::{Cause, Model};
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

struct Run {
    seed: u64,
    ssd: Ssd,
    model: Model,
    random: Random,
    protected: bool,
    /// Whether the drive writes tails of files anew.
    rejoins: bool,
    now: u64,
    cuts: u64,
    /// The drive's description, and the states that power cuts have left it in, as hashes.
    description: String,
    states: HashSet<u64>,
    /// How many scattered writes follow one another, so that blocks are collected.
    scattered: u32,
    /// Whether other commands are among them (`others`).
    others: bool,
}

impl Run {
    fn new(seed: u64, drive: &Drive, scattered: u32) -> Self {
        let ssd = Ssd::with_content(drive).expect("a drive");
        let model = Model::new(ssd.units());
        let protected = drive.buffer.protected;
        let rejoins = drive.firmware.placement == Placement::FileAffine;
        Self {
            seed,
            ssd,
            model,
            random: Random(seed),
            protected,
            rejoins,
            now: 0,
            cuts: 0,
            description: format!("{drive:?}"),
            states: HashSet::new(),
            scattered,
            others: false,
        }
    }

    fn units(&mut self, most: u64) -> Units {
        let all = u64::from(self.ssd.units());
        let start = self.random.below(all);
        let count = (1 + self.random.below(most)).min(all - start);
        Units::new(start as u32, count as u32)
    }

    fn submit(&mut self, command: &Command, values: &[u32], first: u32) -> Result<u64, Refused> {
        let contents = &mut |unit: u32| {
            let value = *values.get((unit - first) as usize)?;
            let mut bytes = vec![0; UNIT as usize];
            bytes[..4].copy_from_slice(&value.to_le_bytes());
            Some(bytes.into())
        };
        let done = self.ssd.submit_with(self.now, command, contents);
        done.map(|done| done.done_ns)
    }

    fn ask(&mut self, command: &Command) -> u64 {
        let done = self.submit(command, &[], 0);
        done.unwrap_or_else(|why| panic!("seed {}: {command:?}: {why}", self.seed))
    }

    fn found(&self, unit: u32) -> u32 {
        let bytes = self.ssd.bytes(Units::new(unit, 1));
        u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
    }

    fn write(&mut self, units: Units, hint: Hint) {
        let values: Vec<u32> = units.each().map(|_| self.model.fresh()).collect();
        let write = Command::Write { units, hint, fua: false };
        let done = self.submit(&write, &values, units.start);
        assert!(done.is_ok(), "seed {}: {done:?}", self.seed);
        units.each().zip(values).for_each(|(unit, value)| self.model.write(unit, value));
    }

    fn remap(&mut self, shared: bool) {
        let (from, to) = (self.units(6), self.units(1).start);
        let to = to.min(self.ssd.units() - from.count);
        let overlap = from.start < to + from.count && to < from.end();
        let unmapped = from.each().any(|unit| self.model.now(unit) == 0);
        let uncommitted = from.each().any(|unit| self.model.is_uncommitted(unit));
        let done = self.submit(&Command::Remap { from, to, shared }, &[], 0);
        match done {
            Ok(_) => {
                assert!(!overlap && !unmapped, "seed {}", self.seed);
                assert!(!uncommitted || self.rejoins, "seed {}", self.seed);
                for unit in from.each().filter(|_| uncommitted) {
                    // The drive has written it anew, with the tail of a file.
                    self.model.write(unit, self.model.now(unit));
                }
                let pairs = from.each().zip(to..);
                pairs.for_each(|(from, to)| self.model.remap(from, to, shared));
            }
            Err(Refused::Overlap) => assert!(overlap, "seed {}", self.seed),
            Err(Refused::Unmapped) => assert!(unmapped, "seed {}", self.seed),
            Err(Refused::Uncommitted) => assert!(uncommitted, "seed {}", self.seed),
            Err(why) => assert_eq!(why, Refused::LogFull, "seed {}", self.seed),
        }
    }

    fn flush(&mut self, cause: Cause) {
        let command = match cause {
            Cause::Data => Command::Flush,
            Cause::Remap => Command::DefragLog(LogAction::Flush),
        };
        let done = self.ask(&command);
        self.model.flush(done, cause);
        if self.random.below(2) == 0 {
            self.now = done;
        }
    }

    /// Commits as a file system does; the power may fail before that is done.
    fn commit(&mut self) {
        if self.random.below(2) == 0 {
            self.now = self.ask(&Command::DefragLog(LogAction::Flush));
            self.model.settle_all(Cause::Remap);
        }
        let done = self.ask(&Command::DefragLog(LogAction::Commit));
        if self.random.below(2) == 0 && !self.protected {
            // Meanwhile others write, so that blocks with what the commit gives up are collected.
            for _ in 0..self.random.below(24) {
                let unit = self.units(2);
                self.write(unit, Hint::None);
            }
            let at = self.now + self.random.below((done - self.now).max(1));
            return self.power_cut(at);
        }
        self.now = done;
        self.model.settle_all(Cause::Remap);
        self.model.commit();
    }

    fn is_committed(&mut self) -> bool {
        let check = Command::DefragLog(LogAction::Check);
        self.ssd.submit(self.now, &check).expect("a check").committed
    }

    /// Discards; returns when that is done.
    fn discard(&mut self) {
        let nothing = self.is_committed();
        let targets = self.model.targets();
        self.now = self.ask(&Command::DefragLog(LogAction::Discard));
        assert!(self.is_committed(), "seed {}", self.seed);
        self.model.discard();
        if !nothing {
            self.model.settle_all(Cause::Data);
        }
        for (to, value) in targets {
            // The drive may have written it anew, with the tail of a file.
            if self.rejoins && self.found(to) == value {
                self.model.write(to, value);
            }
        }
        for unit in 0..self.ssd.units() {
            assert_eq!(self.found(unit), self.model.now(unit), "seed {}: unit {unit}", self.seed);
        }
    }

    /// Cuts the power, and recovers as a file system does; the power may fail again meanwhile.
    fn power_cut(&mut self, at: u64) {
        self.cut(at, self.protected);
        while !self.is_committed() {
            self.model.may_discard();
            let done = self.ask(&Command::DefragLog(LogAction::Discard));
            if self.random.below(3) == 0 {
                let at = self.now + self.random.below((done - self.now).max(1));
                self.cut(at, false);
                continue;
            }
            self.now = done;
        }
        // Either none of the remaps that were not committed is there, or a commit was under way, and all are.
        let mut kept = BTreeSet::new();
        for moved in self.model.untouched_moves() {
            let (from, to) = (self.found(moved.from), self.found(moved.to));
            let there = from == 0 && to == moved.value;
            let undone = self.model.may_have_held(&moved, from);
            assert!(there || undone, "seed {}: {moved:?}: {from}, {to}", self.seed);
            if there != undone {
                kept.insert(there);
            }
        }
        assert!(kept.len() < 2, "seed {}: a commit in part", self.seed);
        self.model.commit();
        for unit in 0..self.ssd.units() {
            let value = self.found(unit);
            self.model.set(unit, value);
        }
    }

    fn cut(&mut self, at: u64, all_durable: bool) {
        self.cuts += 1;
        self.now = self.now.max(at);
        self.ssd.power_cut(self.now);
        self.audit();
        let state = self.state();
        self.states.insert(state);
        self.model.power_cut(self.now);
        for unit in 0..self.ssd.units() {
            let value = self.found(unit);
            let may = if all_durable {
                value == self.model.now(unit)
            } else {
                self.model.may_hold(unit, value)
            };
            assert!(
                may,
                "seed {}: unit {unit} holds {value}, not of {}",
                self.seed,
                self.model.describe(unit)
            );
        }
    }

    /// A hash of what the drive holds: where each address leads, how often each block was erased, and whether all remaps are committed.
    /// Contents do not count: states that differ in nothing else are the same.
    fn state(&mut self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.is_committed().hash(&mut hasher);
        self.description.hash(&mut hasher);
        let places = (0..self.ssd.units()).map(|unit| self.ssd.place_of(unit));
        places.for_each(|place| place.hash(&mut hasher));
        let erases = (0..self.ssd.shape().blocks()).map(|block| self.ssd.erases_of(block));
        erases.for_each(|erases| erases.hash(&mut hasher));
        hasher.finish()
    }

    fn audit(&self) {
        if let Err(why) = self.ssd.audit() {
            panic!("seed {}: {why}", self.seed);
        }
    }

    fn step(&mut self) {
        if self.others && self.random.below(3) == 0 {
            return self.other_step();
        }
        match self.random.below(43) {
            0..=8 => {
                let units = self.units(5);
                self.write(units, Hint::None);
            }
            9..=10 => {
                let units = self.units(3);
                self.write(units, Hint::Append { predecessor: units.start.saturating_sub(1) });
            }
            11..=14 => {
                // A few units, again and again, so that blocks are collected and levelled.
                let units = Units::new(self.random.below(6) as u32, 2);
                self.write(units, Hint::Overwrite);
            }
            15..=16 => {
                let units = self.units(6);
                self.ask(&Command::Trim(units));
                units.each().for_each(|unit| self.model.write(unit, 0));
            }
            17 => self.copy(),
            18 => self.spread(),
            19..=26 => self.remap(false),
            27..=30 => self.remap(true),
            31 => self.flush(Cause::Data),
            32..=33 => self.flush(Cause::Remap),
            34 => self.commit(),
            35 => self.discard(),
            36 => {
                for _ in 0..self.scattered {
                    let units = self.units(2);
                    self.write(units, Hint::None);
                }
            }
            37 => {
                // Flushes of the log that nobody waits for, so that one compaction follows another.
                for _ in 0..3 + self.random.below(4) {
                    self.remap(true);
                    let done = self.ask(&Command::DefragLog(LogAction::Flush));
                    self.model.flush(done, Cause::Remap);
                }
                let at = self.now + self.random.below(6_000_000);
                self.power_cut(at);
            }
            38..=40 => self.now += self.random.below(2_000_000),
            _ => {
                let busy = self.ssd.idle_at().max(self.now + 1) - self.now;
                let at = self.now + self.random.below(busy + 1);
                self.power_cut(at);
            }
        }
    }

    fn copy(&mut self) {
        let from = self.units(4);
        let to = self.units(1).start.min(self.ssd.units() - from.count);
        let values: Vec<u32> = from.each().map(|unit| self.model.now(unit)).collect();
        if values.contains(&0) {
            return; // The copy would be mapped, and hold zeroes.
        }
        self.ask(&Command::Copy { from: vec![from], to });
        (to..).zip(values).for_each(|(unit, value)| self.model.write(unit, value));
    }

    fn spread(&mut self) {
        let units = self.units(8);
        let mapped = units.each().all(|unit| self.model.now(unit) != 0);
        let done = self.submit(&Command::PhysicalDefragment(vec![units]), &[], 0);
        assert_eq!(done.err(), (!mapped).then_some(Refused::Unmapped), "seed {}", self.seed);
        units
            .each()
            .filter(|_| mapped)
            .for_each(|unit| self.model.write(unit, self.model.now(unit)));
    }

    fn go(mut self, steps: u32) -> Self {
        for start in (0..self.ssd.units() * 3 / 4).step_by(4) {
            self.write(Units::new(start, 4), Hint::None);
        }
        for _ in 0..steps {
            self.step();
            self.audit();
            let unit = self.units(1).start;
            assert_eq!(self.found(unit), self.model.now(unit), "seed {}: unit {unit}", self.seed);
        }
        self
    }
}

/// What happened in runs.
#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    states: HashSet<u64>,
    /// Programs of compaction, and units that were moved.
    compacted: u64,
    levelled: u64,
    collected: u64,
}

/// Runs these seeds.
fn run_all(seeds: std::ops::Range<u64>, drive: impl Fn(u64) -> Drive, scattered: u32) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let run = Run::new(seed, &drive(seed), scattered).go(200);
        let counters = run.ssd.counters();
        tally.cuts += run.cuts;
        tally.states.extend(run.states);
        tally.compacted += counters.log_compacted;
        tally.levelled += counters.levelled;
        tally.collected += counters.collected;
    }
    let Tally { cuts, states, compacted, levelled, collected } = &tally;
    let states = states.len();
    println!(
        "{cuts} cuts, {states} states; {compacted} programs of compaction, {levelled} units levelled, {collected} collected"
    );
    tally
}

/// A number in the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().expect("a number"))
}

#[test]
fn remaps_survive_power_cuts() {
    let tally = run_all(0..800, drives::small, 20);
    assert!(tally.cuts > 4_000 && tally.states.len() > 4_000);
    assert!(tally.compacted > 1_000 && tally.levelled > 500 && tally.collected > 5_000);
}

#[test]
fn remaps_survive_power_cuts_of_larger_drives() {
    let tally = run_all(0..12, drives::large, 400);
    assert!(tally.cuts > 60 && tally.levelled > 100 && tally.collected > 5_000, "{tally:?}");
}

/// All dies collect, as the free blocks of all of them await successors; the collection of the second opens a
/// block of the first.
#[test]
fn a_block_that_a_later_die_has_opened_is_used() {
    run_all(1_003_908..1_003_909, drives::small, 20);
}

/// After cuts a single program unit is left on all dies: the victim is a block that awaits nothing in the write buffer.
#[test]
fn the_last_program_unit_frees_a_block() {
    run_all(1_010_040..1_010_041, drives::small, 20);
}

/// Cuts leave dies without a free block and with an open one: they collect before the host fills that.
#[test]
fn a_short_die_collects_before_the_host_fills_its_open_block() {
    for seed in [146, 447] {
        run_all(seed..seed + 1, drives::fuller, 20);
    }
}

#[test]
#[ignore = "as many as REMAP_RUNS says (20,000), about ten cuts each"]
fn remaps_survive_many_power_cuts() {
    let (first, runs) = (number("REMAP_SEED", 1_000_000), number("REMAP_RUNS", 20_000));
    let tally = run_all(first..first + runs, drives::small, 20);
    assert!(tally.states.len() as u64 > 5 * runs.saturating_sub(10), "{}", tally.states.len());
}

#[test]
#[ignore = "as many as REMAP_LARGE_RUNS says (1,000), about ten cuts each"]
fn remaps_survive_many_power_cuts_of_larger_drives() {
    let (first, runs) = (number("REMAP_SEED", 2_000_000), number("REMAP_LARGE_RUNS", 1_000));
    let tally = run_all(first..first + runs, drives::large, 400);
    assert!(tally.states.len() as u64 > 5 * runs.saturating_sub(10), "{}", tally.states.len());
}
