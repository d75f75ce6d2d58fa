//! Of a recording of a part of all places at a time: what one half of the turns chooses, judged by the other half.
//!
//! Each turn is judged by the others range by range ([`crate::chance`]), as if a choice did nothing to what was not recorded but
//! to save time in these ranges. It may do worse: a range ends where no read was seen to cross, and what was not recorded crosses
//! there, which on a disk is a way to the moved range and back; policies and settings that take the hottest windows take those
//! that look hottest by chance. So a plan is made from a half of the turns, whose accesses count twice, and what its moves save in
//! the other half is set beside what is promised of turns that were not recorded; and the other way round. Both estimate the
//! same. Where the promise is more by some standard errors, the promise of the plan from all turns is scaled by their quotient.
//!
//! A file that saves time for certain is judged by itself, and so is one that loses some for certain. The others are judged
//! together, in two groups: files in which a moved range may tear reads, because it ends within data on a device where that has a
//! price, must save time for certain as a group. Of such a file with few reads, nothing would refute a promise either.

use crate::chance::{self, Estimate, How};
use crate::parallel;
use crate::requests::Request;
use crate::select::{Analysed, Candidate};
use crate::turns::{InTurn, counted};
use fragmend_layout::ByteRange;
use std::mem::take;

/// How many standard errors the promise must be off.
const REFUTED: f64 = 3.0;
/// How many standard errors more than nothing must be saved by a file by itself, and by files together.
const CERTAIN: f64 = 3.0;
const CERTAIN_TOGETHER: f64 = 2.0;

/// What halves promise and what they save.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    promised: Estimate,
    saved: Estimate,
    /// Whether a moved range may tear reads.
    may_tear: bool,
}

impl Evidence {
    fn add(&mut self, other: &Self) {
        for (sum, other) in [(&mut self.promised, other.promised), (&mut self.saved, other.saved)] {
            sum.ns += other.ns;
            sum.variance += other.variance;
        }
        self.may_tear |= other.may_tear;
    }

    /// By how many of its standard errors what was saved is more than nothing, at most so many.
    fn is_certain(&self, errors: f64) -> bool {
        self.saved.ns > errors * self.saved.variance.sqrt()
    }

    fn is_certainly_worse(&self) -> bool {
        self.saved.ns < -CERTAIN * self.saved.variance.sqrt()
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

    /// The same for files together.
    fn scale_together(&self) -> f64 {
        if self.may_tear && !self.is_certain(CERTAIN_TOGETHER) { 0.0 } else { self.scale() }
    }
}

/// The quotients for files whose counts are those of a thinned out recording, at most 1, which means that a promise holds; places
/// have so many bytes. `choose` chooses by the counts of files, and says how what it chose is judged.
pub fn scales(
    files: &mut [Analysed],
    place_bytes: u64,
    choose: impl Fn(&mut [Analysed]) -> (Vec<Candidate>, How),
) -> Vec<f64> {
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
        let judged = chance::those_that_pay(files, chosen, how, &vec![1.0; files.len()]);
        count(files, &|part| part.others_of(1 - half), false);
        let saved = parallel::map(files.len(), |i| {
            chance::saved_by_turns(&files[i], &judged.moves[i], place_bytes)
        });
        for (i, of) in evidence.iter_mut().enumerate() {
            let may_tear = may_tear(&files[i], &judged.moves[i]);
            of.add(&Evidence { promised: judged.others[i], saved: saved[i], may_tear });
        }
    }
    for (file, (requests, turns)) in files.iter_mut().zip(whole) {
        file.turns = turns;
        file.count_anew(requests);
    }
    let mut together = [Evidence::default(); 2];
    let by_itself = |of: &Evidence| {
        let certain = of.is_certain(CERTAIN).then(|| of.scale());
        certain.or(of.is_certainly_worse().then_some(0.0))
    };
    for of in evidence.iter().filter(|of| by_itself(of).is_none()) {
        together[usize::from(of.may_tear)].add(of);
    }
    let together = together.map(|group| group.scale_together());
    let scale = |of: &Evidence| by_itself(of).unwrap_or(together[usize::from(of.may_tear)]);
    evidence.iter().map(scale).collect()
}

/// Whether reads may cross an end of these ranges of a file, and cost more for that.
fn may_tear(file: &Analysed, moves: &[ByteRange]) -> bool {
    let ends = || moves.iter().flat_map(|range| [range.start, range.end]);
    file.costs.tears() && ends().any(|end| file.is_inside_run(end))
}
