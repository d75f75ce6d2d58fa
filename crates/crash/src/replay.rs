//! The cuts of one recording: which ones, and what is left after each.

use crate::check::{Checked, Expected, Wrong};
use crate::cut::{Cut, View};
use crate::log::Entry;
use crate::marks::Mark;
use crate::mounted::Mounted;
use crate::record::Recording;
use crate::serve::Served;
use fragmend_testbed::cleanup::{self, Undo};
use fragmend_testbed::loop_device::LoopDevice;
use fragmend_testbed::random::Random;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A cut after which something was wrong.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Which.
    pub cut: Cut,
    /// What.
    pub wrong: Vec<Wrong>,
}

/// What all cuts of a recording came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Cuts that were looked at.
    pub cuts: u64,
    /// Those after which a file lay half at its old place and half at its new one.
    pub mid_move: u64,
    /// Files compared.
    pub files: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// What was lost.
    pub losses: Vec<Loss>,
}

impl Outcome {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.mid_move += other.mid_move;
        self.files += other.files;
        self.bytes += other.bytes;
        self.losses.extend(other.losses);
    }

    /// Wrong bytes in all files after all cuts.
    pub fn wrong_bytes(&self) -> u64 {
        self.losses.iter().flat_map(|loss| &loss.wrong).map(|wrong| wrong.bytes).sum()
    }
}

/// Chooses `count` cuts, nearly all while files were moved: a third just before or just after a
/// flush, half between one receipt and the next, the rest anywhere. In the order of their positions.
pub fn choose(recording: &Recording, count: usize, seed: u64) -> Vec<Cut> {
    let mut random = Random::new(seed);
    let entries = recording.log.entries();
    let (from, to) = recording.run.moving;
    let flush = |i: &usize| entries[*i] == Entry::Flush;
    let flushes: Vec<usize> = (from..to).filter(flush).collect();
    let is_receipt = |text: &str| matches!(serde_json::from_str(text), Ok(Mark::Moved { .. }));
    let receipts = recording.log.marks(to).filter_map(|mark| {
        let (place, text) = mark.expect("a mark");
        is_receipt(&text).then_some(place)
    });
    let receipts: Vec<usize> = std::iter::once(from).chain(receipts).collect();
    let honest = recording.bed.honest;
    let one = |_| {
        let position = match random.below(20) {
            0..10 if receipts.len() > 1 => {
                let n = 1 + random.below(receipts.len() as u64 - 1) as usize;
                let (from, to) = (receipts[n - 1], receipts[n]);
                from + random.below((to - from) as u64 + 1) as usize
            }
            10..17 if !flushes.is_empty() => {
                let flush = flushes[random.below(flushes.len() as u64) as usize];
                flush + random.below(2) as usize
            }
            19 => random.below(entries.len() as u64 + 1) as usize,
            _ => from + random.below((to - from) as u64 + 1) as usize,
        };
        Cut { position, seed: random.bits(), honest }
    };
    let mut cuts: Vec<Cut> = (0..count).map(one).collect();
    cuts.sort();
    cuts
}

/// Looks at the disk after each of the cuts, in so many threads, or in one where the file system
/// does not bear copies of itself.
///
/// # Panics
/// When something fails that has nothing to do with the disk's content.
pub fn check(recording: &Recording, cuts: &[Cut], threads: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let threads = recording.bed.file_system.beside_copy.map_or(1, |_| threads);
    let share = cuts.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = cuts
            .chunks(share)
            .map(|part| scope.spawn(move || check_in_order(recording, part)))
            .collect();
        for part in parts {
            outcome.add(part.join().expect("the thread that looks at cuts"));
        }
    });
    outcome
}

fn check_in_order(recording: &Recording, cuts: &[Cut]) -> Outcome {
    let dir = tempfile::Builder::new().prefix("fragmend-cut-").tempdir().expect("a directory");
    let _tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
    let (served, mnt) = (dir.path().join("served"), dir.path().join("mnt"));
    fs::create_dir(&served).and_then(|()| fs::create_dir(&mnt)).expect("directories");
    let base = recording.base().expect("the recording's image");
    let view = View::new(base, Arc::clone(&recording.log), recording.bed.atom)
        .expect("a view of the image");
    let served = Served::start(view, &served).expect("a view through FUSE");
    let mut marks = recording.log.marks(usize::MAX).map(|m| m.expect("a mark")).peekable();
    let mut expected = Expected::at_first(&recording.run.files);
    let mut outcome = Outcome::default();
    for cut in cuts {
        while let Some((_, text)) = marks.next_if(|(place, _)| *place < cut.position) {
            let mark: Mark = serde_json::from_str(&text).expect("a mark of ours");
            expected.learn(mark);
        }
        served.store().set(*cut).expect("the log fits the disk");
        let checked = check_one(recording, &served, &mnt, &expected);
        outcome.cuts += 1;
        outcome.mid_move += u64::from(checked.half_moved > 0);
        outcome.files += checked.files;
        outcome.bytes += checked.bytes;
        if !checked.wrong.is_empty() {
            outcome.losses.push(Loss { cut: *cut, wrong: checked.wrong });
        }
    }
    outcome
}

/// Mounts the disk as it is now, which replays its journal, compares, and has it checked.
fn check_one(
    recording: &Recording,
    served: &Served<View>,
    mnt: &Path,
    expected: &Expected,
) -> Checked {
    let file_system = recording.bed.file_system;
    let device = LoopDevice::attach(served.path());
    let of_all = |what: &str, found: String| Wrong {
        what: what.to_owned(),
        offset: 0,
        bytes: 0,
        expected: "nothing to complain of".to_owned(),
        found,
    };
    let mut checked = match Mounted::new(
        file_system,
        &device,
        mnt,
        file_system.beside_copy.unwrap_or_default(),
    ) {
        Err(why) => Checked { wrong: vec![of_all("mount", why)], ..Checked::default() },
        Ok(_mounted) => expected
            .check(mnt)
            .unwrap_or_else(|wrong| Checked { wrong: vec![wrong], ..Checked::default() }),
    };
    if let Err(why) = file_system.check(Path::new(device.node())) {
        checked.wrong.push(of_all("the file system's check", why));
    }
    // The next cut must find nobody who still writes to this one.
    device.detach();
    checked
}
