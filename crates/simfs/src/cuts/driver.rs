//! The cut driver: plays a load once to count the drive's commands, and then anew for every command and several instants after the one
//! before it, cuts the power there, mounts, compares with the model, checks the tables, and lets programs go on.

use super::load::Load;
use super::model::Model;
use super::windows::{InWindow, Window};
use super::{Kind, Random};
use crate::file_system::FileSystem;
use crate::machine::{Machine, PowerCut};
use fragmend_flash::command::Units;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A load that is cut everywhere.
pub struct Cuts<'a> {
    /// What is cut.
    pub kind: &'a dyn Kind,
    /// A machine whose drive is determined by a seed.
    pub machine: fn(u64) -> Machine,
    /// Of each load.
    pub seeds: std::ops::Range<u64>,
    /// Steps of a load.
    pub steps: usize,
    /// Nanoseconds between the command before a cut and the cut; as many cuts are made before each command.
    pub instants: &'a [u64],
    /// The blocks of the file system's journal, if it has one.
    pub journal: Option<Units>,
    /// One mount in two is cut off, within so many commands.
    pub mount_commands: u64,
    /// Whether the first disagreement ends it.
    pub ends_early: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Power cuts.
    pub cuts: u64,
    /// Bytes that the loads had moved where they were not cut.
    pub moved_bytes: u64,
    /// Distinct contents of the drive after them.
    pub states: HashSet<u64>,
    /// The same by what the drive was doing.
    pub windows: BTreeMap<Window, InWindow>,
    /// What was wrong, with how to see it again.
    pub disagreements: Vec<String>,
}

impl Found {
    /// Checks that there were so many distinct states, and no disagreement.
    ///
    /// # Panics
    /// If not.
    pub fn assert_agrees(&self, states: usize) {
        println!("{} cuts, {} distinct states", self.cuts, self.states.len());
        for (window, here) in &self.windows {
            println!("  {window:?}: {} cuts, {} distinct states", here.cuts, here.states.len());
        }
        let first: Vec<_> = self.disagreements.iter().take(5).collect();
        assert!(first.is_empty(), "{} disagreements: {first:#?}", self.disagreements.len());
        assert!(self.states.len() >= states, "{} states", self.states.len());
    }
}

impl<'a> Cuts<'a> {
    /// Cuts of a file system whose drive is a small one: all of them, without a journal to tell apart, and mounts of some six commands.
    pub fn new(
        kind: &'a dyn Kind,
        machine: fn(u64) -> Machine,
        seeds: std::ops::Range<u64>,
        steps: usize,
        instants: &'a [u64],
    ) -> Self {
        let (journal, mount_commands, ends_early) = (None, 6, false);
        Self { kind, machine, seeds, steps, instants, journal, mount_commands, ends_early }
    }

    /// Makes all cuts.
    ///
    /// # Panics
    /// The file system cannot be made, or mounted before the first cut.
    pub fn run(&self) -> Found {
        let mut found = Found::default();
        for seed in self.seeds.clone() {
            let mut uncut = Played::new(self, seed);
            let first = uncut.machine.commands() + 1;
            uncut.machine.record_commands();
            match uncut.play(self, seed, None) {
                Ok(moved) => found.moved_bytes += moved,
                Err(why) => {
                    found.disagreements.push(format!("seed {seed}, no cut: {why}"));
                    continue;
                }
            }
            let windows = Window::of_each(&uncut.machine.recorded_commands(), self.journal);
            for before in first..=uncut.machine.commands() + 1 {
                let last = (before - first).checked_sub(1).map(|last| &*windows[last as usize]);
                for (n, after_ns) in self.instants.iter().enumerate() {
                    let cut = PowerCut { before, after_ns: *after_ns };
                    let of_cut = Random(seed ^ (before << 20) ^ ((n as u64) << 50)).next_number();
                    self.cut_once(seed, cut, of_cut, last.unwrap_or_default(), &mut found);
                    if self.ends_early && !found.disagreements.is_empty() {
                        return found;
                    }
                }
            }
        }
        found
    }

    /// Makes one cut, in these windows.
    fn cut_once(
        &self,
        seed: u64,
        cut: PowerCut,
        of_cut: u64,
        windows: &[Window],
        found: &mut Found,
    ) {
        let mut states = Vec::new();
        let result = self.cut(seed, cut, of_cut, &mut states);
        found.cuts += 1;
        for window in windows {
            let here = found.windows.entry(*window).or_default();
            here.cuts += 1;
            here.states.extend(&states);
            here.disagreements += u64::from(result.is_err());
        }
        found.states.extend(states);
        if let Err(why) = result {
            found.disagreements.push(format!("seed {seed}, {cut:?}: {why}"));
        }
    }

    /// Plays the load up to a cut, and looks at what is there afterwards.
    fn cut(
        &self,
        seed: u64,
        cut: PowerCut,
        of_cut: u64,
        states: &mut Vec<u64>,
    ) -> Result<(), String> {
        let mut played = Played::new(self, of_cut);
        played.play(self, seed, Some(cut))?;
        let mut random = Random(of_cut);
        played.machine.restart(0);
        states.push(state(&played.machine));
        if random.below(2) == 0 {
            let before = played.machine.commands() + 1 + random.below(self.mount_commands);
            played.machine.cut_power(PowerCut { before, after_ns: random.below(300_000) });
            let mounted = self.kind.mount(&played.machine);
            if let Err(error) = mounted
                && !error.is_power_cut()
            {
                return Err(format!("mounting that is cut off: {error}"));
            }
            played.machine.restart(0);
            states.push(state(&played.machine));
        }
        let after = |why| format!("after the cut: {why}");
        let fs = self.mount_and_compare(&played, states).map_err(after)?;
        grow_all(&*fs).map_err(after)?;
        // Programs go on from what they find.
        played.model.adopt(&*fs);
        let mut load = Load::new(self.kind, fs, &mut played.model, of_cut);
        let went_on = (0..6).try_for_each(|_| load.step()).and_then(|()| load.sync());
        went_on.map_err(|error| format!("going on: {error}"))?;
        let more = (0..4).try_for_each(|_| load.step());
        more.map_err(|error| format!("going on: {error}"))?;
        drop(load);
        played.machine.restart(random.below(300_000));
        let again = |why| format!("after the second cut: {why}");
        self.mount_and_compare(&played, states).map(drop).map_err(again)
    }

    fn mount_and_compare(
        &self,
        played: &Played,
        states: &mut Vec<u64>,
    ) -> Result<Rc<dyn FileSystem>, String> {
        states.push(state(&played.machine));
        let fs = self.kind.mount(&played.machine).map_err(|error| error.to_string())?;
        played.model.compare(&*fs)?;
        fs.check()?;
        Ok(fs)
    }
}

/// A load and its machine.
struct Played {
    machine: Machine,
    model: Model,
    fs: Option<Rc<dyn FileSystem>>,
}

impl Played {
    fn new(cuts: &Cuts<'_>, of_drive: u64) -> Self {
        let machine = (cuts.machine)(of_drive);
        cuts.kind.format(&machine).expect("it is made");
        let fs = Some(cuts.kind.mount(&machine).expect("it is mounted"));
        let model = Model::new(machine.block_bytes());
        Self { machine, model, fs }
    }

    /// Plays the load until its end, or the cut; returns the bytes that it has moved.
    fn play(&mut self, cuts: &Cuts<'_>, seed: u64, cut: Option<PowerCut>) -> Result<u64, String> {
        if let Some(cut) = cut {
            self.machine.cut_power(cut);
        }
        let fs = self.fs.take().expect("it is mounted");
        let mut load = Load::new(cuts.kind, Rc::clone(&fs), &mut self.model, seed);
        for _ in 0..cuts.steps {
            match load.step() {
                Ok(()) => {}
                Err(_) if !self.machine.is_on() => return Ok(load.moved_bytes),
                Err(error) => return Err(error.to_string()),
            }
        }
        if cut.is_none() {
            fs.check()?;
        }
        Ok(load.moved_bytes)
    }
}

/// Every file grows by some blocks, which read as zeroes: what was in them is gone.
fn grow_all(fs: &dyn FileSystem) -> Result<(), String> {
    let mut files: BTreeSet<(PathBuf, fragmend_layout::FileId)> = BTreeSet::new();
    fs.files(&mut |path: &Path, file| files.extend(file.map(|file| (path.to_owned(), file)).ok()))
        .map_err(|skip| format!("{skip:?}"))?;
    for (path, file) in files {
        let block = fs.block_bytes();
        let size = fs.size(file).map_err(|error| error.to_string())?;
        let end = size.div_ceil(block);
        fs.truncate(file, (end + 8) * block).map_err(|error| error.to_string())?;
        let content = fs.content(file, end..end + 8).map_err(|error| error.to_string())?;
        if content.iter().any(|token| *token != 0) {
            return Err(format!("{path:?} grows by {content:?}"));
        }
        fs.truncate(file, size).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What is on the drive, as a number: words are multiplied into it one after the other, which is faster than a hash for strangers' data.
fn state(machine: &Machine) -> u64 {
    let bytes = machine.bytes(Units::new(0, machine.blocks()));
    bytes.chunks_exact(8).fold(0, |sum: u64, word| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        (sum.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}
