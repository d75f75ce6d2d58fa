//! Of a recording of a part of all places at a time: what one half of the turns chooses, judged by the other half.
//!
//! Each turn is judged by the others range by range ([`crate::chance`]), as if a choice did nothing to what was not recorded but
//! to save time in these ranges. It may do worse: a range ends where no read was seen to cross, and what was not recorded crosses
//! there, which on a disk is a way to the moved range and back; policies and settings that take the hottest windows take those
//! that look hottest by chance. So a plan is made from a half of the turns, whose accesses count twice, and what its moves save in
//! the other half is set beside what is promised of turns that were not recorded; and the other way round. Both estimate the
//! same. Where the promise is more by some standard errors, the promise of the plan from all turns is scaled by their quotient.
//!
//! Files are left as they are where it is not certain that their reads get quicker: on a device on which a torn read has a price,
//! where a moved range ends within data. To what was recorded, which is known, comes what the other half says of the rest; and one
//! read more that crosses such an end, because of few reads none may have been seen that does. A file of which that is
//! certain, or the opposite, is judged by itself, the others together.

use crate::chance::{self, Estimate, How};
use crate::choose::by_file;
use crate::parallel;
use crate::requests::Request;
use crate::select::{Analysed, Candidate};
use crate::turns::{InTurn, counted};
use fragmend_layout::ByteRange;
use std::mem::take;

/// How many standard errors the promise must be off.
const REFUTED: f64 = 3.0;
/// How many standard errors reads must get quicker, of a file by itself and of files together.
const CERTAIN: f64 = 3.0;
const CERTAIN_TOGETHER: f64 = 2.0;

/// What the halves of files say.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// What they promise of turns that were not recorded, and what they save of these.
    promised: Estimate,
    saved: Estimate,
    /// Nanoseconds saved of what was recorded, twice, as there are two halves.
    recorded_ns: f64,
    /// Whether a moved range may tear reads, and the nanoseconds that one more torn read, and those that it stands for, would last longer.
    may_tear: bool,
    torn_ns: f64,
}

impl Evidence {
    fn add(&mut self, other: &Self) {
        for (sum, other) in [(&mut self.promised, other.promised), (&mut self.saved, other.saved)] {
            sum.ns += other.ns;
            sum.variance += other.variance;
        }
        self.recorded_ns += other.recorded_ns;
        self.may_tear |= other.may_tear;
        self.torn_ns = self.torn_ns.max(other.torn_ns);
    }

    /// By how many standard errors reads get quicker; below zero if slower.
    fn errors(&self) -> f64 {
        let sum = self.recorded_ns + self.saved.ns;
        let error = (self.saved.variance + self.torn_ns * self.torn_ns).sqrt();
        if sum == 0.0 { 0.0 } else { sum / error.max(f64::MIN_POSITIVE) }
    }

    /// How much of the promise counts.
    fn scale(&self) -> f64 {
        let (promised, saved) = (self.promised, self.saved);
        let error = (promised.variance + saved.variance).sqrt();
        if promised.ns - saved.ns <= REFUTED * error {
            1.0
        } else if saved.ns <= 0.0 {
            0.0
        } else {
            (saved.ns / promised.ns).min(1.0)
        }
    }

    /// The same of a file by itself; `None` if nothing is certain.
    fn scale_alone(&self) -> Option<Option<f64>> {
        match self.errors() {
            errors if errors > CERTAIN => Some(Some(self.scale())),
            errors if errors < -CERTAIN => Some(None),
            _ => None,
        }
    }

    /// The same of files together; `None` if they are left as they are.
    fn scale_together(&self) -> Option<f64> {
        (!self.may_tear || self.errors() > CERTAIN_TOGETHER).then(|| self.scale())
    }
}

/// How much of its promise counts of each file whose counts are those of a thinned out recording, from 0 to 1; `None` for those
/// that are to be left as they are. Places have so many bytes; `choose` chooses by the counts of files, and says how what it
/// chose is judged.
pub fn scales(
    files: &mut [Analysed],
    place_bytes: u64,
    choose: impl Fn(&mut [Analysed]) -> (Vec<Candidate>, How),
) -> Vec<Option<f64>> {
    let whole: Vec<(Vec<Request>, Vec<InTurn>)> =
        files.iter_mut().map(|file| (take(&mut file.requests), take(&mut file.turns))).collect();
    let count = |files: &mut [Analysed], part: &dyn Fn(&InTurn) -> Option<InTurn>, rest: bool| {
        for (file, (requests, turns)) in files.iter_mut().zip(&whole) {
            file.turns = turns.iter().filter_map(part).collect();
            file.count_anew(counted(requests, turns, &file.turns, rest));
        }
    };
    let mut evidence = vec![Evidence::default(); files.len()];
    for half in [0, 1] {
        count(files, &|part| part.of_half(half), true);
        let (chosen, how) = choose(files);
        // Without what was chosen from: cold requests are there again.
        count(files, &|part| part.of_half(half), true);
        let judged = chance::those_that_pay(files, chosen, how, &vec![Some(1.0); files.len()]);
        count(files, &|part| part.others_of(1 - half), false);
        let saved = parallel::map(files.len(), |i| {
            chance::saved_by_turns(&files[i], &judged.moves[i], place_bytes)
        });
        for (i, of) in evidence.iter_mut().enumerate() {
            let may_tear = may_tear(&files[i], &judged.moves[i]);
            // One read that stands for others, twice as many in a half: there and back.
            let each = |part: &InTurn| part.others() / part.recorded.times.max(1);
            let most = whole[i].1.iter().map(each).max().unwrap_or_default();
            let torn_ns = 4.0 * f64::from(most) * files[i].costs.far_ns as f64;
            of.add(&Evidence {
                promised: judged.others[i],
                saved: saved[i],
                recorded_ns: 0.0,
                may_tear,
                torn_ns: if may_tear { torn_ns } else { 0.0 },
            });
        }
    }
    // Of what was recorded, what all of it chooses.
    count(files, &|part| Some(*part), true);
    let moves = by_file(files.len(), &choose(files).0);
    count(files, &|part| Some(part.alone()), true);
    let recorded = parallel::map(files.len(), |i| files[i].saved_ns(&moves[i]));
    for (of, ns) in evidence.iter_mut().zip(recorded) {
        of.recorded_ns = 2.0 * ns as f64;
    }
    for (file, (requests, turns)) in files.iter_mut().zip(whole) {
        file.turns = turns;
        file.count_anew(requests);
    }
    let mut together = [Evidence::default(); 2];
    for of in evidence.iter().filter(|of| of.scale_alone().is_none()) {
        together[usize::from(of.may_tear)].add(of);
    }
    let together = together.map(|group| group.scale_together());
    let scale = |of: &Evidence| of.scale_alone().unwrap_or(together[usize::from(of.may_tear)]);
    evidence.iter().map(scale).collect()
}

/// Whether reads may cross an end of these ranges of a file, and cost more for that.
fn may_tear(file: &Analysed, moves: &[ByteRange]) -> bool {
    let ends = || moves.iter().flat_map(|range| [range.start, range.end]);
    file.costs.tears() && ends().any(|end| file.is_inside_run(end))
}
